/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sums up what each node held over a range of a log; see history.h.
 *
 * What a node held is constant between its changes, so sums over time are taken from one change to
 * the next: of `bytes` held from a to b, area grows by bytes * (b - a), and moment by
 * bytes * (b * b - a * a) / 2. The parts of the log are summed up on their own, each from the first
 * change of a node in it to the last one, and put together in order of time.
 */
#include "base/array.h"
#include "base/cleanup.h"
#include "open/history.h"
#include "profile/builder.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>

#define MS_PER_SECOND 1000.0

/* One node, from its first change to its last one so far. Times are ms of the range. */
struct tally {
	uint32_t node;
	uint64_t first_ms, last_ms;
	int64_t from_bytes; /* before the first change */
	double area, moment;
	double *buckets;
};

/* What one part of the log has said so far. */
struct part {
	bool begun, visited;
	bool from_nothing;		       /* in use when it begins */
	uint64_t begin_ms;		       /* of the first interval */
	const struct hl_log_state *after_hole; /* the next interval begins with it; else NULL */
	size_t node_count;		       /* of what follows */
	int64_t *bytes;			       /* now, by node */
	uint32_t *tally_of;		       /* by node; 0: it did not change */
	struct tally *tallies;
	size_t tally_count, tally_capacity;
};

struct survey {
	struct hl_history *history;
	size_t bucket_count;
	struct part *parts;
	size_t part_count;
	struct hl_log_state *hole; /* before a hole in which the range begins, else NULL */
	struct hl_log_state *names;
	pthread_mutex_t names_lock;
};

/* ---- sums over time ---- */

/* The node held ${bytes} from tally->last_ms to ${ms}. */
static void hold(struct tally *tally, const struct survey *survey, int64_t bytes, uint64_t ms)
{
	const struct hl_history *history = survey->history;
	double from = (double)tally->last_ms, to = (double)ms;
	size_t count = tally->buckets ? survey->bucket_count : 0;

	if (ms <= tally->last_ms)
		return;
	tally->area += (double)bytes * (to - from);
	tally->moment += (double)bytes * (to - from) * (to + from) / 2;
	size_t bucket = (size_t)(tally->last_ms * count / hl_history_length_ms(history));
	while (bucket + 1 < count &&
	       hl_history_bucket_ms(history, count, bucket + 1) <= tally->last_ms)
		bucket++;
	for (; tally->last_ms < ms && bucket < count; bucket++) {
		uint64_t end = hl_history_bucket_ms(history, count, bucket + 1);
		if (end > ms)
			end = ms;
		tally->buckets[bucket] += (double)bytes * (double)(end - tally->last_ms);
		tally->buckets[count + bucket] =
			fmin(tally->buckets[count + bucket], (double)bytes);
		tally->last_ms = end;
	}
	tally->last_ms = ms;
}

static double *new_buckets(size_t bucket_count)
{
	double *buckets = calloc(2 * bucket_count, sizeof(*buckets));

	for (size_t i = 0; buckets && i < bucket_count; i++)
		buckets[bucket_count + i] = INFINITY; /* nothing was seen yet */
	return buckets;
}

/* ---- one part ---- */

static int reserve_nodes(struct part *part, size_t count)
{
	size_t old = part->node_count;

	if (count <= old)
		return 0;
	if (count < old * 2)
		count = old * 2;
	int64_t *bytes = reallocarray(part->bytes, count, sizeof(*bytes));
	if (!bytes)
		return -ENOMEM;
	part->bytes = bytes;
	uint32_t *tally_of = reallocarray(part->tally_of, count, sizeof(*tally_of));
	if (!tally_of)
		return -ENOMEM;
	part->tally_of = tally_of;
	memset(bytes + old, 0, (count - old) * sizeof(*bytes));
	memset(tally_of + old, 0, (count - old) * sizeof(*tally_of));
	part->node_count = count;
	return 0;
}

static int change(struct part *part, const struct survey *survey, uint32_t node, int64_t bytes,
		  uint64_t ms)
{
	if (!bytes)
		return 0;
	if (reserve_nodes(part, (size_t)node + 1) < 0)
		return -ENOMEM;
	if (!part->tally_of[node]) {
		struct tally tally = {.node = node,
				      .first_ms = ms,
				      .last_ms = ms,
				      .from_bytes = part->bytes[node],
				      .buckets = new_buckets(survey->bucket_count)};
		if (!tally.buckets || HL_ARRAY_APPEND(part->tallies, part->tally_count,
						      part->tally_capacity, tally) < 0) {
			free(tally.buckets);
			return -ENOMEM;
		}
		part->tally_of[node] = (uint32_t)part->tally_count;
	}
	hold(&part->tallies[part->tally_of[node] - 1], survey, part->bytes[node], ms);
	part->bytes[node] += bytes;
	return 0;
}

/* It is unknown when things changed within the hole; its end is assumed. */
static int close_hole(struct part *part, const struct survey *survey, uint64_t ms)
{
	const struct hl_log_state *state = part->after_hole;
	int r = reserve_nodes(part, state->node_count);

	for (uint32_t i = 1; r == 0 && i < part->node_count; i++) {
		int64_t now = i < state->node_count ? state->bytes[i] : 0;
		r = change(part, survey, i, now - part->bytes[i], ms);
	}
	part->after_hole = NULL;
	return r;
}

