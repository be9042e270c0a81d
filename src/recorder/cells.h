/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds a thread's own cell of a stack node in the region. One struct for each thread slot, used by
 * its owner only. */
#pragma once

#include "recorder/region_map.h"

#include <stdbool.h>
#include <stdint.h>

struct hl_cell_slot {
	uint32_t node; /* 0 = empty */
	uint32_t line; /* where the cell is in the area of cells, in units of its size */
};

struct hl_cells {
	struct hl_cell_slot *slots; /* private memory, open addressing */
	uint32_t shift;		    /* 32 - bits of an index of the slots */
	uint32_t used;
	uint32_t chunk; /* being filled; meaningful when has_chunk */
	bool has_chunk;
	uint32_t thread; /* slot in the region */
};

/*
 * The cells of the size classes that this thread used last; see event.c. The
 * key is (address of the stack's cell) << 1 | size class: cells are aligned to 64 bytes, so seven
 * bits are free. Zero-initialize.
 */
#define HL_SIZE_CELL_BITS 10

struct hl_size_cell {
	uint64_t key;
	struct hl_cell *cell;
};

static inline uint32_t hl_size_cell_place(uint64_t key)
{
	return (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> (64 - HL_SIZE_CELL_BITS));
}

/* The cell for a node that this thread has not counted to before; NULL when there is no memory. */
struct hl_cell *hl_cells_add(struct hl_cells *cells, struct hl_region_map *region, uint32_t node);

/* Frees what is private; the cells stay. */
void hl_cells_release(struct hl_cells *cells);

static inline uint32_t hl_cells_place(const struct hl_cells *cells, uint32_t node)
{
	return (node * UINT32_C(0x9e3779b1)) >> cells->shift;
}

/* Has what hl_cells_find() reads first come into the cache. */
static inline void hl_cells_prefetch(const struct hl_cells *cells, uint32_t node)
{
	if (HL_LIKELY(cells->slots))
		__builtin_prefetch(&cells->slots[hl_cells_place(cells, node)]);
}

/* The calling thread's cell for ${node}, which is not 0; NULL when it has none yet. */
static inline struct hl_cell *hl_cells_find(const struct hl_cells *cells,
					    const struct hl_region_map *region, uint32_t node)
{
	if (HL_UNLIKELY(!cells->slots))
		return NULL;
	uint32_t mask = UINT32_MAX >> cells->shift;
	for (uint32_t at = hl_cells_place(cells, node);; at = (at + 1) & mask) {
		if (HL_LIKELY(cells->slots[at].node == node))
			return (struct hl_cell *)region->chunks + cells->slots[at].line;
		if (!cells->slots[at].node)
			return NULL;
	}
}

/* The same, made if it is new; NULL when there is no memory. */
static inline struct hl_cell *hl_cells_get(struct hl_cells *cells, struct hl_region_map *region,
					   uint32_t node)
{
	struct hl_cell *cell = hl_cells_find(cells, region, node);

	return HL_LIKELY(cell) ? cell : hl_cells_add(cells, region, node);
}
