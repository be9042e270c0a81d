/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline top: functions, or what else rows stand for, heaviest first. */
#include "guests/traits.h"
#include "view/rows.h"
#include "view/summary.h"
#include "view/table.h"

#include <errno.h>
#include <string.h>

#define ROWS_DEFAULT 30

/* A dump of mprof, whose own tables number their rows and count the blocks of callees; by the unit that is not
 * chosen. */
#define DUMP_WITH_OBJECTS (1u << 30)
#define DUMP_WITH_BYTES	  (1u << 31)
#define IS_DUMP		  (DUMP_WITH_OBJECTS | DUMP_WITH_BYTES)

#define BY(key) (1u << HL_VIEW_BY_##key)
#define BY_NAME (BY(FUNCTION) | BY(ADDRESS)) /* rows stand for what has the name */

static void pid(struct hl_emit *emit, const void *row, const void *context)
{
	const struct hl_profile *profile = context;
	const struct hl_profile_thread *thread =
		&profile->threads[((const struct hl_row *)row)->id];

	hl_cell_integer(emit, profile->processes[thread->process].pid);
}

static void tid(struct hl_emit *emit, const void *row, const void *context)
{
	const struct hl_profile *profile = context;

	hl_cell_integer(emit, profile->threads[((const struct hl_row *)row)->id].tid);
}

#define MEMBER(name) HL_MEMBER(struct hl_row, name)
#define AT	     HL_MEMBER_CELL(struct hl_row, label, hl_keys_cell_place)
#define PLACE	     HL_COLUMN_SHORTENED | HL_COLUMN_PATH
#define NAME	     HL_COLUMN_SHORTENED | HL_COLUMN_NAMES
#define KEY	     HL_COLUMN_KEY
#define BY_FRAME     (BY_NAME | BY(LINE) | BY(MODULE))

static const struct hl_column columns[] = {
	{NULL, "no", HL_COLUMN_NUMBER, MEMBER(rank), .shown_if = IS_DUMP},
	{"flat", "flat", HL_COLUMN_FIGURE, MEMBER(flat)},
	{NULL, "flat%", HL_COLUMN_SHARE, MEMBER(flat)},
	{"cum", "cum", HL_COLUMN_FIGURE, MEMBER(cum)},
	{NULL, "cum%", HL_COLUMN_SHARE, MEMBER(cum)},
	/* In the unit that was not chosen, and called after it: "objects" or "bytes". */
	{NULL, "other", HL_COLUMN_OTHER, MEMBER(flat), HL_COLUMN_OMITTED},
	{NULL, "cum objects", HL_COLUMN_OTHER, MEMBER(cum), HL_COLUMN_OMITTED, DUMP_WITH_OBJECTS},
	{NULL, "cum bytes", HL_COLUMN_OTHER, MEMBER(cum), HL_COLUMN_OMITTED, DUMP_WITH_BYTES},
	{"pid", "pid", HL_COLUMN_NUMBER, .cell = pid, .shown_if = BY(THREAD)},
	{"tid", "tid", HL_COLUMN_NUMBER, .cell = tid, .shown_if = BY(THREAD)},
	{NULL, "where", HL_COLUMN_TEXT, AT, .flags = PLACE | KEY, .shown_if = BY(LINE)},
	{NULL, "where", HL_COLUMN_TEXT, AT, .flags = PLACE, .shown_if = BY_NAME},
	{"address", "address", HL_COLUMN_ADDRESS, MEMBER(label.address), .shown_if = BY(ADDRESS)},
	/* Last in tables: names can be very long. */
	{"name", "function", HL_COLUMN_TEXT, MEMBER(label.name), NAME | KEY, BY_NAME},
	{"name", "function", HL_COLUMN_TEXT, MEMBER(label.name), NAME, BY(LINE)},
	{"name", "module", HL_COLUMN_TEXT, MEMBER(label.name), NAME | PLACE | KEY, BY(MODULE)},
	{"name", "thread", HL_COLUMN_TEXT, MEMBER(label.name), NAME | KEY, BY(THREAD)},
	{"name", "type", HL_COLUMN_TEXT, MEMBER(label.name), NAME | KEY, BY(TYPE)},
	{"name", "service", HL_COLUMN_TEXT, MEMBER(label.name), NAME | KEY, BY(SERVICE)},
	{"file", NULL, HL_COLUMN_TEXT, MEMBER(label.file), .shown_if = BY_FRAME},
	{"line", NULL, HL_COLUMN_COUNT, MEMBER(label.line), .shown_if = BY_FRAME},
	{"module", NULL, HL_COLUMN_TEXT, MEMBER(label.module), .shown_if = BY_FRAME},
};

