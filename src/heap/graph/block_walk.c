/* SPDX-License-Identifier: BSD-2-Clause */
/* Blocks by a walk, and by a recorder's table, of a process that may be stopped; see graph.h. */
#include "heap/graph/graph.h"

#include "base/clock.h"
#include "heap/glibc.h"
#include "heap/heap.h"
#include "heap/memory.h"
#include "heap/other_allocators.h"
#include "heap/owners/owners.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE_BYTES 4096u

/* Where lost blocks are marked, the graph has a granule of 16 bytes for a block's start, and one more
 * for the mark. Blocks between granules, and those without room for the mark, are roots: what
 * they lead to is not lost, and they themselves are not. */
#define BLOCK_MIN 17u

struct walking {
	const struct hl_block_walk *walk;
	const struct hl_heap *heap;
	const struct hl_maps *maps;
	const struct hl_extents *known; /* whose blocks were given already */
	struct hl_extents found;
	struct hl_extent small; /* blocks that are roots, in a row; end 0: none */
	uint64_t gap_max;	/* between blocks of such a row */
	bool knows_all;
	bool has_guesses;
	struct hl_walked_table table;
};

static int flush_small(struct walking *walking)
{
	struct hl_extent small = walking->small;

	walking->small = (struct hl_extent){0};
	return small.end ? walking->walk->foreign(walking->walk->context, small.start, small.end)
			 : 0;
}

/* Slabs of small blocks are given as a whole, so that they are few. */
static int add_small(struct walking *walking, uint64_t start, uint64_t end)
{
	struct hl_extent *small = &walking->small;
	int r = 0;

	if (small->end && start - small->end >= walking->gap_max)
		r = flush_small(walking);
	if (!small->end)
		small->start = start;
	small->end = end;
	return r;
}

/* [${start}, ${end}), or the part of it after the last extent. */
static int add_extent(struct hl_extents *extents, uint64_t start, uint64_t end)
{
	struct hl_extent *last = extents->count ? &extents->extents[extents->count - 1] : NULL;

	if (!last || start > last->end)
		return hl_extents_add(extents, start, end);
	if (end > last->end)
		last->end = end;
	return 0;
}

/* Bytes that the graph can express, ${bytes} at least. */
static uint64_t round_up(uint64_t bytes)
{
	return (bytes + 7) & ~UINT64_C(7);
}

/* Slots of musl have room for 4 bytes more than the block, so of 16 bytes it may ask for 12. */
#define SMALLEST_SLOT_BYTES 12u
#define SECOND_SLOT_BYTES   24u

/* In slabs a block has a second granule only if it has all of it. */
#define SMALLEST_IN_SLABS 32u

bool hl_block_walk_is_of_slabs(const struct hl_heap *heap)
{
	return heap->walking && !heap->walking->has_trailers;
}

/* A block of a walk: of musl they have any size. Where the mark is needed, those of 13 to 16 bytes are
 * given the second granule that their slot has. */
static int take_walked(void *context, uint64_t address, uint64_t usable_bytes, uint64_t last_word)
{
	struct walking *walking = context;
	const struct hl_block_walk *walk = walking->walk;

	(void)last_word;
	bool is_small = hl_block_walk_is_of_slabs(walking->heap)
				? usable_bytes < SMALLEST_IN_SLABS || address & 15
				: usable_bytes <= SMALLEST_SLOT_BYTES;
	if (is_small && !walk->takes_small) {
		walking->table.small_blocks++;
		walking->table.small_bytes += usable_bytes;
		return add_small(walking, address, address + round_up(usable_bytes));
	}
	if (usable_bytes < BLOCK_MIN && !walk->takes_small)
		usable_bytes = SECOND_SLOT_BYTES;
	usable_bytes = round_up(usable_bytes ? usable_bytes : 1);
	return walk->block(walk->context, address, usable_bytes, usable_bytes);
}

static int take_walked_foreign(void *context, uint64_t start, uint64_t end)
{
	const struct walking *walking = context;

	return walking->walk->foreign(walking->walk->context, start, end);
}

static int take(void *context, const struct hl_owned_block *block)
{
	struct walking *walking = context;
	const struct hl_map *map = hl_maps_find(walking->maps, block->address);
	uint64_t start = block->address, bytes = block->bytes, most;

	if (!map || hl_extents_hold(walking->known, start))
		return 0;
	most = map->end - start < block->most_bytes ? map->end - start : block->most_bytes;
	/* Too much keeps other blocks from being called lost; too little would make them so. */
	if (!block->is_exact)
		bytes = most;
	walking->has_guesses |= !block->is_exact;
	bytes = bytes < most ? bytes : most;
	bool is_whole = walking->knows_all && map->flags & HL_MAP_NORESERVE;
	bool is_small = walking->walk->takes_small ? start & 7 : start & 15 || bytes < BLOCK_MIN;
	if (is_whole && add_extent(&walking->found, map->start, map->end) < 0)
		return -ENOMEM;
	walking->table.small_blocks += is_small;
	walking->table.small_bytes += is_small ? block->requested : 0;
	if (is_small)
		return is_whole ? add_small(walking, start & ~UINT64_C(7), round_up(start + bytes))
				: 0;
	bytes = round_up(bytes);
	if (!is_whole &&
	    add_extent(&walking->found, start, (start + bytes + 8) & ~UINT64_C(15)) < 0)
		return -ENOMEM;
	return walking->walk->block(walking->walk->context, start, bytes, block->requested);
}

