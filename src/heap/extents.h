/* SPDX-License-Identifier: BSD-2-Clause */
/* Stretches of addresses, in rising order, and what lies between them. */
#pragma once

#include "heap/carriers.h"

struct hl_extent {
	uint64_t start, end;
};

/* Zero-initialize for an empty one. */
struct hl_extents {
	struct hl_extent *extents;
	size_t count, capacity;
};

/* The pages that carriers lie in, in place of what was in ${extents}. 0 or -ENOMEM. */
int hl_extents_of_carriers(const struct hl_carriers *carriers, uint64_t page_bytes,
			   struct hl_extents *extents);

/* Appends [${start}, ${end}), which lies after all that are there. 0 or -ENOMEM. */
int hl_extents_add(struct hl_extents *extents, uint64_t start, uint64_t end);

/* Whether ${address} is in one. */
bool hl_extents_hold(const struct hl_extents *extents, uint64_t address);

/* Calls ${gap} with each stretch of [${start}, ${end}) that is in none, until it returns other than
 * 0; returns that. */
int hl_extents_gaps(const struct hl_extents *extents, uint64_t start, uint64_t end,
		    int (*gap)(void *context, uint64_t start, uint64_t end), void *context);

void hl_extents_release(struct hl_extents *extents);
