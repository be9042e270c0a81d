/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline top: functions, or what else rows stand for, heaviest first. */
#include "view/format.h"
#include "view/rows.h"
#include "view/summary.h"

#include <errno.h>
#include <inttypes.h>

#define ROWS_DEFAULT 30

enum {
	COLUMN_FLAT,
	COLUMN_FLAT_PERCENT,
	COLUMN_CUM,
	COLUMN_CUM_PERCENT,
	COLUMN_OTHER, /* flat in the other unit */
	COLUMN_PID,
	COLUMN_TID,
	COLUMN_PLACE,
	COLUMN_ADDRESS,
	COLUMN_NAME, /* last in tables: names can be very long */
	COLUMN_FILE,
	COLUMN_LINE,
	COLUMN_MODULE,
	COLUMN_FLAT_BYTES,
	COLUMN_FLAT_OBJECTS,
	COLUMN_CUM_BYTES,
	COLUMN_CUM_OBJECTS,
	COLUMN_COUNT,
};

static const char *const by_names[] = {
	[HL_VIEW_BY_FUNCTION] = "function", [HL_VIEW_BY_LINE] = "line",
	[HL_VIEW_BY_ADDRESS] = "address",   [HL_VIEW_BY_MODULE] = "module",
	[HL_VIEW_BY_THREAD] = "thread",
};

static const char *title_of_names(enum hl_view_key by)
{
	return by == HL_VIEW_BY_MODULE || by == HL_VIEW_BY_THREAD ? by_names[by] : "function";
}

static void begin_rows(struct hl_emit *emit, const struct hl_profile *profile,
		       const struct hl_view_options *options)
{
	static const enum hl_emit_type types[] = {HL_EMIT_BYTES, HL_EMIT_COUNT};
	enum hl_unit other = hl_unit_other(options->unit);
	bool knows_bytes = hl_profile_knows(profile, options->value, HL_UNIT_BYTES);
	bool knows_objects = hl_profile_knows(profile, options->value, HL_UNIT_OBJECTS);
	bool knows_other = hl_profile_knows(profile, options->value, other);
	unsigned bytes = knows_bytes ? HL_EMIT_JSON_ONLY : HL_EMIT_HIDDEN;
	unsigned objects = knows_objects ? HL_EMIT_JSON_ONLY : HL_EMIT_HIDDEN;
	bool threads = options->by == HL_VIEW_BY_THREAD;
	unsigned of_threads = threads ? 0 : HL_EMIT_HIDDEN,
		 of_frames = threads ? HL_EMIT_HIDDEN : 0;
	unsigned of_places = threads || options->by == HL_VIEW_BY_MODULE ? HL_EMIT_HIDDEN : 0;
	bool by_line = options->by == HL_VIEW_BY_LINE;
	unsigned key_of_places = by_line ? HL_EMIT_KEY : 0,
		 key_of_names = by_line ? 0 : HL_EMIT_KEY;
	key_of_names |= options->by == HL_VIEW_BY_MODULE ? HL_EMIT_PATH : 0;
	unsigned of_address = options->by == HL_VIEW_BY_ADDRESS ? 0 : HL_EMIT_HIDDEN;
	const struct hl_emit_column columns[COLUMN_COUNT] = {
		[COLUMN_FLAT] = {NULL, "flat", types[options->unit], HL_EMIT_TEXT_ONLY},
		[COLUMN_FLAT_PERCENT] = {NULL, "flat%", HL_EMIT_PERCENT, HL_EMIT_TEXT_ONLY},
		[COLUMN_CUM] = {NULL, "cum", types[options->unit], HL_EMIT_TEXT_ONLY},
		[COLUMN_CUM_PERCENT] = {NULL, "cum%", HL_EMIT_PERCENT, HL_EMIT_TEXT_ONLY},
		[COLUMN_OTHER] = {NULL, hl_unit_names[other], types[other],
				  knows_other ? HL_EMIT_TEXT_ONLY | HL_EMIT_OMITTED
					      : HL_EMIT_HIDDEN},
		[COLUMN_PID] = {"pid", "pid", HL_EMIT_NUMBER, of_threads},
		[COLUMN_TID] = {"tid", "tid", HL_EMIT_NUMBER, of_threads},
		[COLUMN_PLACE] = {NULL, "where", HL_EMIT_TEXT,
				  HL_EMIT_TEXT_ONLY | HL_EMIT_SHORTENED | HL_EMIT_PATH |
					  key_of_places | of_places},
		[COLUMN_ADDRESS] = {"address", "address", HL_EMIT_TEXT, of_address},
		[COLUMN_NAME] = {"name", title_of_names(options->by), HL_EMIT_TEXT,
				 HL_EMIT_SHORTENED | HL_EMIT_NAMES | key_of_names},
		[COLUMN_FILE] = {"file", NULL, HL_EMIT_TEXT, HL_EMIT_JSON_ONLY | of_frames},
		[COLUMN_LINE] = {"line", NULL, HL_EMIT_COUNT, HL_EMIT_JSON_ONLY | of_frames},
		[COLUMN_MODULE] = {"module", NULL, HL_EMIT_TEXT, HL_EMIT_JSON_ONLY | of_frames},
		[COLUMN_FLAT_BYTES] = {"flat_bytes", NULL, HL_EMIT_BYTES, bytes},
		[COLUMN_FLAT_OBJECTS] = {"flat_objects", NULL, HL_EMIT_COUNT, objects},
		[COLUMN_CUM_BYTES] = {"cum_bytes", NULL, HL_EMIT_BYTES, bytes},
		[COLUMN_CUM_OBJECTS] = {"cum_objects", NULL, HL_EMIT_COUNT, objects},
	};
	hl_emit_rows(emit, "rows", columns, COLUMN_COUNT);
}

