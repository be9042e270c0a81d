/* SPDX-License-Identifier: BSD-2-Clause */
/* Lists of addresses; ranges of addresses, and the gaps between them. */
#pragma once

#include "base/array.h"
#include "base/compiler.h"
#include "heap/carriers.h"

/* ---- lists ---- */

/* Zero-initialize for an empty list. */
struct hl_addresses {
	uint64_t *addresses;
	size_t count, capacity;
};

/* For qsort(), of addresses or of structures that begin with one. */
static inline int hl_addresses_compare(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return (a > b) - (a < b);
}

/* In rising order, each kept once. */
static inline void hl_addresses_sort(struct hl_addresses *list)
{
	size_t kept = 0;

	if (list->count)
		qsort(list->addresses, list->count, sizeof(*list->addresses), hl_addresses_compare);
	for (size_t i = 0; i < list->count; i++)
		if (!kept || list->addresses[i] != list->addresses[kept - 1])
			list->addresses[kept++] = list->addresses[i];
	list->count = kept;
}

/* The index of the first address in a sorted list that is at least ${address}. */
static inline size_t hl_addresses_at(const struct hl_addresses *list, uint64_t address)
{
	return HL_LOWER_BOUND(i, list->count, list->addresses[i] < address);
}

static inline void hl_addresses_release(struct hl_addresses *list)
{
	free(list->addresses);
	*list = (struct hl_addresses){0};
}

/* ---- extents.c: stretches, in rising order ---- */

struct hl_extent {
	uint64_t start, end;
};

/* Zero-initialize for an empty one. */
struct hl_extents {
	struct hl_extent *extents;
	size_t count, capacity;
};

/* Replaces ${extents} with the pages that carriers occupy. 0 or -ENOMEM. */
int hl_extents_of_carriers(const struct hl_carriers *carriers, uint64_t page_bytes,
			   struct hl_extents *extents);

/* Appends [${start}, ${end}), which must lie after all others. 0 or -ENOMEM. */
int hl_extents_add(struct hl_extents *extents, uint64_t start, uint64_t end);

/* In rising order, for those that were added in another one. */
void hl_extents_sort(struct hl_extents *extents);

/* Whether an extent holds ${address}. */
bool hl_extents_hold(const struct hl_extents *extents, uint64_t address);

/* Calls ${gap} with each part of [${start}, ${end}) that no extent holds, until it returns non-
 * zero; returns that. */
int hl_extents_gaps(const struct hl_extents *extents, uint64_t start, uint64_t end,
		    int (*gap)(void *context, uint64_t start, uint64_t end), void *context);

void hl_extents_release(struct hl_extents *extents);
