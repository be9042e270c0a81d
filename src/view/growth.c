/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline growth: what rises steadily over a log. */
#include "view/growth.h"

#include "view/format.h"
#include "view/rows.h"
#include "view/summary.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- sums of nodes by key ---- */

#define PEAK_PARTS 10000 /* a rise of less than one of them is too small to matter */

#define LATE_RISE_PARTS \
	5 /* the last quarter has one of them at least of what rises in the later half */

/* Of the end of a process. */
#define TEARDOWN_PARTS	    4	/* a quarter of the range at most */
#define TEARDOWN_RISE_PARTS 100 /* less than one of them of what is freed is allocated again */
#define SWING_PARTS	    50	/* a fall of less than one of them hides no rise */

/* Intervals at the end in which next to nothing is freed any more: the last one is often empty. */
#define FALL_PAUSE_MAX 1

/* ---- judging ---- */

/* The floor from ${part} on, of ${width} parts. */
static double floor_of(const double *least, size_t part, size_t width)
{
	double lowest = least[part];

	for (size_t i = 1; i < width; i++)
		lowest = fmin(lowest, least[part + i]);
	return lowest;
}

/* The score by floors of ${width} parts. */
static double score_of_floors(const double *least, size_t count, size_t width)
{
	double floors[HL_GROWTH_BUCKETS_MAX], movement = 0, largest = 0;
	double lowest = INFINITY, highest = -INFINITY;
	size_t middle = count / 2 - 1, quarter = count - count / 4 - 1, last = count - width;

	for (size_t i = 0; i <= last; i++)
		floors[i] = floor_of(least, i, width);
	double steps = (double)(last - middle), rise = floors[last] - floors[middle];
	double late_rise = floors[last] - floors[quarter];
	if (rise <= 0 || late_rise <= 0)
		return 0;
	for (size_t i = middle; i < last; i++) {
		movement += fabs(floors[i + 1] - floors[i]);
		largest = fmax(largest, floors[i + 1] - floors[i]);
	}
	for (size_t i = middle; i < count; i++) {
		lowest = fmin(lowest, least[i]);
		highest = fmax(highest, least[i]);
	}
	double steadiness = rise / movement;
	double lateness = fmin(1, late_rise / rise * steps / (double)(last - quarter));
	double spread = fmax(0, 1 - 2 * (largest / rise - 1 / steps));
	double clearness = fmin(1, 10 * rise / (highest - lowest));
	return steadiness * lateness * spread * clearness;
}

double hl_growth_rows_score(const double *least, size_t count)
{
	double score = 0;

	if (count < HL_GROWTH_BUCKETS_MIN)
		return 0;
	for (size_t width = 1; width <= count / HL_GROWTH_BUCKETS_MIN; width *= 2)
		score = fmax(score, score_of_floors(least, count, width));
	return score;
}

double hl_growth_rows_rise(const double *least, size_t count)
{
	size_t width = count / HL_GROWTH_BUCKETS_MIN;
	double highest = 0;

	if (!width)
		return 0;
	for (size_t i = count / 2 - 1; i < count; i++)
		highest = fmax(highest, least[i]);
	double last = floor_of(least, count - width, width);
	double rise = last - floor_of(least, count / 2 - 1, width);
	double late_rise = last - floor_of(least, count - count / 4 - 1, width);
	return rise > 0 && late_rise >= rise / LATE_RISE_PARTS ? rise / highest : 0;
}

static struct hl_growth_row judge(const struct hl_history_sum *sum,
				  const struct hl_history *history, size_t bucket_count)
{
	const double *least = &sum->buckets[bucket_count];
	bool weighs = (least[bucket_count - 1] - least[bucket_count / 2]) * PEAK_PARTS >=
		      (double)history->profile->total.peak_bytes;
	struct hl_growth_row row = {
		.slope = hl_history_survey_slope(sum, history),
		.score = weighs ? hl_growth_rows_score(least, bucket_count) : 0,
		.steps = bucket_count > 1 ? bucket_count - 1 : 1,
		.from_bytes = sum->from_bytes,
		.to_bytes = sum->to_bytes,
	};

	for (size_t i = 1; i < bucket_count; i++)
		row.rose += least[i] > least[i - 1];
	row.per_second = llround(row.slope);
	row.per_hour = llround(row.slope * 3600);
	row.score_permille = llround(row.score * 1000);
	row.steady_percent = llround(row.score * 100);
	row.rose_percent = (int64_t)((row.rose * 100 + row.steps / 2) / row.steps);
	return row;
}

