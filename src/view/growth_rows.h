/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What rises over a log, as rows: stacks, functions or lines, each with how steadily it rises.
 *
 * The range is cut into HL_GROWTH_BUCKETS equal parts, and a row has a mean of the bytes in use for
 * each of them. What tells a leak from warm-up is the later half:
 *
 *	steadiness  net rise from its first mean to its last, of all ups and downs in between
 *	evenness    rise of the third and the fourth quarter of the range: the smaller one of twice
 *		    their mean
 *	score	    steadiness * evenness, from 0 to 1
 *
 * A leak rises in both quarters and does not fall: 1. A cache that has filled up does not rise any
 * more, one jump rises in one quarter alone, and what comes and goes falls as much as it rises: 0.
 */
#pragma once

#include "profile/calltree.h"
#include "profile/history.h"
#include "view/keys.h"
#include "view/view.h"

#define HL_GROWTH_BUCKETS 64
#define HL_GROWTH_STEADY  0.5 /* rows of at least this score come first */

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

/* The score of a row with these means. */
double hl_growth_score(const double means[HL_GROWTH_BUCKETS]);
