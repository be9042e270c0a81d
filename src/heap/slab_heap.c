/* SPDX-License-Identifier: BSD-2-Clause */
/* Adds up what the reader of a heap of slabs reports; see slab_heap.h. */
#include "heap/slab_heap.h"

#include "allocators/traits.h"
#include "base/array.h"
#include "base/compiler.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A slab is pinned when its live blocks are at most this part of it. */
#define PINNED_SHARE 8

static struct hl_heap_arena *arena_at(struct hl_slab_heap *slabs, uint32_t arena)
{
	return &slabs->heap->arenas[slabs->first_arena + arena];
}

/* Bytes in RAM of [${start}, ${end}), as RSS counts them; rising addresses are fast. */
static uint64_t resident(struct hl_slab_heap *slabs, uint64_t start, uint64_t end)
{
	const struct hl_pages *pages = &slabs->pages;
	uint64_t bytes = 0;

	if (start >= end)
		return 0;
	(void)hl_pages_bytes_in(pages, start, start + 1, &slabs->cursor); /* moves the cursor */
	for (size_t i = slabs->cursor; i < pages->count && pages->runs[i].start < end; i++) {
		uint64_t from = pages->runs[i].start > start ? pages->runs[i].start : start;
		uint64_t to = pages->runs[i].end < end ? pages->runs[i].end : end;
		bytes += pages->runs[i].kind & HL_PAGE_BESIDE_RSS ? 0 : to - from;
	}
	slabs->known_resident += bytes;
	return bytes;
}

/* ---- pictures ---- */

static void draw(const struct hl_carrier *carrier, uint64_t start, uint64_t end,
		 enum hl_stretch_kind kind)
{
	if (!carrier->strip_count || start >= end || !carrier->total_bytes)
		return;
	uint32_t last = carrier->strip_count - 1;
	__uint128_t first = (__uint128_t)(start - carrier->address) * carrier->strip_count /
			    carrier->total_bytes;
	for (uint32_t part = first < last ? (uint32_t)first : last; start < end; part++) {
		uint64_t part_end = part < last ? hl_carrier_part_start(carrier, part + 1) : end;
		part_end = part_end < start ? start : part_end < end ? part_end : end;
		carrier->strip[part][kind] += part_end - start;
		start = part_end;
	}
}

static void draw_free(const struct hl_carrier *carrier, uint64_t start, uint64_t end,
		      uint64_t in_memory)
{
	draw(carrier, start, start + in_memory, HL_STRETCH_FREE_RESIDENT);
	draw(carrier, start + in_memory, end, HL_STRETCH_FREE_ABSENT);
}

/* ---- the whole ---- */

int hl_slab_heap_open(struct hl_slab_heap *slabs, struct hl_memory *memory,
		      const struct hl_allocator_traits *allocator,
		      const struct hl_heap_settings *settings, struct hl_heap *heap,
		      struct hl_error *err)
{
	*slabs = (struct hl_slab_heap){.memory = memory,
				       .settings = settings,
				       .heap = heap,
				       .allocator = allocator,
				       .first_arena = (uint32_t)heap->arena_count};
	slabs->has_visitors = settings->block || settings->resident || heap->guest_count;
	slabs->free_shape = settings->free_shape.width
				    ? settings->free_shape
				    : (struct hl_log2_shape){.start = 512, .width = 14};
	heap->carriers.shape = slabs->free_shape;
	heap->walking = allocator;
	int r = settings->stop ? hl_memory_stop(memory, err) : 0;
	heap->was_stopped = heap->was_stopped || (r == 0 && settings->stop);
	return r;
}

static int note_abandoned(struct hl_slab_heap *slabs)
{
	struct hl_heap *heap = slabs->heap;

	heap->abandoned += slabs->places_abandoned;
	if (!slabs->places_abandoned)
		return 0;
	return hl_heap_note(
		heap,
		"%llu place%s did not fit together, the first at 0x%llx: the heap %s; what "
		"lies there is unscanned",
		(unsigned long long)slabs->places_abandoned, slabs->places_abandoned > 1 ? "s" : "",
		(unsigned long long)slabs->first_abandoned,
		heap->was_stopped ? "is damaged, or a thread stands in the allocator"
				  : "changed too fast, or is damaged");
}

/* What neither blocks nor free memory have is the allocator's own. */
static void close_arenas(struct hl_slab_heap *slabs)
{
	for (size_t i = slabs->first_arena; i < slabs->heap->arena_count; i++) {
		struct hl_heap_arena *arena = &slabs->heap->arenas[i];
		uint64_t known = arena->inuse_bytes + arena->tcache_bytes + arena->free_bytes +
				 arena->unscanned_bytes;
		arena->overhead_bytes =
			arena->system_bytes > known ? arena->system_bytes - known : 0;
		arena->max_system_bytes = arena->system_bytes;
	}
}

