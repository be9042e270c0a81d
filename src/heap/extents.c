/* SPDX-License-Identifier: BSD-2-Clause */
/* Address ranges; see extents.h. */
#include "heap/extents.h"

#include "base/array.h"
#include "base/compiler.h"

#include <errno.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
	const struct hl_extent *x = a, *y = b;

	return (x->start > y->start) - (x->start < y->start);
}

int hl_extents_of_carriers(const struct hl_carriers *carriers, uint64_t page_bytes,
			   struct hl_extents *extents)
{
	uint64_t mask = page_bytes - 1;

	if (HL_ARRAY_RESERVE(extents->extents, extents->capacity, carriers->count) < 0)
		return -ENOMEM;
	extents->count = carriers->count;
	for (size_t i = 0; i < carriers->count; i++) {
		const struct hl_carrier *carrier = &carriers->carriers[i];
		uint64_t end = carrier->address + carrier->total_bytes;
		extents->extents[i] =
			(struct hl_extent){carrier->address & ~mask, (end + mask) & ~mask};
	}
	if (extents->count)
		qsort(extents->extents, extents->count, sizeof(*extents->extents), compare);
	return 0;
}

/* The first extent that ends after ${address}. */
static size_t first_after(const struct hl_extents *extents, uint64_t address)
{
	return HL_LOWER_BOUND(i, extents->count, extents->extents[i].end <= address);
}

int hl_extents_add(struct hl_extents *extents, uint64_t start, uint64_t end)
{
	return HL_ARRAY_APPEND(extents->extents, extents->count, extents->capacity,
			       (struct hl_extent){start, end});
}

int hl_extents_claim(struct hl_extents *extents, uint64_t start, uint64_t end)
{
	size_t at = first_after(extents, start);

	if (end <= start || (at < extents->count && extents->extents[at].start < end))
		return 0;
	if (HL_ARRAY_RESERVE(extents->extents, extents->capacity, extents->count + 1) < 0)
		return -ENOMEM;
	memmove(&extents->extents[at + 1], &extents->extents[at],
		(extents->count++ - at) * sizeof(*extents->extents));
	extents->extents[at] = (struct hl_extent){start, end};
	return 1;
}

void hl_extents_sort(struct hl_extents *extents)
{
	if (extents->count)
		qsort(extents->extents, extents->count, sizeof(*extents->extents), compare);
}

bool hl_extents_hold(const struct hl_extents *extents, uint64_t address)
{
	size_t i = first_after(extents, address);

	return i < extents->count && extents->extents[i].start <= address;
}

int hl_extents_gaps(const struct hl_extents *extents, uint64_t start, uint64_t end,
		    int (*gap)(void *context, uint64_t start, uint64_t end), void *context)
{
	int r = 0;

	for (size_t i = first_after(extents, start);
	     i < extents->count && extents->extents[i].start < end && r == 0; i++) {
		if (extents->extents[i].start > start)
			r = gap(context, start, extents->extents[i].start);
		if (extents->extents[i].end > start)
			start = extents->extents[i].end;
	}
	return r == 0 && start < end ? gap(context, start, end) : r;
}

void hl_extents_release(struct hl_extents *extents)
{
	free(extents->extents);
	*extents = (struct hl_extents){0};
}
