/* SPDX-License-Identifier: BSD-2-Clause */
/* The recorder's view of its region: areas as pointers, and memory for them on demand. */
#pragma once

#include "region/region.h"
#include "region/ring.h"

#include <stdbool.h>

struct hl_region_map {
	struct hl_region_header *header;
	struct hl_region_module *modules;
	char *strings;
	struct hl_region_site *sites;
	char *names;
	struct hl_region_thread *threads;
	struct hl_region_node *nodes; /* by id; nodes[0] is the root and stays zero */
	_Atomic uint32_t *index;
	/* How many slots of the index table before have been moved into the table of 2^bits slots. */
	_Atomic uint32_t moved[HL_INDEX_BITS_MAX + 1];
	struct hl_cell_chunk *chunks;
	/* Bytes of each area that this process may touch. A forked child that goes on with a hook shares the
	 * region with its parent, but not what the parent makes accessible from then on. */
	_Atomic uint64_t accessible[HL_AREA_COUNT];
	_Atomic uint32_t index_bits;  /* of the largest table of the index that it may */
	_Atomic(char *) rings;	      /* NULL: not mapped yet; see hl_region_map_rings() */
	_Atomic uint32_t large_rings; /* rings that have had more room */
	int32_t collector_pid;	      /* 0: unknown in this pid namespace */
	_Atomic uint64_t dead_tick; /* at which the collector was found to be dead, + 1; 0: never */
	struct hl_ring_order order;
};

/* Bytes of the rings that are always mapped. */
#define HL_REGION_MAP_RINGS_SEED 4096u

/*
 * Maps the region of ${fd}; *${bytes}, all of it, becomes how much. Where there is no log to begin
 * with, of the rings only the first page, from which hl_region_map_rings() maps the rest when there
 * is one: a program that limits its own address space has all the more. NULL when it is not a region.
 */
void *hl_region_map_open(int fd, size_t *bytes);

/* Points ${region} into the region at ${base}, of which ${bytes} are mapped. */
void hl_region_map_init(struct hl_region_map *region, void *base, size_t bytes);

/* The rings, mapped if they are not yet; NULL without any, or without address space for them. As
 * hl_region_map_commit(). */
char *hl_region_map_rings(struct hl_region_map *region);

/* After that no area has room, nor anything to be read. */
void hl_region_map_close(struct hl_region_map *region);

/*
 * Makes sure that bytes [0, end) of an area are accessible and backed by memory, so that touching
 * them cannot fail. False when the area is full or the system has no memory. Thread-safe, async-signal-safe;
 * errno is kept.
 */
bool hl_region_map_commit(struct hl_region_map *region, enum hl_area_id area, uint64_t end);

/* The same for ${bytes} from ${start} on, whole pages of an area that is not filled in order. */
bool hl_region_map_back(void *start, uint64_t bytes);

/* Has them be accessible, without memory so far. */
bool hl_region_map_permit(void *start, uint64_t bytes);

/* False also when its number is not known here, in another PID namespace. Async-signal-safe. */
bool hl_region_map_collector_exists(const struct hl_region_map *region);

static inline bool hl_region_map_has(const struct hl_region_map *region, enum hl_area_id area,
				     uint64_t end)
{
	return HL_LIKELY(end <=
			 atomic_load_explicit(&region->accessible[area], memory_order_acquire));
}
