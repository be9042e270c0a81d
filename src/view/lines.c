/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline lines: source lines, heaviest first, as plain lines that scripts can read. */
#include "base/path.h"
#include "view/rows.h"
#include "view/summary.h"
#include "view/table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/*
 * What stands before " line:": the file, or, where no line is known, "MODULE(FUNCTION)", or
 * "MODULE+0xADDRESS" of a function without a name. NULL: no memory.
 */
static char *path_text(const struct hl_keys_label *label)
{
	const char *module = hl_path_basename(label->module);
	size_t length = strlen(module);
	char *text;
	int r;

	if (label->file[0])
		r = asprintf(&text, "%s", label->file);
	else if (!length)
		r = asprintf(&text, "%s", label->name);
	else if (!strncmp(label->name, module, length) && label->name[length] == '+')
		r = asprintf(&text, "%s%s", label->module, label->name + length);
	else
		r = asprintf(&text, "%s(%s)", label->module, label->name);
	return r < 0 ? NULL : text;
}

/* "FILE line:12"; of a sum, which has no module, its name. */
static void place(struct hl_emit *emit, const void *at, const void *context)
{
	const struct hl_row *row = at;
	char *path = row->label.module ? path_text(&row->label) : NULL, *text = NULL;

	(void)context;
	if (!row->label.module)
		hl_cell_text(emit, row->label.name);
	else if (!path || asprintf(&text, "%s line:%" PRIu32, path, row->label.line) < 0)
		hl_emit_fail(emit, -ENOMEM);
	else
		hl_cell_text(emit, text);
	free(text);
	free(path);
}

static void size(struct hl_emit *emit, const void *row, const void *options)
{
	enum hl_unit unit = ((const struct hl_view_options *)options)->unit;
	char text[64];

	snprintf(text, sizeof(text), "%s:%" PRId64, unit == HL_UNIT_BYTES ? "size" : "objects",
		 hl_aggregate_figure(((const struct hl_row *)row)->flat, unit));
	hl_cell_text(emit, text);
}

#define MEMBER(name) HL_MEMBER(struct hl_row, name)

static const struct hl_column columns[] = {
	{NULL, "where", HL_COLUMN_TEXT, .cell = place},
	{NULL, "size", HL_COLUMN_TEXT, .cell = size},
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

/* Rows that are only callers have nothing of their own. */
static void leave_out_callers(struct hl_rows *rows)
{
	size_t kept = 0;

	for (size_t i = 0; i < rows->count; i++)
		if (rows->rows[i].flat.bytes || rows->rows[i].flat.objects)
			rows->rows[kept++] = rows->rows[i];
	rows->count = kept;
}

static int write_report(const struct hl_profile *profile, const struct hl_view_options *options,
			const struct hl_rows *rows)
{
	struct hl_aggregate_figures rest = rows->total;
	struct hl_emit *emit;
	char more[64];

	int r = hl_summary_begin_lines(profile, options, "lines/1", &emit);
	if (r < 0)
		return r;
	size_t shown = hl_emit_shown(emit, options->row_limit, 0, rows->count);
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", columns), .context = options});
	for (size_t i = 0; i < shown; i++) {
		hl_table_row(emit, &rows->rows[i], 0);
		rest.bytes -= rows->rows[i].flat.bytes;
		rest.objects -= rows->rows[i].flat.objects;
	}
	snprintf(more, sizeof(more), "and %zu more", rows->count - shown);
	if (shown < rows->count)
		write_sum(emit, more, rest);
	write_sum(emit, "total", rows->total);
	hl_table_end(emit);
	return hl_emit_finish(emit);
}

int hl_view_lines(const struct hl_profile *profile, const struct hl_view_options *options,
		  struct hl_error *err)
{
	struct hl_view_options by_line = *options;
	struct hl_rows rows;

	by_line.by = HL_VIEW_BY_LINE;
	by_line.sort = HL_VIEW_SORT_FLAT;
	int r = hl_rows_init(&rows, profile, &by_line);
	if (r == 0) {
		leave_out_callers(&rows);
		r = write_report(profile, options, &rows);
	}
	hl_rows_release(&rows);
	if (r == 0 && !options->json)
		r = hl_summary_note(profile, options);
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
