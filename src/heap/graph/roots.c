/* SPDX-License-Identifier: BSD-2-Clause */
/* Where a program begins to look for its blocks; see graph.h. */
#include "heap/graph/graph.h"

#include "base/array.h"
#include "base/compiler.h"
#include "base/machine.h"
#include "heap/glibc.h"
#include "heap/thread.h"

#include <string.h>

#define WINDOW_BYTES (UINT64_C(64) << 10)

/* Attempts to see stacks while no sleeper wakes that is not held yet. */
#define HOLDS_MAX 4u

#define STACKS_MANY 1024u /* asked for one by one: about 3 ms for all */

/* Of mappings without access, where a TiB of addresses takes seconds. */
#define CLOSED_MAX_BYTES (UINT64_C(1) << 30)

#define PTHREAD_SEARCHED 32768u /* at the end of a stack: static thread-local storage lies there */

struct search {
	struct hl_graph *graph;
	const struct hl_glibc *glibc;
	const struct hl_map *map;
	bool is_stack;
	bool is_closed; /* ${map} has no access */
	bool stacks_only, others_only;
	bool has_all_pages;
	struct hl_pages pages;
	struct hl_pages all_pages;	       /* of a live process, where they are had at once */
	const struct hl_graph_thread *threads; /* whose stacks are seen, or are not to be */
	size_t thread_count;
	bool is_ahead; /* the others' follow */
	size_t before; /* of graph->threads: whose stacks were seen ahead */
	uint64_t window[WINDOW_BYTES / 8];
};

/* ---- memory ---- */

static int see_unaligned(void *context, uint64_t address, const uint64_t *words, size_t count)
{
	struct hl_graph *graph = context;

	if (graph->on_root)
		return graph->on_root(graph->root_context, address, words, count, false);
	hl_graph_see_root(graph, words, count, false);
	return 0;
}

/* Follows the words of a root, or gives them to whoever asked for them. */
static void see_words(struct search *search, uint64_t address, const uint64_t *words, size_t count,
		      bool has_headers)
{
	struct hl_graph *graph = search->graph;

	if (!graph->on_root)
		hl_graph_see_root(graph, words, count, has_headers);
	else if (!graph->error)
		graph->error =
			graph->on_root(graph->root_context, address, words, count, has_headers);
	if (graph->reads_unaligned && address && !graph->error)
		graph->error = hl_graph_each_unaligned(graph, address, words, count, &graph->tail,
						       see_unaligned, graph);
}

static void see_window(struct search *search, uint64_t start, uint64_t end)
{
	/* The lists of the main arena lead to free chunks; from others that lie in the heap. */
	uint64_t own = search->glibc->main_arena,
		 own_end = own + (own ? search->glibc->layout->arena.bytes : 0);
	uint64_t *words = search->window;

	for (uint64_t at = start > own ? start : own; at < end && at < own_end; at += 8)
		words[(at - start) / 8] = 0;
	see_words(search, start, words, (end - start) / 8, search->is_stack);
}

/* Counts pages that could not be read. A device's, and those that have gone, are not memory. */
static void count_unread(struct search *search, uint64_t bytes)
{
	struct hl_unread *unread = &search->graph->unread;

	if (strncmp(search->map->path, "/secretmem", strlen("/secretmem")) == 0)
		unread->secret_bytes += bytes;
	else if (search->is_closed && hl_memory_is_plain(search->map))
		unread->closed_bytes += bytes;
}

/* Finds all pages, for see_mappings(), where that is no more work than to find those of each mapping: it takes 15 ms
 * for a GiB, which threads that are held wait for. */
static int find_all_pages(struct search *search)
{
	struct hl_memory *memory = search->graph->memory;
	const struct hl_maps *maps = &memory->maps;

	search->all_pages.count = search->all_pages.page_count = 0;
	search->has_all_pages = memory->kind->stop && !memory->is_slow_on_holes && maps->count &&
				(!search->stacks_only || search->thread_count > STACKS_MANY);
	return search->has_all_pages
		       ? hl_memory_scan(memory, maps->maps[0].start,
					maps->maps[maps->count - 1].end, &search->all_pages)
		       : 0;
}

