/* SPDX-License-Identifier: BSD-2-Clause */
/* Reading the heap of a process that stands still; see still.h. */
#include "heap/graph/still.h"

#include "heap/glibc.h"
#include "heap/graph/candidates.h"
#include "heap/graph/word_filter.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define TASK_BYTES   (UINT64_C(1) << 20)
#define WINDOW_BYTES (UINT64_C(64) << 10)
#define THREADS_MAX  16u
#define HITS_MAX     (UINT64_C(1) << 20) /* of each thread: 16 MiB */
#define STEPS_MAX    65536u		 /* from an anchor */

/* A word outside the candidates that leads to one. */
struct hit {
	uint64_t address, word;
};

struct arena {
	uint64_t address, top;
};

struct search {
	const struct hl_still *still;
	struct hl_graph *graph;
	struct hl_pages pages; /* of the heap, in RAM now */
	struct hl_extents tasks;
	atomic_size_t next_task;
	struct hl_addresses cached; /* chunks in lists of arenas and thread caches */
	struct arena *arenas;
	size_t arena_count, arena_capacity;
	uint64_t window_start, window_end;
	uint64_t window[WINDOW_BYTES / 8];
};

struct reader {
	struct search *search;
	pthread_t thread;
	struct hit *hits;
	size_t count, capacity;
	int error;
};

/* ---- all pages ---- */

static int note_hit(struct reader *reader, uint64_t address, uint64_t word)
{
	const struct hl_graph *graph = reader->search->graph;
	uint64_t block, source;

	if (!hl_graph_find(graph, word, &block) || hl_graph_is_reached(graph, block))
		return 0;
	if (hl_graph_find(graph, address, &source) && !hl_graph_is_reached(graph, source))
		return 0; /* a candidate's own */
	return reader->count == HITS_MAX
		       ? -E2BIG
		       : HL_ARRAY_APPEND(reader->hits, reader->count, reader->capacity,
					 (struct hit){address, word});
}

static void *read_tasks(void *context)
{
	struct reader *reader = context;
	struct search *search = reader->search;
	uint64_t *words = malloc(TASK_BYTES);
	size_t at;

	if (!words)
		reader->error = -ENOMEM;
	while (reader->error == 0 &&
	       (at = atomic_fetch_add(&search->next_task, 1)) < search->tasks.count) {
		const struct hl_extent *task = &search->tasks.extents[at];
		reader->error = hl_memory_read(search->graph->memory, task->start, words,
					       task->end - task->start);
		for (size_t i = 0; reader->error == 0 && i < (task->end - task->start) / 8; i++)
			if (hl_word_filter_passes(search->still->filter, words[i]))
				reader->error = note_hit(reader, task->start + i * 8, words[i]);
	}
	free(words);
	return NULL;
}

static int list_tasks(struct search *search)
{
	int r = 0;

	for (size_t i = 0; i < search->still->heap->count && r == 0; i++) {
		const struct hl_extent *extent = &search->still->heap->extents[i];
		r = hl_memory_scan(search->graph->memory, extent->start, extent->end,
				   &search->pages);
	}
	for (size_t i = 0; i < search->pages.count && r == 0; i++) {
		const struct hl_page_run *run = &search->pages.runs[i];
		for (uint64_t at = run->start, to; at < run->end && r == 0; at = to) {
			to = run->end - at > TASK_BYTES ? at + TASK_BYTES : run->end;
			r = hl_extents_add(&search->tasks, at, to);
		}
	}
	return r;
}

/* The caller reads as well; where no thread can be had, alone. */
static int read_all(struct search *search, struct reader *readers, size_t count)
{
	size_t started = 1;
	int r = 0;

	for (size_t i = 0; i < count; i++)
		readers[i] = (struct reader){.search = search};
	while (started < count &&
	       pthread_create(&readers[started].thread, NULL, read_tasks, &readers[started]) == 0)
		started++;
	read_tasks(&readers[0]);
	for (size_t i = 1; i < started; i++)
		pthread_join(readers[i].thread, NULL);
	for (size_t i = 0; i < started && r == 0; i++)
		r = readers[i].error;
	return r;
}

/* ---- what lies at an address ---- */

/* Reads a word of the heap; false: it is not in RAM. */
static bool read_word(struct search *search, uint64_t address, uint64_t *ret_word)
{
	const struct hl_pages *pages = &search->pages;

	if (address < search->window_start || address >= search->window_end) {
		uint64_t start = address & ~(search->graph->memory->page_bytes - 1);
		size_t run = HL_LOWER_BOUND(i, pages->count, pages->runs[i].end <= address);
		if (address & 7 || run == pages->count || pages->runs[run].start > address)
			return false;
		uint64_t end = pages->runs[run].end - start > WINDOW_BYTES ? start + WINDOW_BYTES
									   : pages->runs[run].end;
		search->window_start = search->window_end = 0;
		if (hl_memory_read(search->graph->memory, start, search->window, end - start) < 0)
			return false;
		search->window_start = start;
		search->window_end = end;
	}
	*ret_word = search->window[(address - search->window_start) / 8];
	return true;
}

/* The chunk in which ${address} lies, found from the last anchor before it. False: not known. */
static bool find_chunk(struct search *search, uint64_t address, uint64_t *ret_chunk,
		       uint64_t *ret_size)
{
	const struct hl_addresses *anchors = search->still->anchors;
	size_t at = HL_LOWER_BOUND(i, anchors->count, anchors->addresses[i] <= address);
	uint64_t size;

	if (!at)
		return false;
	uint64_t chunk = anchors->addresses[at - 1] - HL_CHUNK_BLOCK;
	for (unsigned step = 0; step < STEPS_MAX; step++, chunk += size & ~HL_CHUNK_FLAGS) {
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

/*
 * Whether the word at ${address} is no reference: it lies in a chunk that is proven free, or in an
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
	for (size_t i = 0; i < search->arena_count; i++)
		if (search->arenas[i].top == chunk)
			return true;
	size_t at = hl_addresses_at(&search->cached, chunk);
	if (at < search->cached.count && search->cached.addresses[at] == chunk)
		return true;
	return read_word(search, chunk + (size & ~HL_CHUNK_FLAGS) + 8, &next) &&
	       !(next & HL_CHUNK_IN_USE_BEFORE) && is_listed(search, chunk);
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
	return r == 0 ? hl_candidates_list_cached(search->graph->memory, still->glibc,
						  still->arenas, still->tcaches, &search->cached)
		      : r;
}

/* ---- the whole ---- */

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
	hl_pages_release(&search->pages);
	hl_extents_release(&search->tasks);
	hl_addresses_release(&search->cached);
	free(search->arenas);
	free(search);
}

int hl_still_see_heap(const struct hl_still *still)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	size_t count = processors < 1			? 1
		       : processors > (long)THREADS_MAX ? THREADS_MAX
							: (size_t)processors;
	struct search *search = calloc(1, sizeof(*search));
	struct reader readers[THREADS_MAX] = {0};

	if (!search)
		return -ENOMEM;
	search->still = still;
	search->graph = still->graph;
	int r = list_tasks(search);
	if (r == 0)
		r = list_arenas(search);
	if (r == 0) {
		reach_cached(search);
		r = read_all(search, readers, count);
	}
	for (size_t i = 0; i < count; i++) {
		for (size_t k = 0; k < readers[i].count && r == 0; k++) {
			const struct hit *hit = &readers[i].hits[k];
			if (!is_no_reference(search, hit->address))
				hl_graph_see_root(still->graph, &hit->word, 1, false);
		}
		free(readers[i].hits);
	}
	release(search);
	return r < 0 ? r : still->graph->error;
}
