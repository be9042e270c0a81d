/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Condenses a timeline to points and moments, and reads what was in use at these; see
 * report.h. The log is read from its beginning to its end on one thread, so that what
 * changed between two moments is all that has to be kept.
 */
#include "view/page/report.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "profile/builder.h"
#include "profile/profile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* More than that makes a page slow to open; then there are fewer moments. */
#define CHANGES_MAX 2000000

static size_t divide_up(size_t count, size_t divisor)
{
	return (count + divisor - 1) / divisor;
}

/* ---- points ---- */

static int make_points(struct hl_report_history *report)
{
	const struct hl_history *history = report->history;
	size_t each = divide_up(history->point_count, HL_REPORT_POINTS_MAX);

	report->point_intervals = each;
	report->point_count = divide_up(history->point_count, each);
	report->points = calloc(report->point_count, sizeof(*report->points));
	if (!report->points)
		return -ENOMEM;
	for (size_t i = 0; i < report->point_count; i++) {
		const struct hl_log_point *intervals = &history->points[i * each];
		const struct hl_log_point *highest = intervals;
		struct hl_report_point *point = &report->points[i];
		size_t rest = history->point_count - i * each;
		for (size_t j = 0; j < each && j < rest; j++) {
			if (intervals[j].max_bytes > highest->max_bytes)
				highest = &intervals[j];
			if (intervals[j].rss_bytes > point->rss_bytes)
				point->rss_bytes = intervals[j].rss_bytes;
			point->missing |= intervals[j].missing;
		}
		point->number = highest->number;
		point->ms = highest->number * HL_INTERVAL_TICKS;
		point->bytes = highest->max_bytes;
	}
	return 0;
}

/* ---- moments ---- */

/* Chooses at most ${most} moments: the highest point of each run of as many points. */
static int choose_moments(struct hl_report_history *report, size_t most)
{
	report->moment_points = divide_up(report->point_count, most);
	report->moment_count = divide_up(report->point_count, report->moment_points);
	free(report->moments);
	report->moments = calloc(report->moment_count, sizeof(*report->moments));
	if (!report->moments)
		return -ENOMEM;
	for (size_t i = 0; i < report->moment_count; i++) {
		size_t first = i * report->moment_points, highest = first;
		size_t end = first + report->moment_points;
		for (size_t j = first; j < report->point_count && j < end; j++)
			if (report->points[j].bytes > report->points[highest].bytes)
				highest = j;
		report->moments[i].point = highest;
	}
	return 0;
}

/* ---- what was in use at them ---- */

/* What one node of the log has in use, and had at the moment before. */
struct held {
	int64_t bytes, objects;
	int64_t kept_bytes, kept_objects;
	bool touched;
};

struct reading {
	struct hl_report_history *report;
	struct held *nodes; /* of the log */
	size_t node_count;
	int64_t bytes;	   /* of all nodes, now */
	uint32_t *touched; /* since the moment before */
	size_t touched_count, touched_capacity;
	size_t change_capacity;
	size_t next_point, next_moment;
	const struct hl_log_state *state; /* what the next interval begins with; NULL: as it is */
	bool begun;
	struct hl_log_state *names;
};

static int reserve_nodes(struct reading *reading, size_t count)
{
	size_t old = reading->node_count, capacity = old;

	if (HL_ARRAY_RESERVE(reading->nodes, capacity, count) < 0)
		return -ENOMEM;
	if (capacity > old)
		memset(reading->nodes + old, 0, (capacity - old) * sizeof(*reading->nodes));
	reading->node_count = capacity;
	return 0;
}

static int change(struct reading *reading, uint32_t id, int64_t bytes, int64_t objects)
{
	if (reserve_nodes(reading, (size_t)id + 1) < 0 ||
	    HL_ARRAY_RESERVE(reading->touched, reading->touched_capacity,
			     reading->touched_count + 1) < 0)
		return -ENOMEM;
	struct held *node = &reading->nodes[id];
	node->bytes += bytes;
	node->objects += objects;
	reading->bytes += bytes;
	if (!node->touched)
		reading->touched[reading->touched_count++] = id;
	node->touched = true;
	return 0;
}

