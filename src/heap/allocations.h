/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allocations: how many live blocks of which sizes each origin (a library, a service, a
 * driver) has, by type (a function, a tag, what a guest keeps in them).
 */
#pragma once

#include "base/strings.h"
#include "heap/carriers.h"

#include <stddef.h>
#include <stdint.h>

struct hl_allocation {
	uint32_t origin, type; /* in hl_allocations.names */
	uint64_t blocks, bytes;
	struct hl_log2_histogram histogram; /* of the blocks' sizes; its sum is ${blocks} */
};

/* Zero-initialize for an empty one. */
struct hl_allocations {
	struct hl_allocation *rows;
	size_t count, capacity;
	struct hl_strings names;
	struct hl_log2_shape shape;
	bool knows_bytes; /* else rows[].bytes is 0, and only the histogram bounds it */
	uint64_t unscanned_bytes;
};

/*
 * Appends a row without blocks, even if ${origin} and ${type} already have one. 0 or -ENOMEM;
 * *${ret_row} is valid until the next row is added.
 */
int hl_allocations_add(struct hl_allocations *allocations, const char *origin, const char *type,
		       struct hl_allocation **ret_row);

/* Sorts the rows: the most bytes (where not known, blocks) first, equal ones by their names. */
void hl_allocations_sort(struct hl_allocations *allocations);

/* The sum of all rows; origin and type are "". */
void hl_allocations_total(const struct hl_allocations *allocations,
			  struct hl_allocation *ret_total);

void hl_allocations_release(struct hl_allocations *allocations);