static int steady_and_fast_first(const void *left, const void *right)
{
	const struct hl_growth_row *a = left, *b = right;
	bool a_steady = a->score >= HL_GROWTH_STEADY, b_steady = b->score >= HL_GROWTH_STEADY;
	int by_name = strcmp(a->label.name, b->label.name);

	if (a_steady != b_steady)
		return a_steady ? -1 : 1;
	if (a->slope != b->slope)
		return a->slope < b->slope ? 1 : -1;
	return by_name ? by_name : (a->id > b->id) - (a->id < b->id);
}

/* ---- rows ---- */

static int fill(struct hl_growth_rows *rows, const struct hl_history *history,
		const struct hl_history_survey *survey, const struct hl_view_options *options)
{
	int r = hl_keys_init(&rows->keys, history->profile, options->by, HL_VALUE_INUSE,
			     HL_UNIT_BYTES, true);

	if (r < 0)
		return r;
	size_t count = rows->keys.count;
	struct hl_history_sum *sums = calloc(count, sizeof(*sums)), total = {0};
	rows->rows = calloc(count, sizeof(*rows->rows));
	r = sums && rows->rows ? 0 : -ENOMEM;
	for (uint32_t i = 0; r == 0 && i < survey->sum_count; i++)
		r = hl_history_survey_add_sum(
			&sums[hl_keys_of_node(&rows->keys, history->profile, i)], &survey->sums[i],
			history, rows->bucket_count);
	for (uint32_t key = 0; r == 0 && key < count; key++) {
		r = hl_history_survey_add_sum(&total, &sums[key], history, rows->bucket_count);
		if (r < 0 || !sums[key].buckets)
			continue;
		struct hl_growth_row row = judge(&sums[key], history, rows->bucket_count);
		if (row.slope <= 0)
			continue;
		row.id = key;
		row.label = hl_keys_label(&rows->keys, history->profile, key);
		rows->rows[rows->count++] = row;
	}
	if (r == 0 && total.buckets) {
		struct hl_growth_row row = judge(&total, history, rows->bucket_count);
		rows->slope = row.slope;
		rows->score = row.score;
		rows->rise =
			hl_growth_rows_rise(&total.buckets[rows->bucket_count], rows->bucket_count);
	}
	if (r == 0)
		qsort(rows->rows, rows->count, sizeof(*rows->rows), steady_and_fast_first);
	free(total.buckets);
	for (size_t i = 0; sums && i < count; i++)
		free(sums[i].buckets);
	free(sums);
	return r;
}

/* ---- the end of the process ---- */

/*
 * The last maximum of the last part of the range after which hardly anything is allocated, against
 * what is freed: the program is on its way out. The last point if there is none.
 */
static size_t find_maximum(const struct hl_log_point *points, size_t count, size_t earliest)
{
	int64_t end = points[count - 1].end_bytes, highest = end, rises = 0;
	size_t maximum = count - 1;

	for (size_t i = count - 1; i >= earliest; i--) {
		int64_t before = points[i - 1].end_bytes;
		if (points[i].end_bytes > before)
			rises += points[i].end_bytes - before;
		if (before <= highest)
			continue;
		highest = before;
		if (rises <= (highest - end) / TEARDOWN_RISE_PARTS)
			maximum = i - 1;
	}
	return maximum;
}

/* Whether memory is freed until the end, or more than half of it before. Otherwise the program may
 * have gone on with less. */
static bool fall_ends_process(const struct hl_log_point *points, size_t count, size_t maximum)
{
	int64_t highest = points[maximum].end_bytes, end = points[count - 1].end_bytes;
	size_t last = count - 1;

	if (end < highest / 2)
		return true;
	while (last > maximum &&
	       points[last - 1].end_bytes - points[last].end_bytes < (highest - end) / SWING_PARTS)
		last--;
	return count - 1 - last <= FALL_PAUSE_MAX;
}

