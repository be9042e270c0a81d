/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds places for the texts of marks, level by level; see timeline_marks.h. */
#include "view/timeline_marks.h"

#include "view/xml.h"

#include <stdbool.h>

#define LEVELS	    6 /* texts of neighbours stand one below the other */
#define CELLS_MAX   24
#define CELL_WIDTH  8 /* of most letters of the font a little less */
#define TEXT_MARGIN 4
#define LINE_HEIGHT 13

/* A text beside its line: to the right, or where the plot ends soon, to the left. */
struct place {
	double x; /* of the line */
	double begin, end;
	bool is_left;
};

static struct place place_of(const struct hl_timeline_plot *plot, double share, const char *text)
{
	double width = (double)hl_xml_cells(text, CELLS_MAX) * CELL_WIDTH + TEXT_MARGIN;
	double x = plot->left + share * plot->width;

	if (width > CELLS_MAX * CELL_WIDTH + TEXT_MARGIN)
		width = CELLS_MAX * CELL_WIDTH + TEXT_MARGIN;
	bool is_left = x + width > plot->left + plot->width;
	return (struct place){x, is_left ? x - width : x, is_left ? x : x + width, is_left};
}

/* The first level on which nothing is in the way, or LEVELS. */
static size_t find_level(const double ends[LEVELS], const struct place *place)
{
	size_t level = 0;

	while (level < LEVELS && ends[level] > place->begin)
		level++;
	return level;
}

static void put(FILE *out, const struct hl_timeline_plot *plot, const struct place *place,
		size_t level, const char *text)
{
	fprintf(out,
		"<path class=\"mark\" d=\"M%.1f %dv%d\"/><text class=\"%s\" x=\"%.1f\" y=\"%d\">",
		place->x, plot->top, plot->height, place->is_left ? "right" : "left",
		place->is_left ? place->x - TEXT_MARGIN : place->x + TEXT_MARGIN,
		plot->top + LINE_HEIGHT * ((int)level + 1) - 1);
	hl_xml_text_cut(out, text, CELLS_MAX);
	fputs("</text>\n", out);
}

size_t hl_timeline_marks_put(FILE *out, const struct hl_timeline_plot *plot,
			     const struct hl_history *history)
{
	uint64_t start = hl_history_start_ms(history), length = hl_history_length_ms(history);
	double ends[LEVELS] = {0};
	size_t left_out = 0;

	for (size_t i = 0; i < history->log->mark_count; i++) {
		const struct hl_log_mark *mark = &history->log->marks[i];
		if (mark->tick < start || mark->tick >= start + length)
			continue;
		double share = (double)(mark->tick - start) / (double)length;
		struct place place = place_of(plot, share, mark->text);
		size_t level = find_level(ends, &place);
		if (level == LEVELS) {
			left_out++;
			continue;
		}
		ends[level] = place.end;
		if (out)
			put(out, plot, &place, level, mark->text);
	}
	return left_out;
}
