/* SPDX-License-Identifier: BSD-2-Clause */
/* Keeps what a region's counters were at a reset; see region_read.h. */
#include "collector/region_read.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>

/* How often a cell is read until its thread changes nothing meanwhile. */
#define LOOKS 1000

/* The thread sanitizer does not know of looking twice. */
__attribute__((no_sanitize("thread"))) static struct hl_cell_base look(const struct hl_cell *cell)
{
	const volatile struct hl_cell *shared = cell;

	return (struct hl_cell_base){
		.alloc_bytes = shared->alloc_bytes,
		.alloc_objects = shared->alloc_objects,
		.free_objects = shared->free_objects,
		.temporary_objects = shared->temporary_objects,
	};
}

static bool are_equal(struct hl_cell_base a, struct hl_cell_base b)
{
	return a.alloc_bytes == b.alloc_bytes && a.alloc_objects == b.alloc_objects &&
	       a.free_objects == b.free_objects && a.temporary_objects == b.temporary_objects;
}

/* Bytes and blocks of the same events, unless the thread stands between the two. */
static struct hl_cell_base read_cell(const struct hl_cell *cell)
{
	struct hl_cell_base before, now = look(cell);
	unsigned looks = LOOKS;

	do {
		before = now;
		atomic_signal_fence(memory_order_seq_cst); /* x86-64 loads in order */
		now = look(cell);
	} while (!are_equal(before, now) && --looks);
	return now;
}

int hl_region_base_take(const struct hl_region_view *view, struct hl_region_base *base)
{
	struct hl_region_header *header = (struct hl_region_header *)(uintptr_t)view->base;
	const struct hl_cell_chunk *chunks = hl_region_read_area(view, HL_AREA_CELLS);
	uint32_t count = hl_region_read_chunk_count(view);
	struct hl_cell_base *cells = calloc(count + (size_t)1, HL_CHUNK_CELLS * sizeof(*cells));

	if (!cells)
		return -ENOMEM;
	uint64_t mark = atomic_load(&header->peak_mark);
	int64_t now = atomic_load(&header->inuse_bytes);
	/* As threads set marks; the epoch last, so that whoever sees it counts from here. */
	atomic_store(&header->peak_mark, now > 0 ? (uint64_t)now : 0);
	atomic_store(&header->peak_mark_ns, hl_clock_ns(CLOCK_MONOTONIC));
	atomic_fetch_add(&header->peak_epoch, 1);
	for (uint32_t chunk = 0; chunk < count; chunk++) {
		uint32_t used = atomic_load_explicit(&chunks[chunk].used, memory_order_acquire);
		for (uint32_t i = 0; i < used && i < HL_CHUNK_CELLS; i++)
			cells[chunk * (size_t)HL_CHUNK_CELLS + i] =
				read_cell(&chunks[chunk].cells[i]);
	}
	free(base->cells);
	base->cells = cells;
	base->cell_count = (size_t)count * HL_CHUNK_CELLS;
	if (mark > base->peak_mark)
		base->peak_mark = mark;
	return 0;
}

void hl_region_base_release(struct hl_region_base *base)
{
	free(base->cells);
	*base = (struct hl_region_base){0};
}
