/* SPDX-License-Identifier: BSD-2-Clause */
/* Blocks by a walk, and by a recorder's table, for the graph; see block_walk.h. */
#include "heap/graph/block_walk.h"

#include "base/clock.h"
#include "heap/memory.h"
#include "heap/other_allocators.h"
#include "heap/owners/block_owners.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES 4096u

/* Where lost blocks are marked, the graph has a granule of 16 bytes for a block's start, and one more
 * for the mark. Blocks between granules, and those without room for the mark, are roots: what
 * they lead to is not lost, and they themselves are not. */
#define BLOCK_MIN 17u

struct walking {
	const struct hl_block_walk *walk;
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

/* A block of a walk: of musl they have any size. Where the mark is needed, those of 13 to 16 bytes are
 * given the second granule that their slot has. */
static int take_walked(void *context, uint64_t address, uint64_t usable_bytes, uint64_t last_word)
{
	struct walking *walking = context;
	const struct hl_block_walk *walk = walking->walk;

	(void)last_word;
	if (usable_bytes <= SMALLEST_SLOT_BYTES && !walk->takes_small)
		return add_small(walking, address, address + round_up(usable_bytes));
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
	*ret_table = walking.table;
	ret_table->is_there = r == 0;
	hl_block_owners_free(owners);
	hl_extents_release(&walking.found);
	return r;
}

int hl_block_walk(const struct hl_block_walk *walk, struct hl_heap *heap,
		  struct hl_extents *extents, struct hl_walked_table *ret_table,
		  struct hl_error *err)
{
	/* Between small blocks of musl lie others, and groups of others. */
	struct walking walking = {.walk = walk, .gap_max = 1};
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
	bool is_wanted = is_walked
				 ? !heap->is_musl &&
					   hl_other_allocator_library(&walk->memory->maps).allocator
				 : r == -ENOTSUP;
	*ret_table = (struct hl_walked_table){.is_there = heap->is_musl};
	if (r < 0 && !(is_wanted && walk->pid))
		return hl_error_set(err, r, "%s", why.text[0] ? why.text : strerror(-r));
	if (is_wanted && walk->pid) {
		int tabled = walk_table(walk, extents, heap, ret_table, &no_table);
		if (tabled < 0 && tabled != -ENODATA && tabled != -ENOTSUP)
			return hl_error_set(err, tabled, "%s",
					    no_table.text[0] ? no_table.text : strerror(-tabled));
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
