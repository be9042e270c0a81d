/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline diff: what grew and what shrank from one profile to another. */
#include "view/diff_rows.h"
#include "view/format.h"
#include "view/rows.h"
#include "view/stack_path.h"
#include "view/summary.h"

#include <errno.h>
#include <stdlib.h>

#define ROWS_DEFAULT 20 /* of those that grew, and of those that shrank */

enum {
	COLUMN_BEFORE,
	COLUMN_AFTER,
	COLUMN_DELTA,
	COLUMN_PERCENT,
	COLUMN_OTHER, /* delta in the other unit */
	COLUMN_PLACE,
	COLUMN_WORDS, /* last in tables: the name, or the names of a stack */
	COLUMN_NAME,
	COLUMN_FILE,
	COLUMN_LINE,
	COLUMN_MODULE,
	COLUMN_STACK,
	COLUMN_FRAMES,
	COLUMN_BEFORE_BYTES,
	COLUMN_AFTER_BYTES,
	COLUMN_DELTA_BYTES,
	COLUMN_BEFORE_OBJECTS,
	COLUMN_AFTER_OBJECTS,
	COLUMN_DELTA_OBJECTS,
	COLUMN_COUNT,
};

static const char *const by_names[] = {
	[HL_VIEW_BY_FUNCTION] = "function", [HL_VIEW_BY_LINE] = "line",
	[HL_VIEW_BY_ADDRESS] = "address",   [HL_VIEW_BY_MODULE] = "module",
	[HL_VIEW_BY_STACK] = "stack",
};

static const char *title_of_words(enum hl_view_key by)
{
	return by == HL_VIEW_BY_MODULE	? "module"
	       : by == HL_VIEW_BY_STACK ? "stack, from its leaf"
					: "function";
}

static void begin_rows(struct hl_emit *emit, const struct hl_profile *profile,
		       const struct hl_view_options *options)
{
	static const enum hl_emit_type types[] = {HL_EMIT_BYTES, HL_EMIT_COUNT};
	enum hl_unit other = hl_unit_other(options->unit);
	enum hl_emit_type type = types[options->unit];
	bool knows_bytes = hl_profile_knows(profile, options->value, HL_UNIT_BYTES);
	bool knows_objects = hl_profile_knows(profile, options->value, HL_UNIT_OBJECTS);
	unsigned bytes = knows_bytes ? HL_EMIT_JSON_ONLY : HL_EMIT_HIDDEN;
	unsigned objects = knows_objects ? HL_EMIT_JSON_ONLY : HL_EMIT_HIDDEN;
	unsigned of_other = knows_bytes && knows_objects ? HL_EMIT_TEXT_ONLY : HL_EMIT_HIDDEN;
	unsigned of_stack = options->by == HL_VIEW_BY_STACK ? HL_EMIT_JSON_ONLY : HL_EMIT_HIDDEN;
	unsigned of_place = options->by == HL_VIEW_BY_MODULE ? HL_EMIT_HIDDEN : HL_EMIT_TEXT_ONLY;
	bool by_line = options->by == HL_VIEW_BY_LINE;
	unsigned key_of_place = by_line ? HL_EMIT_KEY : 0, key_of_words = by_line ? 0 : HL_EMIT_KEY;
	key_of_words |= options->by == HL_VIEW_BY_MODULE ? HL_EMIT_PATH : 0;
	const struct hl_emit_column columns[COLUMN_COUNT] = {
		[COLUMN_BEFORE] = {NULL, "before", type, HL_EMIT_TEXT_ONLY | HL_EMIT_OMITTED},
		[COLUMN_AFTER] = {NULL, "after", type, HL_EMIT_TEXT_ONLY | HL_EMIT_OMITTED},
		[COLUMN_DELTA] = {NULL, "delta", type, HL_EMIT_TEXT_ONLY},
		[COLUMN_PERCENT] = {NULL, "delta%", HL_EMIT_PERCENT, HL_EMIT_TEXT_ONLY},
		[COLUMN_OTHER] = {NULL, hl_unit_names[other], types[other],
				  of_other | HL_EMIT_OMITTED},
		[COLUMN_PLACE] = {NULL, "where", HL_EMIT_TEXT,
				  HL_EMIT_SHORTENED | HL_EMIT_PATH | key_of_place | of_place},
		[COLUMN_WORDS] = {NULL, title_of_words(options->by), HL_EMIT_TEXT,
				  HL_EMIT_SHORTENED | HL_EMIT_NAMES | HL_EMIT_TEXT_ONLY |
					  key_of_words},
		[COLUMN_NAME] = {"name", NULL, HL_EMIT_TEXT, HL_EMIT_JSON_ONLY},
		[COLUMN_FILE] = {"file", NULL, HL_EMIT_TEXT, HL_EMIT_JSON_ONLY},
		[COLUMN_LINE] = {"line", NULL, HL_EMIT_COUNT, HL_EMIT_JSON_ONLY},
		[COLUMN_MODULE] = {"module", NULL, HL_EMIT_TEXT, HL_EMIT_JSON_ONLY},
		[COLUMN_STACK] = {"stack", NULL, HL_EMIT_STACK, of_stack},
		[COLUMN_FRAMES] = {"frames", NULL, HL_EMIT_FRAMES, of_stack},
		[COLUMN_BEFORE_BYTES] = {"before_bytes", NULL, HL_EMIT_BYTES, bytes},
		[COLUMN_AFTER_BYTES] = {"after_bytes", NULL, HL_EMIT_BYTES, bytes},
		[COLUMN_DELTA_BYTES] = {"delta_bytes", NULL, HL_EMIT_BYTES, bytes},
		[COLUMN_BEFORE_OBJECTS] = {"before_objects", NULL, HL_EMIT_COUNT, objects},
		[COLUMN_AFTER_OBJECTS] = {"after_objects", NULL, HL_EMIT_COUNT, objects},
		[COLUMN_DELTA_OBJECTS] = {"delta_objects", NULL, HL_EMIT_COUNT, objects},
	};
	hl_emit_rows(emit, "rows", columns, COLUMN_COUNT);
}

