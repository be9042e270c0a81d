/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline timeline: the maximum in use of each interval, as text, CSV, JSON or a picture. */
#include "view/pictures/timeline.h"
#include "base/search.h"
#include "view/format.h"
#include "view/history_head.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_DEFAULT 40 /* what fits a screen */
#define WORDS_MAX    256

static const char *const by_names[] = {
	[HL_VIEW_BY_TOTAL] = "total",
	[HL_VIEW_BY_MODULE] = "module",
	[HL_VIEW_BY_FUNCTION] = "function",
};

/* ---- marks ---- */

/* The first mark from the beginning of point ${index} on. */
static size_t find_mark(const struct hl_history *history, size_t index)
{
	const struct hl_log *log = history->log;
	uint64_t number = history->points[0].number + index;
	return HL_LOWER_BOUND(i, log->mark_count, log->marks[i].tick / HL_INTERVAL_TICKS < number);
}

/* The texts of the marks in a row, joined by "; "; to be freed, NULL where there are none, or for
 * want of memory. */
static char *marks_of_row(const struct hl_timeline *timeline, size_t row)
{
	const struct hl_history *history = timeline->history;
	size_t first = find_mark(history, hl_timeline_first_point(timeline, row));
	size_t end = find_mark(history, hl_timeline_first_point(timeline, row + 1));
	char *text = NULL;
	size_t size;
	FILE *out = first < end ? open_memstream(&text, &size) : NULL;

	if (!out)
		return NULL;
	for (size_t i = first; i < end; i++)
		fprintf(out, "%s%s", i > first ? "; " : "", history->log->marks[i].text);
	if (fclose(out) == 0)
		return text;
	free(text);
	return NULL;
}

/* ---- text and JSON ---- */

/* Columns of keys are called A, B, C ...; a line for each says what it stands for. */
static void emit_keys(struct hl_emit *emit, const struct hl_timeline *timeline)
{
	char words[WORDS_MAX];

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
}

static void begin_rows(struct hl_emit *emit, const struct hl_timeline *timeline)
{
	struct hl_emit_column columns[3 + HL_TIMELINE_KEYS_MAX + 1 + 1] = {
		{"ms", "ms", HL_EMIT_COUNT, 0},
		{"bytes", "in use", HL_EMIT_BYTES, 0},
		{"rss_bytes", "RSS", HL_EMIT_BYTES, 0},
	};
	char titles[HL_TIMELINE_KEYS_MAX + 1][2];
	size_t count = 3;

	for (size_t i = 0; i < timeline->key_count; i++) {
		titles[i][0] = (char)('A' + i);
		titles[i][1] = '\0';
		columns[count++] =
			(struct hl_emit_column){NULL, titles[i], HL_EMIT_BYTES, HL_EMIT_TEXT_ONLY};
	}
	if (timeline->history->log->mark_count)
		columns[count++] =
			(struct hl_emit_column){NULL, "mark", HL_EMIT_TEXT, HL_EMIT_TEXT_ONLY};
	hl_emit_rows_streamed(emit, "rows", columns, count);
}

/* The figures of keys are cells of a table, and an array of JSON. */
static void emit_row_keys(struct hl_emit *emit, const struct hl_timeline *timeline, size_t row)
{
	if (!timeline->key_count)
		return;
	for (size_t i = 0; i < timeline->key_count; i++)
		hl_emit_cell_integer(emit, hl_timeline_bytes(timeline, row, i));
	hl_emit_array(emit, "by");
	for (size_t i = 0; i < timeline->key_count; i++)
		hl_emit_integer(emit, NULL, hl_timeline_bytes(timeline, row, i));
	hl_emit_array_end(emit);
}

static void emit_row(struct hl_emit *emit, const struct hl_timeline *timeline, size_t row)
{
	const struct hl_log_point *point = hl_timeline_point(timeline, row);

	hl_emit_row(emit, 0);
	hl_emit_cell_integer(emit, (int64_t)hl_history_head_ms(point));
	hl_emit_cell_integer(emit, point->max_bytes);
	if (point->rss_bytes)
		hl_emit_cell_integer(emit, (int64_t)point->rss_bytes);
	else
		hl_emit_cell_unknown(emit);
	emit_row_keys(emit, timeline, row);
	if (!timeline->history->log->mark_count)
		return;
	char *marks = marks_of_row(timeline, row);
	hl_emit_cell_text(emit, marks ? marks : "");
	free(marks);
}

