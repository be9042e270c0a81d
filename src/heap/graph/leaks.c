/* SPDX-License-Identifier: BSD-2-Clause */
/* Looks at a process, once or several times; see leaks.h. */
#include "heap/graph/leaks.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/file_print.h"
#include "heap/glibc.h"
#include "heap/graph/graph.h"
#include "heap/owners/block_owners.h"
#include "recording/recording.h"

#include <string.h>
#include <unistd.h>

/* Looks at a process that runs. With fewer than PASSES_MIN a thread that moves pointers about at
 * full speed can hide a block from all of them, see decision 37. */
#define PASSES_MIN   5u
#define PASSES_MAX   20u
#define PASSES_QUIET 2u /* that remove nothing end the search */
#define PAUSE_US     10000

#define STOPS_MAX     1000u /* how often to wait for all threads to leave the allocator */
#define STOP_PAUSE_US 200
#define ARENAS_MAX    65536u
#define READ_AHEAD    (UINT64_C(256) << 10)

/* A block that was lost in all looks so far. */
struct candidate {
	uint64_t address, hash; /* of its size and its words */
};

struct candidates {
	struct candidate *items; /* by address */
	size_t count, capacity;
};

struct finder {
	pid_t pid;		 /* 0: it is ${still} */
	struct hl_memory *still; /* the caller's */
	const struct hl_leaks_settings *settings;
	struct hl_leaks *leaks;
	struct hl_error *err;
	struct hl_memory *memory;
	struct hl_glibc glibc;
	struct hl_extents heap;
	struct hl_extents foreign; /* parts of it that are the program's own */
	struct hl_graph graph;
	struct candidates candidates;
	bool is_exact;		     /* the look that is taken is to stop the process */
	uint64_t stop_began_ns;	     /* 0: the process runs */
	struct hl_error cannot_stop; /* why registers cannot be read; "": they can */
};

/* ---- standing still ---- */

/* Whether what is looked at stands still all the time. */
static bool stands_still(const struct finder *finder)
{
	return finder->still || finder->is_exact;
}

static void go_on(struct finder *finder)
{
	if (!finder->memory)
		return;
	hl_memory_go_on(finder->memory);
	if (finder->stop_began_ns)
		finder->leaks->stopped_ns += hl_clock_ns(CLOCK_MONOTONIC) - finder->stop_began_ns;
	finder->stop_began_ns = 0;
}

static int stop(struct finder *finder, struct hl_error *err)
{
	uint64_t now = hl_clock_ns(CLOCK_MONOTONIC);
	int r = hl_memory_stop(finder->memory, err);

	if (r == 0)
		finder->stop_began_ns = now;
	return r;
}

/* Whether a thread is changing an arena: chunks may then be in no list. */
static bool is_any_arena_locked(struct finder *finder)
{
	uint64_t address = finder->glibc.main_arena;
	struct hl_glibc_arena arena;

	for (uint32_t i = 0; i < ARENAS_MAX; i++) {
		if (hl_glibc_state_arena(finder->memory, &finder->glibc, address, &arena) < 0)
			return false; /* damaged: it will not get better */
		if (arena.is_locked)
			return true;
		address = arena.next;
		if (address == finder->glibc.main_arena)
			break;
	}
	return false;
}

static int note_locked(struct finder *finder)
{
	return hl_heap_note(finder->leaks->heap, "%s",
			    "a thread was inside malloc or free: blocks that it was moving may be "
			    "reported though they are not lost");
}

static int stop_outside_malloc(struct finder *finder)
{
	for (unsigned tries = 1;; tries++) {
		int r = stop(finder, finder->err);
		if (r < 0 || !is_any_arena_locked(finder))
			return r;
		if (tries == STOPS_MAX)
			return note_locked(finder);
		go_on(finder);
		usleep(STOP_PAUSE_US);
	}
}

/* ---- one look ---- */

static int take_block(void *context, uint64_t address, uint64_t usable_bytes, uint64_t last_word)
{
	struct finder *finder = context;

	(void)last_word;
	return hl_graph_add(&finder->graph, address, usable_bytes);
}

static int take_foreign(void *context, uint64_t start, uint64_t end)
{
	struct finder *finder = context;

	return hl_extents_add(&finder->foreign, start, end);
}

/* Registers and stacks belong together, so the process stops while both are read. */
static int see_roots(struct finder *finder)
{
	if (!stands_still(finder) && !finder->cannot_stop.text[0] &&
	    stop(finder, &finder->cannot_stop) == -ESRCH)
		return hl_error_set(finder->err, -ESRCH, "%s", finder->cannot_stop.text);
	int r = hl_graph_see_roots(&finder->graph, &finder->glibc, &finder->heap, &finder->foreign,
				   !stands_still(finder));
	if (!stands_still(finder))
		go_on(finder);
	return r;
}

static void release_look(struct finder *finder)
{
	hl_graph_release(&finder->graph);
	if (!finder->still)
		hl_memory_free(finder->memory);
	finder->memory = NULL;
}

static int begin_look(struct finder *finder)
{
	struct hl_leaks *leaks = finder->leaks;
	int r;

	release_look(finder);
	hl_heap_free(leaks->heap);
	leaks->heap = hl_heap_new();
	if (!leaks->heap)
		return -ENOMEM;
	leaks->heap->was_stopped = stands_still(finder);
	if (finder->still)
		return hl_graph_init(&finder->graph, finder->memory = finder->still);
	r = hl_process_facts_read(finder->pid, &leaks->heap->process, finder->err);
	if (r == 0)
		r = hl_memory_live_open(finder->pid, &finder->memory, finder->err);
	return r == 0 ? hl_graph_init(&finder->graph, finder->memory) : r;
}

