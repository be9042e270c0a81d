/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline timeline --format svg: areas of what was in use, the line of RSS, marks and holes. */
#include "view/timeline_svg.h"

#include "view/history_head.h"
#include "view/timeline_axis.h"
#include "view/timeline_marks.h"
#include "view/xml.h"

#include <string.h>

#define WIDTH	     1000
#define LEFT	     96
#define TOP	     66
#define PLOT_WIDTH   ((int)HL_TIMELINE_SVG_COLUMNS)
#define PLOT_HEIGHT  300
#define BOTTOM	     (TOP + PLOT_HEIGHT)
#define LEGEND_TOP   (BOTTOM + 60)
#define LEGEND_ROW   20
#define BYTE_TICKS   6
#define MS_TICKS     9
#define LEGEND_CELLS 120
#define TITLE_CELLS  110
#define REST_COLOR   "#c9ced6"
#define INUSE_COLOR  "#7fb2e5"
#define RSS_COLOR    "#c05621"

/* Told apart by most eyes, and light enough to see grid lines and marks through. */
static const char *const key_colors[HL_TIMELINE_KEYS_MAX] = {
	"#5b9bd5", "#f2a65a", "#71bf81", "#e57f7f", "#a98bd1", "#d1b04a",
	"#5fc3c3", "#d98cbf", "#9aa85b", "#8c9edb", "#c99a7c", "#7d8f9e",
};

struct picture {
	const struct hl_timeline *timeline;
	const struct hl_history *history;
	FILE *out;
	int64_t top_bytes; /* at the upper edge of the plot */
	int64_t byte_step;
	size_t marks_left_out;
};

static const struct hl_timeline_plot plot = {LEFT, TOP, PLOT_WIDTH, PLOT_HEIGHT};

static int64_t highest_of(const struct hl_timeline *timeline)
{
	int64_t most = 1;

	for (size_t i = 0; i < timeline->row_count; i++) {
		const struct hl_log_point *point = hl_timeline_point(timeline, i);
		if (point->max_bytes > most)
			most = point->max_bytes;
		if (point->rss_bytes < INT64_MAX && (int64_t)point->rss_bytes > most)
			most = (int64_t)point->rss_bytes;
	}
	return most;
}

/* Of a point of the range, or of the end after the last one. */
static double x_of(const struct picture *picture, double point)
{
	return LEFT + point / (double)picture->history->point_count * PLOT_WIDTH;
}

static double x_of_row(const struct picture *picture, size_t row)
{
	return x_of(picture, (double)hl_timeline_first_point(picture->timeline, row));
}

static double y_of(const struct picture *picture, int64_t bytes)
{
	return BOTTOM - (double)bytes / (double)picture->top_bytes * PLOT_HEIGHT;
}

/* ---- head and legend ---- */

static size_t legend_rows(const struct picture *picture)
{
	size_t keys = picture->timeline->key_count;

	return (keys ? keys : 1) + 1 + (picture->marks_left_out ? 1 : 0);
}

static void put_head(const struct picture *picture)
{
	const struct hl_profile *profile = picture->history->profile;
	const struct hl_log_point *peak = hl_history_head_peak(picture->history);
	const struct hl_log_point *last =
		&picture->history->points[picture->history->point_count - 1];
	char high[HL_FORMAT_MAX], end[HL_FORMAT_MAX];
	FILE *out = picture->out;

	fprintf(out, "<text class=\"title\" x=\"%d\" y=\"26\">", LEFT);
	hl_xml_text_cut(out, hl_profile_text(profile, profile->name), TITLE_CELLS);
	fputs(": ", out);
	hl_xml_text_cut(out, hl_profile_text(profile, profile->processes[0].command), TITLE_CELLS);
	fprintf(out,
		"</text>\n<text x=\"%d\" y=\"46\">bytes in use, the highest of each interval: "
		"%s at %llu ms, %s at the end</text>\n",
		LEFT, hl_format_bytes(peak->max_bytes, high),
		(unsigned long long)hl_history_head_ms(peak),
		hl_format_bytes(last->end_bytes, end));
}