/* ---- extents ---- */

static int unite(struct hl_extents *extents, const struct hl_extents *more)
{
	struct hl_extents all = {0};
	int r = 0;

	for (size_t i = 0; i < more->count && r == 0; i++)
		r = hl_extents_add(extents, more->extents[i].start, more->extents[i].end);
	hl_extents_sort(extents);
	for (size_t i = 0; i < extents->count && r == 0; i++)
		r = add_extent(&all, extents->extents[i].start, extents->extents[i].end);
	hl_extents_release(extents);
	*extents = all;
	return r;
}

/* ---- the whole ---- */

static int describe(const struct walking *walking, struct hl_heap *heap)
{
	struct hl_other_found other = hl_other_allocator_library(walking->maps);
	int r = 0;

	if (!other.allocator)
		other = hl_other_allocator_built_in(walking->walk->memory);
	if (!walking->known->count)
		snprintf(heap->allocator, sizeof(heap->allocator),
			 "%s, by the recorder's table: requested bytes",
			 other.allocator ? other.allocator->name : "the program's own allocator");
	if (!walking->knows_all)
		r = hl_heap_note(
			heap, "%s",
			"blocks that were allocated before the recorder came are not known, "
			"so old pointers in memory between blocks count like the program's own");
	if (r == 0 && walking->has_guesses)
		r = hl_heap_note(
			heap, "%s",
			"sums are exact, but of some stacks the size of each block is not known: "
			"it "
			"counts with the mean of its stack; 'heapline record --mode mem-record' "
			"keeps the size of each block");
	return r;
}

/* Gives the blocks that lie outside of ${extents}, and adds to these what they occupy. */
static int walk_table(const struct hl_block_walk *walk, struct hl_extents *extents,
		      struct hl_heap *heap, struct hl_walked_table *ret_table, struct hl_error *err)
{
	const struct hl_maps *maps = &walk->memory->maps;
	struct walking walking = {
		.walk = walk,
		.maps = maps,
		.known = extents,
		.gap_max = PAGE_BYTES,
	};
	struct hl_block_owners *owners = NULL;

	int r = hl_block_owners_new(walk->pid, &owners, err);
	if (r == 0) {
		walking.knows_all = hl_block_owners_know_all(owners);
		r = hl_block_owners_each(owners, take, &walking);
	}
	if (r == 0)
		r = flush_small(&walking);
	if (r == 0)
		r = describe(&walking, heap);
	if (r == 0)
		r = unite(extents, &walking.found);
	ret_table->small_blocks += walking.table.small_blocks;
	ret_table->small_bytes += walking.table.small_bytes;
	ret_table->is_there = r == 0;
	hl_block_owners_free(owners);
	hl_extents_release(&walking.found);
	return r;
}

/* Whether an allocator has blocks that were not walked. */
static bool has_unread(const struct hl_memory *memory, const struct hl_heap *heap)
{
	const struct hl_allocator_traits *other =
		hl_other_allocator_library(&memory->maps).allocator;

	return other && other != heap->walked;
}

int hl_block_walk(const struct hl_block_walk *walk, struct hl_heap *heap,
		  struct hl_extents *extents, struct hl_walked_table *ret_table,
		  struct hl_error *err)
{
	/* Between small blocks of musl lie others, and groups of others. */
	struct walking walking = {.walk = walk, .heap = heap, .gap_max = 1};
	const struct hl_heap_settings settings = {
		.block = take_walked, .foreign = take_walked_foreign, .context = &walking};
	uint64_t began = hl_clock_ns(CLOCK_MONOTONIC);
	struct hl_error why = {0}, no_table = {0};

	int r = hl_heap_walk(walk->memory, &settings, heap, &why);
	bool is_walked = r == 0;
	if (is_walked)
		r = flush_small(&walking);
	if (is_walked && r == 0)
		r = hl_extents_of_carriers(&heap->carriers, heap->page_bytes, extents);
	bool is_wanted = is_walked ? has_unread(walk->memory, heap) : r == -ENOTSUP;
	*ret_table = walking.table;
	ret_table->is_there = heap->walked;
	if (r < 0 && !(is_wanted && walk->pid))
		return hl_error_set(err, r, "%s", why.text[0] ? why.text : strerror(-r));
	if (is_wanted && walk->pid) {
		int tabled = walk_table(walk, extents, heap, ret_table, &no_table);
		if (tabled < 0 && tabled != -ENODATA && tabled != -ENOTSUP)
			return hl_error_set(err, tabled, "%s",
					    no_table.text[0] ? no_table.text : strerror(-tabled));
		if (tabled < 0 && !is_walked && heap->hides_functions)
			return hl_error_set(err, r, "%s", why.text);
		if (tabled < 0 && !is_walked)
			return hl_error_set(
				err, r,
				"%s; of a program started with 'heapline record', "
				"'heapline %s' finds the blocks in the recorder's table",
				why.text, walk->command);
	}
	heap->walk_ns = hl_clock_ns(CLOCK_MONOTONIC) - began;
	return 0;
}

