/* SPDX-License-Identifier: BSD-2-Clause */
/* Looks for holes between mappings; see room.h. */
#include "hook/room.h"

#include <string.h>

#define PAGE_BYTES UINT64_C(4096)

/* Less than 2^31, for the few bytes by which displacements are counted from another place. */
#define REACH ((UINT64_C(1) << 31) - PAGE_BYTES)

#define LOWEST	      UINT64_C(0x10000) /* vm.mmap_min_addr, usually */
#define ADDRESSES_END UINT64_C(0x7ffffffff000)

/* What [heap] may still grow into, and what [stack] may. */
#define HEAP_GROWTH  (UINT64_C(1) << 30)
#define STACK_GROWTH (UINT64_C(1) << 26)

bool hl_room_reaches(uint64_t address, uint64_t size, uint64_t near)
{
	uint64_t end = address + size;

	return address >= near ? end - near < REACH : near - address < REACH;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

struct hole {
	uint64_t start, end;
};

/* The hole below mapping ${index}, or above the last one, without what is others'. */
static struct hole hole_below(const struct hl_maps *maps, size_t index)
{
	const struct hl_map *above = index < maps->count ? &maps->maps[index] : NULL;
	const struct hl_map *below = index ? &maps->maps[index - 1] : NULL;
	struct hole hole = {below ? below->end : LOWEST, above ? above->start : ADDRESSES_END};

	if (below && !strcmp(below->path, "[heap]"))
		hole.start += HEAP_GROWTH;
	if (above && !strcmp(above->path, "[stack]"))
		hole.end -= hole.end < STACK_GROWTH ? hole.end : STACK_GROWTH;
	if (hole.end > ADDRESSES_END)
		hole.end = ADDRESSES_END;
	hole.start += PAGE_BYTES;
	hole.end -= hole.end < PAGE_BYTES ? hole.end : PAGE_BYTES;
	return hole;
}

uint64_t hl_room_find(const struct hl_maps *maps, uint64_t near, uint64_t size)
{
	uint64_t best = 0;

	for (size_t i = 0; i <= maps->count; i++) {
		struct hole hole = hole_below(maps, i);
		if (hole.end <= hole.start || hole.end - hole.start < size)
			continue;
		uint64_t at = hole.end <= near ? hole.end - size : hole.start;
		if (hl_room_reaches(at, size, near) &&
		    (!best || distance(at, near) < distance(best, near)))
			best = at;
	}
	return best;
}
