/* SPDX-License-Identifier: BSD-2-Clause */
/* The lists of carriers, and of allocations by origin and type. */
#include "heap/carriers.h"

#include "base/array.h"

struct hl_carrier *hl_carriers_add(struct hl_carriers *carriers)
{
	if (HL_ARRAY_RESERVE(carriers->carriers, carriers->capacity, carriers->count + 1) < 0)
		return NULL;
	struct hl_carrier *carrier = &carriers->carriers[carriers->count++];
	*carrier = (struct hl_carrier){0};
	return carrier;
}

void hl_carriers_release(struct hl_carriers *carriers)
{
	for (size_t i = 0; i < carriers->count; i++)
		free(carriers->carriers[i].strip);
	free(carriers->carriers);
	*carriers = (struct hl_carriers){0};
}

/* ---- allocations ---- */

int hl_allocations_add(struct hl_allocations *allocations, const char *origin, const char *type,
		       struct hl_allocation **ret_row)
{
	struct hl_allocation row = {0};

	int r = hl_strings_intern(&allocations->names, origin, &row.origin);
	if (r == 0)
		r = hl_strings_intern(&allocations->names, type, &row.type);
	if (r == 0)
		r = HL_ARRAY_RESERVE(allocations->rows, allocations->capacity,
				     allocations->count + 1);
	if (r < 0)
		return r;
	allocations->rows[allocations->count] = row;
	*ret_row = &allocations->rows[allocations->count++];
	return 0;
}

static int compare_names(const struct hl_strings *names, uint32_t a, uint32_t b)
{
	return strcmp(hl_strings_text(names, a), hl_strings_text(names, b));
}

static int compare_rows(const void *left, const void *right, void *context)
{
	const struct hl_allocations *allocations = context;
	const struct hl_allocation *a = left, *b = right;
	uint64_t of_a = allocations->knows_bytes ? a->bytes : a->blocks;
	uint64_t of_b = allocations->knows_bytes ? b->bytes : b->blocks;

	if (of_a != of_b)
		return of_a > of_b ? -1 : 1;
	int order = compare_names(&allocations->names, a->origin, b->origin);
	return order ? order : compare_names(&allocations->names, a->type, b->type);
}

void hl_allocations_sort(struct hl_allocations *allocations)
{
	if (allocations->count)
		qsort_r(allocations->rows, allocations->count, sizeof(*allocations->rows),
			compare_rows, allocations);
}

void hl_allocations_total(const struct hl_allocations *allocations, struct hl_allocation *ret_total)
{
	*ret_total = (struct hl_allocation){0};
	for (size_t i = 0; i < allocations->count; i++) {
		const struct hl_allocation *row = &allocations->rows[i];
		ret_total->blocks += row->blocks;
		ret_total->bytes += row->bytes;
		for (uint32_t slot = 0; slot < allocations->shape.width; slot++)
			ret_total->histogram.counts[slot] += row->histogram.counts[slot];
	}
}

void hl_allocations_release(struct hl_allocations *allocations)
{
	hl_strings_release(&allocations->names);
	free(allocations->rows);
	*allocations = (struct hl_allocations){0};
}