static void emit_thread(struct hl_emit *emit, const struct hl_profile *profile, uint32_t id,
			const struct hl_view_options *options)
{
	bool by_thread = options->by == HL_VIEW_BY_THREAD;
	const struct hl_profile_thread *thread = by_thread ? &profile->threads[id] : NULL;

	hl_emit_cell_integer(emit, thread ? profile->processes[thread->process].pid : 0);
	hl_emit_cell_integer(emit, thread ? thread->tid : 0);
}

static void emit_label(struct hl_emit *emit, const struct hl_keys_label *label)
{
	char place[256], address[2 + 16 + 1];

	snprintf(address, sizeof(address), "0x%" PRIx64, label->address);
	hl_emit_cell_text(emit, hl_keys_place(label, place, sizeof(place)));
	hl_emit_cell_text(emit, address);
	hl_emit_cell_text(emit, label->name);
	hl_emit_cell_text(emit, label->file);
	hl_emit_cell_integer(emit, label->line);
	hl_emit_cell_text(emit, label->module);
}

/* Cells in the order of the columns above. */
static void emit_row(struct hl_emit *emit, const struct hl_profile *profile,
		     const struct hl_view_options *options, const struct hl_rows *rows, size_t rank)
{
	const struct hl_row *row = &rows->rows[rank];
	enum hl_unit unit = options->unit;
	int64_t flat = hl_aggregate_figure(row->flat, unit),
		cum = hl_aggregate_figure(row->cum, unit);
	int64_t whole = hl_aggregate_figure(rows->total, unit);

	hl_emit_row(emit,
		    hl_rows_emphasis(rank, options->sort == HL_VIEW_SORT_FLAT ? flat : cum, whole));
	hl_emit_cell_integer(emit, flat);
	hl_emit_cell_percent(emit, flat, whole);
	hl_emit_cell_integer(emit, cum);
	hl_emit_cell_percent(emit, cum, whole);
	hl_emit_cell_integer(emit, hl_aggregate_figure(row->flat, hl_unit_other(unit)));
	emit_thread(emit, profile, row->id, options);
	emit_label(emit, &row->label);
	hl_emit_cell_integer(emit, row->flat.bytes);
	hl_emit_cell_integer(emit, row->flat.objects);
	hl_emit_cell_integer(emit, row->cum.bytes);
	hl_emit_cell_integer(emit, row->cum.objects);
}

static bool has_negative_rows(const struct hl_rows *rows)
{
	for (size_t i = 0; i < rows->count; i++)
		if (rows->rows[i].flat.bytes < 0 || rows->rows[i].flat.objects < 0)
			return true;
	return false;
}

static int emit_rows(const struct hl_profile *profile, const struct hl_view_options *options,
		     const struct hl_rows *rows)
{
	struct hl_emit *emit;
	size_t shown = hl_rows_shown(rows, options, ROWS_DEFAULT);
	char more[HL_FORMAT_MAX];

	int r = hl_emit_new(options->out, options->json ? HL_EMIT_JSON : HL_EMIT_TABLE,
			    options->color, &emit);
	if (r < 0)
		return r;
	hl_emit_begin(emit, "top");
	hl_summary_members(emit, profile, options);
	hl_emit_text(emit, "by", by_names[options->by]);
	hl_summary_lines(emit, profile);
	if (rows->count) {
		hl_summary_value_line(emit, profile, options);
		if (options->by == HL_VIEW_BY_THREAD && has_negative_rows(rows))
			hl_summary_negative_line(emit, profile);
		hl_emit_line(emit, "%s", "");
	}
	begin_rows(emit, profile, options);
	for (size_t i = 0; i < shown; i++)
		emit_row(emit, profile, options, rows, i);
	hl_emit_rows_end(emit);
	if (shown < rows->count)
		hl_emit_line(emit, "... and %s more; -n 0 shows all",
			     hl_format_count((int64_t)(rows->count - shown), more));
	hl_summary_names_line(emit, profile);
	return hl_emit_finish(emit);
}

int hl_view_top(const struct hl_profile *profile, const struct hl_view_options *options,
		struct hl_error *err)
{
	struct hl_rows rows;

	if (options->by == HL_VIEW_BY_THREAD && profile->imported)
		return hl_error_set(err, -ENODATA,
				    "cannot show '%s' by thread: a file of kind '%s' does not say "
				    "which thread did what; see it by function",
				    hl_profile_text(profile, profile->name),
				    hl_profile_text(profile, profile->source));
	int r = hl_rows_init(&rows, profile, options);
	if (r == 0)
		r = emit_rows(profile, options, &rows);
	hl_rows_release(&rows);
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
