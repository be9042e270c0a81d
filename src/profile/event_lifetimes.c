/* SPDX-License-Identifier: BSD-2-Clause */
/* Areas under blocks in use; see event_reports.h for the mathematics. */
#include "profile/event_reports.h"

#include "base/array.h"
#include "base/compiler.h"
#include "profile/known_names.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* What one part adds. */
struct part {
	struct hl_event_lifetime *nodes;
	size_t node_count, node_capacity;
	uint64_t first, end; /* ticks of the range that are the part's */
};

struct measuring {
	const struct hl_event_log *log;
	const struct hl_event_range *range;
	struct part *parts;
	pthread_mutex_t lock; /* of what follows */
	struct hl_event_lifetimes *sum;
};

/* ---- nodes ---- */

static int reserve(struct part *part, uint32_t node)
{
	if (HL_ARRAY_RESERVE_ZEROED(part->nodes, part->node_capacity, (size_t)node + 1) < 0)
		return -ENOMEM;
	if (node >= part->node_count)
		part->node_count = (size_t)node + 1;
	return 0;
}

void hl_event_lifetime_add(struct hl_event_lifetime *sum, const struct hl_event_lifetime *more)
{
	sum->held_objects += more->held_objects;
	sum->held_bytes += more->held_bytes;
	sum->alloc_objects += more->alloc_objects;
	sum->alloc_bytes += more->alloc_bytes;
	sum->free_objects += more->free_objects;
	sum->free_bytes += more->free_bytes;
	sum->area += more->area;
}

/* ---- a part ---- */

static int begin_part(void *context, size_t index, const struct hl_log_state *state)
{
	const struct measuring *measuring = context;
	const struct hl_event_log *log = measuring->log;
	const struct hl_event_range *range = measuring->range;
	struct part *part = &measuring->parts[index];
	uint64_t first = log->parts[index].first_interval * HL_INTERVAL_TICKS;
	uint64_t end = index + 1 < log->part_count
			       ? log->parts[index + 1].first_interval * HL_INTERVAL_TICKS
			       : range->end;

	part->first = first > range->first ? first : range->first;
	part->end = end < range->end ? end : range->end;
	for (uint32_t i = 1; i < state->node_count; i++) {
		if (!state->bytes[i] && !state->objects[i])
			continue;
		if (reserve(part, i) < 0)
			return -ENOMEM;
		struct hl_event_lifetime *node = &part->nodes[i];
		node->area = state->objects[i] * (int64_t)(part->end - part->first);
		if (part->first == range->first) { /* the range begins in this part */
			node->held_objects = state->objects[i];
			node->held_bytes = state->bytes[i];
		}
	}
	return 0;
}

/* An event before the range changes what is held at its beginning. */
static int add_run(void *context, size_t index, const struct hl_event_run *run)
{
	const struct measuring *measuring = context;
	struct part *part = &measuring->parts[index];
	bool before = run->tick < part->first;
	int64_t left = (int64_t)(part->end - (before ? part->first : run->tick));

	if (run->tick >= part->end)
		return 0;
	for (size_t i = 0; i < run->count; i++) {
		const struct hl_event *event = &run->events[i];
		if (HL_UNLIKELY(event->node >= part->node_count) && reserve(part, event->node) < 0)
			return -ENOMEM;
		struct hl_event_lifetime *node = &part->nodes[event->node];
		node->area += event->objects * left;
		if (HL_UNLIKELY(before)) {
			node->held_objects += event->objects;
			node->held_bytes += event->bytes;
		} else if (event->is_free) {
			node->free_objects -= event->objects;
			node->free_bytes -= event->bytes;
		} else {
			node->alloc_objects += event->objects;
			node->alloc_bytes += event->bytes;
		}
	}
	return 0;
}

static int end_part(void *context, size_t index, const struct hl_log_state *state)
{
	struct measuring *measuring = context;
	struct hl_event_lifetimes *sum = measuring->sum;
	struct part *part = &measuring->parts[index];

	pthread_mutex_lock(&measuring->lock);
	int r = HL_ARRAY_RESERVE_ZEROED(sum->nodes, sum->node_capacity, part->node_count);
	if (r == 0) {
		if (part->node_count > sum->node_count)
			sum->node_count = part->node_count;
		for (size_t i = 1; i < part->node_count; i++)
			hl_event_lifetime_add(&sum->nodes[i], &part->nodes[i]);
		r = hl_history_names_add(sum->names, state);
	}
	pthread_mutex_unlock(&measuring->lock);
	free(part->nodes);
	part->nodes = NULL;
	return r;
}

/* ---- all of them ---- */

int hl_event_lifetimes_read(struct hl_event_lifetimes *lifetimes, const struct hl_event_log *log,
			    const struct hl_event_range *range,
			    const struct hl_log_options *options, struct hl_error *err)
{
	struct measuring measuring = {
		.log = log,
		.range = range,
		.parts = calloc(log->part_count, sizeof(*measuring.parts)),
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.sum = lifetimes,
	};
	const struct hl_event_fold fold = {&measuring, begin_part, add_run, end_part};

	lifetimes->names = calloc(1, sizeof(*lifetimes->names));
	int r = measuring.parts && lifetimes->names
			? hl_event_log_read_range(log, range, options, &fold, err)
			: -ENOMEM;
	for (size_t i = 0; measuring.parts && i < log->part_count; i++)
		free(measuring.parts[i].nodes);
	free(measuring.parts);
	return r < 0 ? hl_error_set(err, r, "cannot measure lifetimes: out of memory") : 0;
}

void hl_event_lifetimes_release(struct hl_event_lifetimes *lifetimes)
{
	free(lifetimes->nodes);
	hl_log_state_free(lifetimes->names);
	*lifetimes = (struct hl_event_lifetimes){0};
}