/* ---- cells ---- */

/* What the rows are of. */
struct diff {
	const struct hl_profile *profile;
	const struct hl_view_options *options;
	struct hl_diff_rows rows;
	struct hl_stack_path path;
};

static void emit_words(struct hl_emit *emit, struct diff *diff, const struct hl_diff_row *row)
{
	bool by_stack = diff->options->by == HL_VIEW_BY_STACK;
	size_t depth = by_stack ? hl_stack_path_fill(&diff->path, row->id) : 0;
	char *joined = depth && !diff->options->json
			       ? hl_stack_path_line(&diff->path, row->id, true)
			       : NULL;
	char place[256];

	hl_emit_cell_text(emit, hl_keys_place(&row->label, place, sizeof(place)));
	hl_emit_cell_text(emit, joined ? joined : row->label.name);
	hl_emit_cell_text(emit, row->label.name);
	hl_emit_cell_text(emit, row->label.file);
	hl_emit_cell_integer(emit, row->label.line);
	hl_emit_cell_text(emit, row->label.module);
	hl_emit_cell_stack(emit, diff->path.names, depth);
	hl_emit_cell_frames(emit, diff->path.frames, depth);
	free(joined);
}

/* Cells in the order of the columns above. */
static void emit_row(struct hl_emit *emit, struct diff *diff, size_t rank)
{
	const struct hl_diff_row *row = &diff->rows.rows[rank];
	struct hl_aggregate_figures delta = hl_diff_delta(row->before, row->after);
	enum hl_unit unit = diff->options->unit;
	int64_t whole = hl_aggregate_figure(diff->rows.before, unit);

	hl_emit_row(emit, hl_rows_emphasis(rank, hl_aggregate_figure(delta, unit), whole));
	hl_emit_cell_integer(emit, hl_aggregate_figure(row->before, unit));
	hl_emit_cell_integer(emit, hl_aggregate_figure(row->after, unit));
	hl_emit_cell_integer(emit, hl_aggregate_figure(delta, unit));
	hl_emit_cell_percent(emit, hl_aggregate_figure(delta, unit), whole);
	hl_emit_cell_integer(emit, hl_aggregate_figure(delta, hl_unit_other(unit)));
	emit_words(emit, diff, row);
	hl_emit_cell_integer(emit, row->before.bytes);
	hl_emit_cell_integer(emit, row->after.bytes);
	hl_emit_cell_integer(emit, delta.bytes);
	hl_emit_cell_integer(emit, row->before.objects);
	hl_emit_cell_integer(emit, row->after.objects);
	hl_emit_cell_integer(emit, delta.objects);
}

