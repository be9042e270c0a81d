/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A quick answer to whether a word may lead to one of a few blocks: a bit for each stretch of 512
 * bytes, by its hash, in 64 KiB. Blocks of more than 64 KiB are known by their range instead.
 */
#pragma once

#include "heap/graph/graph.h"

#define HL_WORD_FILTER_STRETCH_BITS 9u
#define HL_WORD_FILTER_BITS	    19u

/* Zero-initialize for no block. */
struct hl_word_filter {
	uint64_t large_first, large_bytes; /* where the larger blocks are */
	uint64_t bits[(1u << HL_WORD_FILTER_BITS) / 64];
};

static inline uint32_t hl_word_filter_bit(uint64_t address)
{
	return (uint32_t)(address >> HL_WORD_FILTER_STRETCH_BITS) * UINT32_C(0x9e3779b1) >>
	       (32 - HL_WORD_FILTER_BITS);
}

/* False: ${word} leads to none of the blocks. */
static inline bool hl_word_filter_passes(const struct hl_word_filter *filter, uint64_t word)
{
	uint32_t bit = hl_word_filter_bit(word);

	return filter->bits[bit / 64] >> bit % 64 & 1 ||
	       word - filter->large_first < filter->large_bytes;
}

/* Adds the blocks of ${graph} that were not reached. */
void hl_word_filter_fill(struct hl_word_filter *filter, const struct hl_graph *graph);
