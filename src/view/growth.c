/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline growth: what rises steadily over a log. */
#include "view/format.h"
#include "view/growth_rows.h"
#include "view/history_head.h"
#include "view/rows.h"
#include "view/stack_path.h"
#include "view/summary.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_DEFAULT	 20
#define SECONDS_PER_HOUR 3600
#define PERCENT		 100
#define NS_PER_MS	 1000000u

static const char *const by_names[] = {
	[HL_VIEW_BY_STACK] = "stack",
	[HL_VIEW_BY_FUNCTION] = "function",
	[HL_VIEW_BY_LINE] = "line",
};

struct growth {
	struct hl_history *history;
	const struct hl_view_options *options;
	struct hl_growth_rows rows;
	size_t grew;		   /* rows, with those that are left out */
	struct hl_stack_path path; /* by stack */
};

/* "1.5 KiB/s"; by the hour where that would round to nothing. */
static const char *format_slope(double slope, char buffer[HL_FORMAT_MAX])
{
	bool by_hour = slope < 1;

	hl_format_bytes(llround(by_hour ? slope * SECONDS_PER_HOUR : slope), buffer);
	return strcat(buffer, by_hour ? "/h" : "/s");
}

static void begin_rows(struct hl_emit *emit, const struct hl_view_options *options)
{
	bool by_stack = options->by == HL_VIEW_BY_STACK;
	const struct hl_emit_column columns[] = {
		{NULL, "growth", HL_EMIT_TEXT, HL_EMIT_TEXT_ONLY},
		{"bytes_per_second", NULL, HL_EMIT_BYTES, HL_EMIT_JSON_ONLY},
		{"bytes_per_hour", NULL, HL_EMIT_BYTES, HL_EMIT_JSON_ONLY},
		{NULL, "leak score", HL_EMIT_PERCENT, HL_EMIT_TEXT_ONLY | HL_EMIT_OMITTED},
		{"steady_percent", NULL, HL_EMIT_COUNT, HL_EMIT_JSON_ONLY},
		{"from_bytes", "from", HL_EMIT_BYTES, HL_EMIT_OMITTED},
		{"to_bytes", "to", HL_EMIT_BYTES, HL_EMIT_OMITTED},
		{NULL, "time rising", HL_EMIT_PERCENT, HL_EMIT_TEXT_ONLY | HL_EMIT_OMITTED},
		{"rose_percent", NULL, HL_EMIT_COUNT, HL_EMIT_JSON_ONLY},
		{NULL, "where", HL_EMIT_TEXT, HL_EMIT_TEXT_ONLY | HL_EMIT_SHORTENED | HL_EMIT_PATH},
		{NULL, by_stack ? "stack, from its leaf" : "function", HL_EMIT_TEXT,
		 HL_EMIT_TEXT_ONLY |
			 (options->full ? 0 : HL_EMIT_SHORTENED | HL_EMIT_NAMES | HL_EMIT_KEY)},
		{"name", NULL, HL_EMIT_TEXT, HL_EMIT_JSON_ONLY},
		{"file", NULL, HL_EMIT_TEXT, HL_EMIT_JSON_ONLY},
		{"line", NULL, HL_EMIT_COUNT, HL_EMIT_JSON_ONLY},
		{"module", NULL, HL_EMIT_TEXT, HL_EMIT_JSON_ONLY},
		{"stack", NULL, HL_EMIT_STACK,
		 HL_EMIT_JSON_ONLY | (by_stack ? 0 : HL_EMIT_TEXT_ONLY)},
		{"frames", NULL, HL_EMIT_FRAMES,
		 HL_EMIT_JSON_ONLY | (by_stack ? 0 : HL_EMIT_TEXT_ONLY)},
	};
	hl_emit_rows(emit, "rows", columns, HL_COUNT_OF(columns));
}

