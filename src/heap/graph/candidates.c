/* SPDX-License-Identifier: BSD-2-Clause */
/* Blocks that were lost so far; see candidates.h. */
#include "heap/graph/candidates.h"

#include "base/cleanup.h"
#include "heap/glibc.h"
#include "heap/graph/graph.h"

void hl_candidates_release(struct hl_candidates *candidates)
{
	free(candidates->items);
	*candidates = (struct hl_candidates){0};
}

/* ---- words ---- */

struct words {
	uint64_t first, hash;
	bool has_first;
};

static int hash_words(void *context, uint64_t address, const uint64_t *words, size_t count)
{
	struct words *found = context;

	(void)address;
	if (!found->has_first && count)
		found->first = words[0];
	found->has_first = true;
	for (size_t i = 0; i < count; i++)
		found->hash = (found->hash ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15) + 1;
	return 0;
}

/* Reads what ${candidate} begins with, and the hash of all. */
static int read_words(struct hl_graph *graph, struct hl_candidate *candidate)
{
	uint64_t block = candidate->address, usable = candidate->usable_bytes;
	struct words words = {.hash = usable};
	int r = hl_graph_read(graph, block, block + usable, 0, hash_words, &words);

	candidate->first_word = words.first;
	candidate->hash = (uint32_t)(words.hash >> 32);
	return r;
}

/* ---- looks ---- */

int hl_candidates_collect(struct hl_candidates *candidates, struct hl_graph *graph)
{
	int r = 0;

	graph->window_end = 0;
	for (uint64_t block = 0; r == 0 && (block = hl_graph_next_lost(graph, block));
	     block += 16) {
		struct hl_candidate found = {.address = block,
					     .usable_bytes = hl_graph_usable(graph, block)};
		r = read_words(graph, &found);
		if (r == 0)
			r = HL_ARRAY_APPEND(candidates->items, candidates->count,
					    candidates->capacity, found);
	}
	return r;
}

void hl_candidates_forget_walk(struct hl_candidates *candidates)
{
	candidates->cursor = 0;
	for (size_t i = 0; i < candidates->count; i++)
		candidates->items[i].is_live = false;
}

int hl_candidates_make_graph(struct hl_candidates *candidates, struct hl_graph *graph)
{
	int r = 0;

	hl_candidates_forget_walk(candidates);
	for (size_t i = 0; i < candidates->count && r == 0; i++)
		r = hl_graph_add(graph, candidates->items[i].address,
				 candidates->items[i].usable_bytes);
	return r;
}

bool hl_candidates_meet(struct hl_candidates *candidates, const struct hl_graph *graph,
			uint64_t address, uint64_t usable_bytes)
{
	struct hl_graph_page *page = hl_graph_page(graph, address);
	size_t *at = &candidates->cursor;

	if (!page || !(hl_graph_bits(page, address)->starts & hl_graph_bit(address)))
		return false;
	if (*at >= candidates->count || candidates->items[*at].address != address)
		*at = HL_LOWER_BOUND(i, candidates->count, candidates->items[i].address < address);
	if (*at >= candidates->count || candidates->items[*at].address != address ||
	    candidates->items[*at].usable_bytes != usable_bytes)
		return false;
	candidates->items[(*at)++].is_live = true;
	return true;
}

/* Reaches ${candidate} unless its words are as they were. */
static int compare(struct hl_graph *graph, const struct hl_candidate *candidate)
{
	struct hl_candidate now = *candidate;

	if (hl_graph_is_reached(graph, candidate->address))
		return 0;
	int r = read_words(graph, &now);
	if (!candidate->is_live || now.hash != candidate->hash)
		hl_graph_reach(graph, candidate->address);
	return r;
}

int hl_candidates_compare(struct hl_candidates *candidates, struct hl_graph *graph)
{
	int r = 0;

	graph->window_end = 0;
	for (size_t i = 0; i < candidates->count && r == 0; i++)
		r = compare(graph, &candidates->items[i]);
	return r;
}

/* Whether the sizes of the chunk and of its neighbour say that it is in use. */
static bool is_in_use(struct hl_memory *memory, const struct hl_candidate *candidate)
{
	uint64_t size, next, end = candidate->address + candidate->usable_bytes;

	if (hl_memory_read(memory, candidate->address - 8, &size, sizeof(size)) < 0)
		return false;
	if (size & HL_CHUNK_MMAPPED)
		return true;
	return (size & ~HL_CHUNK_FLAGS) == candidate->usable_bytes + HL_CHUNK_HEADER &&
	       hl_memory_read(memory, end, &next, sizeof(next)) == 0 &&
	       next & HL_CHUNK_IN_USE_BEFORE;
}

int hl_candidates_compare_sizes(struct hl_candidates *candidates, struct hl_graph *graph,
				bool has_sizes)
{
	for (size_t i = 0; i < candidates->count; i++)
		candidates->items[i].is_live =
			!has_sizes || is_in_use(graph->memory, &candidates->items[i]);
	return hl_candidates_compare(candidates, graph);
}

