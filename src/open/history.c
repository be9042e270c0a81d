/* SPDX-License-Identifier: BSD-2-Clause */
/* A log as the history of its process: its range, profiles of moments, hills and series; see history.h. */
#include "open/history.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/compiler.h"
#include "open/open.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the range ---- */

static int choose_range(struct hl_history *history, const struct hl_history_range *range,
			struct hl_error *err)
{
	const struct hl_log *log = history->log;

	uint64_t log_first = log->points[0].number;
	uint64_t log_last = log->points[log->point_count - 1].number;
	uint64_t first = range->first_ms / HL_INTERVAL_TICKS;
	uint64_t last = range->last_ms / HL_INTERVAL_TICKS;
	if (first > log_last || last < log_first)
		return hl_error_set(err, -ERANGE,
				    "%llu to %llu ms are not in the log of '%s', which holds %llu "
				    "to %llu ms",
				    (unsigned long long)range->first_ms,
				    (unsigned long long)range->last_ms, history->path,
				    (unsigned long long)log_first * HL_INTERVAL_TICKS,
				    (unsigned long long)(log_last + 1) * HL_INTERVAL_TICKS - 1);
	if (first < log_first)
		first = log_first;
	if (last > log_last)
		last = log_last;
	history->points = &log->points[first - log_first];
	history->point_count = (size_t)(last - first + 1);
	return 0;
}

/* ---- the profile ---- */

int hl_history_name(struct hl_history *history, const struct hl_log_state *state,
		    struct hl_error *err)
{
	struct hl_profile_selection selection = {.progress = history->reading.progress};
	struct hl_profile_counters total = {0};
	struct hl_profile *profile;
	uint32_t *nodes;

	int r = hl_moment_profile(&history->source, history->process, state, &selection, &profile,
				  &nodes, err);
	if (r < 0)
		return r;
	const struct hl_node_ids follow = {nodes, state->node_count};
	r = history->filter ? hl_filter_apply(history->filter, profile, &follow, err) : 0;
	if (r == 0 && history->profile) /* it may have been given another name than its path */
		r = hl_strings_intern(&profile->strings,
				      hl_profile_text(history->profile, history->profile->name),
				      &profile->name);
	if (r < 0) {
		hl_profile_free(profile);
		free(nodes);
		return r;
	}
	hl_profile_free(history->profile);
	free(history->profile_nodes);
	history->profile = profile;
	history->profile_nodes = nodes;
	history->log_node_count = state->node_count;
	hl_progress_report(history->reading.progress, "naming functions", 1, 1);
	/* Of the memory in use, the timeline tells the bytes alone. */
	for (size_t i = 0; i < history->point_count; i++)
		if (history->points[i].max_bytes > total.peak_bytes)
			total.peak_bytes = history->points[i].max_bytes;
	total.alloc_bytes = history->points[history->point_count - 1].end_bytes;
	profile->total = profile->unfiltered_total = total;
	memset(profile->known, 0, sizeof(profile->known));
	profile->known[HL_VALUE_INUSE][HL_UNIT_BYTES] = true;
	profile->known[HL_VALUE_PEAK][HL_UNIT_BYTES] = true;
	profile->lost_log_events = history->log->lost_events;
	return 0;
}

/* ---- opening ---- */

int hl_history_open(const char *path, const struct hl_profile_selection *selection,
		    const struct hl_history_range *range, const struct hl_filter *filter,
		    struct hl_history **ret_history, struct hl_error *err)
{
	const struct hl_log_state nothing = {0};
	struct hl_history *history = calloc(1, sizeof(*history));
	char *copy = strdup(path);

	if (!history || !copy) {
		free(history);
		free(copy);
		return hl_error_set(err, -ENOMEM, "cannot read '%s': out of memory", path);
	}
	history->path = copy;
	history->filter = filter;
	history->source = HL_LOG_SOURCE_NONE;
	history->reading =
		(struct hl_log_options){.jobs = selection->jobs, .progress = selection->progress};
	int r = hl_log_source_open(&history->source, path, err);
	if (r == 0)
		r = hl_moment_open_log(&history->source, selection, &history->process,
				       &history->log, err);
	if (r == 0)
		r = choose_range(history, range, err);
	if (r == 0)
		r = hl_history_name(history, &nothing, err);
	if (r < 0) {
		hl_history_free(history);
		return r;
	}
	history->reading.start_realtime_ns = history->process->start_realtime_ns;
	*ret_history = history;
	return 0;
}

void hl_history_free(struct hl_history *history)
{
	if (!history)
		return;
	hl_profile_free(history->profile);
	free(history->profile_nodes);
	hl_log_free(history->log);
	hl_log_source_release(&history->source);
	free(history->path);
	free(history);
}

/* ---- hills, in time that is linear in the points ---- */

#define NO_HIGHER_GROUND INT64_MIN

/* A point with no higher one after it so far, and the least bytes between it and the one before. */
struct summit {
	int64_t bytes, lowest;
};

struct summits {
	struct summit *items;
	size_t count, capacity;
};

