/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ranges of addresses: lists of them, the gaps between them, and the stretches of a process whose use its own
 * data prove.
 */
#pragma once

#include "base/array.h"
#include "base/compiler.h"
#include "heap/carriers.h"
#include "heap/memory.h"

#include <stddef.h>
#include <stdint.h>

/* ---- lists of addresses; ranges of addresses, and the gaps between them ---- */

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

/* Inserts [${start}, ${end}) into a list in rising order. 1; 0: it overlaps one that is there; or -ENOMEM. */
int hl_extents_claim(struct hl_extents *extents, uint64_t start, uint64_t end);

/* In rising order, for those that were added in another one. */
void hl_extents_sort(struct hl_extents *extents);

/* Whether an extent holds ${address}. */
bool hl_extents_hold(const struct hl_extents *extents, uint64_t address);

/* Calls ${gap} with each part of [${start}, ${end}) that no extent holds, until it returns non-
 * zero; returns that. */
int hl_extents_gaps(const struct hl_extents *extents, uint64_t start, uint64_t end,
		    int (*gap)(void *context, uint64_t start, uint64_t end), void *context);

void hl_extents_release(struct hl_extents *extents);

/* ---- places ---- */

/*
 * Stretches of a process' memory whose use its own data prove: stacks by the threads' control blocks, variables by the
 * program headers of mapped ELF files, Java's heap and code by the tables that the JVM exports for debuggers.
 */

enum hl_place_kind {
	HL_PLACE_VARIABLES, /* all segments of an ELF file, whose written pages are its variables */
	HL_PLACE_STACK,
	HL_PLACE_JAVA,
	HL_PLACE_CODE, /* that a runtime made */
};

struct hl_place {
	uint64_t start, end; /* page-aligned */
	enum hl_place_kind kind;
};

/* In rising order, without overlaps. Zero-initialize for an empty list. */
struct hl_places {
	struct hl_place *places;
	size_t count, capacity;
};

/* Where HotSpot keeps Java's objects and its code; zero where no JVM is loaded or it does not say. With ZGC its objects lie in
 * mappings of the memfd "java_heap", and heap_start is 0. */
struct hl_jvm {
	uint64_t heap_start, heap_end, code_start, code_end;
};

/* Finds all places of ${memory}, that of ${jvm} included. 0 or a negative errno. */
int hl_places_read(struct hl_memory *memory, const struct hl_jvm *jvm,
		   struct hl_places *ret_places);

void hl_places_release(struct hl_places *places);

/* Reads the JVM's tables; nothing that is not in memory is touched. */
struct hl_jvm hl_jvm_find(struct hl_memory *memory);
