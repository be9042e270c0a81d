/* SPDX-License-Identifier: BSD-2-Clause */
/* Lists of addresses. */
#pragma once

#include "base/array.h"
#include "base/search.h"

/* Zero-initialize for an empty list. */
struct hl_addresses {
	uint64_t *addresses;
	size_t count, capacity;
};

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

/* The index of the first that is not below ${address}, in a sorted list. */
static inline size_t hl_addresses_at(const struct hl_addresses *list, uint64_t address)
{
	return HL_LOWER_BOUND(i, list->count, list->addresses[i] < address);
}

static inline void hl_addresses_release(struct hl_addresses *list)
{
	free(list->addresses);
	*list = (struct hl_addresses){0};
}
