/* SPDX-License-Identifier: BSD-2-Clause */
/* Adds cells and threads up; see region_figures.h. */
#include "collector/region_figures.h"

#include "collector/region_check.h"

/* Of a cell; what is more was not counted. */
#define COUNT_MAX (UINT64_C(1) << 40)

static const void *area_of(const struct hl_region_view *view, enum hl_area_id id)
{
	return (const char *)view->base + view->layout->areas[id].offset;
}

/* How many records of ${size} bytes may be read: as many as are backed by memory. */
static uint64_t bounded_count(const struct hl_region_view *view, enum hl_area_id id,
			      uint64_t claimed, size_t size)
{
	const struct hl_region_header *header = view->base;
	uint64_t bytes = atomic_load_explicit(&header->areas[id].committed, memory_order_acquire);
	if (bytes > view->layout->areas[id].capacity)
		bytes = view->layout->areas[id].capacity;
	return claimed < bytes / size ? claimed : bytes / size;
}

/* Unsigned, so that sums of nonsense wrap. */
struct sums {
	uint64_t alloc_bytes, alloc_objects, free_bytes, free_objects;
};

static void add_chunk(const struct hl_cell_chunk *chunk, uint64_t most, struct sums *sums)
{
	uint32_t used = atomic_load_explicit(&chunk->used, memory_order_acquire);
	for (uint32_t i = 0; i < used && i < HL_CHUNK_CELLS; i++) {
		if (!hl_region_cell_can_be(&chunk->cells[i], most))
			continue;
		sums->alloc_bytes += chunk->cells[i].alloc_bytes;
		sums->alloc_objects += chunk->cells[i].alloc_objects;
		sums->free_bytes += chunk->cells[i].free_bytes;
		sums->free_objects += chunk->cells[i].free_objects;
	}
}

static void add_threads(const struct hl_region_view *view, struct hl_region_figures *figures)
{
	const struct hl_region_header *header = view->base;
	const struct hl_region_thread *threads = area_of(view, HL_AREA_THREADS);
	uint64_t count = bounded_count(view, HL_AREA_THREADS, atomic_load(&header->thread_count),
				       sizeof(*threads));
	figures->lost_events = atomic_load(&header->lost_events);
	for (uint64_t i = 0; i < count; i++) {
		figures->lost_events += threads[i].lost_events;
		figures->lost_log_events += threads[i].lost_log_events;
	}
}

void hl_region_read_figures(const struct hl_region_view *view,
			    struct hl_region_figures *ret_figures)
{
	const struct hl_region_header *header = view->base;
	const struct hl_cell_chunk *chunks = area_of(view, HL_AREA_CELLS);
	uint64_t count = bounded_count(view, HL_AREA_CELLS, atomic_load(&header->chunk_count),
				       sizeof(*chunks));
	struct sums sums = {0};
	for (uint64_t i = 0; i < count; i++)
		add_chunk(&chunks[i], COUNT_MAX, &sums);
	struct hl_region_figures figures = {
		.alloc_objects = sums.alloc_objects,
		.free_objects = sums.free_objects,
		.inuse_bytes = (int64_t)(sums.alloc_bytes - sums.free_bytes),
		.inuse_objects = (int64_t)(sums.alloc_objects - sums.free_objects),
		.peak_bytes = (int64_t)atomic_load(&header->peak_mark),
		.stack_nodes = hl_region_node_count(view),
	};
	if (figures.inuse_bytes > figures.peak_bytes)
		figures.peak_bytes = figures.inuse_bytes;
	add_threads(view, &figures);
	*ret_figures = figures;
}
