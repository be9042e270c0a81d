/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What leads to candidates from the heap of a process that is stopped, and whether they are blocks. A walk would take too long:
 * all pages in RAM are read once, by all processors, and only where a word leads to a candidate
 * heapline looks what lies there.
 */
#pragma once

#include "heap/extents.h"
#include "heap/graph/graph.h"

struct hl_glibc;
struct hl_word_filter;

/* Anchors are blocks that a walk visited, at least this far apart; chunks are found from there. */
#define HL_STILL_ANCHOR_BYTES (UINT64_C(8) << 10)

struct hl_still {
	struct hl_graph *graph;		     /* of the candidates, settled */
	const struct hl_word_filter *filter; /* of them */
	const struct hl_glibc *glibc;
	const struct hl_extents *heap;
	const struct hl_addresses *anchors; /* of a walk before, sorted */
	const struct hl_addresses *tcaches; /* blocks of their size */
	uint32_t arenas;		    /* at most */
};

/* Reaches candidates that are not blocks now, as chunks from up to 8 MiB before them tell; from less if
 * there are many. ${filter} and ${heap} do not matter. 0 or a negative errno. */
int hl_still_prove(const struct hl_still *still);

/* Sees the words of live blocks that are not candidates, and reaches candidates that lie in lists of
 * free chunks. 0; -E2BIG when too many words lead to candidates; another negative errno. */
int hl_still_see_heap(const struct hl_still *still);
