/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What keys held at the maxima of some points of a log; see history.h.
 *
 * A part of the log fills the points from its first interval to its last one. Points in between, of
 * intervals that were not written, hold what the interval before them left; so do those between
 * two parts.
 */
#include "open/history.h"

#include "base/cleanup.h"
#include "base/compiler.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
