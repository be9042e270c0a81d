/* SPDX-License-Identifier: BSD-2-Clause */
/* Slots of histograms of sizes, and the bounds that they really have. */
#include "heap/histogram.h"

uint32_t hl_log2_slot(const struct hl_log2_shape *shape, uint64_t bytes)
{
	uint64_t units = bytes / shape->start;

	if (shape->is_erts && units < UINT64_MAX)
		units++;
	uint32_t slot = units ? 63u - (uint32_t)__builtin_clzll(units) : 0;
	return slot < shape->width ? slot : shape->width - 1;
}

/* Where ${slot}, not the first, begins. A start of 2^28 and 32 slots stay below 2^60. */
static uint64_t slot_bound(const struct hl_log2_shape *shape, uint32_t slot)
{
	uint64_t power = UINT64_C(1) << slot;
	return shape->start * (shape->is_erts ? power - 1 : power);
}

uint64_t hl_log2_first(const struct hl_log2_shape *shape, uint32_t slot)
{
	return slot ? slot_bound(shape, slot) : 0;
}

uint64_t hl_log2_end(const struct hl_log2_shape *shape, uint32_t slot)
{
	return slot + 1 < shape->width ? slot_bound(shape, slot + 1) : UINT64_MAX;
}