static void put_swatch(const struct picture *picture, size_t row, const char *color, bool line)
{
	int y = LEGEND_TOP + LEGEND_ROW * (int)row;

	fprintf(picture->out, "<rect x=\"%d\" y=\"%d\" width=\"14\" height=\"%d\" fill=\"%s\"/>\n",
		LEFT, line ? y - 6 : y - 11, line ? 2 : 12, color);
	fprintf(picture->out, "<text x=\"%d\" y=\"%d\">", LEFT + 22, y);
}

static const char *color_of_key(const struct hl_timeline *timeline, size_t key)
{
	if (!timeline->key_count)
		return INUSE_COLOR;
	return timeline->keys[key].is_rest ? REST_COLOR : key_colors[key];
}

static void put_legend(const struct picture *picture)
{
	const struct hl_timeline *timeline = picture->timeline;
	char words[256];
	size_t row = 0;

	if (!timeline->key_count) {
		put_swatch(picture, row++, INUSE_COLOR, false);
		fputs("in use</text>\n", picture->out);
	}
	for (; row < timeline->key_count; row++) {
		put_swatch(picture, row, color_of_key(timeline, row), false);
		hl_timeline_key_text(&timeline->keys[row], words, sizeof(words));
		hl_format_templates(words);
		hl_xml_text_cut(picture->out, words, LEGEND_CELLS);
		fputs("</text>\n", picture->out);
	}
	put_swatch(picture, row, RSS_COLOR, true);
	fputs("resident set size (RSS) of the process</text>\n", picture->out);
	if (picture->marks_left_out)
		fprintf(picture->out,
			"<text x=\"%d\" y=\"%d\">there is no room for %zu more mark%s</text>\n",
			LEFT + 22, LEGEND_TOP + LEGEND_ROW * ((int)row + 1),
			picture->marks_left_out, picture->marks_left_out == 1 ? "" : "s");
}

/* ---- axes ---- */

static void put_byte_axis(const struct picture *picture)
{
	char label[HL_FORMAT_MAX];

	for (int64_t at = 0; at <= picture->top_bytes; at += picture->byte_step) {
		double y = y_of(picture, at);
		fprintf(picture->out,
			"<path class=\"grid\" d=\"M%d %.1fh%d\"/>"
			"<text class=\"right\" x=\"%d\" y=\"%.1f\">%s</text>\n",
			LEFT, y, PLOT_WIDTH, LEFT - 8, y + 4,
			hl_timeline_byte_label(at, picture->byte_step, label));
	}
}

static void put_ms_axis(const struct picture *picture)
{
	uint64_t start = hl_history_start_ms(picture->history);
	uint64_t length = hl_history_length_ms(picture->history);
	uint64_t step = hl_timeline_ms_step(length, MS_TICKS);
	char label[HL_FORMAT_MAX];

	for (uint64_t at = (start + step - 1) / step * step; at <= start + length; at += step) {
		double x = x_of(picture, (double)(at - start) / HL_INTERVAL_TICKS);
		fprintf(picture->out,
			"<path class=\"axis\" d=\"M%.1f %dv5\"/>"
			"<text class=\"middle\" x=\"%.1f\" y=\"%d\">%s</text>\n",
			x, BOTTOM, x, BOTTOM + 19, hl_timeline_ms_label(at, step, label));
	}
	fprintf(picture->out,
		"<path class=\"axis\" d=\"M%d %dh%d\"/>"
		"<text class=\"middle\" x=\"%d\" y=\"%d\">time since the recording of the process "
		"began</text>\n",
		LEFT, BOTTOM, PLOT_WIDTH, LEFT + PLOT_WIDTH / 2, BOTTOM + 38);
}

/* ---- the plot ---- */

/* What the keys up to ${key} held together, or all of it where there are no keys. */
static int64_t height_of(const struct hl_timeline *timeline, size_t row, size_t key)
{
	int64_t bytes = 0;

	if (!timeline->key_count)
		return hl_timeline_point(timeline, row)->max_bytes;
	for (size_t i = 0; i <= key; i++)
		bytes += hl_timeline_bytes(timeline, row, i);
	return bytes;
}

