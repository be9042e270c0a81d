/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the page of `heapline report` is given: one JSON object, a NUL byte, and columns of numbers.
 * web/src/data.ts reads it; both sides belong to one version, so that it has no version of its own.
 *
 * The object has the members of every report, and
 *
 *	notes	   sentences on what is missing or doubtful
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
 * A timeline adds a member and columns of its own: see report_timeline.h.
 */
#pragma once

#include "profile/profile.h"
#include "view/report_history.h"
#include "view/view.h"

/*
 * Writes it to ${out}. ${history}, of that profile, is NULL where nothing is known over time. 0 or
 * -ENOMEM; errors of the output stay in the stream.
 */
int hl_report_data_write(const struct hl_profile *profile, const struct hl_report_history *history,
			 const struct hl_view_options *options, FILE *out);

/* Writes the members that say something on their own, as `heapline report --json`. The same. */
int hl_report_data_summary(const struct hl_profile *profile, const struct hl_view_options *options,
			   FILE *out);
