/* SPDX-License-Identifier: BSD-2-Clause */
/* Events on their way from the rings to a file, in the order in which they were merged. */
#pragma once

#include "base/compiler.h"
#include "log/event_format.h"
#include "region/ring.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HL_EVENT_RUNS_MAX     (HL_EVENTS_MAX / 2)
#define HL_EVENT_EXTENDED_MAX 1024u

/* An event as a word: its node, its size from bit 24 on; see also HL_EVENT_EXTENDED. */
#define HL_EVENT_FREE	  (UINT64_C(1) << 63)
#define HL_EVENT_EXTENDED (UINT64_C(1) << 62) /* in place of the size: an index of extended */

/* Events of one thread and tick; up to where the next run begins. */
struct hl_event_batch_run {
	uint64_t tick;
	uint32_t first;	 /* event */
	uint16_t thread; /* slot */
	bool unordered;	 /* see hl_intervals_run() */
};

struct hl_event_extended {
	uint64_t bytes, objects;
};

#define HL_EVENT_NO_INTERVAL UINT64_MAX

struct hl_event_batch {
	uint64_t interval; /* the one that begins with it, or HL_EVENT_NO_INTERVAL */
	uint32_t count, run_count, extended_count;
	uint64_t events[HL_EVENTS_MAX];
	struct hl_event_batch_run runs[HL_EVENT_RUNS_MAX];
	struct hl_event_extended extended[HL_EVENT_EXTENDED_MAX];
};

static inline bool hl_event_batch_is_full(const struct hl_event_batch *batch)
{
	return batch->count == HL_EVENTS_MAX || batch->extended_count == HL_EVENT_EXTENDED_MAX;
}

static inline uint32_t hl_event_batch_run_end(const struct hl_event_batch *batch, uint32_t run)
{
	return run + 1 < batch->run_count ? batch->runs[run + 1].first : batch->count;
}

/* Adds an event to the last run; the batch must not be full. Negative figures are a free's. */
static inline void hl_event_batch_add(struct hl_event_batch *batch, uint32_t node, int64_t bytes,
				      int64_t objects)
{
	bool is_free = bytes < 0 || objects < 0;
	uint64_t size = is_free ? 0 - (uint64_t)bytes : (uint64_t)bytes;
	uint64_t count = is_free ? 0 - (uint64_t)objects : (uint64_t)objects;
	uint64_t word = node | (is_free ? HL_EVENT_FREE : 0);

	if (HL_UNLIKELY(count != 1 || size >> HL_RING_SIZE_BITS)) {
		batch->extended[batch->extended_count] = (struct hl_event_extended){size, count};
		word |= HL_EVENT_EXTENDED;
		size = batch->extended_count++;
	}
	batch->events[batch->count++] = word | size << 24;
}
