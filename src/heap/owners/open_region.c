/* SPDX-License-Identifier: BSD-2-Clause */
/* Copies a region out of the process that it is in; see owner_table.h. */
#include "heap/owners/owner_table.h"

#include "region/region.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define REGION_FILE "memfd:heapline"
#define PIECE_BYTES (UINT64_C(64) << 20) /* copied at once */

static bool layout_is_sane(const struct hl_region_header *layout)
{
	uint64_t bytes = layout->region_bytes;
	bool sane = memcmp(layout->magic, HL_REGION_MAGIC, sizeof(layout->magic)) == 0 &&
		    layout->version == HL_REGION_VERSION && bytes >= sizeof(*layout);

	for (size_t i = 0; sane && i < HL_AREA_COUNT; i++)
		sane = layout->areas[i].offset % 8 == 0 && layout->areas[i].offset <= bytes &&
		       layout->areas[i].capacity <= bytes - layout->areas[i].offset;
	return sane;
}

int hl_open_region_refresh(struct hl_open_region *region)
{
	return hl_owners_read_memory(region->pid, region->address, region->base,
				     sizeof(struct hl_region_header));
}

bool hl_block_owners_would_have_pieces(pid_t pid, const struct hl_maps *maps)
{
	const struct hl_map *map = hl_owners_find_file(maps, REGION_FILE, HL_MAP_WRITE);
	struct hl_region_header header;

	return map && hl_owners_read_memory(pid, map->start, &header, sizeof(header)) == 0 &&
	       layout_is_sane(&header) && atomic_load(&header.mode) & HL_MODE_PIECES;
}

int hl_open_region(pid_t pid, const struct hl_owner_names *names, struct hl_open_region *ret_region)
{
	static const enum hl_area_id wanted[] = {HL_AREA_MODULES, HL_AREA_STRINGS, HL_AREA_SITES,
						 HL_AREA_NAMES,	  HL_AREA_THREADS, HL_AREA_NODES,
						 HL_AREA_CELLS};
	/* What attach brings has a page of it mapped once more, read-only. */
	const struct hl_map *map =
		hl_owners_find_file(hl_owner_names_maps(names), REGION_FILE, HL_MAP_WRITE);
	struct hl_open_region region = {.pid = pid, .base = MAP_FAILED};

	if (!map)
		return -ENODATA;
	region.address = map->start;
	int r = hl_owners_read_memory(pid, map->start, &region.layout, sizeof(region.layout));
	if (r < 0)
		return r;
	if (!layout_is_sane(&region.layout))
		return -ENODATA;
	region.bytes = region.layout.region_bytes;
	region.base = mmap(NULL, region.bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (region.base == MAP_FAILED)
		return -errno;
	r = hl_open_region_refresh(&region);
	/* Of an area, the part that is backed by memory. */
	for (size_t i = 0; r == 0 && i < HL_COUNT_OF(wanted); i++) {
		const struct hl_area *area = &region.layout.areas[wanted[i]];
		uint64_t at = area->offset;
		uint64_t left = area->committed < area->capacity ? area->committed : area->capacity;
		for (uint64_t bytes; r == 0 && left; at += bytes, left -= bytes) {
			bytes = left < PIECE_BYTES ? left : PIECE_BYTES;
			r = hl_owners_read_memory(pid, region.address + at,
						  (char *)region.base + at, bytes);
		}
	}
	*ret_region = region;
	ret_region->view = (struct hl_region_view){
		.base = region.base, .bytes = region.bytes, .layout = &ret_region->layout};
	if (r == 0)
		r = hl_region_sites_read(&ret_region->view, &ret_region->scripts);
	if (r < 0)
		hl_open_region_release(ret_region);
	return r;
}

void hl_open_region_release(struct hl_open_region *region)
{
	hl_recording_process_release(&region->scripts);
	munmap(region->base, region->bytes);
}
