/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline timeline: the maximum in use of each interval, as text, CSV, JSON or a picture. */
#include "view/pictures/timeline.h"

#include "base/cleanup.h"
#include "base/names.h"
#include "view/pictures/svg.h"
#include "view/summary.h"
#include "view/table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a module or a function held; the last one is all others together, if there are any. */
struct timeline_key {
	struct hl_keys_label label; /* of the rest: all "" */
	bool is_rest;
};

struct timeline {
	const struct hl_history *history;
	size_t *points; /* by row: the highest of its points, an index of history->points */
	size_t row_count;
	struct timeline_key keys[HL_TIMELINE_KEYS_MAX + 1];
	size_t key_count; /* 0: in total alone */
	int64_t *bytes;	  /* by row, then by key; a row's add up to its point's max_bytes */
	struct hl_keys frame_keys; /* what keys[] come from */
};

static inline const struct hl_log_point *timeline_point(const struct timeline *timeline, size_t row)
{
	return &timeline->history->points[timeline->points[row]];
}

/* The first point of a row; of the row after the last one, the number of points. */
static inline size_t timeline_first_point(const struct timeline *timeline, size_t row)
{
	return row * timeline->history->point_count / timeline->row_count;
}

static inline int64_t timeline_bytes(const struct timeline *timeline, size_t row, size_t key)
{
	return timeline->bytes[row * timeline->key_count + key];
}

#define HL_TIMELINE_SVG_COLUMNS 880u /* a row for each column of the plot */

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

