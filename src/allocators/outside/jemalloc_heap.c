/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads jemalloc's heap from outside: reports what extents hold, by address; see jemalloc.h. */
#include "allocators/outside/jemalloc.h"
#include "allocators/outside/readers.h"
#include "allocators/traits.h"
#include "base/array.h"
#include "heap/other_allocators.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define TRIES 3u

/* A stretch of memory that becomes a carrier: extents of one arena, side by side; or a base block. */
struct stretch {
	uint64_t start; /* first: sorted by it */
	uint64_t end;
	struct hl_jemalloc *jemalloc;
	size_t first, count; /* extents; 0: a base block */
	uint32_t arena;
};

struct walker {
	struct hl_slab_heap slabs;
	struct hl_jemalloc *jemalloc; /* of the current stretch */
	struct stretch *stretches;
	size_t stretch_count, stretch_capacity;
	uint32_t shared_arena; /* of what names none */
	/* Places in the lists of jemalloc: addresses rise. */
	size_t cached_at, own_at;
};

/* ---- extents ---- */

static uint32_t places_of(const struct hl_jemalloc *jemalloc,
			  const struct hl_jemalloc_extent *extent)
{
	uint64_t places = (extent->end - extent->start) / jemalloc->class_bytes[extent->size_class];

	return places < jemalloc->shape->places ? (uint32_t)places : jemalloc->shape->places;
}

/* Whether a slab has as many free places as it says; of the last word with places the other bits are clear. */
static bool fits(const struct hl_jemalloc *jemalloc, const struct hl_jemalloc_extent *extent)
{
	const uint64_t *free = jemalloc->free_places + extent->free_at;
	uint32_t free_places = 0;

	if (extent->size_class >= jemalloc->slab_classes)
		return false;
	for (uint32_t i = 0, left = places_of(jemalloc, extent); left; i++) {
		if (left < 64 && free[i] >> left)
			return false;
		free_places += (uint32_t)__builtin_popcountll(free[i]);
		left -= left < 64 ? left : 64;
	}
	return free_places == extent->free_places;
}

/* Usable bytes of the block in an extent that is not a slab. From 5.3.1 on these are any number of pages, which the class bounds;
 * samples of small blocks have an extent as well. */
static uint64_t large_bytes(const struct hl_jemalloc *jemalloc,
			    const struct hl_jemalloc_extent *extent)
{
	uint64_t bytes = extent->end - extent->start;

	return extent->size_class < jemalloc->slab_classes
		       ? jemalloc->class_bytes[extent->size_class]
		       : bytes - (bytes > jemalloc->large_pad ? jemalloc->large_pad : 0);
}

static bool fits_large(const struct hl_jemalloc *jemalloc, const struct hl_jemalloc_extent *extent)
{
	uint64_t bytes = large_bytes(jemalloc, extent);
	uint32_t class = extent->size_class;

	return bytes <= extent->end - extent->block && bytes <= jemalloc->class_bytes[class] &&
	       (!class || bytes > jemalloc->class_bytes[class - 1]);
}

/* Whether ${list} has an address in [${start}, ${end}), which rises from call to call. */
static bool has_one(const struct hl_addresses *list, size_t *at, uint64_t start, uint64_t end)
{
	while (*at < list->count && list->addresses[*at] < start)
		++*at;
	return *at < list->count && list->addresses[*at] < end;
}

static int add_block(struct walker *walker, uint64_t start, uint64_t bytes)
{
	const struct hl_jemalloc *jemalloc = walker->jemalloc;

	if (has_one(&jemalloc->own, &walker->own_at, start, start + bytes))
		return 0;
	bool is_cached = has_one(&jemalloc->cached, &walker->cached_at, start, start + 1);
	return hl_slab_block(&walker->slabs, start, bytes,
			     is_cached ? HL_SLAB_CACHED : HL_SLAB_LIVE);
}

static int add_slab(struct walker *walker, const struct hl_jemalloc_extent *extent, uint32_t arena)
{
	uint64_t bytes = walker->jemalloc->class_bytes[extent->size_class], start = extent->start;
	const uint64_t *free = walker->jemalloc->free_places + extent->free_at;
	uint32_t places = places_of(walker->jemalloc, extent);
	/* Most slabs have none of these. */
	bool has_others =
		has_one(&walker->jemalloc->own, &walker->own_at, start, extent->end) ||
		has_one(&walker->jemalloc->cached, &walker->cached_at, start, extent->end);
	int r = 0;

	hl_slab_begin(&walker->slabs, start, extent->end, bytes, arena);
	for (uint32_t i = 0; i < places && r == 0; i++, start += bytes)
		if (free[i / 64] >> i % 64 & 1)
			r = hl_slab_block(&walker->slabs, start, bytes, HL_SLAB_FREE);
		else if (has_others)
			r = add_block(walker, start, bytes);
		else
			r = hl_slab_block(&walker->slabs, start, bytes, HL_SLAB_LIVE);
	return r == 0 ? hl_slab_end(&walker->slabs) : r;
}

