/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A timeline as rows, one for each interval or the highest of several, and its picture, which
 * timeline_svg.c draws.
 */
#pragma once

#include "open/history.h"
#include "view/format.h"
#include "view/keys.h"

#define HL_TIMELINE_KEYS_MAX 12 /* more colours look alike */

/* What a module or a function held; the last one is all others together, if there are any. */
struct hl_timeline_key {
	struct hl_keys_label label; /* of the rest: all "" */
	bool is_rest;
};

struct hl_timeline {
	const struct hl_history *history;
	size_t *points; /* by row: the highest of its points, an index of history->points */
	size_t row_count;
	struct hl_timeline_key keys[HL_TIMELINE_KEYS_MAX + 1];
	size_t key_count; /* 0: in total alone */
	int64_t *bytes;	  /* by row, then by key; a row's add up to its point's max_bytes */
	struct hl_keys frame_keys; /* what keys[] come from */
};

/*
 * Rows of ${history}, at most ${row_max} (0: one for each interval); by options->by, the
 * options->timeline.key_limit modules or functions of the largest area, largest first. 0 or a negative errno
 * with a sentence; release in any case.
 */
int hl_timeline_init(struct hl_timeline *timeline, struct hl_history *history,
		     const struct hl_view_options *options, size_t row_max, struct hl_error *err);

void hl_timeline_release(struct hl_timeline *timeline);

static inline const struct hl_log_point *hl_timeline_point(const struct hl_timeline *timeline,
							   size_t row)
{
	return &timeline->history->points[timeline->points[row]];
}

/* The first point of a row; of the row after the last one, the number of points. */
static inline size_t hl_timeline_first_point(const struct hl_timeline *timeline, size_t row)
{
	return row * timeline->history->point_count / timeline->row_count;
}

static inline int64_t hl_timeline_bytes(const struct hl_timeline *timeline, size_t row, size_t key)
{
	return timeline->bytes[row * timeline->key_count + key];
}

/* "parse (json.c:12)", or "the rest". Returns ${buffer}. */
const char *hl_timeline_key_text(const struct hl_timeline_key *key, char *buffer, size_t size);

/* ---- the picture ---- */

#define HL_TIMELINE_SVG_COLUMNS 880u /* a row for each column of the plot */

/* Writes ${timeline} to options->out, and notes about missing data to options->notes. 0 or -ENOMEM.
 */
int hl_timeline_svg(const struct hl_timeline *timeline, const struct hl_view_options *options);

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
