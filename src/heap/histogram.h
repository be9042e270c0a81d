/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Histograms of sizes with slots that double, as Erlang's `instrument` has them.
 *
 * heapline's own slots are true powers of two: slot 0 holds sizes below 2 * start, slot k those
 * from start * 2^k up to start * 2^(k+1), the last one all above. BEAM's have other bounds (see
 * hl_log2_shape.is_erts); both are labelled with the bounds that they really have.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define HL_LOG2_WIDTH_MAX 32u /* as Erlang allows */
#define HL_LOG2_START_MAX (UINT64_C(1) << 28)

struct hl_log2_shape {
	uint64_t start; /* bytes; 1 .. HL_LOG2_START_MAX */
	uint32_t width; /* slots; 1 .. HL_LOG2_WIDTH_MAX */
	bool is_erts;	/* slot k begins at start * (2^k - 1): how the BEAM counts; of carriers
			   `start` is twice the option's value */
};

struct hl_log2_histogram {
	uint64_t counts[HL_LOG2_WIDTH_MAX];
};

/* The slot that a block of ${bytes} belongs to. */
static inline uint32_t hl_log2_slot(const struct hl_log2_shape *shape, uint64_t bytes)
{
	uint64_t units = bytes / shape->start;
	if (shape->is_erts && units < UINT64_MAX)
		units++;
	uint32_t slot = units ? 63u - (uint32_t)__builtin_clzll(units) : 0;
	return slot < shape->width ? slot : shape->width - 1;
}

/* The smallest size in ${slot}; 0 for the first. A start of 2^28 and 32 slots stay below 2^60. */
static inline uint64_t hl_log2_first(const struct hl_log2_shape *shape, uint32_t slot)
{
	uint64_t power = UINT64_C(1) << slot;
	return slot ? shape->start * (shape->is_erts ? power - 1 : power) : 0;
}

/* One more than the largest size in ${slot}; UINT64_MAX for the last. */
static inline uint64_t hl_log2_end(const struct hl_log2_shape *shape, uint32_t slot)
{
	return slot + 1 < shape->width ? hl_log2_first(shape, slot + 1) : UINT64_MAX;
}
