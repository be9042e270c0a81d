/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Carriers: the large segments that an allocator got from the system and hands out in blocks. What
 * views of carriers know, whether they were read from a process' memory, from a core file, or
 * reported by a BEAM.
 */
#pragma once

#include "heap/histogram.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Live blocks of one kind within a carrier. */
struct hl_carrier_blocks {
	char type[32]; /* BEAM: the allocator type they belong to; glibc: "block" */
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
	char allocator[32]; /* "glibc", "eheap_alloc", "jemalloc" ... */
	char type[32];	    /* "main heap", "arena heap", "mmapped chunk", "mbc", "sbc" ... */
	uint64_t address;   /* 0: unknown (BEAM) */
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

/* Zero-initialize for an empty one. */
struct hl_carriers {
	struct hl_carrier *carriers;
	size_t count, capacity;
	struct hl_log2_shape shape; /* of the free histograms */
};

/* Appends a zeroed carrier; NULL for want of memory. Valid until the next one is added. */
struct hl_carrier *hl_carriers_add(struct hl_carriers *carriers);

void hl_carriers_release(struct hl_carriers *carriers);
