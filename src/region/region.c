/* SPDX-License-Identifier: BSD-2-Clause */
/* Lays a region out; used by the collector, which makes it, and by tests. */
#include "region/region.h"

#include "region/ring.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

const char *const hl_mode_names[HL_MODE_COUNT + 2] = {
	[HL_MODE_CLOSED] = "closed",	 [HL_MODE_MEM_RECORD] = "mem-record",
	[HL_MODE_MEM_FAST] = "mem-fast", [HL_MODE_LOG_RECORD] = "log-record",
	[HL_MODE_LOG_FAST] = "log-fast", [HL_MODE_COUNT] = "off",
};

#define AREA_ALIGNMENT (UINT64_C(64) << 10)

/* Sizes at the default, in bytes. */
static const uint64_t default_capacity[HL_AREA_COUNT] = {
	[HL_AREA_MODULES] = HL_MODULES_MAX * sizeof(struct hl_region_module),
	[HL_AREA_STRINGS] = HL_STRINGS_BYTES,
	[HL_AREA_SITES] = HL_SITES_MAX * sizeof(struct hl_region_site),
	[HL_AREA_NAMES] = HL_NAMES_BYTES,
	[HL_AREA_THREADS] = HL_THREADS_MAX * sizeof(struct hl_region_thread),
	[HL_AREA_NODES] = (uint64_t)(HL_NODE_MAX + 1) * sizeof(struct hl_region_node),
	[HL_AREA_INDEX] = UINT64_C(256)
			  << 20, /* all tables from 2^HL_INDEX_BITS_MIN to 2^25 slots */
	[HL_AREA_CELLS] = UINT64_C(2) << 30,
	[HL_AREA_RINGS] = (uint64_t)HL_THREADS_MAX * HL_RING_STRIDE,
};

static uint64_t align_up(uint64_t bytes)
{
	return (bytes + AREA_ALIGNMENT - 1) & ~(AREA_ALIGNMENT - 1);
}

/* By how many bits areas are smaller than by default. */
struct scale {
	unsigned names; /* of modules, strings, sites and threads */
	unsigned tree;	/* of nodes, their index and cells */
	unsigned rings; /* NO_RINGS: there are none */
};

#define NAMES_SHARE 8 /* of a small region, all that is scaled by `names` */
#define NAMES_MAX   5 /* 512 modules and 256 threads are left */
#define SHIFT_MAX   16
#define NO_RINGS    64

static_assert(HL_THREADS_MAX >> NAMES_MAX > HL_THREADS_OWNED, "threads that end free slots");

static uint64_t capacity_of(enum hl_area_id id, struct scale scale)
{
	if (id == HL_AREA_RINGS)
		return scale.rings == NO_RINGS ? 0 : align_up(default_capacity[id] >> scale.rings);
	bool names = id <= HL_AREA_THREADS;
	return align_up(default_capacity[id] >> (names ? scale.names : scale.tree));
}

static uint64_t end_of(enum hl_area_id last, struct scale scale)
{
	uint64_t end = align_up(sizeof(struct hl_region_header));

	for (enum hl_area_id id = 0; id <= last; id++)
		end += capacity_of(id, scale);
	return end;
}

/* Who logs from the start needs rings as much as the tree; who may log later needs the tree more.
 */
static struct scale scale_for(uint64_t bytes, enum hl_mode mode)
{
	bool logs = hl_mode_logs(mode);
	struct scale scale = {.rings = logs ? 0 : NO_RINGS};

	if (!bytes)
		return (struct scale){0};
	while (end_of(HL_AREA_THREADS, scale) > bytes / NAMES_SHARE && scale.names < NAMES_MAX)
		scale.names++;
	while (end_of(HL_AREA_RINGS, scale) > bytes && scale.tree < SHIFT_MAX) {
		scale.tree++;
		scale.rings += logs;
	}
	if (logs)
		return scale;
	for (scale.rings = scale.tree; scale.rings <= SHIFT_MAX; scale.rings++)
		if (end_of(HL_AREA_RINGS, scale) <= bytes)
			return scale;
	scale.rings = NO_RINGS;
	return scale;
}

void hl_region_layout(struct hl_region_header *header, uint64_t bytes, enum hl_mode mode)
{
	const struct scale scale = scale_for(bytes, mode);

	memset(header, 0, sizeof(*header));
	memcpy(header->magic, HL_REGION_MAGIC, sizeof(header->magic));
	header->version = HL_REGION_VERSION;
	header->header_bytes = sizeof(*header);
	uint64_t offset = align_up(sizeof(*header));
	for (enum hl_area_id id = 0; id < HL_AREA_COUNT; id++) {
		header->areas[id].offset = offset;
		header->areas[id].capacity = capacity_of(id, scale);
		offset += header->areas[id].capacity;
	}
	header->region_bytes = offset;
}
