/* SPDX-License-Identifier: BSD-2-Clause */
/* Looks at a process, once or several times; see leaks.h. */
#include "heap/graph/leaks.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file_print.h"
#include "heap/glibc.h"
#include "heap/graph/graph.h"
#include "heap/graph/leak_candidates.h"
#include "heap/owners/owners.h"
#include "recording/recording.h"

#include <string.h>
#include <unistd.h>

/* Looks at a process that runs. With fewer than PASSES_MIN a thread that moves pointers about at
 * full speed can hide a block from all of them, see decision 37. */
#define PASSES_MIN   5u
#define PASSES_MAX   20u
#define PASSES_QUIET 2u /* that remove nothing end the search */
#define PAUSE_US     10000
#define HOLDS	     3u /* in which it is asked what is free */

/* A heap of up to this size is walked while its threads are stopped: for about 10 ms. */
#define HELD_WALK_BYTES (UINT64_C(32) << 20)

/* Threads that were stopped for so long in all are not stopped for another look, but for the proof at its end alone. */
#define STOPPED_MAX_NS HL_NS_PER_SECOND

#define ARENAS_MORE 64u /* that may have come since the last walk */

struct finder {
	pid_t pid;		 /* 0: it is ${still} */
	struct hl_memory *still; /* the caller's */
	bool is_audited;	 /* a stop, of one of the memories opened in turn */
	const struct hl_leaks_settings *settings;
	struct hl_leaks *leaks;
	struct hl_error *err;
	struct hl_memory *memory;
	struct hl_glibc glibc;
	struct hl_extents heap;
	struct hl_extents foreign; /* parts of it that are the program's own */
	struct hl_graph
		graph; /* of the first look; of later ones, which has the candidates alone */
	struct hl_graph_offsets offsets; /* that the first look learned */
	struct hl_sweep *sweep;
	struct hl_candidates candidates;
	struct hl_addresses tcaches; /* blocks of their size */
	struct hl_addresses anchors; /* see leak_candidates.h */
	uint32_t arena_count;	     /* as the last walk found them */
	bool has_table;		     /* blocks come from a recorder's table, too */
	bool is_exact;		     /* the look that is taken is to stop the process */
	bool not_walked;	     /* it was taken without a walk */
	bool is_locked;		     /* all the time: an arena, of what is stopped */
	bool is_spent;		     /* looks were made without a stop, see STOPPED_MAX_NS */
	struct hl_error cannot_stop; /* why registers cannot be read; "": they can */
};

/* ---- the process is stopped ---- */

/* Whether the process is stopped, for as long as an exact look may stop it, or is a core file. */
static bool stands_still(const struct finder *finder)
{
	return finder->still || (finder->is_exact && !(finder->memory && finder->memory->is_late));
}

static int stop_outside_malloc(struct finder *finder)
{
	return hl_stand_begin_outside_malloc(finder->memory, &finder->glibc, &finder->is_locked,
					     finder->err);
}

/* ---- one look ---- */

static void add_live(struct finder *finder, uint64_t counted_bytes)
{
	hl_memory_keep_time_of_block(finder->memory, counted_bytes);
	finder->leaks->live.blocks++;
	finder->leaks->live.bytes += counted_bytes;
}

/* Keeps what later looks want to know of a live block: where chunks begin, and which blocks may be
 * tcaches. */
static int keep_place(struct finder *finder, uint64_t address, uint64_t usable_bytes)
{
	const struct hl_glibc_layout *layout = finder->glibc.layout;
	uint64_t cache_size = layout ? hl_glibc_state_tcache_size(layout) : UINT64_MAX;
	uint64_t size = usable_bytes + HL_CHUNK_HEADER;
	struct hl_addresses *anchors = &finder->anchors, *tcaches = &finder->tcaches;
	uint64_t last = anchors->count ? anchors->addresses[anchors->count - 1] : 0;
	int r = 0;

	if (address <= last || address - last >= HL_STILL_ANCHOR_BYTES)
		r = HL_ARRAY_APPEND(anchors->addresses, anchors->count, anchors->capacity, address);
	if (r < 0 || size < cache_size || size >= cache_size + HL_CHUNK_MIN)
		return r;
	return HL_ARRAY_APPEND(tcaches->addresses, tcaches->count, tcaches->capacity, address);
}

