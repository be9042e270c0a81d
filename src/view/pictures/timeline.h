/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A timeline as rows, one for each interval or the highest of several, and its picture.
 */
#pragma once

#include "open/history.h"
#include "view/format.h"
#include "view/rows.h"

#define HL_TIMELINE_KEYS_MAX 12 /* more colours look alike */

/* ---- the picture ---- */

/* Where the plot is, which shows the range of a history from edge to edge. */
struct hl_timeline_plot {
	int left, top, width, height;
};

/* Draws marks of the range with their texts, the earliest first; ${out} NULL: only counts. Returns
 * how many were left out, because their texts would have covered others. */
size_t hl_timeline_svg_marks(FILE *out, const struct hl_timeline_plot *where,
			     const struct hl_history *history);

/* The smallest round number of bytes that ${most} has at most ${tick_max} of; at least 1. */
int64_t hl_timeline_svg_byte_step(int64_t most, int tick_max);

/* The same of milliseconds, at least 100. */
uint64_t hl_timeline_svg_ms_step(uint64_t length_ms, int tick_max);

/* "20 MiB", of a multiple of ${step}, in the unit of ${step}. Returns ${buffer}. */
const char *hl_timeline_svg_byte_label(int64_t bytes, int64_t step, char buffer[HL_FORMAT_MAX]);

/* "0.2 s", "40 s", "15 min", "6 h", "2 d", likewise. */
const char *hl_timeline_svg_ms_label(uint64_t ms, uint64_t step_ms, char buffer[HL_FORMAT_MAX]);
