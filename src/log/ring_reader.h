/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads the events of a ring, up to a tick and within it up to a stamp, so that several rings can
 * be merged. Trusts nothing that it finds there: a ring whose words make no sense is given up.
 */
#pragma once

#include "log/interval.h"
#include "region/ring.h"

#include <stdbool.h>

/* One ring as its reader sees it. */
struct hl_ring_reader {
	struct hl_ring *ring;
	uint64_t position; /* read up to here; ring->tail, which the target could write, is not
			      believed */
	uint64_t tick;	   /* of the next event */
	uint64_t stamp;	   /* of the next event; see ring.h */
	uint64_t end;	   /* events up to here are known to be published */
	uint64_t mask;	   /* capacity - 1, for these */
	bool given_up;
	uint64_t slots[HL_RING_SLOTS]; /* pairs */
};

/* Where events go. */
struct hl_ring_sink {
	/* The events that follow are of ring ${ring} of a set, see ring_merge.h; may be NULL. */
	void (*run)(struct hl_ring_sink *sink, uint32_t ring);
	/* A negative errno ends the reading before the event. */
	int (*event)(struct hl_ring_sink *sink, uint32_t node, int64_t bytes, int64_t objects);
};

void hl_ring_reader_init(struct hl_ring_reader *reader, struct hl_ring *ring);

/*
 * Reads events of ticks up to ${last_tick} and with stamps up to ${last_stamp} that were published
 * before the call, and gives their room back. 1 when the ring holds later ones, 0 when it is empty
 * or given up, or what the sink returned.
 */
int hl_ring_read(struct hl_ring_reader *reader, uint64_t last_tick, uint64_t last_stamp,
		 struct hl_ring_sink *sink);

/* Gives ${sink} the events that begin before ${end}, without giving room back: for a copy of a
 * ring's reader, which looks ahead. */
void hl_ring_peek(struct hl_ring_reader *ahead, uint64_t end, struct hl_ring_sink *sink);

/* The tick of the ring's next event, UINT64_MAX when there is none. Cheap. */
uint64_t hl_ring_next_tick(struct hl_ring_reader *reader);