/* ${step_count}: from a bucket to the next. */
static void emit_figures(struct hl_emit *emit, const struct hl_growth_row *row, size_t step_count)
{
	int64_t steps = step_count ? (int64_t)step_count : 1;
	char slope[HL_FORMAT_MAX];

	hl_emit_cell_text(emit, format_slope(row->slope, slope));
	hl_emit_cell_integer(emit, llround(row->slope));
	hl_emit_cell_integer(emit, llround(row->slope * SECONDS_PER_HOUR));
	hl_emit_cell_percent(emit, lround(row->score * PERCENT * 10), PERCENT * 10);
	hl_emit_cell_integer(emit, lround(row->score * PERCENT));
	hl_emit_cell_integer(emit, row->from_bytes);
	hl_emit_cell_integer(emit, row->to_bytes);
	hl_emit_cell_percent(emit, row->rose, steps);
	hl_emit_cell_integer(emit, (row->rose * PERCENT + steps / 2) / steps);
}

static void emit_words(struct hl_emit *emit, struct growth *growth, const struct hl_growth_row *row)
{
	bool by_stack = growth->options->by == HL_VIEW_BY_STACK;
	size_t depth = by_stack ? hl_stack_path_fill(&growth->path, row->id) : 0;
	char *line = by_stack && !growth->options->json
			     ? hl_stack_path_line(&growth->path, row->id, growth->options->full)
			     : NULL;
	char place[256];

	hl_emit_cell_text(emit, hl_keys_place(&row->label, place, sizeof(place)));
	hl_emit_cell_text(emit, line ? line : row->label.name);
	hl_emit_cell_text(emit, row->label.name);
	hl_emit_cell_text(emit, row->label.file);
	hl_emit_cell_integer(emit, row->label.line);
	hl_emit_cell_text(emit, row->label.module);
	hl_emit_cell_stack(emit, growth->path.names, depth);
	hl_emit_cell_frames(emit, growth->path.frames, depth);
	free(line);
}

static size_t count_steady(const struct growth *growth)
{
	size_t steady = 0;

	while (steady < growth->rows.count && growth->rows.rows[steady].score >= HL_GROWTH_STEADY)
		steady++;
	return steady;
}

/* Beside leaks, rows that look nothing like one are noise; see growth->grew. */
static void leave_out_scoreless(struct growth *growth)
{
	struct hl_growth_rows *rows = &growth->rows;

	growth->grew = rows->count;
	if (growth->options->json || !count_steady(growth))
		return;
	rows->count = 0;
	for (size_t i = 0; i < growth->grew; i++)
		if (lround(rows->rows[i].score * PERCENT * 10))
			rows->rows[rows->count++] = rows->rows[i];
}

/* Whether there is a leak, or it is not known. */
static bool may_leak(const struct growth *growth)
{
	return (growth->rows.bucket_count < HL_GROWTH_BUCKETS_MIN && growth->rows.count) ||
	       growth->rows.score >= HL_GROWTH_STEADY || count_steady(growth);
}

static size_t count_shown(const struct growth *growth)
{
	uint64_t limit = growth->options->row_limit;

	if (!growth->options->json && !may_leak(growth))
		return 0;
	if (limit == HL_EMIT_ROWS_DEFAULT)
		limit = growth->options->json ? 0 : ROWS_DEFAULT;
	return limit && limit < growth->rows.count ? (size_t)limit : growth->rows.count;
}

static int tell_apart(struct growth *growth, size_t shown)
{
	int r = 0;

	hl_stack_path_begin_table(&growth->path);
	if (growth->options->by != HL_VIEW_BY_STACK)
		return 0;
	for (size_t i = 0; r == 0 && i < shown; i++)
		r = hl_stack_path_add(&growth->path, growth->rows.rows[i].id);
	return r;
}