/* Why no block has the label that rows are of. */
static void explain_labels(struct hl_emit *emit, const struct hl_profile *profile,
			   const struct hl_rows *rows, enum hl_view_key by)
{
	for (size_t i = 0; i < rows->count; i++)
		if (rows->rows[i].id)
			return;
	bool has_types = false; /* other blocks, which a filter has left out */
	for (size_t i = 1; i < profile->frame_count; i++)
		has_types |= profile->frames[i].part == HL_PART_TYPE;
	if (by == HL_VIEW_BY_TYPE && !has_types)
		hl_emit_line(emit, "no block here has a type: %s", hl_keys_types_advice(profile));
	const struct hl_guest_traits *guest = hl_guest_host();
	if (by == HL_VIEW_BY_SERVICE && guest)
		hl_emit_line(emit,
			     "no block here has a service: those of %s are known; see "
			     "heapline-services(1)",
			     guest->language);
	else if (by == HL_VIEW_BY_SERVICE)
		hl_emit_line(emit, "no block here has a service");
}

int hl_top_view(const struct hl_profile *profile, const struct hl_view_options *options,
		struct hl_error *err)
{
	HL_CLEANUP(hl_rows_release) struct hl_rows rows = {0};
	bool is_negative = false; /* a thread that freed what others allocated */
	struct hl_emit *emit;

	if (options->by == HL_VIEW_BY_THREAD && profile->imported)
		return hl_error_set(err, -ENODATA,
				    "cannot show '%s' by thread: a file of kind '%s' does not say "
				    "which thread did what; see it by function",
				    hl_profile_text(profile, profile->name),
				    hl_profile_text(profile, profile->source));
	int r = hl_rows_init(&rows, profile, options);
	if (r == 0)
		r = hl_summary_begin(profile, options, "top/1", &emit);
	if (r < 0)
		return hl_summary_fail(profile, r, err);
	int64_t whole = hl_aggregate_figure(rows.total, options->unit);
	unsigned facts = 1u << options->by;
	if (strcmp(hl_profile_text(profile, profile->source), "mprof") == 0)
		facts |= options->unit == HL_UNIT_BYTES ? DUMP_WITH_OBJECTS : DUMP_WITH_BYTES;
	size_t shown = hl_emit_shown(emit, options->row_limit, ROWS_DEFAULT, rows.count);
	hl_emit_text(emit, "by", hl_keys_by_names[options->by]);
	for (size_t i = 0; options->by == HL_VIEW_BY_THREAD && i < rows.count; i++)
		is_negative |= rows.rows[i].flat.bytes < 0 || rows.rows[i].flat.objects < 0;
	if (rows.count || hl_value_is_of_pages(options->value)) {
		hl_summary_value_line(emit, profile, options);
		if (is_negative)
			hl_summary_negative_line(emit, profile);
		hl_emit_blank(emit);
	}
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", columns), .context = profile,
						.facts = facts, .whole = rows.total});
	for (size_t i = 0; i < shown; i++) {
		struct hl_row *row = &rows.rows[i];
		row->rank = (uint32_t)i + 1;
		int64_t weight = hl_aggregate_figure(
			options->sort == HL_VIEW_SORT_FLAT ? row->flat : row->cum, options->unit);
		hl_table_row(emit, row, hl_rows_emphasis(i, weight, whole));
	}
	hl_table_end(emit);
	hl_emit_more(emit, rows.count - shown, "-n");
	if (rows.count)
		explain_labels(emit, profile, &rows, options->by);
	r = hl_summary_end(emit, profile);
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
