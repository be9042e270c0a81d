/* SPDX-License-Identifier: BSD-2-Clause */
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
#pragma once

#include "profile/event_summary.h"

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

/* Reads the names of all nodes in ${range}; hl_log_state_free() them. As hl_event_log_read(). */
int hl_event_names_read(const struct hl_event_log *log, const struct hl_event_range *range,
			const struct hl_log_options *options, struct hl_log_state **ret_names,
			struct hl_error *err);
