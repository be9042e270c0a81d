/* SPDX-License-Identifier: BSD-2-Clause */
/* Blocks that were lost in all looks at a process so far, and what leads to them while it is stopped; see leaks.h. */
#pragma once

#include "heap/extents.h"
#include "heap/graph/graph.h"

#include <stdbool.h>
#include <stdint.h>

struct hl_glibc;
struct hl_word_filter;

struct hl_candidate {
	uint64_t address, usable_bytes, counted_bytes;
	uint64_t first_word;
	uint32_t hash; /* of all words */
	bool is_live;  /* as the walk of this look says */
};

/* Zero-initialize for none. */
struct hl_candidates {
	struct hl_candidate *items; /* by address */
	size_t count, capacity;
	size_t cursor; /* the candidate that a walk is at */
};

void hl_candidates_release(struct hl_candidates *candidates);

/* Adds what was not reached in ${graph}. 0 or a negative errno. */
int hl_candidates_collect(struct hl_candidates *candidates, struct hl_graph *graph);

/* Adds the candidates to ${graph}, for a new look. 0 or -ENOMEM. */
int hl_candidates_make_graph(struct hl_candidates *candidates, struct hl_graph *graph);

/* Begins another walk over the same graph: no candidate was reached yet. */
void hl_candidates_forget_walk(struct hl_candidates *candidates);

/* A walk found this live block. Whether it is a candidate. */
bool hl_candidates_meet(struct hl_candidates *candidates, const struct hl_graph *graph,
			uint64_t address, uint64_t usable_bytes);

/* Reaches candidates that the walk did not visit, or whose words have changed. 0 or a negative errno.
 */
int hl_candidates_compare(struct hl_candidates *candidates, struct hl_graph *graph);

/* The same where there was no walk: their sizes say whether they are live, if all are glibc's
 * (${has_sizes}); otherwise all count as live. */
int hl_candidates_compare_sizes(struct hl_candidates *candidates, struct hl_graph *graph,
				bool has_sizes);

/*
 * Reaches, in a process that is stopped, those that are not live blocks now, or whose words have
 * changed: walks its whole heap, as only the way from the first chunk on tells a chunk from the remains
 * of one. ${has_table}: those outside glibc's heap are left alone. 0; -EAGAIN, and none was reached, if
 * a thread stands in the middle of a change, or has run meanwhile; another negative errno.
 */
int hl_candidates_prove(struct hl_candidates *candidates, struct hl_graph *graph,
			const struct hl_glibc *glibc, bool has_table);

/* Removes those that ${graph} has reached. */
void hl_candidates_drop_reached(struct hl_candidates *candidates, const struct hl_graph *graph);

/* Whether one begins as free chunks do in the lists of tcaches and fastbins. */
bool hl_candidates_any_looks_cached(const struct hl_candidates *candidates,
				    const struct hl_graph *graph, const struct hl_glibc *glibc);

/* ---- in the heap of a process that is stopped ---- */

/*
 * What leads to candidates from the heap of a process that is stopped, and whether they are blocks. A walk would take too long:
 * all pages in RAM are read once, by all processors, and only where a word leads to a candidate
 * heapline looks what lies there.
 */

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
