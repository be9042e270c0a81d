/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline diff: what grew and what shrank from one profile to another. */
#include "view/format.h"
#include "view/rows.h"
#include "view/stack_path.h"
#include "view/summary.h"

#include <errno.h>

#define ROWS_DEFAULT 20 /* of those that grew, and of those that shrank */

static const char *const by_names[] = {
	[HL_VIEW_BY_FUNCTION] = "function", [HL_VIEW_BY_LINE] = "line",
	[HL_VIEW_BY_ADDRESS] = "address",   [HL_VIEW_BY_MODULE] = "module",
	[HL_VIEW_BY_STACK] = "stack",
};

#define BY(key)	      (1u << HL_VIEW_BY_##key)
#define BY_NAME	      (BY(FUNCTION) | BY(ADDRESS))
#define KNOWS_BYTES   (1u << 16)
#define KNOWS_OBJECTS (1u << 17)

#define MEMBER(name) HL_MEMBER(struct hl_row, name)
#define AT	     HL_MEMBER_CELL(struct hl_row, label, hl_keys_cell_place)
#define STACK(what)  HL_MEMBER_CELL(struct hl_row, id, hl_stack_path_cell_##what)
#define PLACE	     HL_COLUMN_SHORTENED | HL_COLUMN_PATH
#define NAME	     HL_COLUMN_SHORTENED | HL_COLUMN_NAMES
#define KEY	     HL_COLUMN_KEY
#define OMITTED	     HL_COLUMN_OMITTED

static const struct hl_column columns[] = {
	{NULL, "before", HL_COLUMN_FIGURE, MEMBER(before), OMITTED},
	{NULL, "after", HL_COLUMN_FIGURE, MEMBER(flat), OMITTED},
	{NULL, "delta", HL_COLUMN_FIGURE, MEMBER(delta)},
	{NULL, "delta%", HL_COLUMN_SHARE, MEMBER(delta)},
	{NULL, "other", HL_COLUMN_OTHER, MEMBER(delta), OMITTED},
	{NULL, "where", HL_COLUMN_TEXT, AT, .flags = PLACE | KEY, .shown_if = BY(LINE)},
	{NULL, "where", HL_COLUMN_TEXT, AT, .flags = PLACE, .shown_if = BY_NAME | BY(STACK)},
	/* Last in tables: names can be very long. */
	{NULL, "function", HL_COLUMN_TEXT, MEMBER(label.name), NAME | KEY, BY_NAME},
	{NULL, "function", HL_COLUMN_TEXT, MEMBER(label.name), NAME, BY(LINE)},
	{NULL, "module", HL_COLUMN_TEXT, MEMBER(label.name), NAME | PLACE | KEY, BY(MODULE)},
	{NULL, "stack, from its leaf", HL_COLUMN_TEXT, STACK(line), .flags = NAME | KEY,
	 .shown_if = BY(STACK)},
	{"name", NULL, HL_COLUMN_TEXT, MEMBER(label.name)},
	{"file", NULL, HL_COLUMN_TEXT, MEMBER(label.file)},
	{"line", NULL, HL_COLUMN_COUNT, MEMBER(label.line)},
	{"module", NULL, HL_COLUMN_TEXT, MEMBER(label.module)},
	{"stack", NULL, HL_COLUMN_STACK, STACK(names), .shown_if = BY(STACK)},
	{"frames", NULL, HL_COLUMN_FRAMES, STACK(frames), .shown_if = BY(STACK)},
	{"before_bytes", NULL, HL_COLUMN_BYTES, MEMBER(before.bytes), .shown_if = KNOWS_BYTES},
	{"after_bytes", NULL, HL_COLUMN_BYTES, MEMBER(flat.bytes), .shown_if = KNOWS_BYTES},
	{"delta_bytes", NULL, HL_COLUMN_BYTES, MEMBER(delta.bytes), .shown_if = KNOWS_BYTES},
	{"before_objects", NULL, HL_COLUMN_COUNT, MEMBER(before.objects),
	 .shown_if = KNOWS_OBJECTS},
	{"after_objects", NULL, HL_COLUMN_COUNT, MEMBER(flat.objects), .shown_if = KNOWS_OBJECTS},
	{"delta_objects", NULL, HL_COLUMN_COUNT, MEMBER(delta.objects), .shown_if = KNOWS_OBJECTS},
};

