/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads kept events for their reports: each part of them alone, then the parts in order of time; see event_reports.h. */
#include "profile/event_reports.h"

#include "base/array.h"
#include "base/compiler.h"
#include "profile/builder.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- sums ---- */

static void add_figures(struct hl_event_figures *sum, const struct hl_event_figures *more)
{
	sum->events += more->events;
	sum->allocations += more->allocations;
	sum->frees += more->frees;
	sum->alloc_bytes += more->alloc_bytes;
	sum->free_bytes += more->free_bytes;
}

static int add_to_thread(struct hl_event_summary *summary, uint32_t thread,
			 const struct hl_event_figures *figures)
{
	if (HL_ARRAY_RESERVE_ZEROED(summary->threads, summary->thread_capacity,
				    (size_t)thread + 1) < 0)
		return -ENOMEM;
	if (thread >= summary->thread_count)
		summary->thread_count = (size_t)thread + 1;
	add_figures(&summary->threads[thread], figures);
	return 0;
}

/* ---- the busiest ticks ---- */

static void rank_tick(struct hl_event_summary *summary, const struct hl_event_tick *tick)
{
	size_t at = summary->tick_count;

	for (; at > 0; at--) {
		const struct hl_event_tick *other = &summary->ticks[at - 1];
		if (other->figures.events > tick->figures.events ||
		    (other->figures.events == tick->figures.events && other->tick <= tick->tick))
			break;
	}
	if (at == HL_EVENT_TICKS_MAX)
		return;
	if (summary->tick_count < HL_EVENT_TICKS_MAX)
		summary->tick_count++;
	memmove(&summary->ticks[at + 1], &summary->ticks[at],
		(summary->tick_count - at - 1) * sizeof(*summary->ticks));
	summary->ticks[at] = *tick;
}

/* ---- sums of each part, and of all ---- */

/* No tick is in two parts, as a part ends with an interval. */
struct summary_part {
	struct hl_event_summary summary;
	struct hl_event_tick tick; /* the last one */
};

struct summing {
	const struct hl_event_range *range;
	struct summary_part *parts;
};

static int summary_add_run(void *context, size_t index, const struct hl_event_run *run)
{
	const struct summing *summing = context;
	struct summary_part *part = &summing->parts[index];

	if (run->tick < summing->range->first || run->tick >= summing->range->end)
		return 0;
	if (run->tick != part->tick.tick || !part->tick.figures.events) {
		if (part->tick.figures.events)
			rank_tick(&part->summary, &part->tick);
		else
			part->summary.first_tick = run->tick;
		part->tick = (struct hl_event_tick){.tick = run->tick};
		part->summary.last_tick = run->tick;
	}
	int64_t bytes[2] = {0}, objects[2] = {0}; /* allocated, freed */
	for (size_t i = 0; i < run->count; i++) {
		bytes[run->events[i].is_free] += run->events[i].bytes;
		objects[run->events[i].is_free] += run->events[i].objects;
	}
	const struct hl_event_figures figures = {
		.events = run->count,
		.allocations = objects[0],
		.frees = -objects[1],
		.alloc_bytes = bytes[0],
		.free_bytes = -bytes[1],
	};
	add_figures(&part->tick.figures, &figures);
	add_figures(&part->summary.total, &figures);
	return add_to_thread(&part->summary, run->thread, &figures);
}

static int summary_end_part(void *context, size_t index, const struct hl_log_state *state)
{
	struct summary_part *part = &((const struct summing *)context)->parts[index];

	(void)state;
	if (part->tick.figures.events)
		rank_tick(&part->summary, &part->tick);
	return 0;
}

int hl_event_summary_read(struct hl_event_summary *summary, const struct hl_event_log *log,
			  const struct hl_event_range *range, const struct hl_log_options *options,
			  struct hl_error *err)
{
	struct summing summing = {range, calloc(log->part_count, sizeof(*summing.parts))};
	const struct hl_event_fold fold = {&summing, NULL, summary_add_run, summary_end_part};