/* Whether the fall from point ${first} on could hide a rise before it. */
static bool fall_matters(const struct hl_log_point *points, size_t count, size_t first)
{
	int64_t fall = points[first - 1].end_bytes - points[count - 1].end_bytes, peak = 0;
	int64_t lowest = INT64_MAX, highest = 0;

	for (size_t i = 0; i < count; i++)
		if (points[i].max_bytes > peak)
			peak = points[i].max_bytes;
	for (size_t i = first / 2; i < first; i++) {
		if (points[i].end_bytes < lowest)
			lowest = points[i].end_bytes;
		if (points[i].end_bytes > highest)
			highest = points[i].end_bytes;
	}
	return fall >= peak / PEAK_PARTS && fall >= (highest - lowest) / SWING_PARTS;
}

size_t hl_growth_rows_before_end(const struct hl_log_point *points, size_t count)
{
	size_t earliest = count - count / TEARDOWN_PARTS;

	if (earliest < HL_GROWTH_BUCKETS_MIN)
		earliest = HL_GROWTH_BUCKETS_MIN;
	if (count <= earliest)
		return count;
	size_t maximum = find_maximum(points, count, earliest);
	return maximum < count - 1 && fall_matters(points, count, maximum + 1) &&
			       fall_ends_process(points, count, maximum)
		       ? maximum + 1
		       : count;
}

int hl_growth_rows_init(struct hl_growth_rows *rows, struct hl_history *history,
			const struct hl_view_options *options, struct hl_error *err)
{
	const struct hl_log *log = history->log;
	bool has_end = history->process->end != HL_END_RUNNING &&
		       history->points + history->point_count == log->points + log->point_count;
	size_t point_count = history->point_count;
	struct hl_history_survey survey;

	if (has_end)
		point_count = hl_growth_rows_before_end(history->points, point_count);
	*rows = (struct hl_growth_rows){
		.bucket_count = point_count,
		.left_out_ms = (history->point_count - point_count) * HL_INTERVAL_TICKS,
	};
	if (rows->left_out_ms)
		rows->left_out_bytes = history->points[point_count - 1].end_bytes -
				       history->points[history->point_count - 1].end_bytes;
	history->point_count = point_count;
	if (rows->bucket_count > HL_GROWTH_BUCKETS_MAX)
		rows->bucket_count = HL_GROWTH_BUCKETS_MAX;
	int r = hl_history_survey_init(&survey, history, rows->bucket_count, err);
	if (r == 0) {
		r = fill(rows, history, &survey, options);
		if (r < 0)
			hl_error_set(err, r, "cannot show '%s': %s", history->path, strerror(-r));
	}
	hl_history_survey_release(&survey);
	if (r < 0)
		hl_growth_rows_release(rows);
	return r;
}

void hl_growth_rows_release(struct hl_growth_rows *rows)
{
	hl_keys_release(&rows->keys);
	free(rows->rows);
	*rows = (struct hl_growth_rows){0};
}

/* ---- the view ---- */

#define ROWS_DEFAULT	 20
#define SECONDS_PER_HOUR 3600
#define PERCENT		 100
#define NS_PER_MS	 1000000u

struct growth {
	struct hl_history *history;
	const struct hl_view_options *options;
	struct hl_growth_rows rows;
	size_t grew;		   /* rows, with those that are left out */
	size_t steady;		   /* of these; they come first */
	bool may_leak;		   /* there is a leak, or it is not known */
	struct hl_stack_path path; /* by stack */
};

/* "1.5 KiB/s"; by the hour where that would round to nothing. */
static const char *format_slope(double slope, char buffer[HL_FORMAT_MAX])
{
	bool by_hour = slope < 1;

	hl_format_bytes(llround(by_hour ? slope * SECONDS_PER_HOUR : slope), buffer);
	return strcat(buffer, by_hour ? "/h" : "/s");
}

static void slope(struct hl_emit *emit, const void *row, const void *context)
{
	char text[HL_FORMAT_MAX];

	(void)context;
	hl_cell_text(emit, format_slope(((const struct hl_growth_row *)row)->slope, text));
}

/* Facts of the table: */
enum {
	BY_STACK = 1,
	BY_STACK_SHORT = 2,
	BY_STACK_FULL = 4,
	BY_NAME = 8,
};

