/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline lines: source lines, heaviest first, as a table or as plain lines that scripts can read. */
#include "base/cleanup.h"
#include "base/names.h"
#include "view/rows.h"
#include "view/summary.h"
#include "view/table.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/*
 * "FILE line:12"; where no line is known, "MODULE(FUNCTION) line:0", or "MODULE+0xADDRESS line:0"
 * of a function without a name. Of a sum, which has no module, its name.
 */
static void place(struct hl_emit *emit, const void *row, const void *context)
{
	const struct hl_keys_label *label = &((const struct hl_row *)row)->label;
	const char *path = label->file, *function = "";
	HL_FREED char *text = NULL;
	bool is_named = false;

	(void)context;
	if (!label->module) {
		hl_cell_text(emit, label->name);
		return;
	}
	if (!path[0] && !label->module[0]) {
		path = label->name;
	} else if (!path[0]) {
		path = label->module;
		is_named = !hl_keys_names_module(label);
		function = label->name + (is_named ? 0 : strlen(hl_path_basename(path)));
	}
	if (asprintf(&text, "%s%s%s%s line:%" PRIu32, path, is_named ? "(" : "", function,
		     is_named ? ")" : "", label->line) < 0)
		hl_emit_fail(emit, -ENOMEM);
	else
		hl_cell_text(emit, text);
}

static void size(struct hl_emit *emit, const void *row, const void *options)
{
	enum hl_unit unit = ((const struct hl_view_options *)options)->unit;
	char text[64];

	snprintf(text, sizeof(text), "%s:%" PRId64, unit == HL_UNIT_BYTES ? "size" : "objects",
		 hl_aggregate_figure(((const struct hl_row *)row)->flat, unit));
	hl_cell_text(emit, text);
}

#define ROWS_DEFAULT 30

/* Facts of the table: */
enum {
	PLAIN = 1,
	TABLE = 2,
};

#define MEMBER(name) HL_MEMBER(struct hl_row, name)
#define AT	     HL_MEMBER_CELL(struct hl_row, label, hl_keys_cell_place)
#define PLACE	     HL_COLUMN_SHORTENED | HL_COLUMN_PATH | HL_COLUMN_KEY
#define NAME	     HL_COLUMN_SHORTENED | HL_COLUMN_NAMES

static const struct hl_column columns[] = {
	{NULL, "where", HL_COLUMN_TEXT, .cell = place, .shown_if = PLAIN},
	{NULL, "size", HL_COLUMN_TEXT, .cell = size, .shown_if = PLAIN},
	{NULL, "size", HL_COLUMN_FIGURE, MEMBER(flat), .shown_if = TABLE},
	{NULL, "share", HL_COLUMN_SHARE, MEMBER(flat), .shown_if = TABLE},
	/* In the unit that was not chosen, and called after it: "objects" or "bytes". */
	{NULL, "other", HL_COLUMN_OTHER, MEMBER(flat), HL_COLUMN_OMITTED, TABLE},
	{NULL, "where", HL_COLUMN_TEXT, AT, .flags = PLACE, .shown_if = TABLE},
	{NULL, "function", HL_COLUMN_TEXT, MEMBER(label.name), NAME, TABLE},
	{"file", NULL, HL_COLUMN_TEXT, MEMBER(label.file)},
	{"line", NULL, HL_COLUMN_COUNT, MEMBER(label.line)},
	{"name", NULL, HL_COLUMN_TEXT, MEMBER(label.name)},
	{"module", NULL, HL_COLUMN_TEXT, MEMBER(label.module)},
	{"", NULL, HL_COLUMN_FIGURE, MEMBER(flat)},
};

/* In JSON there are rows for lines alone. */
static void write_sum(struct hl_emit *emit, const char *name, struct hl_aggregate_figures sum)
{
	const struct hl_row row = {.label = {.name = name}, .flat = sum};

	if (!hl_emit_is_json(emit))
		hl_table_row(emit, &row, 0);
}

static int write_table(const struct hl_rows *rows, const struct hl_profile *profile,
		       const struct hl_view_options *options)
{
	int64_t whole = hl_aggregate_figure(rows->total, options->unit);
	struct hl_emit *emit;

	int r = hl_summary_begin(profile, options, "lines/1", &emit);
	if (r < 0)
		return r;
	size_t shown = hl_emit_shown(emit, options->row_limit, ROWS_DEFAULT, rows->count);
	if (rows->count || hl_value_is_of_pages(options->value)) {
		hl_summary_value_line(emit, profile, options);
		hl_emit_blank(emit);
	}
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", columns), .context = options,
						.facts = TABLE, .whole = rows->total});
	for (size_t i = 0; i < shown; i++)
		hl_table_row(
			emit, &rows->rows[i],
			hl_rows_emphasis(i, hl_aggregate_figure(rows->rows[i].flat, options->unit),
					 whole));
	hl_table_end(emit);
	hl_emit_more(emit, rows->count - shown, "-n");
	return hl_summary_end(emit, profile);
}

static int write_lines(const struct hl_rows *rows, const struct hl_profile *profile,
		       const struct hl_view_options *options)
{
	struct hl_aggregate_figures rest = rows->total;
	struct hl_emit *emit;
	char more[64];

	int r = hl_summary_begin_lines(profile, options, "lines/1", &emit);
	if (r < 0)
		return r;
	size_t shown = hl_emit_shown(emit, options->row_limit, 0, rows->count);
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", columns), .context = options,
						.facts = PLAIN});
	for (size_t i = 0; i < shown; i++) {
		hl_table_row(emit, &rows->rows[i], 0);
		rest = hl_aggregate_difference(rows->rows[i].flat, rest);
	}
	snprintf(more, sizeof(more), "and %zu more", rows->count - shown);
	if (shown < rows->count)
		write_sum(emit, more, rest);
	write_sum(emit, "total", rows->total);
	hl_table_end(emit);
	r = hl_emit_finish(emit);
	return r == 0 && !options->json ? hl_summary_note(profile, options) : r;
}

int hl_lines_view(const struct hl_profile *profile, const struct hl_view_options *options,
		  struct hl_error *err)
{
	struct hl_view_options by_line = *options;
	HL_CLEANUP(hl_rows_release) struct hl_rows rows = {0};
	bool is_table = !options->json && !options->lines.plain;
	size_t kept = 0;

	by_line.by = HL_VIEW_BY_LINE;
	by_line.sort = HL_VIEW_SORT_FLAT;
	int r = hl_rows_init(&rows, profile, &by_line);
	/* Rows that are only callers have nothing of their own. */
	for (size_t i = 0; i < rows.count; i++)
		if (hl_aggregate_any(rows.rows[i].flat) ||
		    (options->lines.freed && rows.rows[i].leaf))
			rows.rows[kept++] = rows.rows[i];
	rows.count = kept;
	if (r == 0)
		r = (is_table ? write_table : write_lines)(&rows, profile, &by_line);
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
