/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline timeline --format svg: areas of what was in use, the line of RSS, marks and holes. */
#include "view/format.h"
#include "view/history_head.h"
#include "view/pictures/svg.h"
#include "view/pictures/timeline.h"

#include <inttypes.h>

#define WIDTH	     1000
#define LEGEND_GAP   60
#define LEGEND_ROW   20
#define LEGEND_CELLS 120
#define BYTE_TICKS   6
#define MS_TICKS     9

static const struct hl_timeline_plot plot = {96, 66, HL_TIMELINE_SVG_COLUMNS, 300};

struct picture {
	const struct hl_timeline *timeline;
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
	return x_of(picture, (double)hl_timeline_first_point(picture->timeline, row));
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
	const struct hl_timeline *timeline = picture->timeline;
	const char *names[HL_TIMELINE_KEYS_MAX + 1];
	char texts[HL_TIMELINE_KEYS_MAX + 1][256];

	for (size_t i = 0; i < timeline->key_count; i++)
		names[i] = hl_timeline_key_text(&timeline->keys[i], texts[i], sizeof(texts[i]));
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
	const struct hl_timeline *timeline = picture->timeline;

	for (size_t key = timeline->key_count ? timeline->key_count : 1; key-- > 0;) {
		double before = -1;
		fprintf(picture->out, "<path class=\"c%u\" d=\"M%d %g", picture->colors[key],
			plot.left, picture->bottom);
		for (size_t row = 0; row < timeline->row_count; row++) {
			const struct hl_log_point *point = hl_timeline_point(timeline, row);
			int64_t bytes = timeline->key_count ? 0 : point->max_bytes;
			for (size_t i = 0; i < timeline->key_count && i <= key; i++)
				bytes += hl_timeline_bytes(timeline, row, i);
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
	const struct hl_timeline *timeline = picture->timeline;
	bool drawing = false;

	fprintf(picture->out, "<path class=\"signal\" d=\"M%d %g", plot.left, picture->bottom);
	for (size_t row = 0; row < timeline->row_count; row++) {
		uint64_t rss = hl_timeline_point(timeline, row)->rss_bytes;
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
	const struct hl_timeline *timeline = picture->timeline;
	double y = picture->bottom + LEGEND_GAP;
	char words[256];

	if (!timeline->key_count) {
		hl_svg_swatch(picture->out, picture->colors[0], plot.left, y - 10, "in use",
			      LEGEND_CELLS);
		y += LEGEND_ROW;
	}
	for (size_t i = 0; i < timeline->key_count; i++, y += LEGEND_ROW) {
		hl_timeline_key_text(&timeline->keys[i], words, sizeof(words));
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

int hl_timeline_svg(const struct hl_timeline *timeline, const struct hl_view_options *options)
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
		const struct hl_log_point *point = hl_timeline_point(timeline, i);
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
