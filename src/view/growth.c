/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline growth: what rises steadily over a log. */
#include "view/format.h"
#include "view/growth_rows.h"
#include "view/history_head.h"
#include "view/stack_path.h"
#include "view/summary.h"

#include <errno.h>
#include <math.h>
#include <string.h>

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
	if (!growth->may_leak)
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
