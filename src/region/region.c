/* SPDX-License-Identifier: BSD-2-Clause */
/* Lays a region out; used by the collector, which makes it, and by tests. */
#include "region/region.h"

#include "region/ring.h"

#include <stdbool.h>
#include <string.h>

const char *const hl_mode_names[HL_MODE_COUNT + 2] = {
	[HL_MODE_CLOSED] = "closed",	 [HL_MODE_MEM_RECORD] = "mem-record",
	[HL_MODE_MEM_FAST] = "mem-fast", [HL_MODE_LOG_RECORD] = "log-record",
	[HL_MODE_LOG_FAST] = "log-fast", [HL_MODE_COUNT] = "off",
};

#define AREA_ALIGNMENT (UINT64_C(64) << 10)

/* Sizes at the default, in bytes; a smaller region scales all but the first three. */
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

/* By how many bits areas are smaller than by default. */
struct scale {
	unsigned shift;
	unsigned ring_shift; /* of the rings; NO_RINGS: there are none */
};

#define SHIFT_MAX 16
#define NO_RINGS  64

static uint64_t capacity_of(enum hl_area_id id, struct scale scale)
{
	if (id == HL_AREA_RINGS)
		return scale.ring_shift == NO_RINGS
			       ? 0
			       : align_up(default_capacity[id] >> scale.ring_shift);
	bool fixed = id == HL_AREA_MODULES || id == HL_AREA_STRINGS || id == HL_AREA_THREADS;
	return align_up(fixed ? default_capacity[id] : default_capacity[id] >> scale.shift);
}

static uint64_t total_of(struct scale scale)
{
	uint64_t total = align_up(sizeof(struct hl_region_header));
	for (enum hl_area_id id = 0; id < HL_AREA_COUNT; id++)
		total += capacity_of(id, scale);
	return total;
}

/* Who logs from the start needs rings as much as the rest; who may log later needs the rest more.
 */
static struct scale scale_for(uint64_t bytes, enum hl_mode mode)
{
	struct scale scale = {.ring_shift = hl_mode_logs(mode) ? 0 : NO_RINGS};
	while (bytes && total_of(scale) > bytes && scale.shift < SHIFT_MAX) {
		scale.shift++;
		scale.ring_shift += hl_mode_logs(mode);
	}
	if (hl_mode_logs(mode))
		return scale;
	scale.ring_shift = scale.shift;
	while (bytes && total_of(scale) > bytes && scale.ring_shift < SHIFT_MAX)
		scale.ring_shift++;
	if (bytes && total_of(scale) > bytes)
		scale.ring_shift = NO_RINGS;
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
