/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline timeline: the maximum in use of each interval, as text, CSV, JSON or a picture. */
#include "view/pictures/timeline.h"
#include "base/cleanup.h"
#include "base/names.h"
#include "view/format.h"
#include "view/history_head.h"
#include "view/table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_DEFAULT 40 /* what fits a screen */
#define WORDS_MAX    256

/* ---- keys ---- */

struct area {
	double area;
	uint32_t key;
};

static int largest_first(const void *left, const void *right)
{
	const struct area *a = left, *b = right;

	if (a->area != b->area)
		return a->area < b->area ? 1 : -1;
	return (a->key > b->key) - (a->key < b->key);
}

static int split_by_keys(struct hl_timeline *timeline, struct hl_history *history,
			 const struct hl_view_options *options, struct hl_error *err)
{
	uint64_t limit = options->timeline.key_limit < HL_TIMELINE_KEYS_MAX
				 ? options->timeline.key_limit
				 : HL_TIMELINE_KEYS_MAX;
	HL_CLEANUP(hl_history_survey_release) struct hl_history_survey survey = {0};

	int r = hl_history_survey_init(&survey, history, 1, err);
	if (r < 0)
		return r;
	const struct hl_profile *profile = history->profile; /* the survey's */
	r = hl_keys_init(&timeline->frame_keys, profile, options->by, HL_VALUE_INUSE, HL_UNIT_BYTES,
			 true);
	if (r < 0)
		return r;
	const struct hl_keys *keys = &timeline->frame_keys;
	HL_FREED struct area *areas = calloc(keys->count, sizeof(*areas));
	HL_FREED uint32_t *column_of = calloc(keys->count, sizeof(*column_of));
	HL_FREED uint32_t *columns = calloc(profile->node_count, sizeof(*columns)); /* by node */
	if (!areas || !column_of || !columns)
		return -ENOMEM;
	for (uint32_t i = 0; i < keys->count; i++)
		areas[i].key = i;
	for (uint32_t i = 0; i < survey.sum_count; i++)
		areas[hl_keys_of_node(keys, profile, i)].area += survey.sums[i].area;
	qsort(areas, keys->count, sizeof(*areas), largest_first);
	/* The largest keys get a column each, and all others one together. */
	size_t chosen = 0;
	for (; chosen < limit && chosen < keys->count && areas[chosen].area > 0; chosen++)
		timeline->keys[chosen].label = hl_keys_label(keys, profile, areas[chosen].key);
	timeline->key_count = chosen;
	if (!chosen || (chosen < keys->count && areas[chosen].area > 0))
		timeline->keys[timeline->key_count++] = (struct hl_timeline_key){
			.label = {.name = "", .file = "", .module = ""}, .is_rest = true};
	/* What comes after the last column holds nothing ever. */
	for (size_t i = 0; i < keys->count; i++)
		column_of[areas[i].key] =
			(uint32_t)(i < timeline->key_count ? i : timeline->key_count - 1);
	for (uint32_t i = 0; i < profile->node_count; i++)
		columns[i] = column_of[hl_keys_of_node(keys, profile, i)];
	return hl_history_series(history, timeline->points, timeline->row_count, columns,
				 timeline->key_count, &timeline->bytes, err);
}

int hl_timeline_init(struct hl_timeline *timeline, struct hl_history *history,
		     const struct hl_view_options *options, size_t row_max, struct hl_error *err)
{
	*timeline = (struct hl_timeline){
		.history = history,
		.row_count =
			row_max && row_max < history->point_count ? row_max : history->point_count,
	};
	timeline->points = calloc(timeline->row_count, sizeof(*timeline->points));
	int r = timeline->points ? 0 : -ENOMEM;
	for (size_t row = 0; r == 0 && row < timeline->row_count; row++) {
		size_t highest = hl_timeline_first_point(timeline, row);
		size_t end = hl_timeline_first_point(timeline, row + 1);
		for (size_t i = highest + 1; i < end; i++)
			if (history->points[i].max_bytes > history->points[highest].max_bytes)
				highest = i;
		timeline->points[row] = highest;
	}
	if (r == 0 && options->by != HL_VIEW_BY_TOTAL)
		r = split_by_keys(timeline, history, options, err);
	return r == -ENOMEM ? hl_error_set(err, r, "cannot show '%s': out of memory", history->path)
			    : r;
}