int hl_slab_heap_close(struct hl_slab_heap *slabs, int r, struct hl_error *err)
{
	slabs->heap->walking = NULL;
	if (slabs->settings->stop)
		hl_memory_go_on(slabs->memory);
	if (r == 0) {
		close_arenas(slabs);
		if (slabs->settings->want_pins)
			hl_pins_sort(slabs->heap);
		r = note_abandoned(slabs);
	}
	hl_pages_release(&slabs->pages);
	return r < 0 && err && !err->text[0]
		       ? hl_error_set(err, r, "cannot read the heap of %s: %s",
				      slabs->allocator->name, strerror(-r))
		       : r;
}

int hl_slab_arena_add(struct hl_slab_heap *slabs, uint64_t address, uint32_t threads,
		      uint32_t *ret_arena)
{
	struct hl_heap *heap = slabs->heap;

	*ret_arena = (uint32_t)heap->arena_count - slabs->first_arena;
	return HL_ARRAY_APPEND(heap->arenas, heap->arena_count, heap->arena_capacity,
			       (struct hl_heap_arena){.address = address, .threads = threads});
}

/* ---- carriers ---- */

int hl_slab_carrier_begin(struct hl_slab_heap *slabs, const char *type, uint64_t start,
			  uint64_t end, uint32_t arena)
{
	uint64_t mask = slabs->memory->page_bytes - 1;
	struct hl_carrier *carrier = hl_carriers_add(&slabs->heap->carriers);
	const char *name = slabs->allocator->short_name ? slabs->allocator->short_name
							: slabs->allocator->name;
	uint32_t parts = slabs->settings->strip_count;

	if (!carrier || (parts && !(carrier->strip = calloc(parts, sizeof(*carrier->strip)))))
		return -ENOMEM;
	carrier->strip_count = parts;
	snprintf(carrier->allocator, sizeof(carrier->allocator), "%s", name);
	snprintf(carrier->type, sizeof(carrier->type), "%s", type);
	carrier->address = start;
	carrier->total_bytes = end - start;
	carrier->arena = arena == UINT32_MAX ? arena : slabs->first_arena + arena;
	carrier->block_kinds = 1;
	strcpy(carrier->blocks[0].type, "block");
	arena_at(slabs, arena == UINT32_MAX ? 0 : arena)->carriers++;
	arena_at(slabs, arena == UINT32_MAX ? 0 : arena)->system_bytes += end - start;
	slabs->carrier = carrier;
	slabs->pages.count = slabs->pages.page_count = 0;
	slabs->cursor = 0;
	slabs->pin.end = 0;
	int r = hl_memory_scan(slabs->memory, start & ~mask, (end + mask) & ~mask, &slabs->pages);
	slabs->known_resident = 0;
	carrier->resident_bytes = r == 0 ? resident(slabs, start, end) : 0;
	slabs->known_resident = 0;
	return r;
}

static int end_pin(struct hl_slab_heap *slabs)
{
	struct hl_heap *heap = slabs->heap;
	const struct hl_heap_pin pin = slabs->pin;

	slabs->pin.end = 0;
	return pin.end ? HL_ARRAY_APPEND(heap->pins, heap->pin_count, heap->pin_capacity, pin) : 0;
}

int hl_slab_carrier_end(struct hl_slab_heap *slabs)
{
	struct hl_carrier *carrier = slabs->carrier;

	if (carrier->resident_bytes > slabs->known_resident)
		slabs->heap->rss.overhead_bytes += carrier->resident_bytes - slabs->known_resident;
	carrier->blocks[0].count = carrier->allocated_blocks;
	carrier->blocks[0].bytes = carrier->allocated_bytes;
	return end_pin(slabs);
}

/* ---- slabs ---- */

void hl_slab_begin(struct hl_slab_heap *slabs, uint64_t start, uint64_t end, uint64_t slot_bytes,
		   uint32_t arena)
{
	uint64_t known = slabs->known_resident;

	slabs->slab = (struct hl_slab){
		.start = start, .end = end, .slot_bytes = slot_bytes, .arena = arena};
	slabs->slab.resident_bytes = resident(slabs, start, end);
	slabs->known_resident = known;
}

static int visit(struct hl_slab_heap *slabs, uint64_t start, uint64_t bytes, uint64_t in_memory)
{
	const struct hl_heap_settings *settings = slabs->settings;
	struct hl_heap *heap = slabs->heap;
	int r = settings->block ? settings->block(settings->context, start, bytes, 0) : 0;

	for (size_t i = 0; i < heap->guest_count && r == 0; i++)
		r = heap->guests[i].guest->heap.add_block(heap->guests[i].kept, start, bytes);
	return r == 0 && settings->resident
		       ? settings->resident(settings->context, start, bytes, in_memory)
		       : r;
}