static int add_large(struct walker *walker, const struct hl_jemalloc_extent *extent, uint32_t arena)
{
	uint64_t bytes = large_bytes(walker->jemalloc, extent);

	hl_slab_begin(&walker->slabs, extent->start, extent->end, bytes, arena);
	int r = add_block(walker, extent->block, bytes);
	return r == 0 ? hl_slab_end(&walker->slabs) : r;
}

/* Reads an extent again where it does not fit together: it changes while it is read. */
static bool is_settled(struct walker *walker, struct hl_jemalloc_extent *extent)
{
	struct hl_jemalloc *jemalloc = walker->jemalloc;
	uint64_t start = extent->start, end = extent->end;

	for (unsigned i = 0; i < TRIES; i++) {
		if (!extent->is_bad &&
		    (!hl_jemalloc_has_blocks(extent) ||
		     (extent->is_slab ? fits(jemalloc, extent) : fits_large(jemalloc, extent))))
			return true;
		jemalloc->rereads++;
		if (hl_jemalloc_reread(walker->slabs.memory, jemalloc, start, extent) < 0 ||
		    extent->end != end)
			break;
	}
	extent->start = start;
	extent->end = end;
	return false;
}

static int add_extent(struct walker *walker, struct hl_jemalloc_extent *extent, uint32_t arena)
{
	uint64_t start = extent->start, end = extent->end;

	if (!is_settled(walker, extent))
		hl_slab_unscanned(&walker->slabs, start, end, 1, arena);
	else if (extent->state == HL_JEMALLOC_DIRTY || extent->state == HL_JEMALLOC_MUZZY)
		hl_slab_free_run(&walker->slabs, start, end, HL_SLAB_FREE_PURGED, arena);
	else if (!hl_jemalloc_has_blocks(extent))
		hl_slab_free_run(&walker->slabs, start, end, HL_SLAB_FREE_STAYS, arena);
	else
		return extent->is_slab ? add_slab(walker, extent, arena)
				       : add_large(walker, extent, arena);
	return 0;
}

/* ---- carriers ---- */

/* Where the memory begins of which an extent is a part, and where it ends. */
static uint64_t start_of(const struct hl_jemalloc_extent *extent)
{
	return extent->is_of_huge_page ? extent->start & ~(HL_JEMALLOC_HUGE_PAGE - 1)
				       : extent->start;
}

static uint64_t end_of(const struct hl_jemalloc_extent *extent)
{
	return extent->is_of_huge_page
		       ? (extent->end + HL_JEMALLOC_HUGE_PAGE - 1) & ~(HL_JEMALLOC_HUGE_PAGE - 1)
		       : extent->end;
}

static int add_stretches(struct walker *walker, struct hl_jemalloc *jemalloc,
			 const uint32_t *arenas)
{
	const struct hl_jemalloc_extent *extents = jemalloc->extents;
	int r = 0;

	for (size_t i = 0, next; i < jemalloc->extent_count && r == 0; i = next) {
		uint32_t arena =
			extents[i].is_bad ? walker->shared_arena : arenas[extents[i].arena];
		for (next = i + 1; next < jemalloc->extent_count &&
				   start_of(&extents[next]) <= end_of(&extents[next - 1]) &&
				   (extents[next].is_bad || arenas[extents[next].arena] == arena);
		     next++) {
		}
		const struct stretch stretch = {start_of(&extents[i]),
						end_of(&extents[next - 1]),
						jemalloc,
						i,
						next - i,
						arena};
		r = HL_ARRAY_APPEND(walker->stretches, walker->stretch_count,
				    walker->stretch_capacity, stretch);
	}
	for (size_t i = 0; i < jemalloc->block_count && r == 0; i++) {
		const struct hl_jemalloc_block *block = &jemalloc->blocks[i];
		const struct stretch stretch = {block->start,
						block->end,
						jemalloc,
						0,
						0,
						block->arena == UINT32_MAX ? walker->shared_arena
									   : arenas[block->arena]};
		r = HL_ARRAY_APPEND(walker->stretches, walker->stretch_count,
				    walker->stretch_capacity, stretch);
	}
	return r;
}

static int add_arenas(struct walker *walker, const struct hl_jemalloc *jemalloc,
		      uint32_t *ret_arenas)
{
	int r = 0;

	for (size_t i = 0; i < HL_JEMALLOC_ARENAS && r == 0; i++)
		if (jemalloc->arenas[i].is_used)
			r = hl_slab_arena_add(&walker->slabs, jemalloc->arenas[i].address,
					      jemalloc->arenas[i].threads, &ret_arenas[i]);
	return r;
}

