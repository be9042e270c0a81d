/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Carriers: the large segments that an allocator got from the system and hands out in blocks. And
 * allocations: how many live blocks of which sizes each origin has. What views of these know, whether
 * they were read from a process' memory, from a core file, or reported by a guest.
 */
#pragma once

#include "base/strings.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Histograms of sizes with slots that double.
 *
 * heapline's own slots are true powers of two: slot 0 holds sizes below 2 * start, slot k those
 * from start * 2^k up to start * 2^(k+1), the last one all above. Those that a guest reports may have other
 * bounds; all are labelled with the bounds that they really have.
 */

enum hl_log2_bounds {
	HL_LOG2_POWERS,	  /* heapline's own */
	HL_LOG2_LESS_ONE, /* slot k begins at start * (2^k - 1) */
	HL_LOG2_HALVES,	  /* slot k > 0 begins at start * 2^(k-1) */
	HL_LOG2_QUARTERS, /* nothing is in slot 0, slot k > 1 begins at start * 2^(k-2) */
};

#define HL_LOG2_WIDTH_MAX 32u
#define HL_LOG2_START_MAX (UINT64_C(1) << 28)

struct hl_log2_shape {
	uint64_t start; /* bytes; 1 .. HL_LOG2_START_MAX; with other bounds twice the option's */
	uint32_t width; /* slots; 1 .. HL_LOG2_WIDTH_MAX */
	enum hl_log2_bounds bounds;
};

struct hl_log2_histogram {
	uint64_t counts[HL_LOG2_WIDTH_MAX];
};

/* The slot that a block of ${bytes} belongs to. */
static inline uint32_t hl_log2_slot(const struct hl_log2_shape *shape, uint64_t bytes)
{
	uint64_t units = bytes / shape->start;

	if (shape->bounds == HL_LOG2_LESS_ONE && units < UINT64_MAX)
		units++;
	uint32_t slot = units ? 64u - (uint32_t)__builtin_clzll(units) : 0;
	if (shape->bounds == HL_LOG2_QUARTERS)
		slot++;
	else if (shape->bounds != HL_LOG2_HALVES && slot)
		slot--;
	return slot < shape->width ? slot : shape->width - 1;
}

/* The smallest size in ${slot}; 0 for the first. A start of 2^29 and 32 slots stay below 2^61. */
static inline uint64_t hl_log2_first(const struct hl_log2_shape *shape, uint32_t slot)
{
	switch (shape->bounds) {
	case HL_LOG2_LESS_ONE:
		return (shape->start << slot) - shape->start;
	case HL_LOG2_HALVES:
		return slot ? shape->start << (slot - 1) : 0;
	case HL_LOG2_QUARTERS:
		return slot > 1 ? shape->start << (slot - 2) : 0;
	case HL_LOG2_POWERS:
		break;
	}
	return slot ? shape->start << slot : 0;
}

/* One more than the largest size in ${slot}; UINT64_MAX for the last. */
static inline uint64_t hl_log2_end(const struct hl_log2_shape *shape, uint32_t slot)
{
	return slot + 1 < shape->width ? hl_log2_first(shape, slot + 1) : UINT64_MAX;
}

/* ---- carriers ---- */

/* Live blocks of one kind within a carrier. */
struct hl_carrier_blocks {
	char type[32]; /* "block", or what the allocator calls them */
	uint64_t count, bytes;
};

#define HL_CARRIER_BLOCKS_MAX 16u

/* A stretch of a carrier, for pictures. */
enum hl_stretch_kind {
	HL_STRETCH_LIVE,
	HL_STRETCH_CACHED,	  /* thread caches, fastbins */
	HL_STRETCH_FREE_RESIDENT, /* free, in memory */
	HL_STRETCH_FREE_ABSENT,	  /* free, not in memory */
	HL_STRETCH_UNSCANNED,
	HL_STRETCH_COUNT,
};

struct hl_carrier {
	char allocator[32]; /* "glibc", "eheap_alloc" ... */
	char type[32];	    /* "main heap", "arena heap", "mmapped chunk", "mbc", "sbc" ... */
	uint64_t address;   /* 0: unknown */
	uint64_t total_bytes;
	uint64_t unscanned_bytes;
	uint64_t allocated_bytes, allocated_blocks; /* sums of ${blocks} */
	uint64_t cached_bytes, cached_blocks;
	uint64_t free_bytes, free_blocks, largest_free_bytes;
	uint64_t resident_bytes, free_resident_bytes;
	uint32_t arena; /* index of the arena it belongs to; UINT32_MAX: none */
	bool in_pool;	/* unused by allocations now: glibc: an arena without threads */
	struct hl_carrier_blocks blocks[HL_CARRIER_BLOCKS_MAX];
	uint32_t block_kinds;
	struct hl_log2_histogram free_histogram;
	/* For pictures: bytes of each kind in each of ${strip_count} equal parts of the carrier,
	 * row by row; NULL when not wanted. Belongs to the carrier. */
	uint64_t (*strip)[HL_STRETCH_COUNT];
	uint32_t strip_count;
};

/* The address where ${part} of the carrier's picture begins, which has some. */
static inline uint64_t hl_carrier_part_start(const struct hl_carrier *carrier, uint32_t part)
{
	return carrier->address +
	       (uint64_t)((__uint128_t)carrier->total_bytes * part / carrier->strip_count);
}

/* Zero-initialize for an empty one. */
struct hl_carriers {
	struct hl_carrier *carriers;
	size_t count, capacity;
	struct hl_log2_shape shape; /* of the free histograms */
};

/* Appends a zeroed carrier; NULL for want of memory. Valid until the next one is added. */
struct hl_carrier *hl_carriers_add(struct hl_carriers *carriers);

void hl_carriers_release(struct hl_carriers *carriers);

/* ---- allocations ---- */

/* The blocks of an origin (a library, a service, a driver) of one type (a function, a tag, what a guest
 * keeps in them). */
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
