/* SPDX-License-Identifier: BSD-2-Clause */
/* Adds up the blocks of a process by stack, as far as they are in RAM; see owners.h. */
#include "heap/owners/owners.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "heap/extents.h"
#include "heap/memory.h"
#include "process/maps.h"
#include "process/process.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct reading {
	struct hl_resident *resident;
	struct hl_extents walked; /* what the walk has seen */
	struct hl_pages present, swapped;
	size_t present_at, swapped_at; /* cursors */
};

/* Before any block is looked at. */
static int read_pages(pid_t pid, const struct hl_maps *maps, struct reading *reading,
		      struct hl_error *err)
{
	struct hl_pagemap *pagemap;
	int r = hl_pagemap_open(pid, &pagemap, err);
	/* Pages that the kernel is moving look like pages on swap, which there may be none of. */
	bool has_swapped = hl_process_status_read(pid).swap_bytes != 0;

	if (r < 0)
		return r;
	for (size_t i = 0; i < maps->count && r == 0; i++) {
		const struct hl_map *map = &maps->maps[i];
		r = has_swapped ? hl_pagemap_scan(pagemap, map->start, map->end, &reading->present)
				: hl_pagemap_scan_with_swapped(pagemap, map->start, map->end,
							       &reading->present);
		if (r == 0 && has_swapped)
			r = hl_pagemap_scan_swapped(pagemap, map->start, map->end,
						    &reading->swapped);
	}
	hl_pagemap_free(pagemap);
	return r < 0 ? hl_error_set(err, r, "cannot read which pages are in memory: %s",
				    strerror(-r))
		     : 0;
}

static struct hl_resident_bytes *add(struct reading *reading, uint64_t number, uint64_t address,
				     uint64_t bytes, uint64_t resident_bytes)
{
	struct hl_resident *resident = reading->resident;
	struct hl_resident_bytes *stack =
		&resident->stacks[number < resident->stack_count ? number : 0];

	stack->resident += resident_bytes;
	if (reading->swapped.count)
		stack->swapped += hl_pages_bytes_in(&reading->swapped, address, address + bytes,
						    &reading->swapped_at);
	return stack;
}

static int take_walked(void *context, uint64_t address, uint64_t usable_bytes,
		       uint64_t resident_bytes)
{
	struct reading *reading = context;
	struct hl_resident *resident = reading->resident;

	resident->walked += resident_bytes;
	uint64_t number = hl_block_owners_find(resident->owners, address, usable_bytes);
	struct hl_resident_bytes *stack =
		add(reading, number, address, usable_bytes, resident_bytes);
	stack->walked += resident_bytes;
	stack->is_met = true;
	return 0;
}

static int take_listed(void *context, const struct hl_owned_block *block)
{
	struct reading *reading = context;
	struct hl_resident *resident = reading->resident;

	if (hl_extents_hold(&reading->walked, block->address)) {
		if (block->is_ruled && block->number < resident->stack_count)
			resident->stacks[block->number].has_inner = true;
		return 0;
	}
	uint64_t bytes = hl_pages_bytes_in(&reading->present, block->address,
					   block->address + block->bytes, &reading->present_at);
	resident->listed += bytes;
	if (resident->heap && block->is_ruled && hl_block_owners_have_pieces(resident->owners))
		resident->heap->rss.piece_bytes += bytes;
	resident->listed_whole += block->bytes;
	resident->sizes_are_means |= !block->is_exact;
	add(reading, block->number, block->address, block->bytes, bytes);
	return 0;
}

/* What a rule's function gives are mostly blocks of malloc(), which the walk has visited, except newer ones, or mostly
 * cut from these, which it has not visited, except those that begin where one does. */
static void judge_inner(struct hl_resident *resident)
{
	size_t count = 0, met = 0;

	for (size_t i = 1; i < resident->stack_count; i++) {
		count += resident->stacks[i].has_inner;
		met += resident->stacks[i].has_inner && resident->stacks[i].is_met;
	}
	for (size_t i = 1; i < resident->stack_count && met > count / 2; i++)
		resident->stacks[i].has_inner = false;
}

/* 0 as well where there is no heap that can be walked. */
static int walk(pid_t pid, struct hl_memory *memory, const struct hl_heap_settings *settings,
		struct reading *reading, struct hl_error *err)
{
	struct hl_resident *resident = reading->resident;
	uint64_t began = hl_clock_ns(CLOCK_MONOTONIC);
	struct hl_heap_settings how = *settings;
	struct hl_error why = {0};