static int take_block(void *context, uint64_t address, uint64_t usable_bytes,
		      uint64_t counted_bytes)
{
	struct finder *finder = context;

	if (!finder->graph.live_blocks && hl_block_walk_is_of_slabs(finder->leaks->heap))
		hl_graph_expect_slabs(&finder->graph, true);
	add_live(finder, counted_bytes);
	int r = keep_place(finder, address, usable_bytes);
	return r < 0 ? r
		     : hl_graph_add_counted(&finder->graph, address, usable_bytes, counted_bytes);
}

/* Of blocks that are not candidates the words matter. */
static int sweep_block(void *context, uint64_t address, uint64_t usable_bytes,
		       uint64_t counted_bytes)
{
	struct finder *finder = context;

	add_live(finder, counted_bytes);
	if (!hl_candidates_meet(&finder->candidates, &finder->graph, address, usable_bytes))
		hl_sweep_add(finder->sweep, address, address + (usable_bytes & ~UINT64_C(7)));
	return keep_place(finder, address, usable_bytes);
}

static int take_candidate(void *context, uint64_t address, uint64_t usable_bytes,
			  uint64_t counted_bytes)
{
	struct finder *finder = context;

	add_live(finder, counted_bytes);
	hl_candidates_meet(&finder->candidates, &finder->graph, address, usable_bytes);
	return keep_place(finder, address, usable_bytes);
}

static int take_foreign(void *context, uint64_t start, uint64_t end)
{
	struct finder *finder = context;

	return hl_extents_add(&finder->foreign, start, end);
}

static int see_parts_of_roots(struct finder *finder, unsigned roots)
{
	int r = hl_graph_see_roots(&finder->graph, &finder->glibc, &finder->heap, &finder->foreign,
				   roots);

	hl_unread_join(&finder->leaks->unread, &finder->graph.unread);
	return r;
}

/* Registers and stacks belong together, so threads stop while both are read: but for those that sleep all the while. */
static int see_roots(struct finder *finder)
{
	unsigned roots = HL_ROOTS_ALL;
	int r = 0;

	if (stands_still(finder))
		return see_parts_of_roots(finder, roots);
	if (!finder->cannot_stop.text[0] && hl_memory_list_sleepers(finder->memory)) {
		r = see_parts_of_roots(finder, HL_ROOTS_STACKS | HL_ROOTS_AHEAD);
		roots |= HL_ROOTS_REST;
	}
	bool is_spent = finder->leaks->stopped_ns + finder->memory->stopped_ns > STOPPED_MAX_NS;
	finder->is_spent |= is_spent;
	if (r == 0 && !is_spent && !finder->cannot_stop.text[0] &&
	    hl_memory_hold(finder->memory, &finder->cannot_stop) == -ESRCH)
		return hl_error_set(finder->err, -ESRCH, "%s", finder->cannot_stop.text);
	return r == 0 ? see_parts_of_roots(finder, roots | HL_ROOTS_GO_ON) : r;
}

static void release_look(struct finder *finder)
{
	hl_graph_release(&finder->graph);
	if (finder->memory && !finder->still) {
		hl_memory_go_on(finder->memory);
		finder->leaks->stopped_ns += finder->memory->stopped_ns;
		if (finder->memory->stopped_threads > finder->leaks->stopped_threads)
			finder->leaks->stopped_threads = finder->memory->stopped_threads;
		finder->is_audited = finder->memory->is_audited;
		hl_memory_free(finder->memory);
	}
	finder->memory = NULL;
}

static int open_memory(struct finder *finder)
{
	int r = hl_memory_live_open(finder->pid, &finder->memory, finder->err);

	if (r < 0)
		return r;
	finder->memory->is_audited = finder->is_audited;
	hl_memory_live_set_sleepers(finder->memory, finder->settings->sleepers);
	if (finder->settings->reads_swapped)
		hl_memory_live_read_swapped(finder->memory);
	return 0;
}

static int begin_heap(struct finder *finder)
{
	struct hl_leaks *leaks = finder->leaks;

	hl_heap_free(leaks->heap);
	leaks->heap = hl_heap_new();
	if (!leaks->heap)
		return -ENOMEM;
	leaks->heap->was_stopped = finder->still != NULL;
	return finder->still
		       ? 0
		       : hl_process_facts_read(finder->pid, &leaks->heap->process, finder->err);
}

