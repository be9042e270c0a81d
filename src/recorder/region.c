/* SPDX-License-Identifier: BSD-2-Clause */
/* Lays a region out; used by the collector, which makes it, and by tests. */
#include "recorder/region.h"

#include "recorder/ring.h"

#include <stdbool.h>
#include <string.h>

const char *const hl_mode_names[HL_MODE_COUNT + 1] = {
	[HL_MODE_CLOSED] = "closed",	 [HL_MODE_MEM_RECORD] = "mem-record",
	[HL_MODE_MEM_FAST] = "mem-fast", [HL_MODE_LOG_RECORD] = "log-record",
	[HL_MODE_LOG_FAST] = "log-fast",
};

#define AREA_ALIGNMENT (UINT64_C(64) << 10)

/* Sizes at the default of some 2.7 GiB, in bytes; a smaller region scales all but the first three.
 */
static const uint64_t default_capacity[HL_AREA_COUNT] = {
	[HL_AREA_MODULES] = HL_MODULES_MAX * sizeof(struct hl_region_module),
	[HL_AREA_STRINGS] = HL_STRINGS_BYTES,
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

static uint64_t capacity_of(enum hl_area_id id, unsigned shift, enum hl_mode mode)
{
	if (id == HL_AREA_RINGS && !hl_mode_logs(mode))
		return 0;
	bool fixed = id == HL_AREA_MODULES || id == HL_AREA_STRINGS || id == HL_AREA_THREADS;
	return align_up(fixed ? default_capacity[id] : default_capacity[id] >> shift);
}

static uint64_t total_of(unsigned shift, enum hl_mode mode)
{
	uint64_t total = align_up(sizeof(struct hl_region_header));
	for (enum hl_area_id id = 0; id < HL_AREA_COUNT; id++)
		total += capacity_of(id, shift, mode);
	return total;
}

void hl_region_layout(struct hl_region_header *header, uint64_t bytes, enum hl_mode mode)
{
	unsigned shift = 0;
	while (bytes && total_of(shift, mode) > bytes && shift < 16)
		shift++;

	memset(header, 0, sizeof(*header));
	memcpy(header->magic, HL_REGION_MAGIC, sizeof(header->magic));
	header->version = HL_REGION_VERSION;
	header->header_bytes = sizeof(*header);
	uint64_t offset = align_up(sizeof(*header));
	for (enum hl_area_id id = 0; id < HL_AREA_COUNT; id++) {
		header->areas[id].offset = offset;
		header->areas[id].capacity = capacity_of(id, shift, mode);
		offset += header->areas[id].capacity;
	}
	header->region_bytes = offset;
}