/*
 * Takes the next point, of ${bytes}; ${lowest} is the least that was in use since the point before.
 * ${equal_hides}: an equal point counts as higher ground. Returns the deepest valley on the
 * way back to higher ground in ${ret_valley}. 0 or -ENOMEM.
 */
static int take_point(struct summits *summits, int64_t bytes, int64_t lowest, bool equal_hides,
		      int64_t *ret_valley)
{
	while (summits->count) {
		const struct summit *last = &summits->items[summits->count - 1];
		if (last->bytes > bytes || (equal_hides && last->bytes == bytes))
			break;
		if (last->lowest < lowest)
			lowest = last->lowest;
		summits->count--;
	}
	*ret_valley = summits->count ? lowest : NO_HIGHER_GROUND;
	return HL_ARRAY_APPEND(summits->items, summits->count, summits->capacity,
			       (struct summit){bytes, lowest});
}

/*
 * Finds the deepest valley on the way from each point to higher ground, before or after it,
 * whichever is less deep. Between two neighbours only the bytes at the end of the earlier one are
 * known.
 */
static int find_valleys(const struct hl_history *history, int64_t *valleys)
{
	const struct hl_log_point *points = history->points;
	size_t count = history->point_count;
	struct summits summits = {0};
	int64_t valley;
	int r = 0;

	for (size_t i = 0; r == 0 && i < count; i++)
		r = take_point(&summits, points[i].max_bytes,
			       i ? points[i - 1].end_bytes : INT64_MAX, true, &valleys[i]);
	summits.count = 0;
	for (size_t i = count; r == 0 && i-- > 0;) {
		r = take_point(&summits, points[i].max_bytes,
			       i + 1 < count ? points[i].end_bytes : INT64_MAX, false, &valley);
		if (r == 0 && valley > valleys[i])
			valleys[i] = valley;
	}
	free(summits.items);
	return r;
}

/* Notes where it was lowest from the end of point ${first} to the end of the one before ${hill}. */
static void set_valley(const struct hl_history *history, size_t first, struct hl_history_hill *hill)
{
	hill->valley = SIZE_MAX;
	hill->valley_is_known = false;
	hill->valley_bytes = 0;
	if (first == SIZE_MAX) {
		first = 0;
		/* Before the range: nothing when the process began, else the log may say. */
		if (history->points > history->log->points)
			hill->valley_bytes = history->points[-1].end_bytes;
		hill->valley_is_known =
			history->points > history->log->points || history->points[0].number == 0;
	}
	for (size_t i = first; i < hill->point; i++)
		if (!hill->valley_is_known || history->points[i].end_bytes < hill->valley_bytes) {
			hill->valley = i;
			hill->valley_bytes = history->points[i].end_bytes;
			hill->valley_is_known = true;
		}
}

int hl_history_hills(const struct hl_history *history, double percent,
		     struct hl_history_hill **ret_hills, size_t *ret_count)
{
	HL_FREED int64_t *valleys = reallocarray(NULL, history->point_count, sizeof(*valleys));
	struct hl_history_hill *hills = NULL;
	size_t count = 0, capacity = 0;

	if (!valleys || find_valleys(history, valleys) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < history->point_count; i++) {
		const struct hl_log_point *point = &history->points[i];
		int64_t fall = valleys[i] == NO_HIGHER_GROUND ? 0 : point->max_bytes - valleys[i];
		if (valleys[i] != NO_HIGHER_GROUND &&
		    (fall <= 0 || (double)fall < percent / 100 * (double)point->max_bytes))
			continue;
		if (HL_ARRAY_RESERVE(hills, capacity, count + 1) < 0) {
			free(hills);
			return -ENOMEM;
		}
		hills[count].point = i;
		set_valley(history, count ? hills[count - 1].point : SIZE_MAX, &hills[count]);
		count++;
	}
	*ret_hills = hills;
	*ret_count = count;
	return 0;
}

/* ---- series ---- */

/*
 * What keys held at the maxima of some points of a log; see history.h.
 *
 * A part of the log fills the points from its first interval to its last one. Points in between, of
 * intervals that were not written, hold what the interval before them left; so do those between
 * two parts.
 */

struct part {
	bool begun, visited;
	size_t first, next;  /* indexes of the chosen points: those that it has filled */
	int64_t *held;	     /* by key, now */
	int64_t *begin;	     /* by key, before its first interval */
	int64_t *after_hole; /* by key: what the next interval begins with, after a hole */
	bool is_after_hole;
};

struct series {
	const struct hl_history *history;
	const size_t *points;
	size_t count;
	const uint32_t *key_of;
	size_t key_count;
	int64_t *bytes; /* the result */
	struct part *parts;
	size_t part_count;
};

static uint32_t key_of_node(const struct series *series, uint32_t node)
{
	const struct hl_history *history = series->history;

	return series->key_of[node < history->log_node_count ? history->profile_nodes[node] : 0];
}

static void sum_state(const struct series *series, const struct hl_log_state *state, int64_t *held)
{
	memset(held, 0, series->key_count * sizeof(*held));
	for (uint32_t i = 1; i < state->node_count; i++)
		if (state->bytes[i])
			held[key_of_node(series, i)] += state->bytes[i];
}