/* ${count} stretches of ${bytes} each; of all of them ${in_memory} are in RAM. */
static void add_free(struct hl_slab_heap *slabs, uint64_t bytes, uint64_t count, uint64_t in_memory,
		     uint32_t arena)
{
	struct hl_heap_arena *of = arena_at(slabs, arena);
	struct hl_carrier *carrier = slabs->carrier;

	of->free_blocks += count;
	of->free_bytes += bytes * count;
	of->free_resident_bytes += in_memory;
	if (bytes > of->largest_free_bytes)
		of->largest_free_bytes = bytes;
	carrier->free_blocks += count;
	carrier->free_bytes += bytes * count;
	carrier->free_resident_bytes += in_memory;
	carrier->free_histogram.counts[hl_log2_slot(&slabs->free_shape, bytes)] += count;
	if (bytes > carrier->largest_free_bytes)
		carrier->largest_free_bytes = bytes;
	slabs->heap->rss.free_bytes += in_memory;
}

int hl_slab_block(struct hl_slab_heap *slabs, uint64_t start, uint64_t usable_bytes,
		  enum hl_slab_state state)
{
	struct hl_slab *slab = &slabs->slab;
	struct hl_carrier *carrier = slabs->carrier;
	uint64_t in_memory = usable_bytes, end = start + usable_bytes;

	if (slab->resident_bytes == slab->end - slab->start)
		slabs->known_resident += in_memory;
	else
		in_memory = slab->resident_bytes ? resident(slabs, start, end) : 0;
	slab->slots++;
	switch (state) {
	case HL_SLAB_FREE:
		add_free(slabs, usable_bytes, 1, in_memory, slab->arena);
		draw_free(carrier, start, end, in_memory);
		return 0;
	case HL_SLAB_CACHED:
		slab->cached_blocks++;
		slab->cached_bytes += usable_bytes;
		slab->cached_resident_bytes += in_memory;
		draw(carrier, start, end, HL_STRETCH_CACHED);
		return 0;
	case HL_SLAB_LIVE:
		break;
	}
	slab->live_blocks++;
	slab->live_bytes += usable_bytes;
	slab->live_resident_bytes += in_memory;
	if (usable_bytes > slab->block_bytes) {
		slab->block = start;
		slab->block_bytes = usable_bytes;
	}
	if (carrier->strip_count)
		draw(carrier, start, end, HL_STRETCH_LIVE);
	return slabs->has_visitors ? visit(slabs, start, usable_bytes, in_memory) : 0;
}

/* Whether all places of the slab are in RAM or none is, and nobody sees them one by one. */
static bool are_alike(const struct hl_slab_heap *slabs)
{
	const struct hl_slab *slab = &slabs->slab;

	return !slabs->has_visitors && !slabs->carrier->strip_count &&
	       (!slab->resident_bytes || slab->resident_bytes == slab->end - slab->start);
}

int hl_slab_places(struct hl_slab_heap *slabs, uint64_t start, const uint8_t *states,
		   uint32_t count)
{
	struct hl_slab *slab = &slabs->slab;
	const uint64_t bytes = slab->slot_bytes, in_memory = slab->resident_bytes ? bytes : 0;
	uint32_t live = 0, cached = 0, first;
	int r = 0;

	if (!are_alike(slabs)) {
		for (uint32_t i = 0; i < count && r == 0; i++, start += bytes)
			r = hl_slab_block(slabs, start, bytes, (enum hl_slab_state)states[i]);
		return r;
	}
	for (uint32_t i = 0; i < count; i++) {
		live += states[i] == HL_SLAB_LIVE;
		cached += states[i] == HL_SLAB_CACHED;
	}
	slab->slots += count;
	slab->live_blocks += live;
	slab->live_bytes += live * bytes;
	slab->live_resident_bytes += live * in_memory;
	slab->cached_blocks += cached;
	slab->cached_bytes += cached * bytes;
	slab->cached_resident_bytes += cached * in_memory;
	slabs->known_resident += count * in_memory;
	if (count > live + cached)
		add_free(slabs, bytes, count - live - cached, (count - live - cached) * in_memory,
			 slab->arena);
	if (live && bytes > slab->block_bytes) {
		for (first = 0; states[first] != HL_SLAB_LIVE;)
			first++;
		slab->block = start + first * bytes;
		slab->block_bytes = bytes;
	}
	return 0;
}

static struct hl_heap_class *class_of(struct hl_heap *heap, uint64_t slot_bytes)
{
	size_t at = HL_LOWER_BOUND(i, heap->class_count, heap->classes[i].slot_bytes < slot_bytes);