void hl_candidates_drop_reached(struct hl_candidates *candidates, const struct hl_graph *graph)
{
	size_t kept = 0;

	for (size_t i = 0; i < candidates->count; i++)
		if (!hl_graph_is_reached(graph, candidates->items[i].address))
			candidates->items[kept++] = candidates->items[i];
	candidates->count = kept;
}

/* ---- lists of free chunks ---- */

/* A link is 0 in the last chunk of a list, else it leads to another chunk or its block. */
static bool looks_cached(const struct hl_candidate *candidate, const struct hl_graph *graph,
			 const struct hl_glibc *glibc)
{
	const struct hl_pages *pages = &graph->pages;
	uint64_t link = candidate->first_word;

	if (glibc->layout->safe_linking)
		link ^= candidate->address >> 12;
	size_t run = HL_LOWER_BOUND(i, pages->count, pages->runs[i].end <= link);
	return !link || (!(link & 15) && run < pages->count && pages->runs[run].start <= link);
}

bool hl_candidates_any_looks_cached(const struct hl_candidates *candidates,
				    const struct hl_graph *graph, const struct hl_glibc *glibc)
{
	for (size_t i = 0; i < candidates->count; i++)
		if (looks_cached(&candidates->items[i], graph, glibc))
			return true;
	return false;
}

int hl_candidates_list_cached(struct hl_memory *memory, const struct hl_glibc *glibc,
			      uint32_t arenas, const struct hl_addresses *tcaches,
			      struct hl_addresses *chunks)
{
	uint64_t address = glibc->main_arena;
	struct hl_glibc_arena arena;
	int r = 0;

	for (uint32_t i = 0; i < arenas && r == 0; i++) {
		if (hl_glibc_state_arena(memory, glibc, address, &arena) < 0)
			break;
		r = hl_glibc_state_fastbins(memory, glibc, &arena, chunks);
		address = arena.next;
		if (address == glibc->main_arena)
			break;
	}
	return r == 0 ? hl_glibc_state_cached(memory, glibc, tcaches, chunks) : r;
}

/* How far before a block the free chunk may begin that it became part of. */
#define MERGED_BYTES 65536u

/* Whether ${chunk}, whose header and links are ${words}, reaches to ${end} and is in a bin: its
 * neighbours in the list lead back to it. */
static bool is_binned(struct hl_memory *memory, uint64_t chunk, uint64_t end, const uint64_t *words)
{
	uint64_t size = words[1] & ~HL_CHUNK_FLAGS, next = words[2], previous = words[3], back, on;

	return chunk + size >= end && !(size & 15) && !((next | previous) & 15) &&
	       hl_memory_read(memory, next + HL_CHUNK_BLOCK + 8, &back, sizeof(back)) == 0 &&
	       hl_memory_read(memory, previous + HL_CHUNK_BLOCK, &on, sizeof(on)) == 0 &&
	       back == chunk && on == chunk;
}

/* Whether malloc_consolidate() has made ${candidate} a part of a larger free chunk, which leaves its
 * header and words as they were. ${words} have room for what is read. */
static bool was_merged(const struct hl_graph *graph, const struct hl_candidate *candidate,
		       uint64_t *words)
{
	const struct hl_pages *pages = &graph->pages;
	uint64_t chunk = candidate->address - HL_CHUNK_BLOCK, block = candidate->address;
	size_t run = HL_LOWER_BOUND(i, pages->count, pages->runs[i].end <= chunk);

	if (run == pages->count || pages->runs[run].start > chunk)
		return false;
	uint64_t start = pages->runs[run].start;
	if (chunk - start > MERGED_BYTES)
		start = chunk - MERGED_BYTES;
	if (hl_memory_read(graph->memory, start, words, block + 16 - start) < 0)
		return false;
	for (uint64_t at = chunk; at >= start; at -= 16)
		if (is_binned(graph->memory, at, block + 16, &words[(at - start) / 8]))
			return true;
	return false;
}

int hl_candidates_reach_cached(struct hl_candidates *candidates, struct hl_graph *graph,
			       const struct hl_glibc *glibc, uint32_t arenas,
			       const struct hl_addresses *tcaches)
{
	HL_CLEANUP(hl_addresses_release) struct hl_addresses chunks = {0};
	HL_FREED uint64_t *words = malloc(MERGED_BYTES + 2 * HL_CHUNK_BLOCK);
	int r = words ? hl_candidates_list_cached(graph->memory, glibc, arenas, tcaches, &chunks)
		      : -ENOMEM;

	graph->window_end = 0;
	for (size_t i = 0; i < candidates->count && r == 0; i++) {
		const struct hl_candidate *candidate = &candidates->items[i];
		if (!looks_cached(candidate, graph, glibc))
			continue;
		uint64_t chunk = candidate->address - HL_CHUNK_BLOCK;
		size_t at = hl_addresses_at(&chunks, chunk);
		bool is_listed = at < chunks.count && chunks.addresses[at] == chunk;
		if (hl_graph_is_reached(graph, candidate->address))
			continue;
		if (is_listed || was_merged(graph, candidate, words))
			hl_graph_reach(graph, candidate->address);
		else
			r = compare(graph, candidate);
	}
	return r;
}