static int init_graph(struct finder *finder)
{
	int r = hl_graph_init(&finder->graph, finder->memory);

	finder->graph.offsets = &finder->offsets;
	finder->graph.reads_unaligned = finder->settings->reads_unaligned;
	return r;
}

static int begin_look(struct finder *finder)
{
	release_look(finder);
	int r = begin_heap(finder);
	if (r == 0 && finder->still)
		finder->memory = finder->still;
	else if (r == 0)
		r = open_memory(finder);
	return r == 0 ? init_graph(finder) : r;
}

static int walk(struct finder *finder, int (*block)(void *context, uint64_t address,
						    uint64_t usable_bytes, uint64_t counted_bytes))
{
	const struct hl_block_walk walk = {.pid = finder->pid,
					   .memory = finder->memory,
					   .block = block,
					   .foreign = take_foreign,
					   .context = finder,
					   .command = "leaks"};

	finder->heap.count = finder->foreign.count = 0;
	finder->tcaches.count = finder->anchors.count = 0;
	finder->leaks->live = (struct hl_leak_sum){0};
	struct hl_walked_table table = {0};
	int r = hl_block_walk(&walk, finder->leaks->heap, &finder->heap, &table, finder->err);

	/* A stop may have ended while the walk went on. */
	finder->leaks->heap->was_stopped = stands_still(finder);
	finder->has_table = table.is_there;
	finder->leaks->live.blocks += table.small_blocks;
	finder->leaks->live.bytes += table.small_bytes;
	hl_extents_sort(&finder->foreign);
	finder->arena_count = (uint32_t)finder->leaks->heap->arena_count;
	return r;
}

static int begin_standing(struct finder *finder)
{
	int r = begin_look(finder);

	if (r < 0)
		return r;
	/* If it is not a glibc heap, the walk reports a better error. */
	hl_glibc_roots_find(finder->memory, &finder->glibc, NULL);
	if (finder->is_exact)
		r = stop_outside_malloc(finder);
	else if (finder->still)
		finder->is_locked = hl_stand_is_any_arena_locked(finder->memory, &finder->glibc);
	return r;
}

/* The first look follows all pointers: reaches all that is not lost, but for what is possible. */
static int look(struct finder *finder)
{
	int r = begin_standing(finder);

	if (r == 0)
		r = walk(finder, take_block);
	if (r == 0)
		r = hl_graph_settle(&finder->graph, &finder->heap);
	if (r == 0)
		r = see_roots(finder);
	if (r == 0)
		r = hl_graph_drain(&finder->graph);
	/* A pointer may have moved from memory that was not read yet to a root that was. */
	if (r == 0 && !stands_still(finder) && (r = see_roots(finder)) == 0)
		r = hl_graph_drain(&finder->graph);
	if (r == 0)
		r = hl_graph_explain_inner(&finder->graph, true);
	finder->leaks->passes++;
	return r;
}

/*
 * Later looks take for reached whatever is not a candidate, and look there for words that lead to one:
 * a linear read instead of a search. Registers and stacks are seen before and after, as in the
 * first.
 */
static int look_for_candidates(struct finder *finder)
{
	int r = begin_standing(finder);

	if (r == 0)
		r = hl_candidates_make_graph(&finder->candidates, &finder->graph);
	if (r == 0)
		r = hl_graph_settle(&finder->graph, &finder->heap);
	if (r == 0)
		r = stands_still(finder) ? see_parts_of_roots(finder, HL_ROOTS_STACKS)
					 : see_roots(finder);
	if (r == 0)
		r = hl_sweep_begin(&finder->graph, &finder->sweep);
	if (r == 0)
		r = walk(finder, sweep_block);
	int ended = hl_sweep_end(finder->sweep);
	finder->sweep = NULL;
	if (r == 0)
		r = ended;
	if (r == 0)
		r = stands_still(finder) ? see_parts_of_roots(finder, HL_ROOTS_OTHERS)
					 : see_roots(finder);
	if (r == 0)
		r = hl_graph_drain(&finder->graph);
	if (r == 0)
		r = hl_graph_explain_inner(&finder->graph, false);
	finder->leaks->passes++;
	return r;
}