/* What no extent has of a huge page. */
static void add_gap(struct walker *walker, uint64_t start, uint64_t end, uint32_t arena)
{
	if (start < end)
		hl_slab_free_run(&walker->slabs, start, end, HL_SLAB_FREE_STAYS, arena);
}

static int add_carrier(struct walker *walker, const struct stretch *stretch)
{
	int r = hl_slab_carrier_begin(&walker->slabs, stretch->count ? "extents" : "metadata",
				      stretch->start, stretch->end, stretch->arena);
	uint64_t at = stretch->start;

	walker->jemalloc = stretch->jemalloc;
	walker->cached_at = hl_addresses_at(&walker->jemalloc->cached, stretch->start);
	walker->own_at = hl_addresses_at(&walker->jemalloc->own, stretch->start);
	for (size_t i = 0; i < stretch->count && r == 0; i++) {
		struct hl_jemalloc_extent *extent = &walker->jemalloc->extents[stretch->first + i];
		add_gap(walker, at, extent->start, stretch->arena);
		at = extent->end;
		r = add_extent(walker, extent, stretch->arena);
	}
	if (r == 0 && stretch->count)
		add_gap(walker, at, stretch->end, stretch->arena);
	return r == 0 ? hl_slab_carrier_end(&walker->slabs) : r;
}

/* ---- all ---- */

static int walk(struct walker *walker, struct hl_jemalloc *first)
{
	const struct hl_heap_settings *settings = walker->slabs.settings;
	uint32_t arenas[HL_JEMALLOC_ARENAS] = {0};
	size_t arena_count = walker->slabs.heap->arena_count;
	uint64_t end = 0;
	int r = 0;

	for (struct hl_jemalloc *jemalloc = first; jemalloc && r == 0; jemalloc = jemalloc->next) {
		r = hl_jemalloc_list(walker->slabs.memory, jemalloc);
		if (r == 0)
			r = hl_jemalloc_read_base(walker->slabs.memory, jemalloc);
		if (r == 0)
			r = add_arenas(walker, jemalloc, arenas);
		if (r == 0 && !settings->only_arenas)
			r = add_stretches(walker, jemalloc, arenas);
	}
	/* Damage may leave neither an extent nor a base block that names one. */
	if (r == 0 && walker->slabs.heap->arena_count == arena_count)
		r = hl_slab_arena_add(&walker->slabs, first->root, 0, &walker->shared_arena);
	if (walker->stretch_count)
		qsort(walker->stretches, walker->stretch_count, sizeof(*walker->stretches),
		      hl_addresses_compare);
	for (size_t i = 0; i < walker->stretch_count && r == 0; i++) {
		/* Damaged ones may name the memory of others. */
		if (walker->stretches[i].start < end)
			continue;
		end = walker->stretches[i].end;
		r = add_carrier(walker, &walker->stretches[i]);
	}
	for (struct hl_jemalloc *jemalloc = first; jemalloc; jemalloc = jemalloc->next)
		walker->slabs.heap->rereads += jemalloc->rereads;
	return r;
}

static int read_heap(struct hl_memory *memory, const struct hl_allocator_traits *allocator,
		     const struct hl_heap_settings *settings, struct hl_heap *heap,
		     struct hl_error *err)
{
	struct walker walker = {0};
	struct hl_jemalloc *first = NULL;
	int r = hl_jemalloc_find(memory, &first);

	if (r < 0)
		return hl_error_set(err, r, "cannot find the heap of jemalloc: out of memory");
	if (!first && hl_other_allocator_library(&memory->maps).allocator == allocator)
		return hl_error_set(
			err, -ENOTSUP,
			"cannot find the heap of jemalloc: no tree of its pages is as releases "
			"5.2 and 5.3 have it for pages of 4 or 64 KiB");
	if (!first)
		return -ENOTSUP;
	if (!first->class_count) {
		hl_jemalloc_free(first);
		return hl_error_set(
			err, -ENOTSUP,
			"cannot read the heap of jemalloc: its table of sizes is not as "
			"releases 5.2 and 5.3 have it");
	}
	r = hl_slab_heap_open(&walker.slabs, memory, allocator, settings, heap, err);
	if (r == 0) {
		snprintf(heap->walked_name, sizeof(heap->walked_name), "jemalloc %s",
			 first->layout->releases);
		r = hl_slab_heap_close(&walker.slabs, walk(&walker, first), err);
	}
	free(walker.stretches);
	hl_jemalloc_free(first);
	return r;
}

const struct hl_heap_reader hl_jemalloc_reader = {.allocator = "jemalloc", .read = read_heap};
