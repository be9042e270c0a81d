/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the search for leaks consists of: blocks that were lost in all looks so far, and a search for words that
 * lead to them; see leaks.h.
 */
#pragma once

#include "heap/extents.h"
#include "heap/graph/graph.h"
#include "heap/memory.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- candidates ---- */

/* Blocks that were lost in all looks at a process so far, and what leads to them while it is stopped; see leaks.h. */

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

/* ---- word search ---- */

/*
 * Words that lead to a few blocks, in all pages of a heap or in live memory: a linear read, where following pointers would
 * be a search.
 */

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