/* Opens the memory for a look without a walk: what is known of the heap stays. */
static int begin_unwalked(struct finder *finder, struct hl_word_filter *filter)
{
	struct hl_graph *graph = &finder->graph;

	release_look(finder);
	int r = open_memory(finder);
	if (r == 0)
		r = init_graph(finder);
	if (r == 0)
		r = hl_candidates_make_graph(&finder->candidates, graph);
	if (r == 0)
		r = hl_graph_settle(graph, &finder->heap);
	if (r < 0)
		return r;
	hl_word_filter_fill(filter, graph);
	if (!finder->is_exact)
		return 0;
	finder->leaks->heap->was_stopped = finder->not_walked = true;
	return stop_outside_malloc(finder);
}

/*
 * Looks for words that lead to a candidate in all pages of the heap, live or free. -E2BIG: there are
 * some, and only a walk tells whether they lie in live blocks.
 */
static int look_for_words(struct finder *finder)
{
	HL_FREED struct hl_word_filter *filter = calloc(1, sizeof(*filter));
	HL_CLEANUP(hl_word_hits_release) struct hl_word_hits hits = {0};
	int r = filter ? begin_unwalked(finder, filter) : -ENOMEM;

	if (r == 0)
		r = see_roots(finder);
	if (r == 0)
		r = hl_word_search(&finder->graph, filter, &finder->heap, 0, &hits);
	if (r == 0 && !stands_still(finder))
		r = see_roots(finder);
	if (r == 0)
		r = hl_graph_drain(&finder->graph);
	if (r == 0)
		r = hl_graph_explain_inner(&finder->graph, false);
	finder->leaks->passes += r == 0;
	return r;
}

/* ---- several looks ---- */

/* Reaches what dropped candidates lead to: it may still be in use. */
static int drop_reached(struct finder *finder)
{
	int r = hl_graph_drain(&finder->graph);

	if (r == 0)
		r = hl_graph_explain_inner(&finder->graph, false);
	if (r == 0)
		hl_candidates_drop_reached(&finder->candidates, &finder->graph);
	return r;
}

/* Keeps the candidates that this look found live, lost and unchanged. */
static int intersect(struct finder *finder)
{
	int r = hl_candidates_compare(&finder->candidates, &finder->graph);

	return r == 0 ? drop_reached(finder) : r;
}

/* The same without a walk: sizes say what is live. */
static int compare_unwalked(struct finder *finder)
{
	int r = hl_candidates_compare_sizes(&finder->candidates, &finder->graph,
					    !finder->has_table);

	return r == 0 ? drop_reached(finder) : r;
}

static void follow_links(struct finder *finder)
{
	finder->graph.follows_links = true;
	finder->graph.has_safe_links = finder->glibc.layout->safe_linking;
}

static bool any_looks_cached(const struct finder *finder)
{
	return finder->glibc.layout &&
	       hl_candidates_any_looks_cached(&finder->candidates, &finder->graph, &finder->glibc);
}

static struct hl_still still_of(struct finder *finder, const struct hl_word_filter *filter)
{
	hl_addresses_sort(&finder->anchors);
	return (struct hl_still){&finder->graph,
				 filter,
				 &finder->glibc,
				 &finder->heap,
				 &finder->anchors,
				 &finder->tcaches,
				 finder->arena_count + ARENAS_MORE};
}

static bool is_small(const struct finder *finder)
{
	struct hl_heap_arena total;

	hl_heap_total(finder->leaks->heap, &total);
	return total.system_bytes <= HELD_WALK_BYTES;
}

/* Reaches what is not a live block now. As hl_candidates_prove(). */
static int prove(struct finder *finder, bool is_walked)
{
	const struct hl_still still = still_of(finder, NULL);

	if (is_walked)
		return hl_candidates_prove(&finder->candidates, &finder->graph, &finder->glibc,
					   finder->has_table);
	int r = finder->has_table ? 0 : hl_still_prove(&still);
	return r == 0 ? hl_candidates_compare_sizes(&finder->candidates, &finder->graph,
						    !finder->has_table)
		      : r;
}