struct diff {
	const struct hl_profile *profile;
	const struct hl_view_options *options;
	struct hl_rows rows;
	struct hl_stack_path path; /* by stack */
};

/* ---- lines ---- */

/* "grew by 5.0 MiB (12.5%), 1,234 objects" */
static void write_growth(struct hl_emit *emit, const struct diff *diff)
{
	enum hl_value value = diff->options->value;
	struct hl_aggregate_figures before = diff->rows.before, after = diff->rows.total;
	struct hl_aggregate_figures delta = {after.bytes - before.bytes,
					     after.objects - before.objects};
	enum hl_unit unit = diff->options->unit, other = hl_unit_other(unit);
	int64_t growth = hl_aggregate_figure(delta, unit);
	char figures[HL_UNIT_COUNT][HL_FORMAT_MAX], percent[HL_FORMAT_MAX];
	bool knows_other = hl_profile_knows(diff->profile, value, other);

	hl_format_bytes(delta.bytes, figures[HL_UNIT_BYTES]);
	hl_format_count(delta.objects, figures[HL_UNIT_OBJECTS]);
	hl_format_percent(growth, hl_aggregate_figure(before, unit), percent);
	hl_emit_line(emit, "difference in all: %s%s (%s)%s%s%s", figures[unit],
		     unit == HL_UNIT_OBJECTS ? " blocks" : "", percent, knows_other ? ", " : "",
		     knows_other ? figures[other] : "",
		     knows_other && other == HL_UNIT_OBJECTS ? " blocks" : "");
}

/* ---- all of it ---- */

static void write_row(struct hl_emit *emit, const struct diff *diff, size_t rank)
{
	const struct hl_row *row = &diff->rows.rows[rank];
	enum hl_unit unit = diff->options->unit;

	hl_table_row(emit, row,
		     hl_rows_emphasis(rank, hl_aggregate_figure(row->delta, unit),
				      hl_aggregate_figure(diff->rows.before, unit)));
}

/* The first of those that grew, and the last of those that shrank. */
static void write_rows(struct hl_emit *emit, const struct diff *diff)
{
	const struct hl_view_options *options = diff->options;
	const struct hl_rows *rows = &diff->rows;
	size_t first = hl_emit_shown(emit, options->row_limit, ROWS_DEFAULT, rows->shrunk_from);
	size_t last = hl_emit_shown(emit, options->row_limit, ROWS_DEFAULT,
				    rows->count - rows->shrunk_from);
	unsigned facts = 1u << options->by;

	if (hl_profile_knows(diff->profile, options->value, HL_UNIT_BYTES))
		facts |= KNOWS_BYTES;
	if (hl_profile_knows(diff->profile, options->value, HL_UNIT_OBJECTS))
		facts |= KNOWS_OBJECTS;
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", columns), .context = &diff->path,
						.facts = facts, .whole = rows->before});
	for (size_t i = 0; i < first; i++)
		write_row(emit, diff, i);
	for (size_t i = rows->count - last; i < rows->count; i++)
		write_row(emit, diff, i);
	hl_table_end(emit);
	if (first + last < rows->count)
		hl_emit_line(emit, "... and %zu more in between; -n 0 shows all",
			     rows->count - first - last);
}

static int write_report(struct diff *diff)
{
	const struct hl_view_options *options = diff->options;
	struct hl_emit *emit;

	if (options->by == HL_VIEW_BY_STACK &&
	    hl_stack_path_init(&diff->path, diff->profile, &diff->rows.keys.tree) < 0)
		return -ENOMEM;
	diff->path.full = true;
	int r = hl_summary_begin(diff->profile, options, "diff/1", &emit);
	if (r < 0)
		return r;
	hl_emit_text(emit, "by", by_names[options->by]);
	hl_summary_value_line(emit, diff->profile, options);
	if (diff->rows.count) {
		write_growth(emit, diff);
		hl_emit_blank(emit);
	} else {
		hl_emit_line(emit, "no difference");
	}
	write_rows(emit, diff);
	return hl_summary_end(emit, diff->profile);
}

int hl_view_diff(const struct hl_profile *profile, const struct hl_view_options *options,
		 struct hl_error *err)
{
	struct diff diff = {.profile = profile, .options = options};

	int r = hl_rows_init(&diff.rows, profile, options);
	if (r == 0)
		r = write_report(&diff);
	hl_stack_path_release(&diff.path);
	hl_rows_release(&diff.rows);
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