/* Fills search->pages with the pages of [${start}, ${end}), whole ones, that are in memory. */
static int find_pages(struct search *search, uint64_t start, uint64_t end)
{
	const struct hl_pages *all = &search->all_pages;
	struct hl_pages *pages = &search->pages;
	int r = 0;

	pages->count = pages->page_count = 0;
	if (!search->has_all_pages)
		return hl_memory_scan(search->graph->memory, start, end, pages);
	for (size_t i = HL_LOWER_BOUND(at, all->count, all->runs[at].end <= start);
	     i < all->count && all->runs[i].start < end && r == 0; i++) {
		struct hl_page_run run = all->runs[i];
		run.start = run.start > start ? run.start : start;
		run.end = run.end < end ? run.end : end;
		pages->page_count += (run.end - run.start) / search->graph->memory->page_bytes;
		r = HL_ARRAY_APPEND(pages->runs, pages->count, pages->capacity, run);
	}
	return r;
}

/* Sees the pages of [${start}, ${end}) that are in memory. */
static int see_memory(struct search *search, uint64_t start, uint64_t end)
{
	uint64_t mask = search->graph->memory->page_bytes - 1;
	bool has_file =
		search->map->inode && !(search->map->flags & (HL_MAP_WRITE | HL_MAP_SHARED));

	start = (start + 7) & ~UINT64_C(7);
	int r = find_pages(search, start & ~mask, (end + mask) & ~mask);
	for (size_t i = 0; i < search->pages.count && r == 0; i++) {
		const struct hl_page_run *run = &search->pages.runs[i];
		/* Pages of a file that nobody wrote to hold what the file does. */
		if (has_file && run->kind & HL_PAGE_FILE)
			continue;
		uint64_t at = run->start > start ? run->start : start, to;
		for (; at < run->end && at < end; at = to) {
			to = (at & ~(WINDOW_BYTES - 1)) + WINDOW_BYTES;
			to = to < run->end ? to : run->end;
			to = to < end ? to : end;
			if (search->others_only)
				hl_memory_keep_time(search->graph->memory, to - at);
			r = hl_memory_read(search->graph->memory, at, search->window, to - at);
			if (r == -EFAULT || r == -EIO) { /* a device, or it has gone */
				to = (at & ~mask) + mask + 1;
				to = to < end ? to : end;
				r = hl_memory_read(search->graph->memory, at, search->window,
						   to - at);
			}
			if (r == 0)
				see_window(search, at, to);
			else if (r == -EFAULT || r == -EIO) {
				count_unread(search, to - at);
				r = 0;
			}
			if (r < 0)
				return r;
		}
	}
	return r;
}

/* ---- stacks ---- */

static int add_thread(void *context, const struct hl_thread_registers *registers)
{
	struct search *search = context;
	struct hl_graph *graph = search->graph;
	uint64_t words[sizeof(*registers) / 8];

	memcpy(words, registers, sizeof(words));
	see_words(search, 0, words, HL_COUNT_OF(words), true);
	return HL_ARRAY_APPEND(graph->threads, graph->thread_count, graph->thread_capacity,
			       (struct hl_graph_thread){hl_thread_registers_sp(registers),
							hl_thread_registers_thread(registers)});
}

/* The thread pointer of the thread of glibc that has ended and whose stack this is; 0: it is not known. */
static uint64_t ended_thread(struct search *search, uint64_t start, uint64_t end)
{
	struct hl_graph *graph = search->graph;
	uint64_t mask = graph->memory->page_bytes - 1, before;
	uint64_t from = end - start > PTHREAD_SEARCHED ? (end - PTHREAD_SEARCHED) & ~mask : start;
	uint32_t tid;

	if (search->map->inode || search->map->path[0] || find_pages(search, from, end) < 0 ||
	    !search->pages.count)
		return 0;
	from = search->pages.runs[search->pages.count - 1].start > from
		       ? search->pages.runs[search->pages.count - 1].start
		       : from;
	if (search->pages.runs[search->pages.count - 1].end != end ||
	    hl_memory_read(graph->memory, from, search->window, end - from) < 0)
		return 0;
	for (uint64_t at = from; at + HL_PTHREAD_TID + 32 <= end; at += HL_PTHREAD_ALIGNMENT) {
		const uint64_t *words = search->window + (at - from) / 8;
		if (!hl_pthread_is_at(words, at))
			continue;
		memcpy(&tid, (const uint8_t *)words + HL_PTHREAD_TID, sizeof(tid));
		before = hl_pthread_before(graph->memory,
					   graph->thread_count ? graph->threads->pointer : 0);
		return tid == 0 && before != UINT64_MAX ? at + before : 0;
	}
	return 0;
}

