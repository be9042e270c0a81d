/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What rises over a log, as rows: stacks, functions or lines, each with how steadily it rises.
 *
 * The range is cut into equal parts, and a row has the least bytes in use for each of them. What a
 * garbage collector has not yet taken away goes up and down; what is never given back is the floor:
 * the least of each part and the W - 1 after it. What tells a leak from warm-up is the later half,
 * in which the floor rises by a net of R:
 *
 *	steadiness  R of all ups and downs of the floor; what comes and goes has next to none
 *	lateness    the last quarter's share of R, relative to its share of time, 1 at most; a cache
 *		    that has filled up has none
 *	spread	    1 - 2 * (the largest single rise / R - 1 / the number of parts), 0 at least; one
 *		    jump has none
 *	clearness   10 * R / how far apart the parts themselves are, 1 at most; a ripple of
 *		    the floor under high waves has next to none
 *	weight	    0 where R is less than a ten-thousandth of the process' peak, else 1
 *	score	    the product of these, from 0 to 1; the highest of those with W = 1, 2, 4 and
 *		    8, for it is not known how often a collector runs
 *
 * Programs free what they have when they end. So the teardown of a process that has ended, see
 * hl_growth_rows_before_end(), is not part of the range.
 */
#pragma once

#include "open/history.h"
#include "view/rows.h"
#include "view/view.h"

#define HL_GROWTH_BUCKETS_MAX 64
#define HL_GROWTH_BUCKETS_MIN 8	  /* of fewer nothing can be said, and all scores are 0 */
#define HL_GROWTH_STEADY      0.5 /* rows of at least this score come first */
#define HL_GROWTH_RISE	      0.1 /* of all in use; at or above it a leak cannot be ruled out */

struct hl_growth_row {
	struct hl_keys_label label; /* by stack, of its leaf */
	uint32_t id;		    /* the key; by stack, the node of the call tree */
	double slope;		    /* bytes per second */
	double score;
	uint64_t steps, rose; /* from part to part, and in how many of them its least rose */
	int64_t from_bytes, to_bytes;
	/* As reports have them: */
	int64_t per_second, per_hour, score_permille, steady_percent, rose_percent;
};

struct hl_growth_rows {
	struct hl_growth_row *rows; /* those that rise; steady ones first, then by slope */
	size_t count;
	double slope, score;	/* of all that is in use, as in a row */
	double rise;		/* of all that is in use, see hl_growth_rows_rise() */
	uint64_t left_out_ms;	/* of the end of the history's range, in which memory was freed */
	int64_t left_out_bytes; /* that were freed then */
	size_t bucket_count;	/* one for each interval, HL_GROWTH_BUCKETS_MAX at most */
	struct hl_keys keys;
};

/*
 * Rows by options->by, of what was allocated right there. Reads the whole range, which is then
 * without the end that is left out. 0 or a negative errno with a sentence, and ${rows} all zero.
 */
int hl_growth_rows_init(struct hl_growth_rows *rows, struct hl_history *history,
			const struct hl_view_options *options, struct hl_error *err);

void hl_growth_rows_release(struct hl_growth_rows *rows);

/*
 * How many of the ${count} points, the last one being the end of the process, come before its
 * teardown, which takes a quarter of them at most. That is the time since the last maximum, if hardly
 * anything is allocated after it, and enough is freed to hide a rise: a 50th of the swing of the
 * later half. What is freed early, with more than half of it in use to the end, is not a teardown.
 * ${count} where there is none.
 */
size_t hl_growth_rows_before_end(const struct hl_log_point *points, size_t count);

/* The score, weight aside, of a row with these ${count} least amounts. */
double hl_growth_rows_score(const double *least, size_t count);

/* By what share of the most in it the widest floor rises in the later half, 0 to 1; 0 where the last quarter has next to no part in
 * that. A collector that runs about as often as parts end leaves a rise, but one without a score. */
double hl_growth_rows_rise(const double *least, size_t count);
