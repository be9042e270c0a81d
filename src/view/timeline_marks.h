/* SPDX-License-Identifier: BSD-2-Clause */
/* Marks in the picture of a timeline: a line each with its text, as many as fit side by side. */
#pragma once

#include "open/history.h"

#include <stdio.h>

/* Where the plot is, which shows the range of a history from edge to edge. */
struct hl_timeline_plot {
	int left, top, width, height;
};

/* Draws marks of the range, the earliest first; ${out} NULL: only counts. Returns how many were
 * left out, because their texts would have covered others. */
size_t hl_timeline_marks_put(FILE *out, const struct hl_timeline_plot *plot,
			     const struct hl_history *history);
