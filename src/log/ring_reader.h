/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads the events of a ring, up to a tick and within it up to a stamp, so that several rings can
 * be merged. Trusts nothing that it finds there: a ring whose words make no sense is given up.
 */
#pragma once

#include "log/log.h"
#include "region/ring.h"

#include <stdbool.h>

/* One ring as its reader sees it. */
struct hl_ring_reader {
	struct hl_ring *ring;
	uint64_t room; /* bytes from there on that may be read */
	const char *data;
	uint64_t position;   /* read up to here; the target can write ring->tail, so this counts */
	uint64_t tick;	     /* of the next event */
	uint64_t stamp;	     /* of the next event; see ring.h */
	uint64_t last_stamp; /* of the last event, or read since */
	uint64_t end;	     /* events up to here are known to be published */
	uint64_t mask;	     /* capacity - 1, for these */
	bool given_up;
};

/* Where events go. */
struct hl_ring_sink {
	/* The events that follow are of ring ${ring} of a set; may be NULL. */
	void (*run)(struct hl_ring_sink *sink, uint32_t ring);
	/* A negative errno ends the reading before the event. */
	int (*event)(struct hl_ring_sink *sink, uint32_t node, int64_t bytes, int64_t objects);
};

/* ${room}: bytes from ${ring} on that may be read. */
void hl_ring_reader_init(struct hl_ring_reader *reader, struct hl_ring *ring, uint64_t room);

/*
 * Reads events of ticks up to ${last_tick} and with stamps up to ${last_stamp} that were published
 * before the call, and gives their room back. 1 when the ring holds later ones, 0 when it is empty
 * or given up, or the sink's error.
 */
int hl_ring_reader_read(struct hl_ring_reader *reader, uint64_t last_tick, uint64_t last_stamp,
			struct hl_ring_sink *sink);

/* Gives ${sink} the events that begin before ${end}, without giving room back: for a copy of a
 * ring's reader, which looks ahead. */
void hl_ring_reader_peek(struct hl_ring_reader *ahead, uint64_t end, struct hl_ring_sink *sink);

/* The tick of the ring's next event, UINT64_MAX when there is none. Cheap. */
uint64_t hl_ring_reader_next_tick(struct hl_ring_reader *reader);

/*
 * Merges the event rings of one process: by tick, and within a tick by stamp.
 *
 * Events with the same stamp are read ring by ring: none of them was caused by another ring's, so
 * any order of them is possible. Events that come late, after their tick was read, are merged with
 * those of the next tick that is read.
 *
 * The ring with the earliest event is read up to the second one's next event. Threads that share
 * processors seldom take turns, so merging costs hardly more than reading ring by ring.
 */

/* Zero-initialize; make room; release in any case. */
struct hl_ring_set {
	struct hl_ring_reader *readers; /* with ring NULL: none yet; memory is used as they come */
	uint64_t *next_ticks;		/* of each ring's next event; UINT64_MAX: none */
	struct hl_ring_turn *turns;
	uint32_t max;
	uint32_t count; /* rings in use; the caller's to raise */
};

/* Makes room for ${max} rings. 0 or -ENOMEM. */
int hl_ring_set_init(struct hl_ring_set *set, uint32_t max);

/*
 * Looks for published events. Returns the tick of the earliest, UINT64_MAX when there is none. No
 * event can be later than ${now}: a ring with such an event is given up.
 */
uint64_t hl_ring_set_look(struct hl_ring_set *set, uint64_t now);

/* Whether several rings have events of ticks up to ${tick}, as they were looked at. */
bool hl_ring_set_several(const struct hl_ring_set *set, uint64_t tick);

/*
 * Reads the events of ticks up to ${tick} of all rings in which some were found, and ignores what
 * the sink returns. Returns the tick of the earliest event left, UINT64_MAX when there is none.
 */
uint64_t hl_ring_set_read(struct hl_ring_set *set, uint64_t tick, struct hl_ring_sink *sink);

void hl_ring_set_release(struct hl_ring_set *set);