	int r = summing.parts ? hl_event_log_read_range(log, range, options, &fold, err) : -ENOMEM;
	for (size_t i = 0; r == 0 && i < log->part_count; i++) {
		const struct hl_event_summary *part = &summing.parts[i].summary;
		if (!part->total.events)
			continue;
		if (!summary->total.events)
			summary->first_tick = part->first_tick;
		summary->last_tick = part->last_tick;
		add_figures(&summary->total, &part->total);
		for (uint32_t thread = 0; r == 0 && thread < part->thread_count; thread++)
			r = add_to_thread(summary, thread, &part->threads[thread]);
		for (size_t tick = 0; tick < part->tick_count; tick++)
			rank_tick(summary, &part->ticks[tick]);
	}
	for (size_t i = 0; summing.parts && i < log->part_count; i++)
		hl_event_summary_release(&summing.parts[i].summary);
	free(summing.parts);
	return r < 0 ? hl_error_set(err, r, "cannot add events up: out of memory") : 0;
}

void hl_event_summary_release(struct hl_event_summary *summary)
{
	free(summary->threads);
	summary->threads = NULL;
	summary->thread_count = summary->thread_capacity = 0;
}

/* ---- lifetimes: areas under blocks in use ---- */

/* What one part adds. */
struct lifetime_part {
	struct hl_event_lifetime *nodes;
	size_t node_count, node_capacity;
	uint64_t first, end; /* ticks of the range that are the part's */
};

struct measuring {
	const struct hl_event_log *log;
	const struct hl_event_range *range;
	struct lifetime_part *parts;
	pthread_mutex_t lock; /* of what follows */
	struct hl_event_lifetimes *sum;
};

static int lifetime_reserve(struct lifetime_part *part, uint32_t node)
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