/* ---- lines ---- */

/* "grew by 5.0 MiB (12.5%), 1,234 objects" */
static void emit_growth(struct hl_emit *emit, const struct diff *diff)
{
	enum hl_value value = diff->options->value;
	struct hl_aggregate_figures delta = hl_diff_delta(diff->rows.before, diff->rows.after);
	enum hl_unit unit = diff->options->unit, other = hl_unit_other(unit);
	int64_t growth = hl_aggregate_figure(delta, unit);
	char figures[HL_UNIT_COUNT][HL_FORMAT_MAX], percent[HL_FORMAT_MAX];
	bool knows_other = hl_profile_knows(diff->profile, value, other);

	hl_format_bytes(delta.bytes, figures[HL_UNIT_BYTES]);
	hl_format_count(delta.objects, figures[HL_UNIT_OBJECTS]);
	hl_format_percent(growth, hl_aggregate_figure(diff->rows.before, unit), percent);
	hl_emit_line(emit, "difference in all: %s%s (%s)%s%s%s", figures[unit],
		     unit == HL_UNIT_OBJECTS ? " blocks" : "", percent, knows_other ? ", " : "",
		     knows_other ? figures[other] : "",
		     knows_other && other == HL_UNIT_OBJECTS ? " blocks" : "");
}

/* ---- all of it ---- */

static size_t smaller(uint64_t a, size_t b)
{
	return a < b ? (size_t)a : b;
}

/* The first of those that grew, and the last of those that shrank. */
static void emit_rows(struct hl_emit *emit, struct diff *diff)
{
	const struct hl_diff_rows *rows = &diff->rows;
	uint64_t limit = diff->options->row_limit;
	size_t shrunk_count = rows->count - rows->shrunk_from;

	if (limit == HL_EMIT_ROWS_DEFAULT)
		limit = diff->options->json ? 0 : ROWS_DEFAULT;
	size_t first = limit ? smaller(limit, rows->shrunk_from) : rows->shrunk_from;
	size_t last = limit ? smaller(limit, shrunk_count) : shrunk_count;
	begin_rows(emit, diff->profile, diff->options);
	for (size_t i = 0; i < first; i++)
		emit_row(emit, diff, i);
	for (size_t i = rows->count - last; i < rows->count; i++)
		emit_row(emit, diff, i);
	hl_emit_rows_end(emit);
	if (first + last < rows->count)
		hl_emit_line(emit, "... and %zu more in between; -n 0 shows all",
			     rows->count - first - last);
}

static int emit_diff(struct diff *diff)
{
	const struct hl_view_options *options = diff->options;
	struct hl_emit *emit;

	int r = hl_emit_new(options->out, options->json ? HL_EMIT_JSON : HL_EMIT_TABLE,
			    options->color, &emit);
	if (r < 0)
		return r;
	hl_emit_begin(emit, "diff");
	hl_summary_members(emit, diff->profile, options);
	hl_emit_text(emit, "by", by_names[options->by]);
	hl_summary_lines(emit, diff->profile);
	hl_summary_value_line(emit, diff->profile, options);
	if (diff->rows.count) {
		emit_growth(emit, diff);
		hl_emit_line(emit, "%s", "");
	} else {
		hl_emit_line(emit, "no difference");
	}
	emit_rows(emit, diff);
	hl_summary_names_line(emit, diff->profile);
	return hl_emit_finish(emit);
}

int hl_view_diff(const struct hl_profile *profile, const struct hl_view_options *options,
		 struct hl_error *err)
{
	struct diff diff = {.profile = profile, .options = options};

	int r = hl_diff_rows_init(&diff.rows, profile, options);
	if (r == 0)
		r = hl_stack_path_init(&diff.path, profile, &diff.rows.tree);
	if (r == 0)
		r = emit_diff(&diff);
	hl_stack_path_release(&diff.path);
	hl_diff_rows_release(&diff.rows);
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