static int walk(struct finder *finder)
{
	struct hl_heap *heap = finder->leaks->heap;
	const struct hl_heap_settings settings = {
		.block = take_block, .foreign = take_foreign, .context = finder};
	uint64_t began = hl_clock_ns(CLOCK_MONOTONIC);

	finder->foreign.count = 0;
	int r = hl_heap_walk(finder->memory, &settings, heap, finder->err);

	heap->walk_ns = hl_clock_ns(CLOCK_MONOTONIC) - began;
	if (r == 0)
		r = hl_extents_of_carriers(&heap->carriers, heap->page_bytes, &finder->heap);
	return r == 0 ? hl_graph_settle(&finder->graph, &finder->heap) : r;
}

/* Reaches all that is not lost, but for what is possible. */
static int look(struct finder *finder)
{
	int r = begin_look(finder);

	/* What is no glibc's heap, the walk explains better. */
	bool has_glibc = r == 0 && hl_glibc_roots_find(finder->memory, &finder->glibc, NULL) == 0;
	if (has_glibc && finder->is_exact)
		r = stop_outside_malloc(finder);
	else if (has_glibc && finder->still && is_any_arena_locked(finder))
		r = note_locked(finder);
	if (r == 0)
		r = walk(finder);
	if (r == 0)
		r = see_roots(finder);
	if (r == 0)
		r = hl_graph_drain(&finder->graph);
	/* A pointer may have moved from memory that was not read yet to a root that was. */
	if (r == 0 && !stands_still(finder) && (r = see_roots(finder)) == 0)
		r = hl_graph_drain(&finder->graph);
	if (r == 0)
		r = hl_graph_explain_inner(&finder->graph);
	finder->leaks->passes++;
	return r;
}

/* ---- several looks ---- */

static int hash_words(void *context, uint64_t address, const uint64_t *words, size_t count)
{
	uint64_t *hash = context;

	(void)address;
	for (size_t i = 0; i < count; i++)
		*hash = (*hash ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15) + 1;
	return 0;
}

/* Keeps the candidates that are lost and unchanged; of the first look, all that are lost. Whoever is
 * lost but no candidate may still be in use, and is reached. */
static int intersect(struct finder *finder, bool is_first)
{
	struct hl_graph *graph = &finder->graph;
	struct candidates *candidates = &finder->candidates;
	size_t kept = 0, at = 0;
	int r = 0;

	graph->window_end = 0;
	for (uint64_t block = 0; r == 0 && (block = hl_graph_next_lost(graph, block));
	     block += 16) {
		uint64_t usable = hl_graph_usable(graph, block), hash = usable;
		r = hl_graph_read(graph, block, block + usable, block + READ_AHEAD, hash_words,
				  &hash);
		const struct candidate found = {block, hash};
		if (r == 0 && is_first)
			r = HL_ARRAY_APPEND(candidates->items, candidates->count,
					    candidates->capacity, found);
		if (r < 0 || is_first)
			continue;
		while (at < candidates->count && candidates->items[at].address < block)
			at++;
		if (at < candidates->count && candidates->items[at].address == block &&
		    candidates->items[at].hash == found.hash)
			candidates->items[kept++] = found;
		else
			hl_graph_reach(graph, block);
	}
	if (!is_first)
		candidates->count = kept;
	/* What these lead to is in use as well. */
	if (r == 0)
		r = hl_graph_drain(graph);
	return r == 0 ? hl_graph_explain_inner(graph) : r;
}

static int look_again(struct finder *finder, unsigned least, unsigned most)
{
	unsigned quiet = 0;
	int r = 0;

	while (r == 0 && finder->leaks->passes < most &&
	       (finder->leaks->passes < least || quiet < PASSES_QUIET)) {
		size_t before = finder->candidates.count;
		bool is_first = finder->leaks->passes == 0;
		if (!is_first)
			usleep(PAUSE_US);
		r = look(finder);
		if (r == 0)
			r = intersect(finder, is_first);
		quiet = finder->candidates.count == before ? quiet + 1 : 0;
		if (finder->candidates.count == 0)
			break;
	}
	return r;
}

static int look_exactly(struct finder *finder)
{
	int r = hl_stop_check(finder->pid, finder->err);

	if (r == 0)
		r = look_again(finder, PASSES_MIN, PASSES_MAX);
	/* Only what was lost before counts: a thread may be inside malloc when it stands still, with
	 * chunks that are in no list, and programs of one thread take no lock that would say so. */
	if (r < 0 || finder->candidates.count == 0)
		return r;
	finder->is_exact = true;
	r = look(finder);
	return r == 0 ? intersect(finder, false) : r;
}

/* ---- the whole ---- */

static int note_blind_spots(struct finder *finder)
{
	struct hl_leaks *leaks = finder->leaks;
	struct hl_heap_arena total;
	int r = 0;

	hl_heap_total(leaks->heap, &total);
	if (finder->cannot_stop.text[0])
		r = hl_heap_note(leaks->heap,
				 "registers could not be read, so a block that only a register "
				 "leads to may be reported: %s",
				 finder->cannot_stop.text);
	if (r == 0 && total.unscanned_bytes)
		r = hl_heap_note(leaks->heap, "%s",
				 "blocks that only unscanned memory leads to are reported as lost");
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
					 : look_again(finder, PASSES_MIN, PASSES_MAX);

	if (r == 0)
		r = open_owners(finder, &owners);
	if (r == 0)
		r = hl_leak_rows_new(finder->leaks, &finder->graph, owners, finder->settings,
				     &rows);
	if (r == 0)
		r = hl_leak_rows_add_possible(rows);
	/* Nothing leads to what is lost, so it does not change any more. */
	go_on(finder);
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
	free(finder->candidates.items);
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

	return core ? read_core(core, settings, ret_leaks, err) : find_with(&finder, ret_leaks);
}
