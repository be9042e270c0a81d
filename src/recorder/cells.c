/* SPDX-License-Identifier: BSD-2-Clause */
/* Gives out cells of the region to threads; see cells.h. */
#include "recorder/cells.h"

#include "recorder/private_map.h"

#define FIRST_BITS 9 /* 512 slots, 4 KiB */

static void insert(struct hl_cells *cells, struct hl_cell_slot slot)
{
	uint32_t mask = UINT32_MAX >> cells->shift;

	uint32_t at = hl_cells_place(cells, slot.node);
	while (cells->slots[at].node)
		at = (at + 1) & mask;
	cells->slots[at] = slot;
}

static bool resize(struct hl_cells *cells, uint32_t bits)
{
	struct hl_cells old = *cells;

	struct hl_cell_slot *slots = hl_private_map_new(sizeof(*slots) << bits);
	if (!slots)
		return false;
	cells->slots = slots;
	cells->shift = 32 - bits;
	if (!old.slots)
		return true;
	for (uint32_t i = 0; i <= UINT32_MAX >> old.shift; i++)
		if (old.slots[i].node)
			insert(cells, old.slots[i]);
	hl_cells_release(&old);
	return true;
}

/* Room for one more slot below a half, as most events look for one; without memory, for as long as one stays empty. */
static bool make_room(struct hl_cells *cells)
{
	if (!cells->slots)
		return resize(cells, FIRST_BITS);
	uint32_t bits = 32 - cells->shift, slots = UINT32_C(1) << bits;
	return cells->used + 1 <= slots / 2 || resize(cells, bits + 1) || cells->used + 2 <= slots;
}

/* Takes the next chunk of the region. The chunk's thread is written before its first cell is
 * counted in `used`. */
static bool take_chunk(struct hl_cells *cells, struct hl_region_map *region)
{
	_Atomic uint32_t *count = &region->header->chunk_count;
	uint32_t chunk = atomic_load_explicit(count, memory_order_relaxed);

	do {
		uint64_t end = (chunk + UINT64_C(1)) * sizeof(struct hl_cell_chunk);
		if (!hl_region_map_has(region, HL_AREA_CELLS, end) &&
		    !hl_region_map_commit(region, HL_AREA_CELLS, end))
			return false;
	} while (!atomic_compare_exchange_weak(count, &chunk, chunk + 1));
	region->chunks[chunk].thread = cells->thread;
	cells->chunk = chunk;
	cells->has_chunk = true;
	return true;
}

struct hl_cell *hl_cells_add(struct hl_cells *cells, struct hl_region_map *region, uint32_t node)
{
	if (!make_room(cells))
		return NULL;
	bool full =
		cells->has_chunk && atomic_load_explicit(&region->chunks[cells->chunk].used,
							 memory_order_relaxed) == HL_CHUNK_CELLS;
	if ((!cells->has_chunk || full) && !take_chunk(cells, region))
		return NULL;
	struct hl_cell_chunk *chunk = &region->chunks[cells->chunk];
	uint32_t place = atomic_load_explicit(&chunk->used, memory_order_relaxed);
	struct hl_cell *cell = &chunk->cells[place];
	cell->node = node;
	cell->epoch = atomic_load_explicit(&region->header->peak_epoch, memory_order_relaxed);
	insert(cells,
	       (struct hl_cell_slot){node, (uint32_t)(cell - (struct hl_cell *)region->chunks)});
	cells->used++;
	atomic_store_explicit(&chunk->used, place + 1, memory_order_release);
	return cell;
}

void hl_cells_release(struct hl_cells *cells)
{
	if (cells->slots)
		hl_private_map_free(cells->slots, sizeof(*cells->slots) << (32 - cells->shift));
	cells->slots = NULL;
}
