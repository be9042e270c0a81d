/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads the event rings of one process, merged by tick, into intervals. Trusts nothing that it
 * finds there: a ring whose words make no sense is given up.
 */
#pragma once

#include "log/interval.h"
#include "recorder/ring.h"

#include <stdbool.h>

/* One ring as its reader sees it. */
struct hl_ring_reader {
	struct hl_ring *ring;
	uint64_t position; /* read up to here; ring->tail, which the target could write, is not
			      believed */
	uint64_t tick;	   /* of the next event */
	bool given_up;
	uint64_t slots[HL_RING_SLOTS]; /* pairs */
};

/* Where events go. */
struct hl_ring_sink {
	/* A negative errno ends the reading before the event. */
	int (*event)(struct hl_ring_sink *sink, uint32_t node, int64_t bytes, int64_t objects);
};

void hl_ring_reader_init(struct hl_ring_reader *reader, struct hl_ring *ring);

/*
 * Reads events of ticks up to ${last_tick} that were published before the call, and gives their
 * room back. 1 when the ring holds later ones, 0 when it is empty or given up, or what the sink
 * returned.
 */
int hl_ring_read(struct hl_ring_reader *reader, uint64_t last_tick, struct hl_ring_sink *sink);

/* The tick of the ring's next event, UINT64_MAX when there is none. Cheap. */
uint64_t hl_ring_next_tick(struct hl_ring_reader *reader);
