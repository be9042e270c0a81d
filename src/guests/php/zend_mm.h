/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What PHP's memory manager (zend_mm) holds, read from outside, of 8.2 to 8.4; no symbols are needed.
 *
 *	chunk	2 MiB that are mapped; their first page says what the other 511 are
 *	bin	pages of a chunk that are cut into blocks of one size, one of 30 up to 3072 bytes
 *	large	a block of whole pages of a chunk
 *	huge	a block of more than a chunk has, which has a mapping
 *	cached	a chunk without a block, kept for the next one that is needed
 *
 * The heap itself lies in its first chunk. Nobody says where it has its fields: they are found by what they have to be,
 * and what is counted has to be as much as the heap says itself.
 */
#pragma once

#include "guests/outside.h"
#include "heap/memory.h"

#include <stdbool.h>
#include <stdint.h>

#define HL_PHP_BINS	   30u
#define HL_PHP_CHUNK_BYTES (UINT64_C(2) << 20)

struct hl_php_bin {
	uint64_t pages, blocks; /* used ones, and free ones */
	uint64_t free_blocks;
};

struct hl_php_memory {
	uint64_t heaps; /* 0: PHP has no memory, or it is malloc's (USE_ZEND_ALLOC=0) */
	uint64_t chunks, cached_chunks, free_pages;
	struct hl_php_bin bins[HL_PHP_BINS];
	uint64_t large_blocks, large_bytes, huge_blocks, huge_bytes;
	/* What memory_get_usage() and memory_get_peak_usage() say: of blocks, rounded up; and mapped. */
	uint64_t used_bytes, peak_bytes, mapped_bytes, mapped_peak_bytes;
	bool has_changed; /* what was counted differs from these: the process ran meanwhile */
	uint64_t shared_bytes, shared_free_bytes,
		shared_wasted_bytes; /* opcache's; 0: it has none */
};

uint32_t hl_php_block_bytes(uint32_t bin);

/* Reads all heaps of the process. Pages that are not in memory are not touched. 0; -ESRCH, -EACCES, -ENOMEM. */
int hl_php_memory_read(struct hl_memory *memory, struct hl_php_memory *ret_php);

/* Which request allocated each live block of malloc(), as labels of HL_AGE_PROVIDER. */
hl_guest_read_labels_fn hl_php_ages_read;

/* Whether most of what is in memory of [${start}, ${end}) are chunks; of how many bytes each is. 0: no. */
uint64_t hl_php_chunk_bytes(struct hl_memory *memory, uint64_t start, uint64_t end,
			    const struct hl_pages *pages);