static int begin_part(void *context, size_t index, const struct hl_log_state *state)
{
	struct survey *survey = context;
	struct part *part = &survey->parts[index];

	if (part->begun) {
		part->after_hole = state;
		return 0;
	}
	part->begun = true;
	part->from_nothing = !state->total_bytes;
	if (reserve_nodes(part, state->node_count) < 0)
		return -ENOMEM;
	if (state->node_count)
		memcpy(part->bytes, state->bytes, state->node_count * sizeof(*part->bytes));
	return 0;
}

static int visit_interval(void *context, size_t index, const struct hl_log_interval *interval)
{
	const struct survey *survey = context;
	struct part *part = &survey->parts[index];
	uint64_t start = hl_history_start_ms(survey->history);
	uint64_t begin = interval->number * HL_INTERVAL_TICKS - start;
	uint64_t end = begin + HL_INTERVAL_TICKS, max = interval->max_tick - start;
	/* Where the log begins after the process did, its first interval has what was in use then.
	 */
	bool is_beginning = interval->number > 0 && part->from_nothing &&
			    interval->number == survey->history->log->points[0].number;
	int r = 0;

	if (!part->visited)
		part->begin_ms = begin;
	part->visited = true;
	if (interval->max_tick < begin + start || max > end)
		max = end; /* only damage can bring it */
	if (part->after_hole)
		r = close_hole(part, survey, begin);
	for (size_t i = 0; r == 0 && i < interval->change_count; i++) {
		const struct hl_log_change *one = &interval->changes[i];
		if (is_beginning) {
			r = reserve_nodes(part, (size_t)one->node + 1);
			if (r == 0)
				part->bytes[one->node] += one->max_bytes + one->rest_bytes;
			continue;
		}
		r = change(part, survey, one->node, one->max_bytes, max);
		if (r == 0)
			r = change(part, survey, one->node, one->rest_bytes, end);
	}
	return r;
}

static int end_part(void *context, size_t index, const struct hl_log_state *state)
{
	struct survey *survey = context;

	(void)index;
	pthread_mutex_lock(&survey->names_lock);
	int r = hl_history_names_add(survey->names, state);
	pthread_mutex_unlock(&survey->names_lock);
	return r;
}

/* ---- the parts together ---- */

static int64_t first_bytes(const struct part *part, uint32_t node)
{
	if (node >= part->node_count)
		return 0;
	return part->tally_of[node] ? part->tallies[part->tally_of[node] - 1].from_bytes
				    : part->bytes[node];
}

/*
 * Goes on with ${part}: ${whole} is one node's tally of the range up to the part before, ${now}
 * what the node held then. Changes in a hole between the parts are taken to have happened at its
 * end.
 */
static int join_node(struct tally *whole, int64_t *now, const struct survey *survey,
		     struct part *part, uint32_t node)
{
	int64_t first = first_bytes(part, node);
	struct tally *more = node < part->node_count && part->tally_of[node]
				     ? &part->tallies[part->tally_of[node] - 1]
				     : NULL;

	if (!more && first == *now)
		return 0;
	if (!whole->buckets) {
		whole->buckets = more ? HL_TAKE(more->buckets) : new_buckets(survey->bucket_count);
		if (!whole->buckets)
			return -ENOMEM;
	} else if (more) {
		for (size_t i = 0; i < survey->bucket_count; i++) {
			size_t least = survey->bucket_count + i;
			whole->buckets[i] += more->buckets[i];
			whole->buckets[least] = fmin(whole->buckets[least], more->buckets[least]);
		}
	}
	if (first != *now)
		hold(whole, survey, *now, part->begin_ms);
	*now = first;
	if (!more)
		return 0;
	hold(whole, survey, *now, more->first_ms);
	whole->area += more->area;
	whole->moment += more->moment;
	whole->last_ms = more->last_ms;
	*now = part->bytes[node];
	return 0;
}

/* What one node held over the whole range. */
static int join_parts(const struct survey *survey, uint32_t node, struct hl_history_sum *ret_sum)
{
	struct tally whole = {.node = node};
	const struct hl_log_state *hole = survey->hole;
	int64_t from = hole && node < hole->node_count ? hole->bytes[node] : 0, now = from;
	bool begun = hole;
	int r = 0;

	for (size_t i = 0; r == 0 && i < survey->part_count; i++) {
		struct part *part = &survey->parts[i];
		if (!part->begun)
			continue;
		if (!begun)
			now = from = first_bytes(part, node);
		begun = true;
		r = join_node(&whole, &now, survey, part, node);
	}
	hold(&whole, survey, now, hl_history_length_ms(survey->history));
	*ret_sum = (struct hl_history_sum){from, now, whole.area, whole.moment, whole.buckets};
	return r;
}

/* ---- nodes of the profile ---- */

