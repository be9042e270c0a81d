/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Plays kept events through the engine that made the log, and compares: each interval's maximum and
 * end with the log's point, and at the end of each part what every stack holds with the log's state
 * then. The log was written by the collector as the events came; so where they are equal, both are
 * as the program did.
 */
#pragma once

#include "profile/event_summary.h"

/* An interval in which they differ. */
struct hl_event_difference {
	uint64_t number;
	struct hl_log_point log, replayed;
};

#define HL_EVENT_DIFFERENCES_MAX 10

/* Plain; nothing to release. */
struct hl_event_replay {
	uint64_t events;    /* in the range */
	uint64_t compared;  /* intervals */
	uint64_t uncertain; /* intervals not compared: the log, or the events, lack some of them */
	uint64_t different; /* intervals */
	struct hl_event_difference first[HL_EVENT_DIFFERENCES_MAX]; /* in order of time */
	uint64_t states; /* moments at which every stack was compared */
	uint64_t stacks; /* compared then, in all */
	uint64_t different_stacks;
	uint64_t different_interval; /* at whose end the first of these is */
	uint32_t different_node;
};

/* Replays the events of all parts that have intervals in ${range} and compares those. 0 or a
 * negative errno with a sentence; differences are not errors. */
int hl_event_replay(const struct hl_event_log *events, const struct hl_log *log,
		    const struct hl_event_range *range, const struct hl_log_options *options,
		    struct hl_event_replay *ret_replay, struct hl_error *err);
