/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline timeline: the maximum in use of each interval, as text, CSV, JSON or a picture. */
#include "view/pictures/timeline.h"
#include "base/search.h"
#include "view/format.h"
#include "view/history_head.h"
#include "view/table.h"

#include <inttypes.h>
#include <stdlib.h>

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

static void marks(struct hl_emit *emit, const void *row, const void *timeline)
{
	char *text = marks_of_row(timeline, ((const struct row *)row)->number);

	hl_cell_text(emit, text ? text : "");
	free(text);
}

/* Of key I, if there are as many. */
#define HAS_KEY(i) (1u << (i))
#define HAS_MARKS  (1u << 31)
#define KEY(title, i)                                                              \
	{                                                                          \
		NULL, title, HL_COLUMN_BYTES, HL_MEMBER(struct row, key_bytes[i]), \
			.shown_if = HAS_KEY(i)                                     \
	}

static const struct hl_column columns[] = {
	{"ms", "ms", HL_COLUMN_COUNT, HL_MEMBER(struct row, ms)},
	{"bytes", "in use", HL_COLUMN_BYTES, HL_MEMBER(struct row, max_bytes)},
	{"rss_bytes", "RSS", HL_COLUMN_BYTES, .cell = rss},
	KEY("A", 0),
	KEY("B", 1),
	KEY("C", 2),
	KEY("D", 3),
	KEY("E", 4),
	KEY("F", 5),
	KEY("G", 6),
	KEY("H", 7),
	KEY("I", 8),
	KEY("J", 9),
	KEY("K", 10),
	KEY("L", 11),
	KEY("M", 12),
	{"by", NULL, HL_COLUMN_MEMBERS, .cell = by, .shown_if = HAS_KEY(0)},
	{NULL, "mark", HL_COLUMN_TEXT, .cell = marks, .shown_if = HAS_MARKS},
};

static void write_rows(struct hl_emit *emit, const struct hl_timeline *timeline)
{
	unsigned facts = HAS_KEY(timeline->key_count) - 1;

	if (timeline->history->log->mark_count)
		facts |= HAS_MARKS;
	hl_table_begin_streamed(emit, &(struct hl_table){HL_TABLE("rows", columns),
							 .context = timeline, .facts = facts});
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

	int r = hl_history_head_begin(history, options, "timeline/1", &emit);
	if (r < 0)
		return r;
	hl_emit_text(emit, "by", by_names[options->by]);
	emit_keys(emit, timeline);
	if (timeline->row_count < history->point_count)
		hl_emit_line(emit, "each row is the maximum of up to %zu intervals; -n 0 shows all",
			     (history->point_count - 1) / timeline->row_count + 1);
	hl_emit_blank(emit);
	write_rows(emit, timeline);
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
	return r < 0 ? hl_history_head_fail(history, r, err) : 0;
}