void hl_timeline_release(struct hl_timeline *timeline)
{
	hl_keys_release(&timeline->frame_keys);
	free(timeline->points);
	free(timeline->bytes);
	*timeline = (struct hl_timeline){0};
}

const char *hl_timeline_key_text(const struct hl_timeline_key *key, char *buffer, size_t size)
{
	char place[256];

	if (key->is_rest)
		snprintf(buffer, size, "the rest");
	else if (hl_keys_names_module(&key->label) || !strcmp(key->label.name, key->label.module))
		snprintf(buffer, size, "%s", hl_path_basename(key->label.name));
	else if (!key->label.file[0] && !key->label.module[0])
		snprintf(buffer, size, "%s", key->label.name);
	else
		snprintf(buffer, size, "%s (%s)", key->label.name,
			 hl_keys_place(&key->label, place, sizeof(place)));
	return buffer;
}

/* ---- marks ---- */

/* The first mark from the beginning of point ${index} on. */
static size_t find_mark(const struct hl_history *history, size_t index)
{
	const struct hl_log *log = history->log;
	uint64_t number = history->points[0].number + index;

	return HL_LOWER_BOUND(i, log->mark_count, log->marks[i].tick / HL_INTERVAL_TICKS < number);
}

/* ---- text, JSON and CSV ---- */

struct row {
	uint64_t ms, rss_bytes;
	int64_t max_bytes, key_bytes[HL_TIMELINE_KEYS_MAX + 1];
	size_t number;
};

static void rss(struct hl_emit *emit, const void *row, const void *context)
{
	uint64_t bytes = ((const struct row *)row)->rss_bytes;

	(void)context;
	if (bytes)
		hl_cell_unsigned(emit, bytes);
	else
		hl_cell_unknown(emit);
}

/* In JSON, figures of keys are an array. */
static void by(struct hl_emit *emit, const void *row, const void *context)
{
	const struct hl_timeline *timeline = context;

	hl_emit_array(emit, "by");
	for (size_t i = 0; i < timeline->key_count; i++)
		hl_emit_integer(emit, NULL, ((const struct row *)row)->key_bytes[i]);
	hl_emit_array_end(emit);
}

/* The texts of the marks in a row, joined by "; ". */
static void marks(struct hl_emit *emit, const void *row, const void *context)
{
	const struct hl_timeline *timeline = context;
	const struct hl_log_mark *marks = timeline->history->log->marks;
	size_t number = ((const struct row *)row)->number;
	size_t first = find_mark(timeline->history, hl_timeline_first_point(timeline, number));
	size_t end = find_mark(timeline->history, hl_timeline_first_point(timeline, number + 1));
	HL_FREED char *text = NULL;
	size_t size;
	FILE *out = first < end ? open_memstream(&text, &size) : NULL;

	for (size_t i = first; out && i < end; i++)
		fprintf(out, "%s%s", i > first ? "; " : "", marks[i].text);
	if (first < end && (!out || fclose(out) != 0)) {
		hl_emit_fail(emit, -ENOMEM);
		return;
	}
	hl_cell_text(emit, text ? text : "");
}

#define MEMBER(name) HL_MEMBER(struct row, name)

/* Then columns of keys, and marks. */
static const struct hl_column first_columns[] = {
	{"ms", "ms", HL_COLUMN_COUNT, MEMBER(ms)},
	{"bytes", "in use", HL_COLUMN_BYTES, MEMBER(max_bytes)},
	{"rss_bytes", "RSS", HL_COLUMN_BYTES, .cell = rss},
};