	how.resident = take_walked;
	how.context = reading;
	resident->heap = hl_heap_new();
	if (!resident->heap)
		return hl_error_set(err, -ENOMEM, "out of memory");
	int r = hl_process_facts_read(pid, &resident->heap->process, &why);
	if (r == 0)
		r = hl_heap_walk(memory, &how, resident->heap, &why);
	if (r == -ENOTSUP) {
		hl_heap_free(resident->heap);
		resident->heap = NULL;
		memset(resident->stacks, 0, resident->stack_count * sizeof(*resident->stacks));
		resident->walked = 0;
		return 0;
	}
	if (r < 0)
		return hl_error_set(err, r, "%s", why.text);
	resident->heap->walk_ns = hl_clock_ns(CLOCK_MONOTONIC) - began;
	return hl_extents_of_carriers(&resident->heap->carriers, memory->page_bytes,
				      &reading->walked);
}

static int read_all(pid_t pid, struct hl_memory *memory, const struct hl_heap_settings *settings,
		    struct reading *reading, struct hl_error *err)
{
	struct hl_resident *resident = reading->resident;
	struct hl_error why = {0};

	int r = hl_block_owners_new(pid, &resident->owners, &why);
	if (r == 0 && hl_block_owners_source(resident->owners) != HL_OWNERS_RECORDER)
		r = -ENODATA;
	if (r == -ENODATA)
		return hl_error_set(err, r,
				    "no recorder in process %d knows its stacks; 'heapline attach "
				    "-p %d' records it from now on",
				    (int)pid, (int)pid);
	if (r < 0)
		return hl_error_set(err, r, "%s", why.text);
	r = read_pages(pid, &memory->maps, reading, err);
	if (r < 0)
		return r;
	resident->stack_count = hl_block_owners_count(resident->owners);
	resident->stacks = calloc(resident->stack_count, sizeof(*resident->stacks));
	r = resident->stacks ? walk(pid, memory, settings, reading, err) : -ENOMEM;
	if (r == 0)
		r = hl_block_owners_each(resident->owners, take_listed, reading);
	if (r == 0)
		judge_inner(resident);
	return r == 0 && resident->heap
		       ? hl_block_owners_note_pieces(resident->owners, resident->heap)
		       : r;
}

int hl_resident_read(pid_t pid, const struct hl_heap_settings *settings,
		     struct hl_resident **ret_resident, struct hl_error *err)
{
	struct hl_resident *resident = calloc(1, sizeof(*resident));
	struct reading reading = {.resident = resident};
	struct hl_memory *memory = NULL;
	struct hl_error why = {0};

	int r = resident ? hl_memory_live_open(pid, &memory, &why) : -ENOMEM;
	if (r == 0)
		r = read_all(pid, memory, settings, &reading, &why);
	hl_memory_free(memory);
	hl_extents_release(&reading.walked);
	hl_pages_release(&reading.present);
	hl_pages_release(&reading.swapped);
	if (r < 0) {
		hl_resident_free(resident);
		return hl_error_set(err, r, "%s", why.text[0] ? why.text : strerror(-r));
	}
	*ret_resident = resident;
	return 0;
}

int hl_resident_read_pages(pid_t pid, struct hl_resident *resident, struct hl_error *err)
{
	HL_FREED struct hl_block_sum *sums = NULL;
	struct hl_heap *heap;

	int r = hl_heap_read_pages(pid, &heap, err);
	if (r < 0)
		return r;
	struct hl_heap_rss *rss = &heap->rss;
	struct hl_heap_unwalked *unwalked = &heap->unwalked;
	resident->heap = heap;
	if (!resident->owners || hl_block_owners_sums(resident->owners, &sums) < 0)
		return 0;
	unwalked->has_recorder = true;
	unwalked->is_whole = hl_block_owners_know_all(resident->owners);
	for (size_t number = 1; number < resident->stack_count; number++) {
		unwalked->live_blocks += (uint64_t)sums[number].blocks;
		unwalked->live_bytes += (uint64_t)sums[number].bytes;
	}
	/* The mean of a stack may not fit where a small block of it lies: the counters have the sum. */
	double share = resident->listed_whole
			       ? (double)resident->listed / (double)resident->listed_whole
			       : 0;
	rss->live_bytes = (uint64_t)(share * (double)unwalked->live_bytes);
	if (rss->live_bytes < resident->listed)
		rss->live_bytes = resident->listed;
	/* Blocks that lie in other parts stay there. */
	if (rss->live_bytes > rss->other_allocator_bytes)
		rss->live_bytes = rss->other_allocator_bytes;
	rss->other_allocator_bytes -= rss->live_bytes;
	return 0;
}

void hl_resident_free(struct hl_resident *resident)
{
	if (!resident)
		return;
	hl_heap_free(resident->heap);
	hl_block_owners_free(resident->owners);
	free(resident->stacks);
	free(resident);
}