static void put_area(const struct picture *picture, size_t key)
{
	const struct hl_timeline *timeline = picture->timeline;
	double before = -1;

	fprintf(picture->out, "<path fill=\"%s\" d=\"M%d %d", color_of_key(timeline, key), LEFT,
		BOTTOM);
	for (size_t row = 0; row < timeline->row_count; row++) {
		double y = y_of(picture, height_of(timeline, row, key));
		if (y != before) /* else the step is level */
			fprintf(picture->out, "H%.1fV%.1f", x_of_row(picture, row), y);
		before = y;
	}
	fprintf(picture->out, "H%dV%dz\"/>\n", LEFT + PLOT_WIDTH, BOTTOM);
}

/* Areas from the baseline up to each sum, the largest one first: the others cover it. */
static void put_areas(const struct picture *picture)
{
	size_t count = picture->timeline->key_count ? picture->timeline->key_count : 1;

	for (size_t key = count; key-- > 0;)
		put_area(picture, key);
}

/* Interrupted where RSS is not known. */
static void put_rss(const struct picture *picture)
{
	const struct hl_timeline *timeline = picture->timeline;
	bool drawing = false;

	fprintf(picture->out, "<path class=\"rss\" d=\"M%d %d", LEFT, BOTTOM);
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

	for (size_t first = 0, end; first < history->point_count; first = end) {
		for (end = first; end < history->point_count && history->points[end].missing; end++)
			continue;
		if (end == first) {
			end++;
			continue;
		}
		fprintf(picture->out,
			"<rect class=\"hole\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\">"
			"<title>nothing could be written</title></rect>\n",
			x_of(picture, (double)first), TOP,
			x_of(picture, (double)end) - x_of(picture, (double)first), PLOT_HEIGHT);
	}
}

/* ---- all of it ---- */

static void put_style(FILE *out)
{
	fputs("<style>\n"
	      "text{font:12px Verdana,\"DejaVu Sans\",sans-serif;fill:#333}\n"
	      ".title{font-size:15px;font-weight:bold}\n"
	      ".right{text-anchor:end}.middle{text-anchor:middle}\n"
	      ".grid{stroke:#000;stroke-opacity:.12;fill:none}\n"
	      ".axis{stroke:#555;fill:none}\n"
	      ".rss{stroke:" RSS_COLOR ";stroke-width:1.5;fill:none}\n"
	      ".mark{stroke:#444;stroke-dasharray:4 3;fill:none}\n"
	      ".hole{fill:#888;fill-opacity:.35}\n"
	      ".paper{fill:#fff}\n"
	      "@media (prefers-color-scheme:dark){.paper{fill:#1c1d20}text{fill:#e6e6e3}"
	      ".grid{stroke:#fff}.axis{stroke:#9a9da3}.mark{stroke:#c9ced6}}\n"
	      "</style>\n",
	      out);
}

int hl_timeline_svg(const struct hl_timeline *timeline, const struct hl_view_options *options)
{
	struct picture picture = {
		.timeline = timeline,
		.history = timeline->history,
		.out = options->out,
		.marks_left_out = hl_timeline_marks_put(NULL, &plot, timeline->history),
	};
	int height = LEGEND_TOP + LEGEND_ROW * (int)legend_rows(&picture);
	int64_t most = highest_of(timeline);

	picture.byte_step = hl_timeline_byte_step(most, BYTE_TICKS);
	picture.top_bytes = (most / picture.byte_step + 1) * picture.byte_step;
	fprintf(picture.out,
		"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
		"viewBox=\"0 0 %d %d\">\n<!-- Made by heapline %s. -->\n",
		WIDTH, height, WIDTH, height, HL_VERSION);
	put_style(picture.out);
	fputs("<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n", picture.out);
	put_head(&picture);
	put_areas(&picture);
	put_byte_axis(&picture);
	put_holes(&picture);
	put_rss(&picture);
	hl_timeline_marks_put(picture.out, &plot, picture.history);
	put_ms_axis(&picture);
	put_legend(&picture);
	fputs("</svg>\n", picture.out);
	return hl_history_head_note(timeline->history, options);
}