#define MEMBER(name) HL_MEMBER(struct hl_growth_row, name)
#define ROSE	     HL_MEMBER_SHARE(struct hl_growth_row, rose, steps)
#define AT	     HL_MEMBER_CELL(struct hl_growth_row, label, hl_keys_cell_place)
#define STACK(what)  HL_MEMBER_CELL(struct hl_growth_row, id, hl_stack_path_cell_##what)
#define PLACE	     HL_COLUMN_SHORTENED | HL_COLUMN_PATH
#define NAME	     HL_COLUMN_SHORTENED | HL_COLUMN_NAMES | HL_COLUMN_KEY
#define OMITTED	     HL_COLUMN_OMITTED

static const struct hl_column columns[] = {
	{NULL, "growth", HL_COLUMN_TEXT, .cell = slope},
	{"bytes_per_second", NULL, HL_COLUMN_BYTES, MEMBER(per_second)},
	{"bytes_per_hour", NULL, HL_COLUMN_BYTES, MEMBER(per_hour)},
	{NULL, "leak score", HL_COLUMN_SHARE, MEMBER(score_permille), OMITTED},
	{"steady_percent", NULL, HL_COLUMN_COUNT, MEMBER(steady_percent)},
	{"from_bytes", "from", HL_COLUMN_BYTES, MEMBER(from_bytes), OMITTED},
	{"to_bytes", "to", HL_COLUMN_BYTES, MEMBER(to_bytes), OMITTED},
	{NULL, "time rising", HL_COLUMN_SHARE, ROSE, OMITTED},
	{"rose_percent", NULL, HL_COLUMN_COUNT, MEMBER(rose_percent)},
	{NULL, "where", HL_COLUMN_TEXT, AT, .flags = PLACE},
	{NULL, "function", HL_COLUMN_TEXT, MEMBER(label.name), NAME, BY_NAME},
	{NULL, "stack, from its leaf", HL_COLUMN_TEXT, STACK(line), .flags = NAME,
	 .shown_if = BY_STACK_SHORT},
	{NULL, "stack, from its leaf", HL_COLUMN_TEXT, STACK(line), .shown_if = BY_STACK_FULL},
	{"name", NULL, HL_COLUMN_TEXT, MEMBER(label.name)},
	{"file", NULL, HL_COLUMN_TEXT, MEMBER(label.file)},
	{"line", NULL, HL_COLUMN_COUNT, MEMBER(label.line)},
	{"module", NULL, HL_COLUMN_TEXT, MEMBER(label.module)},
	{"stack", NULL, HL_COLUMN_STACK, STACK(names), .shown_if = BY_STACK},
	{"frames", NULL, HL_COLUMN_FRAMES, STACK(frames), .shown_if = BY_STACK},
};

static void write_rows(struct hl_emit *emit, struct growth *growth)
{
	const struct hl_view_options *options = growth->options;
	const struct hl_growth_rows *rows = &growth->rows;
	bool is_listed = options->json || growth->may_leak,
	     by_stack = options->by == HL_VIEW_BY_STACK;
	size_t shown =
		is_listed ? hl_emit_shown(emit, options->row_limit, ROWS_DEFAULT, rows->count) : 0;
	size_t left_out = growth->grew - rows->count;
	char count[HL_FORMAT_MAX];

	hl_stack_path_begin_table(&growth->path);
	for (size_t i = 0; by_stack && i < shown; i++)
		if (hl_stack_path_add(&growth->path, rows->rows[i].id) < 0)
			hl_emit_fail(emit, -ENOMEM);
	if (!shown && !options->json)
		return;
	unsigned facts =
		!by_stack ? BY_NAME : BY_STACK | (options->full ? BY_STACK_FULL : BY_STACK_SHORT);
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", columns), .context = &growth->path,
						.facts = facts, .sum = 1000 /* permille */});
	for (size_t i = 0; i < shown; i++)
		hl_table_row(emit, &rows->rows[i], i < growth->steady ? HL_EMIT_HEAVIEST : 0);
	hl_table_end(emit);
	if (shown)
		hl_emit_more(emit, rows->count - shown, "-n");
	if (left_out)
		hl_emit_line(emit, "%s with a leak score of 0 left out; --json has %s",
			     hl_format_count(left_out, count), left_out == 1 ? "it" : "them");
}

