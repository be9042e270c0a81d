/* SPDX-License-Identifier: BSD-2-Clause */
/* Blocks that were lost so far; see leak_candidates.h. */
#include "heap/graph/leak_candidates.h"

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

/* The page that was read last: candidates come in order, many to a page where many are lost. */
struct last_page {
	uint64_t start; /* 1: none */
	uint64_t words[512];
};

static bool word_of_page(struct hl_memory *memory, struct last_page *page, uint64_t address,
			 uint64_t *ret_word)
{
	uint64_t offset = address % sizeof(page->words);

	if (page->start != address - offset) {
		page->start = 1;
		if (hl_memory_read(memory, address - offset, page->words, sizeof(page->words)) < 0)
			return false;
		page->start = address - offset;
	}
	*ret_word = page->words[offset / 8];
	return true;
}

/* Whether the sizes of the chunk and of its neighbour say that it is in use. */
static bool is_in_use(struct hl_memory *memory, struct last_page *page,
		      const struct hl_candidate *candidate)
{
	uint64_t size, next, end = candidate->address + candidate->usable_bytes;

	if (!word_of_page(memory, page, candidate->address - 8, &size))
		return false;
	if (size & HL_CHUNK_MMAPPED)
		return true;
	return (size & ~HL_CHUNK_FLAGS) == candidate->usable_bytes + HL_CHUNK_HEADER &&
	       word_of_page(memory, page, end, &next) && next & HL_CHUNK_IN_USE_BEFORE;
}