	if (at < heap->class_count && heap->classes[at].slot_bytes == slot_bytes)
		return &heap->classes[at];
	if (HL_ARRAY_RESERVE(heap->classes, heap->class_capacity, heap->class_count + 1) < 0)
		return NULL;
	memmove(&heap->classes[at + 1], &heap->classes[at],
		(heap->class_count - at) * sizeof(*heap->classes));
	heap->class_count++;
	heap->classes[at] = (struct hl_heap_class){.slot_bytes = slot_bytes};
	return &heap->classes[at];
}

static int pin(struct hl_slab_heap *slabs)
{
	const struct hl_slab *slab = &slabs->slab;
	struct hl_heap_pin *run = &slabs->pin;
	bool is_pinned = slab->live_blocks && slab->resident_bytes &&
			 slab->live_bytes <= slab->resident_bytes / PINNED_SHARE;
	int r = !is_pinned || (run->end && run->end != slab->start) ? end_pin(slabs) : 0;

	if (r < 0 || !is_pinned)
		return r;
	if (!run->end)
		*run = (struct hl_heap_pin){.start = slab->start};
	run->end = slab->end;
	run->live_bytes += slab->live_bytes;
	run->live_blocks += slab->live_blocks;
	run->returned_bytes += slab->resident_bytes;
	if (slab->block_bytes > run->block_bytes) {
		run->block = slab->block;
		run->block_bytes = slab->block_bytes;
	}
	return 0;
}

/* What the blocks of a slab come to, at once: there are tens of millions of them. */
static void add_sums(struct hl_slab_heap *slabs)
{
	const struct hl_slab *slab = &slabs->slab;
	struct hl_heap_arena *arena = arena_at(slabs, slab->arena);
	struct hl_carrier *carrier = slabs->carrier;
	struct hl_heap_rss *rss = &slabs->heap->rss;

	slabs->heap->chunks += slab->slots;
	arena->inuse_blocks += slab->live_blocks;
	arena->inuse_bytes += slab->live_bytes;
	arena->tcache_blocks += slab->cached_blocks;
	arena->tcache_bytes += slab->cached_bytes;
	carrier->allocated_blocks += slab->live_blocks;
	carrier->allocated_bytes += slab->live_bytes;
	carrier->cached_blocks += slab->cached_blocks;
	carrier->cached_bytes += slab->cached_bytes;
	rss->live_bytes += slab->live_resident_bytes;
	rss->cached_bytes += slab->cached_resident_bytes;
}

int hl_slab_end(struct hl_slab_heap *slabs)
{
	const struct hl_slab *slab = &slabs->slab;
	struct hl_heap_class *class;

	bool is_shared = slab->slots > 1 && slab->slot_bytes;
	add_sums(slabs);
	if (is_shared) {
		class = class_of(slabs->heap, slab->slot_bytes);
		if (!class)
			return -ENOMEM;
		uint64_t tenths = slab->live_blocks * HL_HEAP_CLASS_TENTHS / slab->slots;
		class->slabs++;
		class->slots += slab->slots;
		class->live_slots += slab->live_blocks;
		class->cached_slots += slab->cached_blocks;
		class->slab_bytes += slab->end - slab->start;
		class->resident_bytes += slab->resident_bytes;
		slabs->heap->occupancy_bytes[tenths < HL_HEAP_CLASS_TENTHS
						     ? tenths
						     : HL_HEAP_CLASS_TENTHS - 1] +=
			slab->resident_bytes;
	}
	return slabs->settings->want_pins && is_shared ? pin(slabs) : 0;
}

void hl_slab_free_run(struct hl_slab_heap *slabs, uint64_t start, uint64_t end,
		      enum hl_slab_free kind, uint32_t arena)
{
	uint64_t in_memory = resident(slabs, start, end);

	add_free(slabs, end - start, 1, in_memory, arena);
	if (kind == HL_SLAB_FREE_PURGED)
		arena_at(slabs, arena)->trimmable_bytes += in_memory;
	draw_free(slabs->carrier, start, end, in_memory);
}

void hl_slab_unscanned(struct hl_slab_heap *slabs, uint64_t start, uint64_t end, uint64_t places,
		       uint32_t arena)
{
	if (!slabs->places_abandoned)
		slabs->first_abandoned = start;
	slabs->places_abandoned += places;
	slabs->carrier->unscanned_bytes += end - start;
	arena_at(slabs, arena)->unscanned_bytes += end - start;
	slabs->heap->rss.unscanned_bytes += resident(slabs, start, end);
	draw(slabs->carrier, start, end, HL_STRETCH_UNSCANNED);
}
