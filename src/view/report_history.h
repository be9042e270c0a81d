/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the page of `heapline report` knows of a process over time: its timeline, and what each
 * stack had in use at some moments.
 *
 *	point	a run of intervals of the log, as many for each: the highest of their maxima
 *	moment	the highest of a run of points, with what was in use then
 */
#pragma once

#include "open/history.h"

#define HL_REPORT_POINTS_MAX  2000
#define HL_REPORT_MOMENTS_MAX 200

struct hl_report_point {
	uint64_t number;    /* of the highest interval */
	uint64_t ms;	    /* when in it */
	int64_t bytes;	    /* in use then */
	uint64_t rss_bytes; /* the most in any of the intervals; 0: unknown */
	bool missing;	    /* one of the intervals could not be written */
};

/* What a node of the profile has in use more than at the moment before. */
struct hl_report_change {
	uint32_t node;
	int64_t bytes, objects;
};

struct hl_report_moment {
	size_t point;
	size_t first_change, change_count; /* by node, ascending */
};

struct hl_report_history {
	const struct hl_history *history;
	struct hl_profile *profile; /* the report's, with all stacks of the log */
	struct hl_report_point *points;
	size_t point_count;
	size_t point_intervals; /* in each but the last, which may have fewer */
	struct hl_report_moment *moments;
	size_t moment_count;
	size_t moment_points; /* as point_intervals */
	struct hl_report_change *changes;
	size_t change_count;
};

/*
 * Reads the log of ${history}, one of the processes that ${profile} sums up. Release in any case. 0
 * or a negative errno with a sentence.
 */
int hl_report_history_init(struct hl_report_history *report, struct hl_history *history,
			   const struct hl_profile *profile, struct hl_error *err);
void hl_report_history_release(struct hl_report_history *report);