int hl_candidates_compare_sizes(struct hl_candidates *candidates, struct hl_graph *graph,
				bool has_sizes)
{
	struct last_page page = {.start = 1};

	for (size_t i = 0; i < candidates->count; i++)
		candidates->items[i].is_live =
			!has_sizes || is_in_use(graph->memory, &page, &candidates->items[i]);
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

/* Appends the chunks in those lists of a process that is stopped, sorted. 0 or -ENOMEM. */
static int candidates_list_cached(struct hl_memory *memory, const struct hl_glibc *glibc,
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

/* ---- reading the heap of a process that is stopped ---- */

#define WINDOW_BYTES (UINT64_C(64) << 10)
#define HITS_MAX     (UINT64_C(1) << 20) /* of each thread: 16 MiB */
#define STEPS_MAX    (1u << 19)		 /* from an anchor */

/* Whether a chunk is one now, or the remains of one, those before it tell: the more of them, the surer. */
#define LEAD_MAX (UINT64_C(8) << 20)
#define LEAD_ALL (UINT64_C(64) << 20) /* of all candidates together: about 30 ms */

struct arena {
	uint64_t address, top;
};

struct search {
	const struct hl_still *still;
	struct hl_graph *graph;
	struct hl_word_hits found;
	const struct hl_pages *pages; /* of the heap, in RAM */
	struct hl_addresses cached;   /* chunks in lists of arenas and thread caches */
	struct arena *arenas;
	size_t arena_count, arena_capacity;
	uint64_t window_bytes; /* read at once: little where it is far to the next address */
	uint64_t window_start, window_end;
	uint64_t window[WINDOW_BYTES / 8];
};

/* ---- what lies at an address ---- */

/* Reads a word of the heap; false: it is not in RAM. */
static bool read_word(struct search *search, uint64_t address, uint64_t *ret_word)
{
	const struct hl_pages *pages = search->pages;

	if (address < search->window_start || address >= search->window_end) {
		uint64_t start = address & ~(search->graph->memory->page_bytes - 1);
		size_t run = HL_LOWER_BOUND(i, pages->count, pages->runs[i].end <= address);
		if (address & 7 || run == pages->count || pages->runs[run].start > address)
			return false;
		uint64_t end = pages->runs[run].end;
		if (end - start > search->window_bytes)
			end = start + search->window_bytes;
		search->window_start = search->window_end = 0;
		if (hl_memory_read(search->graph->memory, start, search->window, end - start) < 0)
			return false;
		search->window_start = start;
		search->window_end = end;
	}
	*ret_word = search->window[(address - search->window_start) / 8];
	return true;
}

/* Goes from ${chunk} on to the one in which ${address} lies, and to that chunk's words for the program.
 * False: no chunks lead there. */
static bool go_on_to(struct search *search, uint64_t chunk, uint64_t address, uint64_t *ret_chunk,
		     uint64_t *ret_size)
{
	uint64_t size;

	for (unsigned step = 0; step < STEPS_MAX && chunk <= address;
	     step++, chunk += size & ~HL_CHUNK_FLAGS) {
		if (!read_word(search, chunk + 8, &size) ||
		    (size & ~HL_CHUNK_FLAGS) < HL_CHUNK_MIN || size & 8 ||
		    (size & ~HL_CHUNK_FLAGS) > UINT64_MAX - chunk - 16)
			return false;
		if (address < chunk + (size & ~HL_CHUNK_FLAGS) + HL_CHUNK_HEADER) {
			*ret_chunk = chunk;
			*ret_size = size;
			return address >= chunk + HL_CHUNK_BLOCK;
		}
	}
	return false;
}

/* The chunk in which ${address} lies, found from the last anchor before it. False: not known. */
static bool find_chunk(struct search *search, uint64_t address, uint64_t *ret_chunk,
		       uint64_t *ret_size)
{
	const struct hl_addresses *anchors = search->still->anchors;
	size_t at = HL_LOWER_BOUND(i, anchors->count, anchors->addresses[i] <= address);

	return at && go_on_to(search, anchors->addresses[at - 1] - HL_CHUNK_BLOCK, address,
			      ret_chunk, ret_size);
}

/* Reads a word of the heap or of an arena's struct. */
static bool read_link(struct search *search, uint64_t address, uint64_t *ret_word)
{
	for (size_t i = 0; i < search->arena_count; i++)
		if (address - search->arenas[i].address < search->still->glibc->layout->arena.bytes)
			return hl_memory_read(search->graph->memory, address, ret_word,
					      sizeof(*ret_word)) == 0;
	return read_word(search, address, ret_word);
}

/* Whether the chunk is in a list of its arena: its neighbours lead back to it. */
static bool is_listed(struct search *search, uint64_t chunk)
{
	uint64_t next, previous, back, forth;

	return read_word(search, chunk + HL_CHUNK_BLOCK, &next) &&
	       read_word(search, chunk + HL_CHUNK_BLOCK + 8, &previous) &&
	       read_link(search, next + HL_CHUNK_BLOCK + 8, &back) && back == chunk &&
	       read_link(search, previous + HL_CHUNK_BLOCK, &forth) && forth == chunk;
}

/* Whether the chunk is free though its neighbours take it for used: the top, or one in a list. */
static bool is_kept(struct search *search, uint64_t chunk)
{
	size_t at = hl_addresses_at(&search->cached, chunk);

	for (size_t i = 0; i < search->arena_count; i++)
		if (search->arenas[i].top == chunk)
			return true;
	return at < search->cached.count && search->cached.addresses[at] == chunk;
}

/*
 * Whether the word at ${address} is not a reference: it lies in a chunk that is proven free, or in an
 * arena's own struct. An anchor may have gone since, with old sizes left behind, so what cannot be
 * proven counts as live.
 */
static bool is_no_reference(struct search *search, uint64_t address)
{
	uint64_t chunk, size, next;

	for (size_t i = 0; i < search->arena_count; i++)
		if (address - search->arenas[i].address < search->still->glibc->layout->arena.bytes)
			return true;
	if (!find_chunk(search, address, &chunk, &size) || size & HL_CHUNK_MMAPPED)
		return false;
	return is_kept(search, chunk) ||
	       (read_word(search, chunk + (size & ~HL_CHUNK_FLAGS) + 8, &next) &&
		!(next & HL_CHUNK_IN_USE_BEFORE) && is_listed(search, chunk));
}

/* Whether the chunks from ${lead} before it lead to ${block}, and it is in use. Where none lead past
 * it, as one of another heap cannot, it is tried from nearer. */
static bool is_block(struct search *search, uint64_t block, uint64_t lead)
{
	const struct hl_addresses *anchors = search->still->anchors;
	size_t first = HL_LOWER_BOUND(i, anchors->count, anchors->addresses[i] + lead <= block);
	uint64_t chunk, size;

	if (first) /* mostly one reading has all of it */
		read_word(search, anchors->addresses[first - 1], &size);
	if (!read_word(search, block - HL_CHUNK_HEADER, &size))
		return false;
	if (size & HL_CHUNK_MMAPPED)
		return true;
	for (;; lead /= 2) {
		size_t at =
			HL_LOWER_BOUND(i, anchors->count, anchors->addresses[i] + lead <= block);
		if (at && go_on_to(search, anchors->addresses[at - 1] - HL_CHUNK_BLOCK, block,
				   &chunk, &size))
			return chunk == block - HL_CHUNK_BLOCK && !is_kept(search, chunk) &&
			       read_word(search, chunk + (size & ~HL_CHUNK_FLAGS) + 8, &size) &&
			       size & HL_CHUNK_IN_USE_BEFORE;
		if (!lead)
			return false;
	}
}

static int list_arenas(struct search *search)
{
	const struct hl_still *still = search->still;
	uint64_t address = still->glibc->main_arena;
	struct hl_glibc_arena arena;
	int r = 0;

	for (uint32_t i = 0; i < still->arenas && r == 0; i++) {
		if (hl_glibc_state_arena(search->graph->memory, still->glibc, address, &arena) < 0)
			break;
		r = HL_ARRAY_APPEND(search->arenas, search->arena_count, search->arena_capacity,
				    (struct arena){address, arena.top});
		address = arena.next;
		if (address == still->glibc->main_arena)
			break;
	}
	return r == 0 ? candidates_list_cached(search->graph->memory, still->glibc, still->arenas,
					       still->tcaches, &search->cached)
		      : r;
}

static void reach_cached(struct search *search)
{
	uint64_t block;

	for (size_t i = 0; i < search->cached.count; i++) {
		uint64_t cached = search->cached.addresses[i] + HL_CHUNK_BLOCK;
		if (hl_graph_find(search->graph, cached, &block) && block == cached &&
		    !hl_graph_is_reached(search->graph, block))
			hl_graph_reach(search->graph, block);
	}
}

static void release(struct search *search)
{
	hl_word_hits_release(&search->found);
	hl_addresses_release(&search->cached);
	free(search->arenas);
	free(search);
}

static int begin(const struct hl_still *still, struct search **ret_search)
{
	struct search *search = calloc(1, sizeof(*search));

	if (!search)
		return -ENOMEM;
	search->still = still;
	search->graph = still->graph;
	search->pages = &still->graph->pages;
	search->window_bytes = WINDOW_BYTES;
	int r = list_arenas(search);
	if (r < 0)
		release(search);
	else
		*ret_search = search;
	return r;
}

int hl_still_prove(const struct hl_still *still)
{
	uint64_t count = 0, block = 0;
	struct search *search;
	int r = begin(still, &search);

	if (r < 0)
		return r;
	for (; (block = hl_graph_next_lost(still->graph, block)); block += 16)
		count++;
	uint64_t lead = count ? LEAD_ALL / count : 0;
	lead = lead < LEAD_MAX ? lead : LEAD_MAX;
	uint64_t page_bytes = still->graph->memory->page_bytes;
	while (search->window_bytes / 2 >= lead + page_bytes)
		search->window_bytes /= 2;
	for (; (block = hl_graph_next_lost(still->graph, block)); block += 16) {
		hl_memory_keep_time_of_block(still->graph->memory, lead + page_bytes);
		if (!is_block(search, block, lead))
			hl_graph_reach(still->graph, block);
	}
	release(search);
	return still->graph->error;
}

int hl_still_see_heap(const struct hl_still *still)
{
	struct search *search;
	int r = begin(still, &search);

	if (r < 0)
		return r;
	reach_cached(search);
	search->pages = &search->found.pages;
	r = hl_word_search(still->graph, still->filter, still->heap, HITS_MAX, &search->found);
	for (size_t i = 0; i < search->found.count && r == 0; i++) {
		const struct hl_word_hit *hit = &search->found.hits[i];
		if (!is_no_reference(search, hit->address))
			hl_graph_see_root(still->graph, &hit->word, 1, false);
	}
	release(search);
	return r < 0 ? r : still->graph->error;
}
