/* SPDX-License-Identifier: BSD-2-Clause */
/* What kept events tell: sums, lifetimes, and whether they agree with the log. */
#pragma once

#include "log/events.h"

/* ---- sums: in all, by thread, and in the busiest ticks ---- */

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

/* ---- lifetimes ---- */

/*
 * How long blocks live, by stack, from kept events.
 *
 * Events do not tell which block is freed. The mean needs not to know: let N(t) be how many blocks
 * of a stack are in use at time t, of all those seen from A to B (in use at A, or allocated since).
 * Each block is one of N(t) for exactly as long as it lives within [A, B], so the sum of their
 * lifetimes is the area under N:
 *
 *	sum of lifetimes = integral from A to B of N(t) dt
 *	mean lifetime    = that / (N(A) + allocations)
 *
 * (Little's law, L = lambda W, without its limit: as a sum over a finite time it is exact.)
 * Lifetimes are those seen: of a block in use at A they begin there, of one in use at B they end
 * there. Each event that changes N by d at tick t changes the area by d (B - t); so
 *
 *	area = N(A) (B - A) + sum of d (B - t)
 *
 * which parts of the log add up in any order, with integers. Ticks are 1 ms: a lifetime is off by
 * less than that, and a shorter one counts as 0 or 1 ms, by chance in proportion to its length.
 */

/* Of one node. */
struct hl_event_lifetime {
	int64_t held_objects, held_bytes; /* in use at the range's beginning */
	int64_t alloc_objects, alloc_bytes, free_objects, free_bytes;
	int64_t area; /* in object ticks */
};

/* Zero-initialize; release in any case. */
struct hl_event_lifetimes {
	struct hl_event_lifetime *nodes; /* by node of the log */
	size_t node_count, node_capacity;
	struct hl_log_state *names; /* defines them all; figures are those of some moment */
};

/* Reads the events in ${range}. 0 or a negative errno with a sentence. */
int hl_event_lifetimes_read(struct hl_event_lifetimes *lifetimes, const struct hl_event_log *log,
			    const struct hl_event_range *range,
			    const struct hl_log_options *options, struct hl_error *err);

void hl_event_lifetimes_release(struct hl_event_lifetimes *lifetimes);

void hl_event_lifetime_add(struct hl_event_lifetime *sum, const struct hl_event_lifetime *more);

/* Blocks of which something was seen. */
static inline int64_t hl_event_lifetime_seen(const struct hl_event_lifetime *lifetime)
{
	return lifetime->held_objects + lifetime->alloc_objects;
}

/* ---- replay ---- */

/*
 * Plays kept events through the engine that made the log, and compares: each interval's maximum and
 * end with the log's point, and at the end of each part what every stack holds with the log's state
 * then. The log was written by the collector as the events came; so where they are equal, both are
 * as the program did.
 */

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