static int split_by_keys(struct timeline *timeline, struct hl_history *history,
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
		timeline->keys[timeline->key_count++] = (struct timeline_key){
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

/*
 * Rows of ${history}, at most ${row_max} (0: one for each interval); by options->by, the
 * options->timeline.key_limit modules or functions of the largest area, largest first. 0 or a negative errno
 * with a sentence; release in any case.
 */
static int timeline_init(struct timeline *timeline, struct hl_history *history,
			 const struct hl_view_options *options, size_t row_max,
			 struct hl_error *err)
{
	*timeline = (struct timeline){
		.history = history,
		.row_count =
			row_max && row_max < history->point_count ? row_max : history->point_count,
	};
	timeline->points = calloc(timeline->row_count, sizeof(*timeline->points));
	int r = timeline->points ? 0 : -ENOMEM;
	for (size_t row = 0; r == 0 && row < timeline->row_count; row++) {
		size_t highest = timeline_first_point(timeline, row);
		size_t end = timeline_first_point(timeline, row + 1);
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

static void timeline_release(struct timeline *timeline)
{
	hl_keys_release(&timeline->frame_keys);
	free(timeline->points);
	free(timeline->bytes);
	*timeline = (struct timeline){0};
}

/* "parse (json.c:12)", or "the rest". Returns ${buffer}. */
static const char *timeline_key_text(const struct timeline_key *key, char *buffer, size_t size)
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
	const struct timeline *timeline = context;

	hl_emit_array(emit, "by");
	for (size_t i = 0; i < timeline->key_count; i++)
		hl_emit_integer(emit, NULL, ((const struct row *)row)->key_bytes[i]);
	hl_emit_array_end(emit);
}

/* The texts of the marks in a row, joined by "; ". */
static void marks(struct hl_emit *emit, const void *row, const void *context)
{
	const struct timeline *timeline = context;
	const struct hl_log_mark *marks = timeline->history->log->marks;
	size_t number = ((const struct row *)row)->number;
	size_t first = find_mark(timeline->history, timeline_first_point(timeline, number));
	size_t end = find_mark(timeline->history, timeline_first_point(timeline, number + 1));
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

static void write_rows(struct hl_emit *emit, const struct timeline *timeline, bool is_csv)
{
	struct hl_column columns[HL_COUNT_OF(first_columns) + HL_TIMELINE_KEYS_MAX + 2];
	char names[HL_TIMELINE_KEYS_MAX + 1][WORDS_MAX];
	size_t count = HL_COUNT_OF(first_columns);

	memcpy(columns, first_columns, sizeof(first_columns));
	for (size_t i = 0; i < timeline->key_count; i++) {
		if (is_csv)
			timeline_key_text(&timeline->keys[i], names[i], sizeof(names[i]));
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
		const struct hl_log_point *point = timeline_point(timeline, i);
		struct row row = {.ms = hl_history_head_ms(point),
				  .rss_bytes = point->rss_bytes,
				  .max_bytes = point->max_bytes,
				  .number = i};
		for (size_t key = 0; key < timeline->key_count; key++)
			row.key_bytes[key] = timeline_bytes(timeline, i, key);
		hl_table_row(emit, &row, 0);
	}
	hl_table_end(emit);
}

static int write_text(const struct timeline *timeline, const struct hl_view_options *options)
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
		const struct timeline_key *key = &timeline->keys[i];
		timeline_key_text(key, words, sizeof(words));
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

static int write_csv(const struct timeline *timeline, const struct hl_view_options *options)
{
	struct hl_emit *emit;

	int r = hl_emit_new(options->out, HL_EMIT_CSV, false, NULL, &emit);
	if (r < 0)
		return r;
	write_rows(emit, timeline, true);
	r = hl_emit_finish(emit);
	return r < 0 ? r : hl_history_head_note(timeline->history, options);
}

/* ---- the picture: areas of what was in use, the line of RSS, marks and holes ---- */

#define WIDTH	     1000
#define LEGEND_GAP   60
#define LEGEND_ROW   20
#define LEGEND_CELLS 120
#define BYTE_TICKS   6
#define MS_TICKS     9

static const struct hl_timeline_plot plot = {96, 66, HL_TIMELINE_SVG_COLUMNS, 300};

struct picture {
	const struct timeline *timeline;
	const struct hl_history *history;
	FILE *out;
	double bottom;	   /* of the plot */
	int64_t top_bytes; /* at its upper edge */
	unsigned colors[HL_TIMELINE_KEYS_MAX + 1];
};

/* The x of a point of the range, or of the end after the last one. */
static double x_of(const struct picture *picture, double point)
{
	return plot.left + point / (double)picture->history->point_count * plot.width;
}

static double x_of_row(const struct picture *picture, size_t row)
{
	return x_of(picture, (double)timeline_first_point(picture->timeline, row));
}

static double y_of(const struct picture *picture, int64_t bytes)
{
	return picture->bottom - (double)bytes / (double)picture->top_bytes * plot.height;
}

/* ---- marks ---- */

#define LEVELS	    6 /* texts of neighbours stand one below the other */
#define MARK_CELLS  24
#define MARK_MARGIN 4
#define MARK_HEIGHT 13

size_t hl_timeline_svg_marks(FILE *out, const struct hl_timeline_plot *where,
			     const struct hl_history *history)
{
	uint64_t start = hl_history_start_ms(history), length = hl_history_length_ms(history);
	double ends[LEVELS] = {0}; /* of the texts that are there */
	size_t left_out = 0;

	for (size_t i = 0; i < history->log->mark_count; i++) {
		const struct hl_log_mark *mark = &history->log->marks[i];
		if (mark->tick < start || mark->tick >= start + length)
			continue;
		size_t cells = hl_svg_cells(mark->text, MARK_CELLS), level = 0;
		double width = MARK_MARGIN +
			       HL_SVG_CELL * (double)(cells < MARK_CELLS ? cells : MARK_CELLS);
		double x =
			where->left + (double)(mark->tick - start) / (double)length * where->width;
		/* To the right of its line, or where the plot ends soon, to the left. */
		bool is_left = x + width > where->left + where->width;
		while (level < LEVELS && ends[level] > (is_left ? x - width : x))
			level++;
		if (level == LEVELS) {
			left_out++;
			continue;
		}
		ends[level] = is_left ? x : x + width;
		if (!out)
			continue;
		hl_svg_line(out, "mark", x, where->top, 0, where->height);
		hl_svg_text_begin(out, is_left ? "right" : NULL,
				  is_left ? x - MARK_MARGIN : x + MARK_MARGIN,
				  where->top + MARK_HEIGHT * (double)(level + 1) - 1);
		hl_svg_put(out, mark->text, MARK_CELLS);
		hl_svg_text_end(out);
	}
	return left_out;
}

/* ---- axes ---- */

#define SECOND UINT64_C(1000)
#define MINUTE (60 * SECOND)
#define HOUR   (60 * MINUTE)
#define DAY    (24 * HOUR)

static const int64_t byte_steps[] = {1, 2, 5, 10, 20, 50, 100, 200, 500};

static const uint64_t ms_steps[] = {
	100,	     200,	  500,	    SECOND,	2 * SECOND, 5 * SECOND,	 10 * SECOND,
	20 * SECOND, 30 * SECOND, MINUTE,   2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 20 * MINUTE,
	30 * MINUTE, HOUR,	  2 * HOUR, 3 * HOUR,	6 * HOUR,   12 * HOUR,	 DAY,
	2 * DAY,     5 * DAY,	  10 * DAY, 30 * DAY,	100 * DAY,
};

int64_t hl_timeline_svg_byte_step(int64_t most, int tick_max)
{
	for (int64_t unit = 1; unit < INT64_MAX / 1024; unit *= 1024)
		for (size_t i = 0; i < HL_COUNT_OF(byte_steps); i++)
			if (most / tick_max < byte_steps[i] * unit)
				return byte_steps[i] * unit;
	return INT64_MAX / 1024;
}

uint64_t hl_timeline_svg_ms_step(uint64_t length_ms, int tick_max)
{
	uint64_t step = 0;

	for (size_t i = 0; i < HL_COUNT_OF(ms_steps); i++) {
		step = ms_steps[i];
		if (length_ms / step <= (uint64_t)tick_max)
			return step;
	}
	return step * (length_ms / step / (uint64_t)tick_max + 1);
}

const char *hl_timeline_svg_byte_label(int64_t bytes, int64_t step, char buffer[HL_FORMAT_MAX])
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	size_t unit = 0;

	for (; step >= 1024 && unit + 1 < HL_COUNT_OF(units); step /= 1024) {
		bytes /= 1024;
		unit++;
	}
	snprintf(buffer, HL_FORMAT_MAX, "%" PRId64 " %s", bytes, units[unit]);
	return buffer;
}

const char *hl_timeline_svg_ms_label(uint64_t ms, uint64_t step_ms, char buffer[HL_FORMAT_MAX])
{
	static const struct {
		uint64_t ms;
		const char *name;
	} units[] = {{DAY, "d"}, {HOUR, "h"}, {MINUTE, "min"}, {SECOND, "s"}};
	size_t unit = 0;

	while (unit + 1 < HL_COUNT_OF(units) && step_ms < units[unit].ms)
		unit++;
	if (step_ms < SECOND)
		snprintf(buffer, HL_FORMAT_MAX, "%.1f s", (double)ms / (double)SECOND);
	else
		snprintf(buffer, HL_FORMAT_MAX, "%" PRIu64 " %s", ms / units[unit].ms,
			 units[unit].name);
	return buffer;
}

static void put_ms_axis(const struct picture *picture)
{
	uint64_t start = hl_history_start_ms(picture->history);
	uint64_t length = hl_history_length_ms(picture->history);
	uint64_t step = hl_timeline_svg_ms_step(length, MS_TICKS);
	const double bottom = picture->bottom;
	char label[HL_FORMAT_MAX];

	for (uint64_t at = (start + step - 1) / step * step; at <= start + length; at += step) {
		double x = x_of(picture, (double)(at - start) / HL_INTERVAL_TICKS);
		hl_svg_line(picture->out, "axis", x, bottom, 0, 5);
		hl_svg_text(picture->out, "middle", x, bottom + 19, "%s",
			    hl_timeline_svg_ms_label(at, step, label));
	}
	hl_svg_line(picture->out, "axis", plot.left, bottom, plot.width, 0);
	hl_svg_text(picture->out, "middle", plot.left + plot.width / 2, bottom + 38,
		    "time since the recording of the process began");
}

/* ---- the plot ---- */

/* By module these begin as the colours of flame graphs; where two would look alike, they differ. */
static void choose_colors(struct picture *picture)
{
	const struct timeline *timeline = picture->timeline;
	const char *names[HL_TIMELINE_KEYS_MAX + 1];
	char texts[HL_TIMELINE_KEYS_MAX + 1][256];

	for (size_t i = 0; i < timeline->key_count; i++)
		names[i] = timeline_key_text(&timeline->keys[i], texts[i], sizeof(texts[i]));
	if (!timeline->key_count)
		picture->colors[0] = hl_palette_of_name("in use");
	hl_palette_assign(names, timeline->key_count, picture->colors);
	for (size_t i = 0; i < timeline->key_count; i++)
		if (timeline->keys[i].is_rest)
			picture->colors[i] = (unsigned)hl_palette_names.count; /* grey */
}

/* Areas from the baseline up to what each key and those before it held together, or all of it where
 * there are no keys; the largest one first: the others cover it. */
static void put_areas(const struct picture *picture)
{
	const struct timeline *timeline = picture->timeline;

	for (size_t key = timeline->key_count ? timeline->key_count : 1; key-- > 0;) {
		double before = -1;
		fprintf(picture->out, "<path class=\"c%u\" d=\"M%d %g", picture->colors[key],
			plot.left, picture->bottom);
		for (size_t row = 0; row < timeline->row_count; row++) {
			const struct hl_log_point *point = timeline_point(timeline, row);
			int64_t bytes = timeline->key_count ? 0 : point->max_bytes;
			for (size_t i = 0; i < timeline->key_count && i <= key; i++)
				bytes += timeline_bytes(timeline, row, i);
			double y = y_of(picture, bytes);
			if (y != before) /* a level step needs no new point */
				fprintf(picture->out, "H%.1fV%.1f", x_of_row(picture, row), y);
			before = y;
		}
		fprintf(picture->out, "H%dV%gz\"/>\n", plot.left + plot.width, picture->bottom);
	}
}

/* Interrupted where RSS is not known. */
static void put_rss(const struct picture *picture)
{
	const struct timeline *timeline = picture->timeline;
	bool drawing = false;

	fprintf(picture->out, "<path class=\"signal\" d=\"M%d %g", plot.left, picture->bottom);
	for (size_t row = 0; row < timeline->row_count; row++) {
		uint64_t rss = timeline_point(timeline, row)->rss_bytes;
		if (rss && rss < INT64_MAX)
			fprintf(picture->out, drawing ? "L%.1f %.1f" : "M%.1f %.1f",
				(x_of_row(picture, row) + x_of_row(picture, row + 1)) / 2,
				y_of(picture, (int64_t)rss));
		drawing = rss != 0;
	}
	fputs("\"/>\n", picture->out);
}

static void put_holes(const struct picture *picture)
{
	const struct hl_history *history = picture->history;

	for (size_t first = 0; first < history->point_count; first++) {
		size_t end = first;
		while (end < history->point_count && history->points[end].missing)
			end++;
		if (end == first)
			continue;
		double x = x_of(picture, (double)first);
		hl_svg_group_begin(picture->out, "nothing could be written");
		hl_svg_rect(picture->out, "hole", x, plot.top, x_of(picture, (double)end) - x,
			    plot.height);
		hl_svg_group_end(picture->out);
		first = end;
	}
}

/* ---- around it ---- */

static void put_legend(const struct picture *picture, size_t marks_left_out)
{
	const struct timeline *timeline = picture->timeline;
	double y = picture->bottom + LEGEND_GAP;
	char words[256];

	if (!timeline->key_count) {
		hl_svg_swatch(picture->out, picture->colors[0], plot.left, y - 10, "in use",
			      LEGEND_CELLS);
		y += LEGEND_ROW;
	}
	for (size_t i = 0; i < timeline->key_count; i++, y += LEGEND_ROW) {
		timeline_key_text(&timeline->keys[i], words, sizeof(words));
		hl_format_templates(words);
		hl_svg_swatch(picture->out, picture->colors[i], plot.left, y - 10, words,
			      LEGEND_CELLS);
	}
	hl_svg_line(picture->out, "signal", plot.left, y - 4, 14, 0);
	hl_svg_text(picture->out, "plain", plot.left + 19, y,
		    "resident set size (RSS) of the process");
	if (marks_left_out)
		hl_svg_text(picture->out, "plain", plot.left + 19, y + LEGEND_ROW,
			    "there is no room for %zu more mark%s", marks_left_out,
			    hl_format_plural(marks_left_out));
}

/* Writes ${timeline} to options->out, and notes about missing data to options->notes. 0 or -ENOMEM.
 */
static int timeline_svg(const struct timeline *timeline, const struct hl_view_options *options)
{
	const struct hl_history *history = timeline->history;
	const struct hl_profile *profile = history->profile;
	const struct hl_log_point *peak = hl_history_head_peak(history);
	struct picture picture = {
		.timeline = timeline,
		.history = history,
		.out = options->out,
		.bottom = plot.top + plot.height,
	};
	size_t marks_left_out = hl_timeline_svg_marks(NULL, &plot, history);
	size_t legend_rows = (timeline->key_count ? timeline->key_count : 1) + 1;
	char title[512], high[HL_FORMAT_MAX], end[HL_FORMAT_MAX], label[HL_FORMAT_MAX];
	int64_t most = 1;

	for (size_t i = 0; i < timeline->row_count; i++) {
		const struct hl_log_point *point = timeline_point(timeline, i);
		if (point->max_bytes > most)
			most = point->max_bytes;
		if (point->rss_bytes < INT64_MAX && (int64_t)point->rss_bytes > most)
			most = (int64_t)point->rss_bytes;
	}
	int64_t step = hl_timeline_svg_byte_step(most, BYTE_TICKS);
	picture.top_bytes = (most / step + 1) * step;
	choose_colors(&picture);
	snprintf(title, sizeof(title), "%s: %s", hl_profile_text(profile, profile->name),
		 hl_profile_text(profile, profile->processes[0].command));
	hl_svg_begin(picture.out, WIDTH,
		     (int)picture.bottom + LEGEND_GAP +
			     LEGEND_ROW * (int)(legend_rows + (marks_left_out ? 1 : 0)),
		     title, &hl_palette_names);
	hl_svg_heading(picture.out, plot.left, 26, title);
	hl_svg_text(picture.out, "plain", plot.left, 46,
		    "bytes in use, the highest of each interval: %s at %" PRIu64
		    " ms, %s at the end",
		    hl_format_bytes(peak->max_bytes, high), hl_history_head_ms(peak),
		    hl_format_bytes(history->points[history->point_count - 1].end_bytes, end));
	put_areas(&picture);
	for (int64_t at = 0; at <= picture.top_bytes; at += step) {
		double y = y_of(&picture, at);
		hl_svg_line(picture.out, "grid", plot.left, y, plot.width, 0);
		hl_svg_text(picture.out, "right", plot.left - 8, y + 4, "%s",
			    hl_timeline_svg_byte_label(at, step, label));
	}
	put_holes(&picture);
	put_rss(&picture);
	hl_timeline_svg_marks(picture.out, &plot, history);
	put_ms_axis(&picture);
	put_legend(&picture, marks_left_out);
	hl_svg_end(picture.out);
	return hl_history_head_note(history, options);
}

/* ---- all of it ---- */

int hl_timeline_view(struct hl_history *history, const struct hl_view_options *options,
		     struct hl_error *err)
{
	bool text = !options->json && options->timeline.form == HL_VIEW_TIMELINE_TEXT;
	bool svg = !options->json && options->timeline.form == HL_VIEW_TIMELINE_SVG;
	size_t row_max = text ? ROWS_DEFAULT : 0;
	HL_CLEANUP(timeline_release) struct timeline timeline = {0};

	if (svg)
		row_max = HL_TIMELINE_SVG_COLUMNS;
	else if (options->row_limit != HL_EMIT_ROWS_DEFAULT)
		row_max = (size_t)options->row_limit;
	int r = timeline_init(&timeline, history, options, row_max, err);
	if (r < 0)
		return r;
	if (options->json || text)
		r = write_text(&timeline, options);
	else
		r = (svg ? timeline_svg : write_csv)(&timeline, options);
	return r < 0 ? hl_history_head_fail(history, r, err) : 0;
}
