/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What rises over a log, as rows: stacks, functions or lines, each with how steadily it rises.
 *
 * The range is cut into equal parts, and a row has a mean of the bytes in use for each of them.
 * What tells a leak from warm-up is the later half, in which the means rise by a net of R:
 *
 *	steadiness  R of all ups and downs; what comes and goes has next to none
 *	lateness    the last quarter's rise of R / 2, 1 at most; a cache that has filled up has none
 *	spread	    1 - 2 * (the largest single rise) / R, 0 at least; one jump has none
 *	score	    the product of the three, from 0 to 1
 */
#pragma once

#include "profile/calltree.h"
#include "profile/history.h"
#include "view/keys.h"
#include "view/view.h"

#define HL_GROWTH_BUCKETS_MAX 64
#define HL_GROWTH_BUCKETS_MIN 8	  /* of fewer nothing can be said, and all scores are 0 */
#define HL_GROWTH_STEADY      0.5 /* rows of at least this score come first */

struct hl_growth_row {
	struct hl_keys_label label; /* by stack, of its leaf */
	uint32_t id;		    /* the key; by stack, the node of the call tree */
	double slope;		    /* bytes per second */
	double score;
	unsigned rose; /* in how many of the buckets but the first its mean was above that before */
	int64_t from_bytes, to_bytes;
};

struct hl_growth_rows {
	struct hl_growth_row *rows; /* those that rise; steady ones first, then by slope */
	size_t count;
	size_t bucket_count;	 /* one for each interval, HL_GROWTH_BUCKETS_MAX at most */
	struct hl_keys keys;	 /* none by stack */
	struct hl_calltree tree; /* by stack */
};

/*
 * Rows by options->by, of what was allocated right there. Reads the whole range. 0 or a negative
 * errno with a sentence, and ${rows} all zero.
 */
int hl_growth_rows_init(struct hl_growth_rows *rows, struct hl_history *history,
			const struct hl_view_options *options, struct hl_error *err);

void hl_growth_rows_release(struct hl_growth_rows *rows);

/* The score of a row with these ${count} means. */
double hl_growth_score(const double *means, size_t count);
