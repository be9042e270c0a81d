/* SPDX-License-Identifier: BSD-2-Clause */
/* What the reports of `heapline events` have in common. */
#pragma once

#include "profile/event_reports.h"
#include "view/view.h"

struct hl_events_report {
	struct hl_history *history;
	const struct hl_view_options *options;
	const struct hl_event_log *log;
	struct hl_event_range range; /* of history, as far as there are events of it */
	struct hl_emit *emit;
};

/*
 * A report: reads the events, then calls hl_events_head(), then emits what it has found. 0 or a
 * negative errno, with a sentence unless it is -ENOMEM.
 */
typedef int hl_events_part(const struct hl_events_report *report, struct hl_error *err);

hl_events_part hl_events_dump, hl_events_lifetimes;

/* Emits the head: which report it is, whose events they are, and what is missing. */
void hl_events_head(const struct hl_events_report *report, const char *name);