static int emit_rows(struct hl_emit *emit, struct growth *growth)
{
	const struct hl_growth_rows *rows = &growth->rows;
	char more[HL_FORMAT_MAX];
	size_t shown = count_shown(growth);

	if (tell_apart(growth, shown) < 0)
		return -ENOMEM;
	if (!shown && !growth->options->json)
		return 0;
	begin_rows(emit, growth->options);
	for (size_t i = 0; i < shown; i++) {
		bool steady = rows->rows[i].score >= HL_GROWTH_STEADY;
		hl_emit_row(emit, steady ? HL_EMIT_HEAVIEST : 0);
		emit_figures(emit, &rows->rows[i], rows->bucket_count - 1);
		emit_words(emit, growth, &rows->rows[i]);
	}
	hl_emit_rows_end(emit);
	if (shown && shown < rows->count)
		hl_emit_line(emit, "... and %s more; -n 0 shows all",
			     hl_format_count((int64_t)(rows->count - shown), more));
	if (growth->grew > rows->count)
		hl_emit_line(emit, "%s with a leak score of 0 left out; --json has %s",
			     hl_format_count((int64_t)(growth->grew - rows->count), more),
			     growth->grew - rows->count == 1 ? "it" : "them");
	return 0;
}

static void emit_explanation(struct hl_emit *emit, const struct growth *growth)
{
	const struct hl_growth_rows *rows = &growth->rows;
	size_t steady = count_steady(growth);
	const char *by = by_names[growth->options->by], *plural = growth->grew == 1 ? "" : "s";
	char text[HL_FORMAT_MAX];

	if (rows->left_out_ms)
		hl_emit_line(emit,
			     "the last %s, in which the program freed memory as it ended, are "
			     "left out",
			     hl_format_duration(rows->left_out_ms * NS_PER_MS, text));
	if (!may_leak(growth))
		hl_emit_line(emit, "nothing grew steadily to the end; no leak seen");
	else if (rows->bucket_count < HL_GROWTH_BUCKETS_MIN)
		hl_emit_line(emit,
			     "%zu %s%s grew, but less than a second is too short to judge how "
			     "steadily",
			     growth->grew, by, plural);
	else if (!steady)
		hl_emit_line(emit,
			     "memory in use grows steadily, by %s, but no %s alone does; these "
			     "grew most",
			     format_slope(rows->slope, text), by);
	else
		hl_emit_line(emit,
			     "%zu of %zu %s%s that grew did so steadily to the end, as leaks do%s",
			     steady, growth->grew, by, plural,
			     steady < rows->count ? "; they come first" : "");
	hl_emit_line(emit, "%s", "");
}

static int write_growth(struct growth *growth)
{
	const struct hl_view_options *options = growth->options;
	struct hl_emit *emit;

	int r = hl_emit_new(options->out, options->json ? HL_EMIT_JSON : HL_EMIT_TABLE,
			    options->color, &emit);
	if (r < 0)
		return r;
	hl_emit_begin(emit, "growth");
	hl_history_head_members(emit, growth->history);
	hl_emit_text(emit, "by", by_names[options->by]);
	hl_emit_integer(emit, "total_bytes_per_second", llround(growth->rows.slope));
	hl_emit_integer(emit, "total_steady_percent", lround(growth->rows.score * PERCENT));
	hl_emit_integer(emit, "left_out_ms", (int64_t)growth->rows.left_out_ms);
	hl_history_head_lines(emit, growth->history);
	emit_explanation(emit, growth);
	r = emit_rows(emit, growth);
	hl_summary_names_line(emit, growth->history->profile);
	int finished = hl_emit_finish(emit);
	return r < 0 ? r : finished;
}

int hl_view_growth(struct hl_history *history, const struct hl_view_options *options,
		   struct hl_error *err)
{
	struct growth growth = {.history = history, .options = options};

	int r = hl_growth_rows_init(&growth.rows, history, options, err);
	if (r < 0)
		return r;
	r = hl_stack_path_init(&growth.path, history->profile, &growth.rows.tree);
	leave_out_scoreless(&growth);
	if (r == 0)
		r = write_growth(&growth);
	hl_stack_path_release(&growth.path);
	hl_growth_rows_release(&growth.rows);
	if (r < 0)
		return hl_error_set(err, r, "cannot show '%s': %s", history->path, strerror(-r));
	return 0;
}
