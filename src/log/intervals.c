/* SPDX-License-Identifier: BSD-2-Clause */
/* Keeps what each node changed in the current interval and since its maximum; see log.h. */
#include "log/log.h"

#include "base/array.h"
#include "base/compiler.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* ---- events ---- */

/* Makes the node part of the current interval. */
static int touch(struct hl_intervals *intervals, uint32_t node)
{
	if (HL_ARRAY_RESERVE_ZEROED(intervals->nodes, intervals->node_capacity, (size_t)node + 1) <
		    0 ||
	    HL_ARRAY_APPEND(intervals->touched, intervals->touched_count,
			    intervals->touched_capacity, node) < 0)
		return -ENOMEM;
	intervals->nodes[node] = (struct hl_interval_node){
		.interval = (uint32_t)intervals->number + 1,
		.since_max = intervals->max_number,
	};
	return 0;
}

/* Nodes keep the interval's number plus one, so that zeroed nodes belong to none. */
static bool is_touched(const struct hl_intervals *intervals, uint32_t node)
{
	return node < intervals->node_capacity &&
	       intervals->nodes[node].interval == (uint32_t)intervals->number + 1;
}

static void begin_maximum(struct hl_intervals *intervals)
{
	intervals->max_number++;
	intervals->max_bytes = intervals->total_bytes;
	intervals->max_objects = intervals->total_objects;
	intervals->max_tick = intervals->tick;
}

int hl_intervals_event(struct hl_intervals *intervals, uint32_t node, int64_t bytes,
		       int64_t objects)
{
	if (HL_UNLIKELY(!is_touched(intervals, node)) && touch(intervals, node) < 0)
		return -ENOMEM;
	struct hl_interval_node *place = &intervals->nodes[node];
	place->bytes += bytes;
	place->objects += objects;
	intervals->total_bytes += bytes;
	intervals->total_objects += objects;
	intervals->events++;
	if (intervals->total_bytes > intervals->max_bytes && HL_LIKELY(!intervals->unordered)) {
		begin_maximum(intervals);
		return 0;
	}
	if (place->since_max != intervals->max_number) {
		place->since_max = intervals->max_number;
		place->since_bytes = place->since_objects = 0;
	}
	place->since_bytes += bytes;
	place->since_objects += objects;
	return 0;
}

/* All that happened in an unordered tick has been counted. */
static void settle(struct hl_intervals *intervals)
{
	if (intervals->unordered && intervals->total_bytes > intervals->max_bytes)
		begin_maximum(intervals);
	intervals->unordered = false;
}

void hl_intervals_run(struct hl_intervals *intervals, bool unordered)
{
	if (!unordered)
		settle(intervals);
	intervals->unordered = unordered;
}

void hl_intervals_tick(struct hl_intervals *intervals, uint64_t tick)
{
	if (tick <= intervals->tick)
		return;
	settle(intervals);
	intervals->tick = tick;
}

void hl_intervals_change(const struct hl_intervals *intervals, uint32_t node, int64_t *ret_bytes,
			 int64_t *ret_objects)
{
	bool touched = is_touched(intervals, node);

	*ret_bytes = touched ? intervals->nodes[node].bytes : 0;
	*ret_objects = touched ? intervals->nodes[node].objects : 0;
}

/* ---- ends ---- */

static int by_id(const void *left, const void *right)
{
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;

	return (a > b) - (a < b);
}

static size_t collect_changes(struct hl_intervals *intervals)
{
	size_t count = 0;

	if (intervals->touched_count > 1)
		qsort(intervals->touched, intervals->touched_count, sizeof(*intervals->touched),
		      by_id);
	for (size_t i = 0; i < intervals->touched_count; i++) {
		const struct hl_interval_node *place = &intervals->nodes[intervals->touched[i]];
		bool since_max = place->since_max == intervals->max_number;
		struct hl_log_change change = {
			.node = intervals->touched[i],
			.rest_bytes = since_max ? place->since_bytes : 0,
			.rest_objects = since_max ? place->since_objects : 0,
		};
		change.max_bytes = place->bytes - change.rest_bytes;
		change.max_objects = place->objects - change.rest_objects;
		if (change.max_bytes || change.max_objects || change.rest_bytes ||
		    change.rest_objects)
			intervals->changes[count++] = change;
	}
	return count;
}

static void begin_interval(struct hl_intervals *intervals, uint64_t number)
{
	intervals->number = number;
	intervals->touched_count = 0;
	intervals->events = 0;
	intervals->tick = number * HL_INTERVAL_TICKS;
	begin_maximum(intervals);
}

void hl_intervals_go_on(struct hl_intervals *intervals, uint64_t number, int64_t bytes,
			int64_t objects)
{
	intervals->total_bytes = bytes;
	intervals->total_objects = objects;
	begin_interval(intervals, number);
}

int hl_intervals_end(struct hl_intervals *intervals, uint64_t next,
		     struct hl_log_interval *ret_interval)
{
	if (HL_ARRAY_RESERVE(intervals->changes, intervals->change_capacity,
			     intervals->touched_count) < 0)
		return -ENOMEM;
	settle(intervals);
	*ret_interval = (struct hl_log_interval){
		.number = intervals->number,
		.max_tick = intervals->max_tick,
		.max_bytes = intervals->max_bytes,
		.max_objects = intervals->max_objects,
		.end_bytes = intervals->total_bytes,
		.end_objects = intervals->total_objects,
		.events = intervals->events,
		.changes = intervals->changes,
		.change_count = collect_changes(intervals),
	};
	begin_interval(intervals, next);
	return 0;
}

void hl_intervals_release(struct hl_intervals *intervals)
{
	free(intervals->nodes);
	free(intervals->touched);
	free(intervals->changes);
	*intervals = (struct hl_intervals){0};
}
