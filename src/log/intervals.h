/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finds, in a stream of events, the local maximum of bytes in use in each interval, to the event,
 * and what each stack node held then and at the interval's end.
 *
 *	tick      1 ms since the process' recording began
 *	interval  HL_INTERVAL_TICKS ticks; interval i holds the ticks from i * HL_INTERVAL_TICKS on
 *	maximum   the first event after which the interval's total was highest; the state at the
 *		  interval's beginning counts as well. Where several threads had events in one
 *		  tick, and time stamps do not tell their order, the state at the tick's end
 *
 * An event touches one node. Nothing is cleared when a new maximum is reached: changes since the
 * maximum carry the number of the maximum that they are since.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An executable or library that stacks pass through, as logs describe it. */
struct hl_log_module {
	const char *path; /* "" when unknown */
	uint64_t start, end;
	uint64_t load_bias;
	uint8_t build_id[32];
	uint32_t build_id_bytes;
};

/* A place in a script, as logs describe it. */
struct hl_log_site {
	uint32_t provider; /* index */
	uint32_t line, first_line;
	const char *function, *source; /* NULL: the site is not known */
};

#define HL_INTERVAL_TICKS 100u

/* What one interval did to one node. */
struct hl_log_change {
	uint32_t node;
	int64_t max_bytes, max_objects;	  /* from the interval's beginning to its maximum */
	int64_t rest_bytes, rest_objects; /* from there to its end */
};

struct hl_log_interval {
	uint64_t number;
	uint64_t max_tick;
	int64_t max_bytes, max_objects; /* in use */
	int64_t end_bytes, end_objects;
	uint64_t events;
	const struct hl_log_change
		*changes; /* by node, ascending; nodes without a change left out */
	size_t change_count;
};

struct hl_interval_node {
	int64_t bytes, objects; /* change since the interval began */
	int64_t since_bytes,
		since_objects; /* change since the maximum, if since_max is its number */
	uint32_t interval;     /* low bits of the interval that `bytes` is of */
	uint32_t since_max;
};

/* One process. Zero-initialize; release in any case. */
struct hl_intervals {
	struct hl_interval_node *nodes;
	size_t node_capacity;
	uint32_t *touched; /* nodes of the current interval, in the order of their first event */
	size_t touched_count, touched_capacity;
	struct hl_log_change *changes;
	size_t change_capacity;
	uint64_t number; /* of the current interval */
	uint32_t max_number;
	uint64_t tick, max_tick;
	int64_t total_bytes, total_objects;
	int64_t max_bytes, max_objects;
	uint64_t events;
	bool unordered; /* the order of the events that follow within the tick is unknown */
};

/* Has zeroed ${intervals} continue from interval ${number}, which begins with ${bytes} in
 * ${objects} blocks in use. */
void hl_intervals_go_on(struct hl_intervals *intervals, uint64_t number, int64_t bytes,
			int64_t objects);

/* Counts one event at the current tick: ${bytes} and ${objects} are negative for a free. 0, or
 * -ENOMEM with nothing counted. */
int hl_intervals_event(struct hl_intervals *intervals, uint32_t node, int64_t bytes,
		       int64_t objects);

/*
 * The events that follow within the tick are of one thread, in order; or, if ${unordered}, some of
 * those of several threads, whose order is unknown. Then only the state after all of them can be a
 * maximum: a block that one thread allocates and another frees must not count before its
 * allocation, nor all allocations before all frees.
 */
void hl_intervals_run(struct hl_intervals *intervals, bool unordered);

/* Moves on to ${tick}, which must lie in the current interval; smaller ones are ignored. */
void hl_intervals_tick(struct hl_intervals *intervals, uint64_t tick);

/* What the current interval has changed at ${node} so far. */
void hl_intervals_change(const struct hl_intervals *intervals, uint32_t node, int64_t *ret_bytes,
			 int64_t *ret_objects);

/*
 * Ends the current interval and begins the one with ${next} as its number (larger than the
 * current). ${ret_interval} is valid until the next call. 0, or -ENOMEM with the interval not
 * ended.
 */
int hl_intervals_end(struct hl_intervals *intervals, uint64_t next,
		     struct hl_log_interval *ret_interval);

void hl_intervals_release(struct hl_intervals *intervals);
