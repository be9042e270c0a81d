/* SPDX-License-Identifier: BSD-2-Clause */
/* A region for tests of the recorder, and what must hold in any region at any time. */
#pragma once

#include "recorder/region_map.h"

#include <stdlib.h>
#include <sys/mman.h>

/* Makes a region of about ${bytes} (0 = the default). */
static inline struct hl_region_map test_region_new(uint64_t bytes)
{
	struct hl_region_header header;

	hl_region_layout(&header, bytes, HL_MODE_LOG_FAST);
	atomic_store(&header.mode, hl_mode_first(HL_MODE_LOG_FAST));
	void *base = mmap(NULL, header.region_bytes, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		abort();
	memcpy(base, &header, sizeof(header));
	struct hl_region_map region;
	hl_region_map_init(&region, base, header.region_bytes);
	return region;
}

static inline void test_region_free(struct hl_region_map *region)
{
	munmap(region->header, region->header->region_bytes);
}

/* Every published node leads to the root, by published nodes, in as many steps as there are nodes
 * at most. */
static inline const char *test_region_check_nodes(const struct hl_region_map *region)
{
	uint32_t count = atomic_load(&region->header->node_count);

	for (uint32_t id = 1; id <= count; id++) {
		uint32_t steps = 0;
		for (uint32_t at = id; at && atomic_load(&region->nodes[id].frame);
		     at = region->nodes[at].parent)
			if (at > count || !atomic_load(&region->nodes[at].frame) || ++steps > count)
				return "a node does not lead to the root";
	}
	return NULL;
}

static inline const char *test_region_check_chunk(const struct hl_region_map *region,
						  const struct hl_cell_chunk *chunk)
{
	uint32_t used = atomic_load(&chunk->used);

	if (used > HL_CHUNK_CELLS)
		return "a chunk has more cells than fit";
	if (used && chunk->thread >= HL_THREADS_MAX)
		return "a chunk belongs to no thread";
	for (uint32_t i = 0; i < used; i++) {
		uint32_t node = chunk->cells[i].node;
		if (!node || node > atomic_load(&region->header->node_count))
			return "a cell has no node";
		if (chunk->cells[i].epoch > atomic_load(&region->header->peak_epoch))
			return "a cell is ahead of the peak marks";
	}
	return NULL;
}

/* What is wrong with a region in which nobody is writing, or NULL. */
static inline const char *test_region_check(const struct hl_region_map *region)
{
	const struct hl_region_header *header = region->header;

	for (enum hl_area_id id = 0; id < HL_AREA_COUNT; id++)
		if (atomic_load(&header->areas[id].committed) > header->areas[id].capacity)
			return "an area is backed beyond its end";
	if (!hl_region_map_has(region, HL_AREA_NODES,
			       (atomic_load(&header->node_count) + UINT64_C(1)) *
				       sizeof(struct hl_region_node)) ||
	    !hl_region_map_has(region, HL_AREA_CELLS,
			       atomic_load(&header->chunk_count) * sizeof(struct hl_cell_chunk)))
		return "something was given out without memory";
	const char *wrong = test_region_check_nodes(region);
	for (uint32_t i = 0; !wrong && i < atomic_load(&header->chunk_count); i++)
		wrong = test_region_check_chunk(region, &region->chunks[i]);
	return wrong;
}