static int lifetime_begin_part(void *context, size_t index, const struct hl_log_state *state)
{
	const struct measuring *measuring = context;
	const struct hl_event_log *log = measuring->log;
	const struct hl_event_range *range = measuring->range;
	struct lifetime_part *part = &measuring->parts[index];
	uint64_t first = log->parts[index].first_interval * HL_INTERVAL_TICKS;
	uint64_t end = index + 1 < log->part_count
			       ? log->parts[index + 1].first_interval * HL_INTERVAL_TICKS
			       : range->end;

	part->first = first > range->first ? first : range->first;
	part->end = end < range->end ? end : range->end;
	for (uint32_t i = 1; i < state->node_count; i++) {
		if (!state->bytes[i] && !state->objects[i])
			continue;
		if (lifetime_reserve(part, i) < 0)
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
static int lifetime_add_run(void *context, size_t index, const struct hl_event_run *run)
{
	const struct measuring *measuring = context;
	struct lifetime_part *part = &measuring->parts[index];
	bool before = run->tick < part->first;
	int64_t left = (int64_t)(part->end - (before ? part->first : run->tick));

	if (run->tick >= part->end)
		return 0;
	for (size_t i = 0; i < run->count; i++) {
		const struct hl_event *event = &run->events[i];
		if (HL_UNLIKELY(event->node >= part->node_count) &&
		    lifetime_reserve(part, event->node) < 0)
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

static int lifetime_end_part(void *context, size_t index, const struct hl_log_state *state)
{
	struct measuring *measuring = context;
	struct hl_event_lifetimes *sum = measuring->sum;
	struct lifetime_part *part = &measuring->parts[index];

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

/* ---- lifetimes of all parts ---- */

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
	const struct hl_event_fold fold = {&measuring, lifetime_begin_part, lifetime_add_run,
					   lifetime_end_part};

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

/* ---- the replay: parts side by side ---- */

struct replay_part {
	struct hl_intervals intervals;
	int64_t *bytes, *objects; /* by node, at the end of the last interval */
	size_t node_capacity, object_capacity;
	uint64_t end;	/* interval at which the next part begins */
	bool uncertain; /* events before that are missing */
	struct hl_event_replay result;
};

struct replaying {
	const struct hl_event_log *events;
	const struct hl_log *log;
	const struct hl_event_range *range;
	uint64_t first, end; /* intervals to compare, those of the range */
	struct replay_part *parts;
	struct hl_error *errors;
};

/* ---- intervals ---- */

static const struct hl_log_point *find_point(const struct hl_log *log, uint64_t number)
{
	uint64_t first = log->point_count ? log->points[0].number : UINT64_MAX;

	return number >= first && number - first < log->point_count ? &log->points[number - first]
								    : NULL;
}

static void compare_interval(const struct replaying *replaying, struct replay_part *part,
			     const struct hl_log_point *replayed)
{
	const struct hl_log_point *point = find_point(replaying->log, replayed->number);

	if (replayed->number < replaying->first || replayed->number >= replaying->end)
		return;
	if (!point || point->missing) {
		part->result.uncertain++;
		return;
	}
	part->result.compared++;
	if (point->max_bytes == replayed->max_bytes && point->end_bytes == replayed->end_bytes)
		return;
	if (part->result.different < HL_EVENT_DIFFERENCES_MAX)
		part->result.first[part->result.different] =
			(struct hl_event_difference){point->number, *point, *replayed};
	part->result.different++;
}

static int replay_reserve(struct replay_part *part, uint32_t node)
{
	int r = HL_ARRAY_RESERVE_ZEROED(part->objects, part->object_capacity, (size_t)node + 1);

	return r < 0 ? r
		     : HL_ARRAY_RESERVE_ZEROED(part->bytes, part->node_capacity, (size_t)node + 1);
}

/* Ends the current interval, and those without an event after it, before ${next}. */
static int end_interval(const struct replaying *replaying, struct replay_part *part, uint64_t next)
{
	struct hl_log_interval interval;

	int r = hl_intervals_end(&part->intervals, next, &interval);
	if (r < 0)
		return r;
	struct hl_log_point point = {
		.number = interval.number,
		.max_bytes = interval.max_bytes,
		.end_bytes = interval.end_bytes,
	};
	compare_interval(replaying, part, &point);
	point.max_bytes = point.end_bytes;
	for (point.number++; point.number < next && point.number < replaying->end; point.number++)
		compare_interval(replaying, part, &point);
	for (size_t i = 0; i < interval.change_count; i++) {
		const struct hl_log_change *change = &interval.changes[i];
		if (replay_reserve(part, change->node) < 0)
			return -ENOMEM;
		part->bytes[change->node] += change->max_bytes + change->rest_bytes;
		part->objects[change->node] += change->max_objects + change->rest_objects;
	}
	return 0;
}

/* ---- a part, to its end ---- */

static int replay_begin_part(void *context, size_t index, const struct hl_log_state *state)
{
	const struct replaying *replaying = context;
	const struct hl_event_log *events = replaying->events;
	const struct hl_log *log = replaying->log;
	struct replay_part *part = &replaying->parts[index];
	bool is_last = index + 1 == events->part_count;

	part->end = !is_last	       ? events->parts[index + 1].first_interval
		    : log->point_count ? log->points[log->point_count - 1].number + 1
				       : 0;
	part->uncertain = is_last ? events->cut_off || events->missing_events !=
							       events->parts[index].missing_events
				  : events->parts[index + 1].missing_events !=
					    events->parts[index].missing_events;
	hl_intervals_go_on(&part->intervals, events->parts[index].first_interval,
			   state->total_bytes, state->total_objects);
	for (uint32_t i = 1; i < state->node_count; i++) {
		if (!state->bytes[i] && !state->objects[i])
			continue;
		if (replay_reserve(part, i) < 0)
			return -ENOMEM;
		part->bytes[i] = state->bytes[i];
		part->objects[i] = state->objects[i];
	}
	return 0;
}

static int replay_run(void *context, size_t index, const struct hl_event_run *run)
{
	const struct replaying *replaying = context;
	struct replay_part *part = &replaying->parts[index];
	uint64_t number = run->tick / HL_INTERVAL_TICKS;
	int r = 0;

	if (number > part->intervals.number)
		r = end_interval(replaying, part, number);
	hl_intervals_tick(&part->intervals, run->tick);
	hl_intervals_run(&part->intervals, run->unordered);
	for (size_t i = 0; r == 0 && i < run->count; i++)
		r = hl_intervals_event(&part->intervals, run->events[i].node, run->events[i].bytes,
				       run->events[i].objects);
	/* Parts begin before the range; of a log that was cut off, events go on after it. */
	if (run->tick >= replaying->range->first && run->tick < replaying->range->end)
		part->result.events += run->count;
	return r;
}

static void compare_stacks(struct replay_part *part, const struct hl_log_state *state,
			   uint64_t number)
{
	size_t count =
		state->node_count > part->node_capacity ? state->node_count : part->node_capacity;

	part->result.states++;
	for (uint32_t i = 1; i < count; i++) {
		bool known = i < state->node_count, replayed = i < part->node_capacity;
		int64_t bytes = known ? state->bytes[i] : 0;
		int64_t objects = known ? state->objects[i] : 0;
		part->result.stacks += known && state->nodes[i].defined;
		if (bytes == (replayed ? part->bytes[i] : 0) &&
		    objects == (replayed ? part->objects[i] : 0))
			continue;
		if (!part->result.different_stacks) {
			part->result.different_node = i;
			part->result.different_interval = number;
		}
		part->result.different_stacks++;
	}
}

/* At the end of the part's last interval, as far as the log knows it. */
static int compare_state(const struct replaying *replaying, size_t index)
{
	struct replay_part *part = &replaying->parts[index];
	uint64_t last = part->end - 1;
	const struct hl_log_point *point = find_point(replaying->log, last);
	struct hl_log_state *state;

	if (!point || point->missing || last < replaying->first || last >= replaying->end)
		return 0;
	int r = hl_log_state_at(replaying->log, last, HL_LOG_AT_END, &state,
				&replaying->errors[index]);
	if (r < 0)
		return r;
	compare_stacks(part, state, last);
	hl_log_state_free(state);
	return 0;
}

static void release_part(struct replay_part *part)
{
	hl_intervals_release(&part->intervals);
	free(part->bytes);
	free(part->objects);
	part->bytes = part->objects = NULL;
}

static int replay_end_part(void *context, size_t index, const struct hl_log_state *state)
{
	const struct replaying *replaying = context;
	struct replay_part *part = &replaying->parts[index];
	uint64_t at = part->intervals.number, end = part->end;
	int r = 0;

	(void)state;
	if (part->uncertain) {
		/* It is unknown at which point of the last interval with an event others are missing. */
		if (at < replaying->first)
			at = replaying->first;
		if (end > replaying->end)
			end = replaying->end;
		part->result.uncertain += end > at ? end - at : 0;
	} else {
		/* Only a log that was cut off ends before the events. */
		r = end_interval(replaying, part, end > at + 1 ? end : at + 1);
		if (r == 0 && end > at)
			r = compare_state(replaying, index);
	}
	release_part(part);
	return r;
}

/* ---- the replay of all parts ---- */

static void add_result(struct hl_event_replay *sum, const struct hl_event_replay *part)
{
	for (size_t i = 0; i < part->different && i < HL_EVENT_DIFFERENCES_MAX &&
			   sum->different + i < HL_EVENT_DIFFERENCES_MAX;
	     i++)
		sum->first[sum->different + i] = part->first[i];
	if (!sum->different_stacks) {
		sum->different_node = part->different_node;
		sum->different_interval = part->different_interval;
	}
	sum->events += part->events;
	sum->compared += part->compared;
	sum->uncertain += part->uncertain;
	sum->different += part->different;
	sum->states += part->states;
	sum->stacks += part->stacks;
	sum->different_stacks += part->different_stacks;
}

int hl_event_replay(const struct hl_event_log *events, const struct hl_log *log,
		    const struct hl_event_range *range, const struct hl_log_options *options,
		    struct hl_event_replay *ret_replay, struct hl_error *err)
{
	struct replaying replaying = {
		.events = events,
		.log = log,
		.range = range,
		.first = range->first / HL_INTERVAL_TICKS,
		.end = (range->end + HL_INTERVAL_TICKS - 1) / HL_INTERVAL_TICKS,
		.parts = calloc(events->part_count, sizeof(*replaying.parts)),
		.errors = calloc(events->part_count, sizeof(*replaying.errors)),
	};
	const struct hl_event_fold fold = {&replaying, replay_begin_part, replay_run,
					   replay_end_part};
	struct hl_event_replay sum = {0};

	int r = replaying.parts && replaying.errors
			? hl_event_log_read_range(events, range, options, &fold, err)
			: -ENOMEM;
	for (size_t i = 0; r == 0 && i < events->part_count; i++)
		add_result(&sum, &replaying.parts[i].result);
	for (size_t i = 0; r < 0 && replaying.errors && i < events->part_count; i++)
		hl_error_set(err, r, "%s", replaying.errors[i].text);
	if (r < 0) /* with nothing said so far */
		hl_error_set(err, r, "cannot replay events: out of memory");
	else
		*ret_replay = sum;
	for (size_t i = 0; replaying.parts && i < events->part_count; i++)
		release_part(&replaying.parts[i]);
	free(replaying.parts);
	free(replaying.errors);
	return r;
}
