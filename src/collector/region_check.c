/* SPDX-License-Identifier: BSD-2-Clause */
/* Bounds of what is counted; see region_read.h. */
#include "collector/region_read.h"

#include <string.h>
#include <unistd.h>

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
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t most = ns / NS_PER_EVENT * (uint64_t)(processors > 0 ? processors : 1);

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
