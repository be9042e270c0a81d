/* SPDX-License-Identifier: BSD-2-Clause */
/* Filling the filter; see word_filter.h. */
#include "heap/graph/word_filter.h"

#define FILTERED_MAX (UINT64_C(64) << 10)

void hl_word_filter_fill(struct hl_word_filter *filter, const struct hl_graph *graph)
{
	uint64_t first = UINT64_MAX, end = 0;

	for (uint64_t block = 0; (block = hl_graph_next_lost(graph, block)); block += 16) {
		uint64_t last = block + hl_graph_usable(graph, block);
		if (last - block > FILTERED_MAX) {
			first = block < first ? block : first;
			end = last;
			continue;
		}
		for (uint64_t at = block >> HL_WORD_FILTER_STRETCH_BITS;
		     at <= last >> HL_WORD_FILTER_STRETCH_BITS; at++) {
			uint32_t bit = hl_word_filter_bit(at << HL_WORD_FILTER_STRETCH_BITS);
			filter->bits[bit / 64] |= UINT64_C(1) << bit % 64;
		}
	}
	filter->large_first = first;
	filter->large_bytes = first < end ? end - first : 0;
}