/*
 * A block that is freed and allocated again and again may be live whenever it is walked over, and
 * free whenever it is read, with the same words. And the walk cannot follow a list of free chunks
 * while its first ones change. So the last word is that of a walk with all threads stopped; of a heap
 * that is too large for that, of the lists. Chunks that malloc_consolidate() has taken from their arena
 * hang on a register. A thread may stand where a chunk is in no list at all, so this asks at several
 * moments.
 */
static int drop_unproven(struct finder *finder, bool *ret_is_proven)
{
	bool is_walked = is_small(finder), has_moved = false;
	int r = 0;

	for (unsigned i = 0; i < HOLDS && r == 0 && finder->glibc.layout &&
			     (!*ret_is_proven || any_looks_cached(finder));
	     i++) {
		if (i)
			usleep(PAUSE_US);
		if (finder->cannot_stop.text[0])
			break;
		r = hl_stand_hold_outside_malloc(finder->memory, &finder->glibc,
						 has_moved && i + 1 == HOLDS, &finder->cannot_stop);
		if (r < 0)
			return r == -ESRCH ? r : 0;
		r = prove(finder, is_walked);
		has_moved = r == -EAGAIN;
		*ret_is_proven |= r == 0 && !finder->has_table;
		r = has_moved ? 0 : r;
		follow_links(finder);
		if (r == 0)
			r = hl_graph_see_roots(&finder->graph, &finder->glibc, &finder->heap,
					       &finder->foreign, HL_ROOTS_ALL | HL_ROOTS_GO_ON);
		hl_memory_go_on(finder->memory);
		if (r == 0)
			r = drop_reached(finder);
	}
	return r;
}

/* Keeps what a walk still finds live. */
static int drop_freed(struct finder *finder)
{
	int r = begin_heap(finder);

	hl_candidates_forget_walk(&finder->candidates);
	if (r == 0)
		r = walk(finder, take_candidate);
	return r == 0 ? intersect(finder) : r;
}

/*
 * Whether words in all pages of the heap leave the candidates alone, once more. In a process that works
 * on them a walk has to say what is free: one look in which any of them is dropped, or may be, and all
 * later ones walk.
 */
static int look_without_walk(struct finder *finder, bool *ret_is_quiet)
{
	size_t before = finder->candidates.count;
	int r = any_looks_cached(finder) ? -E2BIG : look_for_words(finder);

	if (r == 0)
		r = compare_unwalked(finder);
	*ret_is_quiet = r == 0 && finder->candidates.count == before;
	return r == -E2BIG ? 0 : r;
}

/* Drops what is not a live block. */
static int drop_free(struct finder *finder)
{
	bool is_proven = false;
	int r = finder->candidates.count ? drop_unproven(finder, &is_proven) : 0;

	return r == 0 && !is_proven && finder->candidates.count ? drop_freed(finder) : r;
}

static int look_with_walks(struct finder *finder)
{
	unsigned looks = 0, quiet = 0;
	int r = 0;

	while (r == 0 && finder->candidates.count && finder->leaks->passes < PASSES_MAX &&
	       (looks + 1 < PASSES_MIN || quiet < PASSES_QUIET)) {
		size_t before = finder->candidates.count;
		usleep(PAUSE_US);
		r = look_for_candidates(finder);
		if (r == 0)
			r = intersect(finder);
		quiet = finder->candidates.count == before ? quiet + 1 : 0;
		looks++;
	}
	return r == 0 ? drop_free(finder) : r;
}

static int look_again(struct finder *finder)
{
	struct hl_leaks *leaks = finder->leaks;
	bool is_quiet = true;
	int r = look(finder);

	if (r == 0)
		r = hl_candidates_collect(&finder->candidates, &finder->graph);
	while (r == 0 && is_quiet && finder->candidates.count && leaks->passes < PASSES_MIN) {
		usleep(PAUSE_US);
		r = look_without_walk(finder, &is_quiet);
	}
	if (r < 0 || !is_quiet)
		return r < 0 ? r : look_with_walks(finder);
	size_t before = finder->candidates.count;
	r = drop_free(finder);
	return r == 0 && finder->candidates.count < before ? look_with_walks(finder) : r;
}

