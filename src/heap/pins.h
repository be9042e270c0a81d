/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pages in memory that a few live bytes keep there.
 *
 * A page is pinned when nothing but small live blocks, of an eighth of a page together, and free
 * memory lie on it. Freed, they would let malloc_trim return it, but for the first page of the free
 * chunk that came of it, if the chunk's own words are on it.
 */
#pragma once

#include "heap/glibc_walk.h"
#include "heap/heap.h"

/* The page that chunks are told of now, and the pinned pages in a row before it. */
struct hl_pins {
	uint64_t page, page_bytes;
	uint64_t first_chunk; /* that lies on the page */
	uint64_t live_bytes, live_blocks;
	uint64_t block, block_bytes; /* the largest */
	bool is_blocked;	     /* by what cannot be freed alone, or is large */
	bool straddles;		     /* a live block began on the page before */
	struct hl_heap_pin run;	     /* end 0: there is none */
	uint64_t run_first_chunk;
};

/* Begins a carrier. */
void hl_pins_begin(struct hl_pins *pins, uint64_t page_bytes);

/* Tells of the next chunk; ${pages} are those in memory. 0 or -ENOMEM. */
int hl_pins_chunk(struct hl_pins *pins, const struct hl_chunk *chunk, const struct hl_pages *pages,
		  struct hl_heap *heap);

/* Puts what returns most first. */
void hl_pins_sort(struct hl_heap *heap);