/* ---- the process is stopped ---- */

#define STOP_MS	      100u
#define STOPS_MAX     1000u
#define STOP_PAUSE_US 200
#define HOLD_TRIES    50u    /* until no thread is inside malloc */
#define ARENAS_MAX    16384u /* more are a damaged list; glibc makes 8 for each processor */

bool hl_stand_is_any_arena_locked(struct hl_memory *memory, const struct hl_glibc *glibc)
{
	uint64_t address = glibc->main_arena;
	struct hl_glibc_arena arena;

	for (uint32_t i = 0; i < ARENAS_MAX && glibc->layout; i++) {
		if (hl_glibc_state_arena(memory, glibc, address, &arena) < 0)
			return false; /* damaged: it will not get better */
		if (arena.is_locked)
			return true;
		address = arena.next;
		if (address == glibc->main_arena)
			break;
	}
	return false;
}

int hl_stand_begin_outside_malloc(struct hl_memory *memory, const struct hl_glibc *glibc,
				  bool *ret_is_locked, struct hl_error *err)
{
	for (unsigned tries = 1;; tries++) {
		int r = hl_memory_stop(memory, err);
		if (r < 0)
			return r;
		bool is_locked = hl_stand_is_any_arena_locked(memory, glibc);
		if (!is_locked || tries == STOPS_MAX) {
			*ret_is_locked = is_locked;
			memory->still_until_ns =
				hl_clock_ns(CLOCK_MONOTONIC) + STOP_MS * HL_NS_PER_SECOND / 1000;
			/* What the stop before this one was too short for is read again. */
			memory->is_late = false;
			memory->late_bytes = memory->block_bytes = 0;
			return 0;
		}
		hl_memory_go_on(memory);
		usleep(STOP_PAUSE_US);
	}
}

int hl_stand_hold_outside_malloc(struct hl_memory *memory, const struct hl_glibc *glibc,
				 bool stops_all, struct hl_error *err)
{
	for (unsigned tries = 1;; tries++) {
		int r = stops_all ? hl_memory_stop(memory, err) : hl_memory_hold(memory, err);
		if (r < 0 || tries == HOLD_TRIES || !hl_stand_is_any_arena_locked(memory, glibc))
			return r;
		hl_memory_go_on(memory);
		usleep(STOP_PAUSE_US);
	}
}

int hl_stand_note_late(const struct hl_memory *memory, struct hl_heap *heap, const char *what)
{
	if (!memory->late_bytes)
		return 0;
	return hl_heap_note(heap,
			    "the process goes on after %u ms, and the last %llu MiB were "
			    "read while it ran: %s",
			    STOP_MS, (unsigned long long)(memory->late_bytes + (1 << 20) - 1) >> 20,
			    what);
}

/* ---- what was not read ---- */

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

void hl_unread_join(struct hl_unread *unread, const struct hl_unread *other)
{
	unread->swapped_bytes = larger(unread->swapped_bytes, other->swapped_bytes);
	unread->secret_bytes = larger(unread->secret_bytes, other->secret_bytes);
	unread->closed_bytes = larger(unread->closed_bytes, other->closed_bytes);
	unread->has_io_uring |= other->has_io_uring;
}

uint64_t hl_unread_words(const struct hl_unread *unread)
{
	return (unread->swapped_bytes + unread->secret_bytes + unread->closed_bytes) / 8;
}

int hl_unread_note(const struct hl_unread *unread, struct hl_heap *heap, const char *verb)
{
	int r = 0;

	if (unread->swapped_bytes)
		r = hl_heap_note(
			heap,
			"%llu KiB of the process are on swap and were not read: blocks there "
			"are not in these figures, and pointers there may lead to others; "
			"'heapline %s --swapped' reads them, which brings them back into RAM",
			(unsigned long long)unread->swapped_bytes / 1024, verb);
	if (r == 0 && unread->secret_bytes)
		r = hl_heap_note(
			heap,
			"%llu KiB of the process are memfd_secret memory, which nobody else "
			"can read: pointers there may lead to blocks",
			(unsigned long long)unread->secret_bytes / 1024);
	if (r == 0 && unread->closed_bytes)
		r = hl_heap_note(
			heap,
			"%llu KiB of the process are without access and could not be read "
			"(kernel option proc_mem.force_override): pointers there may lead to "
			"blocks",
			(unsigned long long)unread->closed_bytes / 1024);
	if (r == 0 && unread->has_io_uring)
		r = hl_heap_note(
			heap, "%s",
			"the process uses io_uring, and Linux does not show the user_data of "
			"requests in flight: blocks that only these lead to count as lost");
	return r;
}
