/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Words that lead to a few blocks, in all pages of a heap or in live memory: a linear read, where following pointers would
 * be a search.
 */
#pragma once

#include "heap/extents.h"
#include "heap/graph/graph.h"
#include "heap/memory.h"

/* ---- the filter ---- */

/*
 * A quick answer to whether a word may lead to one of a few blocks: a bit for each stretch of 512
 * bytes, by its hash, in 64 KiB. Blocks of more than 64 KiB are known by their range instead.
 */
#define HL_WORD_FILTER_STRETCH_BITS 9u
#define HL_WORD_FILTER_BITS	    19u

/* Zero-initialize for no block. */
struct hl_word_filter {
	uint64_t large_first, large_bytes; /* where the larger blocks are */
	uint64_t bits[(1u << HL_WORD_FILTER_BITS) / 64];
};

/* Adds the blocks of ${graph} that were not reached. */
void hl_word_filter_fill(struct hl_word_filter *filter, const struct hl_graph *graph);

/* ---- the search ---- */

/*
 * Words in a heap that lead to a few blocks. All pages in RAM are read once, by all processors, without
 * a walk: a word that is found may lie in a free chunk or between blocks.
 */

/* A word outside the blocks that leads to one of them. */
struct hl_word_hit {
	uint64_t address, word;
};

/* Zero-initialize before use. */
struct hl_word_hits {
	struct hl_word_hit *hits;
	size_t count;
	struct hl_pages pages; /* of the heap, in RAM when it was read */
};

void hl_word_hits_release(struct hl_word_hits *hits);

/* Finds the words in ${heap} that lead to blocks of ${graph} that were not reached, ${filter} being
 * filled from it. 0; -E2BIG when a thread finds more than ${hits_max}; another negative errno. */
int hl_word_search(const struct hl_graph *graph, const struct hl_word_filter *filter,
		   const struct hl_extents *heap, size_t hits_max, struct hl_word_hits *ret_hits);

/* ---- the sweep ---- */

/*
 * A sweep: one linear look at live memory for words that lead to a few blocks, those of a graph that
 * holds no others. A thread of its own reads while the caller walks the heap.
 */

struct hl_sweep;

/* ${graph} is settled, and until hl_sweep_end() its bits are the sweep's. 0; -ENOMEM; what starting
 * a thread failed with. */
int hl_sweep_begin(struct hl_graph *graph, struct hl_sweep **ret_sweep);

/* [${start}, ${end}) is live memory, mostly in rising order. What is not in RAM is not read. */
void hl_sweep_add(struct hl_sweep *sweep, uint64_t start, uint64_t end);

/* Reads the rest and frees ${sweep}: what the words lead to is reached and pending. 0 or a negative
 * errno. NULL is fine. */
int hl_sweep_end(struct hl_sweep *sweep);
