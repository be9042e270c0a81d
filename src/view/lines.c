/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline lines: source lines, heaviest first, as plain lines that scripts can read. */
#include "base/path.h"
#include "view/rows.h"
#include "view/summary.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
	COLUMN_PLACE,
	COLUMN_FIGURE,
	COLUMN_FILE,
	COLUMN_LINE,
	COLUMN_NAME,
	COLUMN_MODULE,
	COLUMN_BYTES,
	COLUMN_OBJECTS,
	COLUMN_COUNT,
};

static void begin_rows(struct hl_emit *emit, const struct hl_profile *profile,
		       const struct hl_view_options *options)
{
	bool bytes = hl_profile_knows(profile, options->value, HL_UNIT_BYTES);
	bool objects = hl_profile_knows(profile, options->value, HL_UNIT_OBJECTS);
	const struct hl_emit_column columns[COLUMN_COUNT] = {
		[COLUMN_PLACE] = {NULL, NULL, HL_EMIT_TEXT, HL_EMIT_TEXT_ONLY},
		[COLUMN_FIGURE] = {NULL, NULL, HL_EMIT_TEXT, HL_EMIT_TEXT_ONLY},
		[COLUMN_FILE] = {"file", NULL, HL_EMIT_TEXT, HL_EMIT_JSON_ONLY},
		[COLUMN_LINE] = {"line", NULL, HL_EMIT_COUNT, HL_EMIT_JSON_ONLY},
		[COLUMN_NAME] = {"name", NULL, HL_EMIT_TEXT, HL_EMIT_JSON_ONLY},
		[COLUMN_MODULE] = {"module", NULL, HL_EMIT_TEXT, HL_EMIT_JSON_ONLY},
		[COLUMN_BYTES] = {"bytes", NULL, HL_EMIT_BYTES,
				  bytes ? HL_EMIT_JSON_ONLY : HL_EMIT_HIDDEN},
		[COLUMN_OBJECTS] = {"objects", NULL, HL_EMIT_COUNT,
				    objects ? HL_EMIT_JSON_ONLY : HL_EMIT_HIDDEN},
	};
	hl_emit_rows(emit, "rows", columns, COLUMN_COUNT);
}

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

/* The two cells of a text row; in JSON there are rows for lines alone. */
static void emit_text_cells(struct hl_emit *emit, const char *place, enum hl_unit unit,
			    int64_t figure)
{
	char text[64];

	snprintf(text, sizeof(text), "%s:%" PRId64, unit == HL_UNIT_BYTES ? "size" : "objects",
		 figure);
	hl_emit_cell_text(emit, place);
	hl_emit_cell_text(emit, text);
}

static int emit_line(struct hl_emit *emit, const struct hl_row *row, enum hl_unit unit)
{
	char *path = path_text(&row->label), *place;

	if (!path || asprintf(&place, "%s line:%" PRIu32, path, row->label.line) < 0) {
		free(path);
		return -ENOMEM;
	}
	hl_emit_row(emit, 0);
	emit_text_cells(emit, place, unit, hl_aggregate_figure(row->flat, unit));
	hl_emit_cell_text(emit, row->label.file);
	hl_emit_cell_integer(emit, row->label.line);
	hl_emit_cell_text(emit, row->label.name);
	hl_emit_cell_text(emit, row->label.module);
	hl_emit_cell_integer(emit, row->flat.bytes);
	hl_emit_cell_integer(emit, row->flat.objects);
	free(place);
	free(path);
	return 0;
}

static void emit_sum(struct hl_emit *emit, const char *name, enum hl_unit unit, int64_t figure)
{
	hl_emit_row(emit, 0);
	emit_text_cells(emit, name, unit, figure);
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

static int emit_rows(struct hl_emit *emit, const struct hl_rows *rows,
		     const struct hl_view_options *options)
{
	size_t shown = hl_rows_shown(rows, options, 0), i;
	int64_t rest = hl_aggregate_figure(rows->total, options->unit);
	char more[64];

	for (i = 0; i < shown; i++) {
		int r = emit_line(emit, &rows->rows[i], options->unit);
		if (r < 0)
			return r;
		rest -= hl_aggregate_figure(rows->rows[i].flat, options->unit);
	}
	if (options->json)
		return 0;
	if (shown < rows->count) {
		snprintf(more, sizeof(more), "and %zu more", rows->count - shown);
		emit_sum(emit, more, options->unit, rest);
	}
	emit_sum(emit, "total", options->unit, hl_aggregate_figure(rows->total, options->unit));
	return 0;
}

static int emit_report(const struct hl_profile *profile, const struct hl_view_options *options,
		       const struct hl_rows *rows)
{
	struct hl_emit *emit;

	int r = hl_emit_new(options->out, options->json ? HL_EMIT_JSON : HL_EMIT_LINES, false,
			    &emit);
	if (r < 0)
		return r;
	hl_emit_begin(emit, "lines");
	hl_summary_members(emit, profile, options);
	begin_rows(emit, profile, options);
	r = emit_rows(emit, rows, options);
	hl_emit_rows_end(emit);
	int finished = hl_emit_finish(emit);
	return r < 0 ? r : finished;
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
		r = emit_report(profile, options, &rows);
	}
	hl_rows_release(&rows);
	if (r == 0 && !options->json)
		r = hl_summary_note(profile, options);
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
