/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline diff: what grew and what shrank from one profile to another. */
#include "view/format.h"
#include "view/rows.h"
#include "view/summary.h"

#define ROWS_DEFAULT 20 /* of those that grew, and of those that shrank */

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

/* "difference in all: 5.0 MiB (12.5%), 1,234 blocks" */
static void write_growth(struct hl_emit *emit, const struct hl_rows *rows,
			 const struct hl_profile *profile, const struct hl_view_options *options)
{
	struct hl_aggregate_figures delta = hl_aggregate_difference(rows->before, rows->total);
	enum hl_unit unit = options->unit, other = hl_unit_other(unit);
	bool knows_other = hl_profile_knows(profile, options->value, other);
	char figures[HL_UNIT_COUNT][HL_FORMAT_MAX], percent[HL_FORMAT_MAX];

	hl_format_bytes(delta.bytes, figures[HL_UNIT_BYTES]);
	hl_format_count(delta.objects, figures[HL_UNIT_OBJECTS]);
	hl_format_percent(hl_aggregate_figure(delta, unit), hl_aggregate_figure(rows->before, unit),
			  percent);
	hl_emit_line(emit, "difference in all: %s%s (%s)%s%s%s", figures[unit],
		     unit == HL_UNIT_OBJECTS ? " blocks" : "", percent, knows_other ? ", " : "",
		     knows_other ? figures[other] : "",
		     knows_other && other == HL_UNIT_OBJECTS ? " blocks" : "");
}

int hl_diff_view(const struct hl_profile *profile, const struct hl_view_options *options,
		 struct hl_error *err)
{
	HL_CLEANUP(hl_rows_release) struct hl_rows rows = {0};
	HL_CLEANUP(hl_stack_path_release) struct hl_stack_path path = {0};
	unsigned facts = 1u << options->by;
	struct hl_emit *emit;

	int r = hl_rows_init(&rows, profile, options);
	if (r == 0 && options->by == HL_VIEW_BY_STACK)
		r = hl_stack_path_init(&path, profile, &rows.keys.tree);
	path.full = true;
	if (r == 0)
		r = hl_summary_begin(profile, options, "diff/1", &emit);
	if (r < 0)
		return hl_summary_fail(profile, r, err);
	hl_emit_text(emit, "by", hl_keys_by_names[options->by]);
	hl_summary_value_line(emit, profile, options);
	if (rows.count) {
		write_growth(emit, &rows, profile, options);
		hl_emit_blank(emit);
	} else {
		hl_emit_line(emit, "no difference");
	}
	if (hl_profile_knows(profile, options->value, HL_UNIT_BYTES))
		facts |= KNOWS_BYTES;
	if (hl_profile_knows(profile, options->value, HL_UNIT_OBJECTS))
		facts |= KNOWS_OBJECTS;
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", columns), .context = &path,
						.facts = facts, .whole = rows.before});
	/* The first of those that grew, and the last of those that shrank. */
	size_t grew = rows.shrunk_from, shrank = rows.count - grew;
	size_t first = hl_emit_shown(emit, options->row_limit, ROWS_DEFAULT, grew);
	size_t last = hl_emit_shown(emit, options->row_limit, ROWS_DEFAULT, shrank);
	size_t left_out = rows.count - first - last;
	int64_t whole = hl_aggregate_figure(rows.before, options->unit);
	for (size_t i = 0; i < rows.count; i++) {
		int64_t delta = hl_aggregate_figure(rows.rows[i].delta, options->unit);
		if (i < first || i >= rows.count - last)
			hl_table_row(emit, &rows.rows[i], hl_rows_emphasis(i, delta, whole));
	}
	hl_table_end(emit);
	if (left_out)
		hl_emit_line(emit, "... and %zu more in between; -n 0 shows all", left_out);
	r = hl_summary_end(emit, profile);
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