/*
 * Keeps what has changed since the moment before, by nodes of the log; rename_changes() puts those
 * of the profile in their place. -EBADMSG where damage kept intervals from being read, which the
 * timeline knows of.
 */
static int keep_moment(struct reading *reading)
{
	struct hl_report_history *report = reading->report;
	struct hl_report_moment *moment = &report->moments[reading->next_moment++];

	moment->first_change = report->change_count;
	if (reading->bytes != report->points[moment->point].bytes)
		return -EBADMSG;
	for (size_t i = 0; i < reading->touched_count; i++) {
		struct held *node = &reading->nodes[reading->touched[i]];
		const struct hl_report_change change = {reading->touched[i],
							node->bytes - node->kept_bytes,
							node->objects - node->kept_objects};
		node->touched = false;
		if (!change.bytes && !change.objects)
			continue;
		if (HL_ARRAY_APPEND(report->changes, report->change_count, reading->change_capacity,
				    change) < 0)
			return -ENOMEM;
		node->kept_bytes = node->bytes;
		node->kept_objects = node->objects;
	}
	reading->touched_count = 0;
	moment->change_count = report->change_count - moment->first_change;
	return 0;
}

static uint64_t next_moment_number(const struct reading *reading)
{
	const struct hl_report_history *report = reading->report;

	return reading->next_moment < report->moment_count
		       ? report->points[report->moments[reading->next_moment].point].number
		       : UINT64_MAX;
}

/* Those in intervals that were not written are as the interval before left them. */
static int keep_moments_before(struct reading *reading, uint64_t number)
{
	int r = 0;

	while (r == 0 && next_moment_number(reading) < number)
		r = keep_moment(reading);
	return r;
}

static int take_state(struct reading *reading)
{
	const struct hl_log_state *state = reading->state;
	int r = reserve_nodes(reading, state->node_count);

	for (uint32_t i = 1; r == 0 && i < reading->node_count; i++) {
		const struct held *node = &reading->nodes[i];
		bool known = i < state->node_count;
		int64_t bytes = (known ? state->bytes[i] : 0) - node->bytes;
		int64_t objects = (known ? state->objects[i] : 0) - node->objects;
		if (bytes || objects)
			r = change(reading, i, bytes, objects);
	}
	reading->state = NULL;
	return r;
}

/* A part of the log begins, or goes on after a hole. */
static int begin(void *context, size_t part, const struct hl_log_state *state)
{
	struct reading *reading = context;

	(void)part;
	reading->state = state;
	if (reading->begun)
		return 0;
	reading->begun = true;
	return take_state(reading);
}

static int visit(void *context, size_t part, const struct hl_log_interval *interval)
{
	struct reading *reading = context;
	const struct hl_log_change *changes = interval->changes;
	struct hl_report_history *report = reading->report;
	size_t count = interval->change_count, *next = &reading->next_point;

	(void)part;
	while (*next < report->point_count && report->points[*next].number < interval->number)
		++*next;
	/* Where damage has put the maximum elsewhere, it is at the interval's beginning. */
	if (*next < report->point_count && report->points[*next].number == interval->number &&
	    interval->max_tick / HL_INTERVAL_TICKS == interval->number)
		report->points[*next].ms = interval->max_tick;
	int r = keep_moments_before(reading, interval->number);
	if (r == 0 && reading->state)
		r = take_state(reading);
	for (size_t i = 0; r == 0 && i < count; i++)
		r = change(reading, changes[i].node, changes[i].max_bytes, changes[i].max_objects);
	if (r == 0 && next_moment_number(reading) == interval->number)
		r = keep_moment(reading);
	for (size_t i = 0; r == 0 && i < count; i++)
		r = change(reading, changes[i].node, changes[i].rest_bytes,
			   changes[i].rest_objects);
	return r;
}

