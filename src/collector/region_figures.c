/* SPDX-License-Identifier: BSD-2-Clause */
/* Adds cells and threads up; see region_read.h. */
#include "collector/region_read.h"

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