/* Whether the first thread's stack, in which none of the threads is that are seen now, is seen at another time: all of it
 * is seen only where its stack pointer is not known at all, as below that lies what leads to lost blocks. */
static bool is_seen_apart(const struct search *search, uint64_t start, uint64_t end)
{
	const struct hl_graph_thread *threads = search->graph->threads;
	size_t at = HL_LOWER_BOUND(i, search->before, threads[i].sp < start);

	return search->is_ahead || (at < search->before && threads[at].sp < end);
}

/*
 * Sees [${start}, ${end}) of a mapping outside the heap. Of stacks what lies below the stack
 * pointer is left out, if they are glibc's or the first one: a coroutine's may share its mapping
 * with others. Of the stacks that glibc keeps of ended threads only the dtv's address matters.
 */
static int see_gap(void *context, uint64_t start, uint64_t end)
{
	struct search *search = context;
	const struct hl_graph_thread *threads = search->threads;
	size_t count = search->thread_count;
	bool is_first = strcmp(search->map->path, "[stack]") == 0;
	size_t first = HL_LOWER_BOUND(i, count, threads[i].sp < start);
	bool has_thread = first < count && threads[first].sp < end;
	int r = 0;

	search->is_stack = is_first || has_thread;
	if (search->is_stack ? search->others_only : search->stacks_only)
		return 0;
	if (is_first && !has_thread && is_seen_apart(search, start, end))
		return 0;
	uint64_t ended = has_thread ? 0 : ended_thread(search, start, end);
	if (ended)
		return see_memory(search, ended + HL_MACHINE_DTV, ended + HL_MACHINE_DTV + 8);
	for (uint64_t at = start; at < end && r == 0;) {
		/* The next stack pointer with its thread's own memory above it. */
		const struct hl_graph_thread *next = NULL;
		for (; !next && first < count && threads[first].sp < end; first++) {
			const struct hl_graph_thread *thread = &threads[first];
			bool is_own =
				is_first || (thread->pointer > thread->sp && thread->pointer < end);
			if (is_own && thread->sp >= at)
				next = thread;
		}
		if (!next)
			return see_memory(search, at, end);
		uint64_t live = next->sp - HL_RED_ZONE_BYTES;
		uint64_t to = is_first ? end : next->pointer + HL_THREAD_OWN_BYTES;
		to = to < end ? to : end;
		r = see_memory(search, live > at ? live : at, to);
		at = to;
	}
	return r;
}

/* ---- what the kernel keeps ---- */

static int see_kernel_words(void *context, enum hl_kernel_holder holder, uint32_t number,
			    const uint64_t *words, size_t count)
{
	struct search *search = context;

	see_words(search, hl_graph_kernel_root(holder, number), words, count, false);
	return search->graph->error;
}

/* ---- all ---- */

/*
 * Shared memory that cannot be written to here is someone else's. What may not be accessed at all may
 * have been written to before; it may be a reservation of TiB, too.
 */
static bool can_hold_roots(const struct hl_memory *memory, const struct hl_map *map)
{
	if (map->flags & HL_MAP_RECORDER || strcmp(map->path, "[vvar]") == 0 ||
	    strcmp(map->path, "[vsyscall]") == 0)
		return false;
	if (!(map->flags & (HL_MAP_READ | HL_MAP_WRITE | HL_MAP_EXEC)))
		return !memory->is_slow_on_holes || map->end - map->start <= CLOSED_MAX_BYTES;
	return map->flags & HL_MAP_WRITE || !(map->flags & HL_MAP_SHARED);
}

/* Also of mappings that hold no roots, where they are had at once. */
static int count_swapped(struct search *search)
{
	struct hl_memory *memory = search->graph->memory;
	const struct hl_maps *maps = &memory->maps;
	int r = 0;

	search->pages.count = search->pages.page_count = 0;
	if (!memory->is_slow_on_holes && maps->count)
		r = hl_memory_scan_swapped(memory, maps->maps[0].start,
					   maps->maps[maps->count - 1].end, &search->pages);
	for (size_t i = 0; memory->is_slow_on_holes && i < maps->count && r == 0; i++)
		if (can_hold_roots(memory, &maps->maps[i]))
			r = hl_memory_scan_swapped(memory, maps->maps[i].start, maps->maps[i].end,
						   &search->pages);
	search->graph->unread.swapped_bytes = search->pages.page_count * memory->page_bytes;
	return r;
}