static int end(void *context, size_t part, const struct hl_log_state *state)
{
	struct reading *reading = context;

	(void)part;
	return hl_history_names_add(reading->names, state);
}

/* Fills the moments; ${ret_names} is what the log defines. */
static int read_moments(struct hl_report_history *report, struct hl_log_state **ret_names,
			struct hl_error *err)
{
	const struct hl_history *history = report->history;
	struct reading reading = {.report = report, .names = calloc(1, sizeof(*reading.names))};
	const struct hl_log_fold fold = {&reading, begin, visit, end};
	/* On one thread the parts come one after another. */
	const struct hl_log_options options = {.jobs = 1, .progress = history->reading.progress};
	int r = -ENOMEM;

	free(report->changes);
	report->changes = NULL;
	report->change_count = 0;
	if (reading.names)
		r = hl_log_read(history->log, history->points[0].number,
				history->points[history->point_count - 1].number, &options, &fold,
				err);
	if (r == 0)
		r = keep_moments_before(&reading, UINT64_MAX);
	if (r == -EBADMSG)
		hl_error_set(err, r, "the log of '%s' is damaged: stacks do not add up",
			     history->path);
	free(reading.nodes);
	free(reading.touched);
	if (r < 0)
		hl_log_state_free(reading.names);
	else
		*ret_names = reading.names;
	return r;
}

/* ---- nodes of the profile ---- */

static int by_node(const void *left, const void *right)
{
	const struct hl_report_change *a = left, *b = right;

	return (a->node > b->node) - (a->node < b->node);
}

/* Names the changes by nodes of the profile; several nodes of the log can be one of these. */
static void rename_changes(struct hl_report_history *report, const uint32_t *node_of)
{
	const struct hl_history *history = report->history;

	for (size_t i = 0; i < report->change_count; i++) {
		uint32_t *node = &report->changes[i].node;
		*node = node_of[*node < history->log_node_count ? history->profile_nodes[*node]
								: 0];
	}
	for (size_t i = 0; i < report->moment_count; i++) {
		struct hl_report_moment *moment = &report->moments[i];
		struct hl_report_change *changes = report->changes + moment->first_change;
		size_t merged = 0;
		if (!moment->change_count)
			continue;
		qsort(changes, moment->change_count, sizeof(*changes), by_node);
		for (size_t j = 1; j < moment->change_count; j++) {
			if (changes[merged].node == changes[j].node) {
				changes[merged].bytes += changes[j].bytes;
				changes[merged].objects += changes[j].objects;
			} else {
				changes[++merged] = changes[j];
			}
		}
		moment->change_count = merged + 1;
	}
}

/* ---- all of it ---- */

int hl_report_history_init(struct hl_report_history *report, struct hl_history *history,
			   const struct hl_profile *profile, struct hl_error *err)
{
	struct hl_log_state *names = NULL;
	HL_FREED uint32_t *node_of = NULL;
	size_t most = HL_REPORT_MOMENTS_MAX;

	*report = (struct hl_report_history){.history = history};
	int r = make_points(report);
	/* As many moments as there is room for their changes. */
	while (r == 0 && !names) {
		r = choose_moments(report, most);
		if (r == 0)
			r = read_moments(report, &names, err);
		most /= 2;
		if (report->change_count > CHANGES_MAX && most > 0)
			hl_log_state_free(HL_TAKE(names));
	}
	if (r == 0)
		r = hl_history_name(history, names, err);
	hl_log_state_free(names);
	if (r == 0)
		r = hl_profile_join_stacks(profile, history->profile, &report->profile, &node_of,
					   err);
	if (r == 0)
		rename_changes(report, node_of);
	return r == -ENOMEM ? hl_error_set(err, r, "cannot read '%s': out of memory", history->path)
			    : r;
}

void hl_report_history_release(struct hl_report_history *report)
{
	hl_profile_free(report->profile);
	free(report->points);
	free(report->moments);
	free(report->changes);
	*report = (struct hl_report_history){0};
}