static void add_constant(double *buckets, const struct hl_history *history, size_t bucket_count,
			 int64_t bytes)
{
	for (size_t i = 0; i < bucket_count; i++) {
		buckets[i] += (double)bytes *
			      (double)(hl_history_bucket_ms(history, bucket_count, i + 1) -
				       hl_history_bucket_ms(history, bucket_count, i));
		buckets[bucket_count + i] += (double)bytes;
	}
}

int hl_history_survey_add_sum(struct hl_history_sum *sum, const struct hl_history_sum *more,
			      const struct hl_history *history, size_t bucket_count)
{
	if (more->buckets && !sum->buckets) {
		sum->buckets = calloc(2 * bucket_count, sizeof(*sum->buckets));
		if (!sum->buckets)
			return -ENOMEM;
		add_constant(sum->buckets, history, bucket_count, sum->from_bytes);
	}
	for (size_t i = 0; more->buckets && i < 2 * bucket_count; i++)
		sum->buckets[i] += more->buckets[i];
	if (sum->buckets && !more->buckets)
		add_constant(sum->buckets, history, bucket_count, more->from_bytes);
	sum->from_bytes += more->from_bytes;
	sum->to_bytes += more->to_bytes;
	sum->area += more->area;
	sum->moment += more->moment;
	return 0;
}

static int add_nodes(struct hl_history_survey *result, const struct survey *survey)
{
	const struct hl_history *history = survey->history;
	int r = 0;

	result->bucket_count = survey->bucket_count;
	result->sum_count = history->profile->node_count;
	result->sums = calloc(result->sum_count, sizeof(*result->sums));
	if (!result->sums)
		return -ENOMEM;
	for (uint32_t i = 1; r == 0 && i < history->log_node_count; i++) {
		uint32_t profile_node = history->profile_nodes[i];
		struct hl_history_sum sum;
		if (profile_node == HL_NODE_LEFT_OUT)
			continue;
		r = join_parts(survey, i, &sum);
		if (r == 0)
			r = hl_history_survey_add_sum(&result->sums[profile_node], &sum, history,
						      survey->bucket_count);
		free(sum.buckets);
	}
	return r;
}

/* ---- all of it ---- */

static int read_parts(struct survey *survey, struct hl_error *err)
{
	const struct hl_history *history = survey->history;
	const struct hl_log_fold fold = {survey, begin_part, visit_interval, end_part};

	int r = hl_log_read(history->log, history->points[0].number,
			    history->points[history->point_count - 1].number, &history->reading,
			    &fold, err);
	/* In a hole at the range's beginning, what was in use before the hole counts until the
	 * first part begins. */
	if (r == 0 && history->points[0].missing) {
		r = hl_log_state_at(history->log, history->points[0].number, HL_LOG_AT_END,
				    &survey->hole, err);
		if (r == 0)
			r = hl_history_names_add(survey->names, survey->hole);
	}
	if (r < 0)
		return r;
	/* The profile has what the nodes hold at the range's end. */
	const struct part *last = &survey->parts[survey->part_count - 1];
	while (last > survey->parts && !last->begun)
		last--;
	for (size_t node = 0; last->begun && node < survey->names->node_count; node++)
		survey->names->bytes[node] = node < last->node_count ? last->bytes[node] : 0;
	return 0;
}

int hl_history_survey_init(struct hl_history_survey *result, struct hl_history *history,
			   size_t bucket_count, struct hl_error *err)
{
	struct survey survey = {
		.history = history,
		.bucket_count = bucket_count,
		.part_count = history->log->segment_count,
		.parts = calloc(history->log->segment_count, sizeof(*survey.parts)),
		.names = calloc(1, sizeof(*survey.names)),
		.names_lock = PTHREAD_MUTEX_INITIALIZER,
	};
	int r = -ENOMEM;

	*result = (struct hl_history_survey){0};
	if (survey.parts && survey.names)
		r = read_parts(&survey, err);
	if (r == 0)
		r = hl_history_name(history, survey.names, err);
	if (r == 0)
		r = add_nodes(result, &survey);
	for (size_t i = 0; survey.parts && i < survey.part_count; i++) {
		struct part *part = &survey.parts[i];
		for (size_t at = 0; at < part->tally_count; at++)
			free(part->tallies[at].buckets);
		free(part->tallies);
		free(part->tally_of);
		free(part->bytes);
	}
	free(survey.parts);
	hl_log_state_free(survey.hole);
	hl_log_state_free(survey.names);
	return r == -ENOMEM ? hl_error_set(err, r, "cannot read '%s': out of memory", history->path)
			    : r;
}

void hl_history_survey_release(struct hl_history_survey *survey)
{
	for (size_t i = 0; i < survey->sum_count && survey->sums; i++)
		free(survey->sums[i].buckets);
	free(survey->sums);
	*survey = (struct hl_history_survey){0};
}

/*
 * With n ms, the line through bytes(t) at every t from 0 to n rises by
 * (moment - mean t * area) / (sum of squares of t - mean t).
 */
double hl_history_survey_slope(const struct hl_history_sum *sum, const struct hl_history *history)
{
	double length = (double)hl_history_length_ms(history);

	return 12 * (sum->moment - length / 2 * sum->area) / (length * length * length) *
	       MS_PER_SECOND;
}