/* The process is stopped from here on until the caller lets it go on. */
static int look_while_still(struct finder *finder)
{
	HL_FREED struct hl_word_filter *filter = calloc(1, sizeof(*filter));
	const struct hl_still still = still_of(finder, filter);

	int r = filter ? begin_unwalked(finder, filter) : -ENOMEM;
	follow_links(finder);
	if (r == 0)
		r = see_parts_of_roots(finder, HL_ROOTS_STACKS);
	if (r == 0 && (r = prove(finder, is_small(finder))) == -EAGAIN)
		r = 0;
	if (r == 0)
		r = hl_still_see_heap(&still);
	if (r == 0)
		r = see_parts_of_roots(finder, HL_ROOTS_OTHERS);
	if (r == -E2BIG) {
		/* Too many words lead to candidates: the slower way needs less memory. */
		hl_memory_go_on(finder->memory);
		return look_for_candidates(finder);
	}
	if (r == 0)
		r = hl_graph_drain(&finder->graph);
	if (r == 0)
		r = hl_graph_explain_inner(&finder->graph, false);
	finder->leaks->passes++;
	return r;
}

static int look_exactly(struct finder *finder)
{
	int r = hl_stop_check(finder->pid, finder->err);

	if (r == 0)
		r = look_again(finder);
	/* Only what was lost before counts: a thread may be inside malloc when it is stopped, with
	 * chunks that are in no list, and programs of one thread take no lock that would say so. */
	if (r < 0 || finder->candidates.count == 0)
		return r;
	finder->is_exact = true;
	if (!finder->has_table && finder->glibc.layout)
		return look_while_still(finder);
	/* Free memory of other allocators cannot be told from blocks without the table; nor that of glibc, where
	 * its arenas were found by the walk, and not before it. */
	r = look_for_words(finder);
	if (r != -E2BIG)
		return r;
	finder->not_walked = false;
	r = look_for_candidates(finder);
	return r == 0 ? intersect(finder) : r;
}

/* ---- the whole ---- */

static int note_blind_spots(struct finder *finder)
{
	struct hl_leaks *leaks = finder->leaks;
	struct hl_heap_arena total;
	int r = 0;

	hl_heap_total(leaks->heap, &total);
	if (leaks->lost.blocks || leaks->unknown.blocks || leaks->unread.swapped_bytes)
		r = hl_unread_note(&leaks->unread, leaks->heap, "leaks");
	if (r == 0 && finder->cannot_stop.text[0])
		r = hl_heap_note(leaks->heap,
				 "registers could not be read, so a block that only a register "
				 "leads to may be reported: %s",
				 finder->cannot_stop.text);
	if (r == 0 && finder->is_spent)
		r = hl_heap_note(
			leaks->heap, "%s",
			"threads had been stopped for more than a second: later looks read "
			"stacks while threads ran, and no registers of these");
	if (r == 0 && leaks->lost.blocks)
		r = hl_stand_note_late(
			finder->memory, leaks->heap,
			"a block may be reported whose only pointer was moved from there "
			"meanwhile");
	if (r == 0 && finder->is_locked)
		r = hl_heap_note(leaks->heap, "%s",
				 "a thread was inside malloc or free: blocks that it was moving "
				 "may be reported though they are not lost");
	if (r == 0 && (total.unscanned_bytes || finder->memory->is_cut_off))
		r = hl_heap_note(leaks->heap,
				 "blocks that only %s memory leads to are reported as lost",
				 finder->memory->is_cut_off ? "missing" : "unscanned");
	return r;
}

/* Without owners rows are by class and size; ${ret_owners} is then NULL. */
static int open_owners(struct finder *finder, struct hl_block_owners **ret_owners)
{
	struct hl_error why = {0};

	*ret_owners = NULL;
	if (finder->still)
		return 0;
	int r = hl_block_owners_new(finder->pid, ret_owners, &why);
	return r == 0 || r == -ENODATA ? 0 : hl_heap_note(finder->leaks->heap, "%s", why.text);
}

static int copy_stacks(struct finder *finder, const struct hl_block_owners *owners)
{
	struct hl_leaks *leaks = finder->leaks;

	if (!finder->settings->want_stacks || !owners)
		return 0;
	leaks->stacks = calloc(1, sizeof(*leaks->stacks));
	if (!leaks->stacks)
		return -ENOMEM;
	int r = hl_block_owners_copy_stacks(owners, leaks->stacks);
	if (r == -ENODATA) {
		free(leaks->stacks);
		leaks->stacks = NULL;
	}
	return r == -ENODATA ? 0 : r;
}