static void write_explanation(struct hl_emit *emit, const struct growth *growth)
{
	const struct hl_growth_rows *rows = &growth->rows;
	const char *by = hl_keys_by_names[growth->options->by],
		   *plural = growth->grew == 1 ? "" : "s";
	char text[HL_FORMAT_MAX], freed[HL_FORMAT_MAX];

	if (rows->left_out_ms)
		hl_emit_line(emit, "the last %s, in which %s were freed, left out",
			     hl_format_duration(rows->left_out_ms * NS_PER_MS, text),
			     hl_format_bytes(rows->left_out_bytes, freed));
	if (!hl_profile_counters_any(&growth->history->profile->total))
		hl_emit_line(emit, "nothing was counted, so that it is not known what grew");
	else if (!growth->may_leak)
		hl_emit_line(emit, "nothing grew steadily to the end; no leak seen");
	else if (rows->bucket_count < HL_GROWTH_BUCKETS_MIN)
		hl_emit_line(emit,
			     "%zu %s%s grew, but less than a second is too short to judge how "
			     "steadily",
			     growth->grew, by, plural);
	else if (!growth->steady && rows->score < HL_GROWTH_STEADY)
		hl_emit_line(
			emit,
			"memory in use rose in the later half, by %.0f %% of its peak, but not "
			"steadily: a longer recording shows whether it is a leak; these grew most",
			rows->rise * PERCENT);
	else if (!growth->steady)
		hl_emit_line(emit,
			     "memory in use grows steadily, by %s, but no %s alone does; these "
			     "grew most",
			     format_slope(rows->slope, text), by);
	else
		hl_emit_line(emit,
			     "%zu of %zu %s%s that grew did so steadily to the end, as leaks do%s",
			     growth->steady, growth->grew, by, plural,
			     growth->steady < rows->count ? "; they come first" : "");
	hl_emit_blank(emit);
}

int hl_growth_view(struct hl_history *history, const struct hl_view_options *options,
		   struct hl_error *err)
{
	struct growth growth = {.history = history, .options = options};
	struct hl_growth_rows *rows = &growth.rows;
	struct hl_emit *emit;

	int r = hl_growth_rows_init(rows, history, options, err);
	if (r < 0)
		return r;
	while (growth.steady < rows->count && rows->rows[growth.steady].score >= HL_GROWTH_STEADY)
		growth.steady++;
	growth.may_leak = growth.steady || rows->score >= HL_GROWTH_STEADY ||
			  rows->rise >= HL_GROWTH_RISE ||
			  (rows->bucket_count < HL_GROWTH_BUCKETS_MIN && rows->count);
	growth.grew = rows->count;
	if (!options->json && growth.steady) {
		/* Beside leaks, rows that look nothing like one are noise. */
		rows->count = 0;
		for (size_t i = 0; i < growth.grew; i++)
			if (rows->rows[i].score_permille)
				rows->rows[rows->count++] = rows->rows[i];
	}
	if (options->by == HL_VIEW_BY_STACK)
		r = hl_stack_path_init(&growth.path, history->profile, &rows->keys.tree);
	growth.path.full = options->full;
	if (r == 0)
		r = hl_history_head_begin(history, options, "growth/1", &emit);
	if (r == 0) {
		hl_emit_text(emit, "by", hl_keys_by_names[options->by]);
		hl_emit_integer(emit, "total_bytes_per_second", llround(rows->slope));
		hl_emit_integer(emit, "total_steady_percent", lround(rows->score * PERCENT));
		hl_emit_integer(emit, "total_rise_percent", lround(rows->rise * PERCENT));
		hl_emit_integer(emit, "left_out_ms", rows->left_out_ms);
		hl_emit_integer(emit, "left_out_bytes", rows->left_out_bytes);
		write_explanation(emit, &growth);
		write_rows(emit, &growth);
		r = hl_summary_end(emit, history->profile);
	}
	hl_stack_path_release(&growth.path);
	hl_growth_rows_release(rows);
	return r < 0 ? hl_history_head_fail(history, r, err) : 0;
}
