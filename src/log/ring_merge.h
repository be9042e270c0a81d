/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Merges the event rings of one process: by tick, and within a tick by stamp.
 *
 * Events with the same stamp are read ring by ring: none of them is because of another ring's, so
 * that each order of theirs is one that may have been. Events that come late, after their tick was
 * read, are merged with those of the next tick that is read.
 *
 * While the rings are merged the ring that is ahead of all others is read until the second one's
 * next event: with rings that take turns seldom, as threads do that share processors, that costs
 * hardly more than to read them one by one.
 */
#pragma once

#include "log/ring_reader.h"

/* Zero-initialize; make room; release in any case. */
struct hl_ring_set {
	struct hl_ring_reader *readers; /* with ring NULL: none yet; memory is used as they come */
	uint64_t *next_ticks;		/* of each ring's next event; UINT64_MAX: none */
	struct hl_ring_turn *turns;
	uint32_t max;
	uint32_t count; /* of those that there are; the caller's to raise */
};

/* Makes room for ${max} rings. 0 or -ENOMEM. */
int hl_ring_set_init(struct hl_ring_set *set, uint32_t max);

/*
 * Looks what has been published. The tick of the earliest next event, UINT64_MAX when there is
 * none. No event can be later than ${now}: such a ring is given up.
 */
uint64_t hl_ring_set_look(struct hl_ring_set *set, uint64_t now);

/* Whether several rings have events of ticks up to ${tick}, as they were looked at. */
bool hl_ring_set_several(const struct hl_ring_set *set, uint64_t tick);

/*
 * Reads the events of ticks up to ${tick} of all rings in which some were found. What the sink
 * returns is ignored. The tick of the earliest of those left, UINT64_MAX when there is none.
 */
uint64_t hl_ring_set_read(struct hl_ring_set *set, uint64_t tick, struct hl_ring_sink *sink);

void hl_ring_set_release(struct hl_ring_set *set);
