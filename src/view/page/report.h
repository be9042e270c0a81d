/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The page of `heapline report`: a template that is built in, with data in its midst. The data are
 * one JSON object, a NUL byte, and columns of numbers, all deflated and in base64.
 */
#pragma once

#include "open/history.h"
#include "view/view.h"

#include <stdio.h>

/*
 * The timeline of a process, and what each stack had in use at some moments.
 *
 *	point	a run of intervals of the log, as many for each: the highest of their maxima
 *	moment	the highest of a run of points, with what was in use then
 */

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

/* ---- the data ---- */

/*
 * web/src/data.ts and timeline_data.ts read them. Both sides belong to one version, so that the
 * data have no version of their own.
 *
 * The object has the members of every report, and
 *
 *	notes	   sentences on missing or doubtful data
 *	figures	   those that are known, in the order of their columns: "inuse_bytes", ...
 *	modules	   path, symbols, reason; [0] stands for addresses outside every module
 *	texts	   names of functions and paths of source files, in byte order; [0] is ""
 *	threads	   pid, tid, name, leaves: those that allocated most, where there are several and
 *		   no earlier profile; leaves is how many have figures of the thread
 *	functions, frames, nodes, leaves
 *		   how many of each there are, and numbers in each of their columns
 *
 * The columns, one after another, of unsigned LEB128 numbers; ids count from 0, which has no entry
 * in a column unless said so:
 *
 *	functions  name and file (texts), line, module
 *	frames	   function, file, line
 *	nodes	   in preorder: by how many levels the node is further out than a child of the one
 *		   before, frame
 *	leaves	   nodes with any figure, of the whole or of a moment (the root may be one): how far
 *		   from the leaf before
 *	figures	   of each leaf, a column for each figure; signed numbers as n >= 0 ? 2n : -2n - 1.
 *		   Where two profiles are compared, those of the earlier one follow
 *	threads	   of each thread: its leaves by their places in `leaves`, how far from the one
 *		   before, and their figures as above
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

/*
 * Opens a stream whose bytes reach ${out} deflated (zlib) and as lines of base64, so that no name
 * can break the page; all of them once fclose() has returned 0. 0 or -ENOMEM.
 */
int hl_report_payload_open(FILE *out, FILE **ret_payload);
