/* SPDX-License-Identifier: BSD-2-Clause */
/* What kept events add up to: in all, by thread, and in the busiest ticks. */
#pragma once

#include "log/event_log.h"

/* Ticks from the first to before the end. */
struct hl_event_range {
	uint64_t first, end;
};

struct hl_event_figures {
	uint64_t events;
	int64_t allocations, frees; /* blocks */
	int64_t alloc_bytes, free_bytes;
};

struct hl_event_tick {
	uint64_t tick;
	struct hl_event_figures figures;
};

#define HL_EVENT_TICKS_MAX 100

/* Zero-initialize; release in any case. */
struct hl_event_summary {
	struct hl_event_figures total;
	struct hl_event_figures *threads;		/* by slot */
	size_t thread_count, thread_capacity;		/* count: largest slot + 1 */
	struct hl_event_tick ticks[HL_EVENT_TICKS_MAX]; /* busiest first */
	size_t tick_count;
	uint64_t first_tick, last_tick; /* with an event; the first is larger when there is none */
};

/* Adds up the events in ${range}. 0 or a negative errno with a sentence. */
int hl_event_summary_read(struct hl_event_summary *summary, const struct hl_event_log *log,
			  const struct hl_event_range *range, const struct hl_log_options *options,
			  struct hl_error *err);

void hl_event_summary_release(struct hl_event_summary *summary);

/* Reads the parts that have events in ${range}. As hl_event_log_read(). */
int hl_event_range_read(const struct hl_event_log *log, const struct hl_event_range *range,
			const struct hl_log_options *options, const struct hl_event_fold *fold,
			struct hl_error *err);