static int write_text(const struct hl_timeline *timeline, const struct hl_view_options *options)
{
	const struct hl_history *history = timeline->history;
	struct hl_emit *emit;

	int r = hl_emit_new(options->out, options->json ? HL_EMIT_JSON : HL_EMIT_TABLE,
			    options->color, &emit);
	if (r < 0)
		return r;
	hl_emit_begin(emit, "timeline");
	hl_history_head_members(emit, history);
	hl_emit_text(emit, "by", by_names[options->by]);
	hl_history_head_lines(emit, history);
	emit_keys(emit, timeline);
	if (timeline->row_count < history->point_count)
		hl_emit_line(emit, "each row is the maximum of up to %zu intervals; -n 0 shows all",
			     (history->point_count - 1) / timeline->row_count + 1);
	hl_emit_line(emit, "%s", "");
	begin_rows(emit, timeline);
	for (size_t i = 0; i < timeline->row_count; i++)
		emit_row(emit, timeline, i);
	hl_emit_rows_end(emit);
	return hl_emit_finish(emit);
}

/* ---- CSV (RFC 4180) ---- */

/* A field in quotes, in which lines are no place for line breaks. */
static void put_field(FILE *out, const char *text)
{
	putc('"', out);
	for (; *text; text++) {
		if (*text == '"')
			putc('"', out);
		putc((unsigned char)*text < ' ' ? ' ' : *text, out);
	}
	putc('"', out);
}

static int write_csv(const struct hl_timeline *timeline, const struct hl_view_options *options)
{
	FILE *out = options->out;
	char words[WORDS_MAX];

	fputs("ms,bytes,rss_bytes", out);
	for (size_t i = 0; i < timeline->key_count; i++) {
		putc(',', out);
		put_field(out, hl_timeline_key_text(&timeline->keys[i], words, sizeof(words)));
	}
	fputs("\r\n", out);
	for (size_t row = 0; row < timeline->row_count; row++) {
		const struct hl_log_point *point = hl_timeline_point(timeline, row);
		fprintf(out, "%" PRIu64 ",%" PRId64 ",", hl_history_head_ms(point),
			point->max_bytes);
		if (point->rss_bytes)
			fprintf(out, "%" PRIu64, point->rss_bytes);
		for (size_t i = 0; i < timeline->key_count; i++)
			fprintf(out, ",%" PRId64, hl_timeline_bytes(timeline, row, i));
		fputs("\r\n", out);
	}
	return hl_history_head_note(timeline->history, options);
}

/* ---- all of it ---- */

static size_t row_limit(const struct hl_view_options *options)
{
	bool text = !options->json && options->timeline == HL_VIEW_TIMELINE_TEXT;

	if (!options->json && options->timeline == HL_VIEW_TIMELINE_SVG)
		return HL_TIMELINE_SVG_COLUMNS;
	if (options->row_limit != HL_EMIT_ROWS_DEFAULT)
		return (size_t)options->row_limit;
	return text ? ROWS_DEFAULT : 0;
}

int hl_view_timeline(struct hl_history *history, const struct hl_view_options *options,
		     struct hl_error *err)
{
	struct hl_timeline timeline;

	int r = hl_timeline_init(&timeline, history, options, row_limit(options), err);
	if (r < 0) {
		hl_timeline_release(&timeline);
		return r;
	}
	if (options->json || options->timeline == HL_VIEW_TIMELINE_TEXT)
		r = write_text(&timeline, options);
	else if (options->timeline == HL_VIEW_TIMELINE_CSV)
		r = write_csv(&timeline, options);
	else
		r = hl_timeline_svg(&timeline, options);
	hl_timeline_release(&timeline);
	if (r < 0)
		return hl_error_set(err, r, "cannot show '%s': %s", history->path, strerror(-r));
	return 0;
}