static int find(struct finder *finder)
{
	struct hl_block_owners *owners = NULL;
	struct hl_leak_rows *rows = NULL;
	int r = finder->still		 ? look(finder)
		: finder->settings->stop ? look_exactly(finder)
					 : look_again(finder);

	if (r == 0)
		r = hl_leak_rows_new(finder->leaks, &finder->graph, finder->settings, &rows);
	/* The process may be stopped: it waits only for what is needed now. */
	if (r == 0 && finder->memory)
		hl_memory_keep_time(finder->memory, 0);
	if (r == 0 && !finder->still &&
	    hl_block_owners_would_have_pieces(finder->pid, &finder->memory->maps))
		r = open_owners(finder, &owners);
	if (r == 0 && finder->memory)
		hl_memory_keep_time(finder->memory, 0);
	if (r == 0)
		r = hl_leak_rows_reach_possible(rows, owners);
	if (finder->memory) {
		hl_memory_go_on(finder->memory);
		finder->memory->is_late = false; /* what follows may be read while it runs */
	}
	/* What is lost nobody can change: what has changed since is in use. */
	if (r == 0 && finder->not_walked)
		r = compare_unwalked(finder);
	if (r == 0 && finder->not_walked && finder->candidates.count)
		r = drop_freed(finder);
	if (r == 0 && !owners)
		r = open_owners(finder, &owners);
	if (r == 0 && owners && !finder->has_table)
		r = hl_block_owners_note_pieces(owners, finder->leaks->heap);
	if (r == 0)
		r = hl_leak_rows_add_possible(rows, owners);
	if (r == 0)
		r = hl_leak_rows_add_lost(rows);
	if (r == 0)
		r = copy_stacks(finder, owners);
	hl_leak_rows_free(rows);
	hl_block_owners_free(owners);
	return r == 0 ? note_blind_spots(finder) : r;
}

static int find_with(struct finder *finder, struct hl_leaks **ret_leaks)
{
	finder->leaks = calloc(1, sizeof(*finder->leaks));
	if (!finder->leaks)
		return hl_error_set(finder->err, -ENOMEM, "out of memory");
	int r = find(finder);
	release_look(finder);
	hl_extents_release(&finder->heap);
	hl_extents_release(&finder->foreign);
	hl_addresses_release(&finder->tcaches);
	hl_addresses_release(&finder->anchors);
	hl_candidates_release(&finder->candidates);
	if (r < 0) {
		hl_leaks_free(finder->leaks);
		return hl_error_set(finder->err, r, "cannot look for lost blocks: %s",
				    strerror(-r));
	}
	*ret_leaks = finder->leaks;
	return 0;
}

int hl_leaks_read_memory(struct hl_memory *memory, const struct hl_leaks_settings *settings,
			 struct hl_leaks **ret_leaks, struct hl_error *err)
{
	struct finder finder = {.still = memory, .settings = settings, .err = err};

	return find_with(&finder, ret_leaks);
}

static int read_core(const char *path, const struct hl_leaks_settings *settings,
		     struct hl_leaks **ret_leaks, struct hl_error *err)
{
	struct hl_process_facts facts = {0};
	struct hl_memory *memory = NULL;

	int r = hl_memory_core_open(path, &memory, &facts, err);
	if (r == 0)
		r = hl_leaks_read_memory(memory, settings, ret_leaks, err);
	hl_memory_free(memory);
	if (r < 0) {
		hl_process_facts_release(&facts);
		return r;
	}
	(*ret_leaks)->heap->process = facts;
	(*ret_leaks)->heap->from_core = true;
	return 0;
}

int hl_leaks_read(pid_t pid, const char *core, const struct hl_leaks_settings *settings,
		  struct hl_leaks **ret_leaks, struct hl_error *err)
{
	struct finder finder = {.pid = pid, .settings = settings, .err = err};

	if (settings->never_stop)
		hl_error_set(&finder.cannot_stop, -EBUSY,
			     "no thread was stopped, as --no-stop asks");
	return core ? read_core(core, settings, ret_leaks, err) : find_with(&finder, ret_leaks);
}
