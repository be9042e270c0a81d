/* SPDX-License-Identifier: BSD-2-Clause */
/* Parts replayed side by side; see event_reports.h. */
#include "profile/event_reports.h"

#include "base/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct part {
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
	struct part *parts;
	struct hl_error *errors;
};

/* ---- intervals ---- */

static const struct hl_log_point *find_point(const struct hl_log *log, uint64_t number)
{
	uint64_t first = log->point_count ? log->points[0].number : UINT64_MAX;

	return number >= first && number - first < log->point_count ? &log->points[number - first]
								    : NULL;
}

static void compare_interval(const struct replaying *replaying, struct part *part,
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

static int reserve(struct part *part, uint32_t node)
{
	int r = HL_ARRAY_RESERVE_ZEROED(part->objects, part->object_capacity, (size_t)node + 1);

	return r < 0 ? r
		     : HL_ARRAY_RESERVE_ZEROED(part->bytes, part->node_capacity, (size_t)node + 1);
}

/* Ends the current interval, and those without an event after it, before ${next}. */
static int end_interval(const struct replaying *replaying, struct part *part, uint64_t next)
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
		if (reserve(part, change->node) < 0)
			return -ENOMEM;
		part->bytes[change->node] += change->max_bytes + change->rest_bytes;
		part->objects[change->node] += change->max_objects + change->rest_objects;
	}
	return 0;
}

/* ---- parts ---- */

static int begin_part(void *context, size_t index, const struct hl_log_state *state)
{
	const struct replaying *replaying = context;
	const struct hl_event_log *events = replaying->events;
	const struct hl_log *log = replaying->log;
	struct part *part = &replaying->parts[index];
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
		if (reserve(part, i) < 0)
			return -ENOMEM;
		part->bytes[i] = state->bytes[i];
		part->objects[i] = state->objects[i];
	}
	return 0;
}

static int replay_run(void *context, size_t index, const struct hl_event_run *run)
{
	const struct replaying *replaying = context;
	struct part *part = &replaying->parts[index];
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

static void compare_stacks(struct part *part, const struct hl_log_state *state, uint64_t number)
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
	struct part *part = &replaying->parts[index];
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

static void release_part(struct part *part)
{
	hl_intervals_release(&part->intervals);
	free(part->bytes);
	free(part->objects);
	part->bytes = part->objects = NULL;
}

static int end_part(void *context, size_t index, const struct hl_log_state *state)
{
	const struct replaying *replaying = context;
	struct part *part = &replaying->parts[index];
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

/* ---- all of them ---- */

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
	const struct hl_event_fold fold = {&replaying, begin_part, replay_run, end_part};
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
