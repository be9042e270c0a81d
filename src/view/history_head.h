/* SPDX-License-Identifier: BSD-2-Clause */
/* What views of a log have in common: their head, what is missing, and the note at the end. */
#pragma once

#include "open/history.h"
#include "view/notices.h"
#include "view/view.h"

/* Begins the report of ${schema}, such as "peaks/1": its members, and the lines of its head. 0 or
 * -ENOMEM. */
int hl_history_head_begin(const struct hl_history *history, const struct hl_view_options *options,
			  const char *schema, struct hl_emit **ret_emit);

/* The code and sentence for a report that could not be written. */
int hl_history_head_fail(const struct hl_history *history, int code, struct hl_error *err);

/* JSON members recording, total, lost, log and marks. */
void hl_history_head_members(struct hl_emit *emit, const struct hl_history *history);

/* The lines of what is missing alone, on options->notes, for output that has no place for them. */
int hl_history_head_note(const struct hl_history *history, const struct hl_view_options *options);

/* Adds what is missing in the log, lost events aside. */
void hl_history_head_notices(struct hl_notices *notices, const struct hl_history *history);

/* Adds how many files of another recording (${foreign}, the first of them ${foreign_name}) and how
 * many older files of this one (${ignored}) are not used; ${noun} says what one of the latter is.
 * Nothing where there are none. */
void hl_history_head_unused(struct hl_notices *notices, uint32_t foreign, const char *foreign_name,
			    uint32_t ignored, const char *noun);

/* "1.5 MiB at 300 ms": the highest maximum of the range, or its first one. */
const struct hl_log_point *hl_history_head_peak(const struct hl_history *history);

static inline uint64_t hl_history_head_ms(const struct hl_log_point *point)
{
	return point->number * HL_INTERVAL_TICKS;
}
