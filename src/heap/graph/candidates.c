/* SPDX-License-Identifier: BSD-2-Clause */
/* Blocks that were lost so far; see candidates.h. */
#include "heap/graph/candidates.h"

#include "base/cleanup.h"
#include "heap/glibc.h"
#include "heap/glibc_reader.h"
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

static void free_heap(struct hl_heap **heap)
{
	hl_heap_free(*heap);
}

/* ---- looks ---- */

int hl_candidates_collect(struct hl_candidates *candidates, struct hl_graph *graph)
{
	int r = 0;

	graph->window_end = 0;
	for (uint64_t block = 0; r == 0 && (block = hl_graph_next_lost(graph, block));
	     block += 16) {
		struct hl_candidate found = {.address = block,
					     .usable_bytes = hl_graph_usable(graph, block),
					     .counted_bytes = hl_graph_counted(graph, block)};
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
		r = hl_graph_add_counted(graph, candidates->items[i].address,
					 candidates->items[i].usable_bytes,
					 candidates->items[i].counted_bytes);
	return r;
}

bool hl_candidates_meet(struct hl_candidates *candidates, const struct hl_graph *graph,
			uint64_t address, uint64_t usable_bytes)
{
	struct hl_graph_page *page = hl_graph_page(graph, address);
	size_t *at = &candidates->cursor;

	if (!page || !(hl_graph_bits(graph, page, address)->starts & hl_graph_bit(graph, address)))
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
	for (size_t i = 0; i < candidates->count && r == 0; i++) {
		hl_memory_keep_time_of_block(graph->memory, candidates->items[i].usable_bytes);
		r = compare(graph, &candidates->items[i]);
	}
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

/* ---- a walk while the process is stopped ---- */

struct meeting {
	struct hl_candidates *candidates;
	const struct hl_graph *graph;
};

static int meet(void *context, uint64_t address, uint64_t usable_bytes, uint64_t last_word)
{
	struct meeting *meeting = context;

	(void)last_word;
	hl_memory_keep_time_of_block(meeting->graph->memory, usable_bytes);
	hl_candidates_meet(meeting->candidates, meeting->graph, address, usable_bytes);
	return 0;
}

/* Whether glibc has mapped the candidate alone: it is unmapped as it is freed. */
static bool is_mapped_alone(struct hl_memory *memory, const struct hl_candidate *candidate)
{
	uint64_t size;

	return hl_memory_read(memory, candidate->address - 8, &size, sizeof(size)) == 0 &&
	       size & HL_CHUNK_MMAPPED;
}

int hl_candidates_prove(struct hl_candidates *candidates, struct hl_graph *graph,
			const struct hl_glibc *glibc, bool has_table)
{
	struct meeting meeting = {candidates, graph};
	const struct hl_heap_settings settings = {
		.no_mapped_blocks = true, .block = meet, .context = &meeting};
	HL_CLEANUP(hl_extents_release) struct hl_extents walked = {0};
	HL_CLEANUP(free_heap) struct hl_heap *heap = hl_heap_new();

	hl_candidates_forget_walk(candidates);
	int r = heap ? hl_glibc_heap_read(graph->memory, glibc, &settings, heap, NULL) : -ENOMEM;
	if (r == 0)
		r = hl_extents_of_carriers(&heap->carriers, graph->memory->page_bytes, &walked);
	if (r == 0 && (heap->abandoned || hl_memory_has_moved(graph->memory)))
		r = -EAGAIN;
	for (size_t i = 0; i < candidates->count && r == 0; i++)
		candidates->items[i].is_live |=
			!hl_extents_hold(&walked, candidates->items[i].address) &&
			(has_table || is_mapped_alone(graph->memory, &candidates->items[i]));
	return r == 0 ? hl_candidates_compare(candidates, graph) : r;
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
