/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Words in a heap that lead to a few blocks. All pages in RAM are read once, by all processors, without
 * a walk: a word that is found may lie in a free chunk or between blocks.
 */
#pragma once

#include "heap/extents.h"
#include "heap/memory.h"

struct hl_graph;
struct hl_word_filter;

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