static void write_rows(struct hl_emit *emit, const struct hl_timeline *timeline, bool is_csv)
{
	struct hl_column columns[HL_COUNT_OF(first_columns) + HL_TIMELINE_KEYS_MAX + 2];
	char names[HL_TIMELINE_KEYS_MAX + 1][WORDS_MAX];
	size_t count = HL_COUNT_OF(first_columns);

	memcpy(columns, first_columns, sizeof(first_columns));
	for (size_t i = 0; i < timeline->key_count; i++) {
		if (is_csv)
			hl_timeline_key_text(&timeline->keys[i], names[i], sizeof(names[i]));
		else
			snprintf(names[i], sizeof(names[i]), "%c", (char)('A' + i));
		columns[count++] =
			(struct hl_column){NULL, names[i], HL_COLUMN_BYTES, MEMBER(key_bytes[i])};
	}
	if (timeline->key_count)
		columns[count++] = (struct hl_column){"by", NULL, HL_COLUMN_MEMBERS, .cell = by};
	if (timeline->history->log->mark_count && !is_csv)
		columns[count++] = (struct hl_column){NULL, "mark", HL_COLUMN_TEXT, .cell = marks};
	hl_table_begin_streamed(emit, &(struct hl_table){.key = "rows",
							 .columns = columns,
							 .column_count = count,
							 .context = timeline});
	for (size_t i = 0; i < timeline->row_count; i++) {
		const struct hl_log_point *point = hl_timeline_point(timeline, i);
		struct row row = {.ms = hl_history_head_ms(point),
				  .rss_bytes = point->rss_bytes,
				  .max_bytes = point->max_bytes,
				  .number = i};
		for (size_t key = 0; key < timeline->key_count; key++)
			row.key_bytes[key] = hl_timeline_bytes(timeline, i, key);
		hl_table_row(emit, &row, 0);
	}
	hl_table_end(emit);
}

static int write_text(const struct hl_timeline *timeline, const struct hl_view_options *options)
{
	const struct hl_history *history = timeline->history;
	struct hl_emit *emit;
	char words[WORDS_MAX], text[HL_FORMAT_MAX];

	int r = hl_history_head_begin(history, options, "timeline/1", &emit);
	if (r < 0)
		return r;
	hl_emit_text(emit, "by", hl_keys_by_names[options->by]);
	/* Columns of keys are called A, B, C ...; a line for each says what it stands for. */
	hl_emit_array(emit, "keys");
	for (size_t i = 0; i < timeline->key_count; i++) {
		const struct hl_timeline_key *key = &timeline->keys[i];
		hl_timeline_key_text(key, words, sizeof(words));
		hl_format_templates(words);
		hl_emit_line(emit, "%c: %s", (char)('A' + i), words);
		hl_emit_object(emit, NULL);
		hl_emit_text(emit, "name", key->is_rest ? "" : key->label.name);
		hl_emit_text(emit, "file", key->label.file);
		hl_emit_integer(emit, "line", key->label.line);
		hl_emit_text(emit, "module", key->label.module);
		hl_emit_boolean(emit, "rest", key->is_rest);
		hl_emit_object_end(emit);
	}
	hl_emit_array_end(emit);
	if (timeline->row_count < history->point_count)
		hl_emit_line(emit, "each row is the maximum of up to %zu intervals; -n 0 shows all",
			     (history->point_count - 1) / timeline->row_count + 1);
	int64_t recorder = hl_profile_whole_figure(history->profile, "recorder_memory_bytes");
	if (recorder)
		hl_emit_line(emit, "RSS is without heapline's recorder, which took %s at most",
			     hl_format_bytes(recorder, text));
	hl_emit_blank(emit);
	write_rows(emit, timeline, false);
	return hl_emit_finish(emit);
}

static int write_csv(const struct hl_timeline *timeline, const struct hl_view_options *options)
{
	struct hl_emit *emit;

	int r = hl_emit_new(options->out, HL_EMIT_CSV, false, NULL, &emit);
	if (r < 0)
		return r;
	write_rows(emit, timeline, true);
	r = hl_emit_finish(emit);
	return r < 0 ? r : hl_history_head_note(timeline->history, options);
}

/* ---- all of it ---- */

int hl_timeline_view(struct hl_history *history, const struct hl_view_options *options,
		     struct hl_error *err)
{
	bool text = !options->json && options->timeline.form == HL_VIEW_TIMELINE_TEXT;
	bool svg = !options->json && options->timeline.form == HL_VIEW_TIMELINE_SVG;
	size_t row_max = text ? ROWS_DEFAULT : 0;
	HL_CLEANUP(hl_timeline_release) struct hl_timeline timeline = {0};

	if (svg)
		row_max = HL_TIMELINE_SVG_COLUMNS;
	else if (options->row_limit != HL_EMIT_ROWS_DEFAULT)
		row_max = (size_t)options->row_limit;
	int r = hl_timeline_init(&timeline, history, options, row_max, err);
	if (r < 0)
		return r;
	if (options->json || text)
		r = write_text(&timeline, options);
	else
		r = (svg ? hl_timeline_svg : write_csv)(&timeline, options);
	return r < 0 ? hl_history_head_fail(history, r, err) : 0;
}
