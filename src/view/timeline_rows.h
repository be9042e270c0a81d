/* SPDX-License-Identifier: BSD-2-Clause */
/* A timeline as rows: one for each interval, or for some intervals together their highest one. */
#pragma once

#include "open/history.h"
#include "view/keys.h"

#define HL_TIMELINE_KEYS_MAX 12 /* as many colours as one can tell apart */

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
 * options->key_limit modules or functions of the largest area, largest first. 0 or a negative errno
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
