/* SPDX-License-Identifier: BSD-2-Clause */
/* The counters of what a process can lose, one by one; see lost.h. */
#include "base/lost.h"

#include "base/encode.h"

const struct hl_lost_counter hl_lost_counters[HL_LOST_COUNT] = {
#define DESCRIBE(member, ...) {.key = #member, __VA_ARGS__},
	HL_LOST_COUNTERS(DESCRIBE, DESCRIBE)};

void hl_lost_add(struct hl_lost *sum, const struct hl_lost *more)
{
	for (size_t i = 0; i < HL_LOST_COUNT; i++)
		((uint64_t *)sum)[i] += hl_lost_value(more, i);
}

struct hl_lost hl_lost_since(const struct hl_lost *lost, const struct hl_lost *before)
{
#define SINCE(member, ...) lost->member > before->member ? lost->member - before->member : 0,
	return (struct hl_lost){HL_LOST_COUNTERS(SINCE, SINCE)};
}
