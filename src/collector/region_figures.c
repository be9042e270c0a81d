/* SPDX-License-Identifier: BSD-2-Clause */
/* A region's figures: sums, what they were at a reset, and what they can be; see region_read.h. */
#include "base/clock.h"
#include "base/machine.h"
#include "collector/region_read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- resets ---- */

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
		atomic_thread_fence(memory_order_acquire);
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

/* ---- what can be ---- */

#define BLOCK_BYTES_MAX	 (UINT64_C(1) << 47) /* the address space */
#define NS_PER_EVENT	 2u		     /* no allocator is as fast */
#define EVENTS_MIN	 (UINT64_C(1) << 20)
#define SAMPLES_DEVIATE	 1024u /* samples above the expected number */
#define NAMESPACES_MAX	 (UINT32_C(1) << 20)
#define SLACK_BYTES_MAX	 (INT64_C(1) << 60)
#define HELD_BACK_SHIFT	 8		      /* PEAK_STEP_SHIFT of event.c */
#define HELD_BACK_BLOCKS (UINT64_C(64) << 20) /* of events that were interrupted by the end */

static const struct hl_region_header *header_of(const struct hl_region_view *view)
{
	return view->base;
}

uint64_t hl_region_check_most_events(const struct hl_region_view *view, uint64_t ns)
{
	static _Atomic long processors; /* also those to come; to count them takes time */
	long count = processors;

	if (!count)
		processors = count = sysconf(_SC_NPROCESSORS_CONF);
	uint64_t most = ns / NS_PER_EVENT * (uint64_t)(count > 0 ? count : 1);

	return most + EVENTS_MIN +
	       SAMPLES_DEVIATE * (view->layout->sample_bytes + view->layout->spare_sample_bytes);
}

/* One event may be counted in part. */
static bool bytes_can_be(uint64_t bytes, uint64_t objects)
{
	return bytes / BLOCK_BYTES_MAX <= objects;
}

bool hl_region_check_cell(const struct hl_cell *cell, uint64_t most)
{
	uint64_t at_peak = (uint64_t)(cell->at_peak_bytes < 0 ? -(cell->at_peak_bytes + 1)
							      : cell->at_peak_bytes);

	return cell->alloc_objects <= most && cell->free_objects <= most &&
	       cell->temporary_objects <= cell->free_objects + 1 &&
	       bytes_can_be(cell->alloc_bytes, cell->alloc_objects) &&
	       bytes_can_be(cell->free_bytes, cell->free_objects) &&
	       bytes_can_be(at_peak, cell->alloc_objects + cell->free_objects) &&
	       cell->slack_bytes < SLACK_BYTES_MAX && cell->slack_bytes > -SLACK_BYTES_MAX;
}

bool hl_region_check_kin(const struct hl_region_kin *kin)
{
	return atomic_load(&kin->replacing) <= HL_THREADS_MAX &&
	       atomic_load(&kin->namespaces) <= NAMESPACES_MAX;
}

uint64_t hl_region_check_header(const struct hl_region_view *view)
{
	const struct hl_region_header *header = header_of(view), *layout = view->layout;
	uint64_t changed = memcmp(header->magic, layout->magic, sizeof(header->magic)) != 0;

	changed += !hl_region_check_kin(&header->kin);
	changed += header->version != layout->version;
	changed += header->header_bytes != layout->header_bytes;
	changed += header->region_bytes != layout->region_bytes;
	changed += header->sample_bytes != layout->sample_bytes;
	changed += header->spare_sample_bytes != layout->spare_sample_bytes;
	for (int id = 0; id < HL_AREA_COUNT; id++)
		changed += header->areas[id].offset != layout->areas[id].offset ||
			   header->areas[id].capacity != layout->areas[id].capacity;
	return changed;
}

bool hl_region_check_total(const struct hl_region_view *view, int64_t inuse_bytes)
{
	const struct hl_region_header *header = header_of(view);
	uint64_t threads = atomic_load(&header->thread_count);
	uint64_t mark = atomic_load(&header->peak_mark);
	int64_t held;

	/* What threads hold back follows the marks, and goes on with that of before a reset. */
	if (view->reset && view->reset->peak_mark > mark)
		mark = view->reset->peak_mark;
	if (threads > HL_THREADS_MAX || mark > BLOCK_BYTES_MAX ||
	    __builtin_sub_overflow(inuse_bytes, atomic_load(&header->inuse_bytes), &held))
		return false;
	uint64_t most = HELD_BACK_BLOCKS + (threads + 1) * (mark >> HELD_BACK_SHIFT);
	return (uint64_t)(held < 0 ? -held : held) <= most;
}

/* ---- sums ---- */

/* The most events of a cell; one with more is damaged. */
#define COUNT_MAX (UINT64_C(1) << 40)

void hl_region_figures_read(const struct hl_region_view *view,
			    struct hl_region_figures *ret_figures)
{
	const struct hl_region_header *header = view->base;
	const struct hl_cell_chunk *chunks = hl_region_read_area(view, HL_AREA_CELLS);
	const struct hl_region_thread *threads = hl_region_read_area(view, HL_AREA_THREADS);
	uint32_t chunk_count = hl_region_read_chunk_count(view);
	uint32_t thread_count = hl_region_read_thread_count(view);
	/* Unsigned, so that sums of nonsense wrap */
	uint64_t alloc_bytes = 0, free_bytes = 0, alloc_objects = 0, free_objects = 0, events = 0;

	for (uint32_t chunk = 0; chunk < chunk_count; chunk++) {
		uint32_t used = atomic_load_explicit(&chunks[chunk].used, memory_order_acquire);
		for (uint32_t i = 0; i < used && i < HL_CHUNK_CELLS; i++) {
			const struct hl_cell *cell = &chunks[chunk].cells[i];
			struct hl_cell_base base =
				hl_region_base_of(view, chunk * (size_t)HL_CHUNK_CELLS + i);
			if (!hl_region_check_cell(cell, COUNT_MAX))
				continue;
			alloc_bytes += cell->alloc_bytes;
			free_bytes += cell->free_bytes;
			alloc_objects += cell->alloc_objects;
			free_objects += cell->free_objects;
			events += cell->alloc_objects - base.alloc_objects + cell->free_objects -
				  base.free_objects;
		}
	}
	struct hl_region_figures figures = {
		.alloc_bytes = alloc_bytes,
		.free_bytes = free_bytes,
		.alloc_objects = alloc_objects,
		.free_objects = free_objects,
		.events = events,
		.inuse_bytes = (int64_t)(alloc_bytes - free_bytes),
		.inuse_objects = (int64_t)(alloc_objects - free_objects),
		.peak_bytes = (int64_t)atomic_load(&header->peak_mark),
		.stack_nodes = hl_region_read_node_count(view),
		.lost_events = atomic_load(&header->lost.events),
	};
	if (figures.inuse_bytes > figures.peak_bytes)
		figures.peak_bytes = figures.inuse_bytes;
	for (uint32_t i = 0; i < thread_count; i++) {
		figures.lost_events += threads[i].lost.events;
		figures.lost_log_events += threads[i].lost_log_events;
	}
	*ret_figures = figures;
}