static int see_mappings(struct search *search, const struct hl_extents *heap,
			const struct hl_extents *foreign)
{
	const struct hl_maps *maps = &search->graph->memory->maps;
	int r = find_all_pages(search);

	for (size_t i = 0; i < maps->count && r == 0; i++) {
		search->map = &maps->maps[i];
		search->is_closed = !(search->map->flags & HL_MAP_READ);
		if (can_hold_roots(search->graph->memory, search->map))
			r = hl_extents_gaps(heap, search->map->start, search->map->end, see_gap,
					    search);
		size_t k = HL_LOWER_BOUND(at, foreign->count,
					  foreign->extents[at].start < search->map->start);
		for (; k < foreign->count && foreign->extents[k].start < search->map->end && r == 0;
		     k++) {
			const struct hl_extent *part = &foreign->extents[k];
			if (part->end <= search->map->end)
				r = see_gap(search, part->start, part->end);
		}
	}
	return r;
}

/* Registers, which tell where the stacks are, and stacks. */
static int see_stacks(struct search *search, const struct hl_extents *heap,
		      const struct hl_extents *foreign, unsigned roots)
{
	struct hl_graph *graph = search->graph;
	size_t before = roots & HL_ROOTS_REST ? graph->thread_count : 0;

	graph->thread_count = before;
	int r = hl_memory_threads(graph->memory, add_thread, search);
	search->thread_count = graph->thread_count - before;
	if (search->thread_count)
		qsort(graph->threads + before, search->thread_count, sizeof(*graph->threads),
		      hl_addresses_compare);
	search->threads = search->thread_count ? graph->threads + before : NULL;
	search->stacks_only = true;
	search->is_ahead = roots & HL_ROOTS_AHEAD;
	search->before = before;
	if (r == 0)
		r = see_mappings(search, heap, foreign);
	search->stacks_only = false;
	/* Where a thread that has run since was before counts as its stack, too. */
	if (before && search->thread_count)
		qsort(graph->threads, graph->thread_count, sizeof(*graph->threads),
		      hl_addresses_compare);
	return r;
}

int hl_graph_see_roots(struct hl_graph *graph, const struct hl_glibc *glibc,
		       const struct hl_extents *heap, const struct hl_extents *foreign,
		       unsigned roots)
{
	struct search *search = calloc(1, sizeof(*search));
	bool goes_on = roots & HL_ROOTS_GO_ON, sees_others = roots & HL_ROOTS_OTHERS;

	if (!search)
		return -ENOMEM;
	search->graph = graph;
	search->glibc = glibc;
	int r = roots & HL_ROOTS_STACKS ? see_stacks(search, heap, foreign, roots) : 0;
	for (unsigned tries = 1;
	     r == 0 && goes_on && !(roots & HL_ROOTS_REST) && hl_memory_has_moved(graph->memory);
	     tries++) {
		r = tries < HOLDS_MAX ? hl_memory_hold(graph->memory, NULL)
				      : hl_memory_stop(graph->memory, NULL);
		/* If a debugger has the process, they were seen once, as well as possible. */
		r = r == 0	  ? see_stacks(search, heap, foreign, HL_ROOTS_STACKS)
		    : r == -ESRCH ? r
				  : 0;
	}
	if (goes_on)
		hl_memory_go_on(graph->memory);
	search->threads = graph->threads;
	search->thread_count = graph->thread_count;
	search->others_only = true;
	if (sees_others)
		graph->unread = (struct hl_unread){0};
	if (r == 0 && sees_others)
		r = see_mappings(search, heap, foreign);
	if (r == 0 && sees_others)
		r = count_swapped(search);
	if (r == 0 && sees_others)
		r = hl_memory_kernel_words(graph->memory, see_kernel_words, search,
					   &graph->unread.has_io_uring);
	hl_pages_release(&search->pages);
	hl_pages_release(&search->all_pages);
	free(search);
	return r < 0 ? r : graph->error;
}
