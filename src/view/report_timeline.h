/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The part of a page's data that is over time; see report_data.h for the rest of them.
 *
 * The object's member `timeline`, which is missing where nothing is known over time:
 *
 *	pid, command	 the process whose log it is
 *	first_ms	 where the log begins
 *	interval_ms	 how long an interval is
 *	intervals	 how many there are
 *	point_intervals	 how many make a point: the last one may have fewer
 *	moment_points	 how many points have a moment
 *	points, moments, changes
 *			 how many numbers in each of their columns
 *	marks		 ms, text
 *	holes		 first_ms, last_ms: of points of which something could not be written
 *
 * Its columns, after all others:
 *
 *	points	   milliseconds from its beginning to its maximum, bytes in use then (signed), RSS
 *	moments	   how far its point is from the first of its points, how many changes it has
 *	changes	   of a moment in the order of leaves: how far from the leaf before, or from the
 *		   first of all; by how many bytes and objects there are more in use than at the
 *		   moment before (signed)
 */
#pragma once

#include "view/emit.h"
#include "view/report_history.h"

#include <stdio.h>

void hl_report_timeline_members(struct hl_emit *emit, const struct hl_report_history *report);

/* ${leaf_of} is the place among the leaves of each node that changed. */
void hl_report_timeline_columns(const struct hl_report_history *report, const uint32_t *leaf_of,
				FILE *out);