static void fill(struct series *series, size_t index, const int64_t *held)
{
	memcpy(&series->bytes[index * series->key_count], held, series->key_count * sizeof(*held));
}

/* ---- one part ---- */

static int begin_part(void *context, size_t index, const struct hl_log_state *state)
{
	struct series *series = context;
	struct part *part = &series->parts[index];

	if (part->begun) {
		sum_state(series, state, part->after_hole);
		part->is_after_hole = true;
		return 0;
	}
	part->held = calloc(series->key_count, sizeof(*part->held));
	part->begin = calloc(series->key_count, sizeof(*part->begin));
	part->after_hole = calloc(series->key_count, sizeof(*part->after_hole));
	if (!part->held || !part->begin || !part->after_hole)
		return -ENOMEM;
	part->begun = true;
	sum_state(series, state, part->begin);
	memcpy(part->held, part->begin, series->key_count * sizeof(*part->held));
	return 0;
}

static uint64_t number_of(const struct series *series, size_t index)
{
	return series->history->points[series->points[index]].number;
}

static void add_changes(const struct series *series, const struct hl_log_interval *interval,
			enum hl_log_moment moment, int64_t *held)
{
	for (size_t i = 0; i < interval->change_count; i++) {
		const struct hl_log_change *change = &interval->changes[i];
		held[key_of_node(series, change->node)] +=
			moment == HL_LOG_AT_MAX ? change->max_bytes : change->rest_bytes;
	}
}

static int visit_interval(void *context, size_t index, const struct hl_log_interval *interval)
{
	struct series *series = context;
	struct part *part = &series->parts[index];

	if (!part->visited)
		part->first = part->next =
			HL_LOWER_BOUND(i, series->count, number_of(series, i) < interval->number);
	part->visited = true;
	while (part->next < series->count && number_of(series, part->next) < interval->number)
		fill(series, part->next++, part->held);
	if (part->is_after_hole)
		memcpy(part->held, part->after_hole, series->key_count * sizeof(*part->held));
	part->is_after_hole = false;
	add_changes(series, interval, HL_LOG_AT_MAX, part->held);
	if (part->next < series->count && number_of(series, part->next) == interval->number)
		fill(series, part->next++, part->held);
	add_changes(series, interval, HL_LOG_AT_END, part->held);
	return 0;
}

/* ---- the parts together ---- */

/*
 * Fills the points that no part has filled: before the first part with ${held}, or, if that is
 * NULL, with what the part began with; after each part with what it ended with.
 */
static void fill_between(struct series *series, const int64_t *held)
{
	size_t next = 0;

	for (size_t i = 0; i < series->part_count; i++) {
		const struct part *part = &series->parts[i];
		if (!part->begun)
			continue;
		if (!held)
			held = part->begin;
		while (next < part->first)
			fill(series, next++, held);
		held = part->held;
		if (next < part->next)
			next = part->next;
	}
	while (held && next < series->count)
		fill(series, next++, held);
}

static int read_parts(struct series *series, struct hl_error *err)
{
	const struct hl_history *history = series->history;
	const struct hl_log_fold fold = {series, begin_part, visit_interval, NULL};
	HL_FREED int64_t *held = NULL;

	int r = hl_log_read(history->log, history->points[0].number,
			    history->points[history->point_count - 1].number, &history->reading,
			    &fold, err);
	/* In a hole at the range's beginning the figures are those before the hole, and not those
	 * with which the first part begins. */
	if (r == 0 && history->points[0].missing) {
		struct hl_log_state *state;
		r = hl_log_state_at(history->log, history->points[0].number, HL_LOG_AT_END, &state,
				    err);
		if (r < 0)
			return r;
		held = calloc(series->key_count, sizeof(*held));
		if (held)
			sum_state(series, state, held);
		hl_log_state_free(state);
		r = held ? 0 : -ENOMEM;
	}
	if (r == 0)
		fill_between(series, held);
	return r;
}

int hl_history_series(const struct hl_history *history, const size_t *points, size_t count,
		      const uint32_t *key_of, size_t key_count, int64_t **ret_bytes,
		      struct hl_error *err)
{
	struct series series = {
		.history = history,
		.points = points,
		.count = count,
		.key_of = key_of,
		.key_count = key_count,
		.bytes = reallocarray(NULL, count * key_count + 1, sizeof(*series.bytes)),
		.part_count = history->log->segment_count,
		.parts = calloc(history->log->segment_count, sizeof(*series.parts)),
	};
	int r = series.bytes && series.parts ? read_parts(&series, err) : -ENOMEM;

	for (size_t i = 0; series.parts && i < series.part_count; i++) {
		free(series.parts[i].held);
		free(series.parts[i].begin);
		free(series.parts[i].after_hole);
	}
	free(series.parts);
	if (r < 0) {
		free(series.bytes);
		return r == -ENOMEM ? hl_error_set(err, r, "cannot read '%s': out of memory",
						   history->path)
				    : r;
	}
	*ret_bytes = series.bytes;
	return 0;
}
