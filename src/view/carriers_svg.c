/* SPDX-License-Identifier: BSD-2-Clause */
/* Carriers as a picture: a strip for each, by colour what it holds; see carriers.h. */
#include "base/compiler.h"
#include "view/carriers.h"
#include "view/format.h"
#include "view/heap_words.h"
#include "view/xml.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH	     1100
#define MARGIN	     16
#define STRIP_LEFT   360
#define STRIP_WIDTH  600
#define STRIP_HEIGHT 14
#define ROW_HEIGHT   19
#define HEAD_HEIGHT  92
#define LEGEND_TOP   66
#define LEGEND_STEP  206
#define FOOT_HEIGHT  40
#define ROWS_MAX     300 /* what is smaller is summed up in a line below */
#define TITLE_CELLS  110
#define NAME_CELLS   30
#define HATCH	     "url(#unscanned)"

/* What stretches are drawn as; by enum hl_stretch_kind, then free bytes of unknown residency. */
#define KIND_FREE  HL_STRETCH_COUNT
#define KIND_COUNT (HL_STRETCH_COUNT + 1)

static const struct {
	const char *color, *words;
} kinds[KIND_COUNT] = {
	[HL_STRETCH_LIVE] = {"#4a7fb5", "in use"},
	[HL_STRETCH_CACHED] = {"#a3c4e3", "cached"},
	[HL_STRETCH_FREE_RESIDENT] = {"#e8875b", "free, in memory"},
	[HL_STRETCH_FREE_ABSENT] = {"#f1e4da", "free, not in memory"},
	[HL_STRETCH_UNSCANNED] = {HATCH, "unscanned"},
	[KIND_FREE] = {"#edc3a8", "free"},
};

struct picture {
	const struct hl_carriers *carriers;
	const struct hl_carrier **order;
	size_t shown;
	uint64_t sums[KIND_COUNT]; /* over all carriers, also those that are not shown */
	bool has_lines;		   /* below strips, for what is unscanned */
	FILE *out;
};

/* ---- shares ---- */

static uint64_t minimum(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Of a BEAM's carriers nobody does. */
static bool knows_residency(const struct hl_carrier *carrier)
{
	return carrier->strip || carrier->resident_bytes;
}

/* What a carrier without a strip holds, of each kind. Its parts add up to its size. */
static void share_out(const struct hl_carrier *carrier, uint64_t ret_bytes[KIND_COUNT])
{
	uint64_t left = carrier->total_bytes;

	memset(ret_bytes, 0, KIND_COUNT * sizeof(*ret_bytes));
	ret_bytes[HL_STRETCH_LIVE] = minimum(carrier->allocated_bytes, left);
	left -= ret_bytes[HL_STRETCH_LIVE];
	ret_bytes[HL_STRETCH_CACHED] = minimum(carrier->cached_bytes, left);
	left -= ret_bytes[HL_STRETCH_CACHED];
	if (!knows_residency(carrier)) {
		ret_bytes[KIND_FREE] = left;
		return;
	}
	ret_bytes[HL_STRETCH_FREE_RESIDENT] = minimum(carrier->free_resident_bytes, left);
	left -= ret_bytes[HL_STRETCH_FREE_RESIDENT];
	ret_bytes[HL_STRETCH_UNSCANNED] = minimum(carrier->unscanned_bytes, left);
	ret_bytes[HL_STRETCH_FREE_ABSENT] = left - ret_bytes[HL_STRETCH_UNSCANNED];
}

/* By the carriers' own figures, as in tables, however finely strips are drawn. */
static void sum_up(struct picture *picture)
{
	uint64_t *sums = picture->sums;

	for (size_t i = 0; i < picture->carriers->count; i++) {
		const struct hl_carrier *carrier = &picture->carriers->carriers[i];
		uint64_t absent = carrier->free_bytes -
				  minimum(carrier->free_resident_bytes, carrier->free_bytes);
		sums[HL_STRETCH_LIVE] += carrier->allocated_bytes;
		sums[HL_STRETCH_CACHED] += carrier->cached_bytes;
		sums[HL_STRETCH_FREE_RESIDENT] += carrier->free_resident_bytes;
		sums[HL_STRETCH_UNSCANNED] += carrier->unscanned_bytes;
		sums[knows_residency(carrier) ? HL_STRETCH_FREE_ABSENT : KIND_FREE] += absent;
		picture->has_lines |= !carrier->strip && carrier->unscanned_bytes;
	}
}

/* ---- strips ---- */

static void put_rectangle(const struct picture *picture, double x, double y, double width,
			  double height, size_t kind)
{
	fprintf(picture->out,
		"<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"/>", x, y,
		width, height, kinds[kind].color);
}

static void put_shares(const struct picture *picture, const struct hl_carrier *carrier, double y)
{
	uint64_t bytes[KIND_COUNT];
	double x = STRIP_LEFT;

	share_out(carrier, bytes);
	for (size_t kind = 0; kind < KIND_COUNT; kind++) {
		if (!bytes[kind])
			continue;
		double width = (double)bytes[kind] / (double)carrier->total_bytes * STRIP_WIDTH;
		put_rectangle(picture, x, y, width, STRIP_HEIGHT, kind);
		x += width;
	}
}

/* Parts from ${first} on that hold the same, so that they are one rectangle. Returns their end. */
static uint32_t equal_parts(const struct hl_carrier *carrier, uint32_t first)
{
	uint32_t end = first + 1;

	while (end < carrier->strip_count &&
	       !memcmp(carrier->strip[end], carrier->strip[first], sizeof(*carrier->strip)))
		end++;
	return end;
}

/* A column of as many parts as hold the same: what it holds is stacked, live bytes below. */
static void put_parts(const struct picture *picture, const struct hl_carrier *carrier,
		      uint32_t first, uint32_t end, double y)
{
	const uint64_t *bytes = carrier->strip[first];
	double part = (double)STRIP_WIDTH / carrier->strip_count, bottom = y + STRIP_HEIGHT;
	uint64_t total = 0;

	for (size_t kind = 0; kind < HL_STRETCH_COUNT; kind++)
		total += bytes[kind];
	for (size_t kind = 0; kind < HL_STRETCH_COUNT; kind++) {
		if (!bytes[kind])
			continue;
		double height = (double)bytes[kind] / (double)total * STRIP_HEIGHT;
		bottom -= height;
		put_rectangle(picture, STRIP_LEFT + first * part, bottom, (end - first) * part,
			      height, kind);
	}
}

static void put_strip(const struct picture *picture, const struct hl_carrier *carrier, double y)
{
	uint32_t end;

	if (!carrier->strip) {
		put_shares(picture, carrier, y);
		return;
	}
	for (uint32_t first = 0; first < carrier->strip_count; first = end) {
		end = equal_parts(carrier, first);
		put_parts(picture, carrier, first, end, y);
	}
}

/* ---- rows ---- */

static void put_tooltip(const struct picture *picture, const struct hl_carrier *carrier)
{
	char total[HL_FORMAT_MAX], live[HL_FORMAT_MAX], blocks[HL_FORMAT_MAX];
	char unscanned[HL_FORMAT_MAX];

	fputs("<title>", picture->out);
	hl_xml_text(picture->out, carrier->allocator);
	putc(' ', picture->out);
	hl_xml_text(picture->out, carrier->type);
	fprintf(picture->out, " of %s: %s in %s block%s in use",
		hl_format_bytes(hl_heap_number(carrier->total_bytes), total),
		hl_format_bytes(hl_heap_number(carrier->allocated_bytes), live),
		hl_format_count(hl_heap_number(carrier->allocated_blocks), blocks),
		hl_format_plural(carrier->allocated_blocks));
	if (carrier->unscanned_bytes)
		fprintf(picture->out, ", %s unscanned",
			hl_format_bytes(hl_heap_number(carrier->unscanned_bytes), unscanned));
	fputs(carrier->in_pool ? ", in the pool</title>" : "</title>", picture->out);
}

static void put_label(const struct picture *picture, const struct hl_carrier *carrier, double y)
{
	char total[HL_FORMAT_MAX];

	fprintf(picture->out, "<text x=\"%d\" y=\"%.1f\">", MARGIN, y);
	hl_xml_text_cut(picture->out, carrier->allocator, NAME_CELLS);
	putc(' ', picture->out);
	hl_xml_text_cut(picture->out, carrier->type, NAME_CELLS);
	if (carrier->address)
		fprintf(picture->out, " %#" PRIx64, carrier->address);
	fprintf(picture->out, "</text><text class=\"right\" x=\"%d\" y=\"%.1f\">%s</text>",
		STRIP_LEFT - 10, y, hl_format_bytes(hl_heap_number(carrier->total_bytes), total));
}

static void put_share(const struct picture *picture, const struct hl_carrier *carrier, double y)
{
	char share[HL_FORMAT_MAX];

	fprintf(picture->out, "<text class=\"right\" x=\"%d\" y=\"%.1f\">%s</text>",
		STRIP_LEFT + STRIP_WIDTH + 60, y,
		hl_format_percent(hl_heap_number(carrier->allocated_bytes),
				  hl_heap_number(carrier->total_bytes), share));
	if (carrier->in_pool)
		fprintf(picture->out, "<text x=\"%d\" y=\"%.1f\">pool</text>",
			STRIP_LEFT + STRIP_WIDTH + 72, y);
}

/* A line under a strip, as long as the part of it that is unscanned. */
static void put_unscanned(const struct picture *picture, const struct hl_carrier *carrier, double y)
{
	double share = (double)minimum(carrier->unscanned_bytes, carrier->total_bytes) /
		       (double)carrier->total_bytes;

	if (carrier->strip || !carrier->unscanned_bytes)
		return;
	put_rectangle(picture, STRIP_LEFT, y + STRIP_HEIGHT, share * STRIP_WIDTH, 3,
		      HL_STRETCH_UNSCANNED);
}

static void put_row(const struct picture *picture, size_t row)
{
	const struct hl_carrier *carrier = picture->order[row];
	double y = HEAD_HEIGHT + (double)row * ROW_HEIGHT, base = y + STRIP_HEIGHT - 3;

	fputs("<g>", picture->out);
	put_tooltip(picture, carrier);
	put_label(picture, carrier, base);
	if (carrier->total_bytes) {
		put_strip(picture, carrier, y);
		put_unscanned(picture, carrier, y);
	}
	put_share(picture, carrier, base);
	fputs("</g>\n", picture->out);
}

/* ---- around them ---- */

static int height_of(const struct picture *picture)
{
	return HEAD_HEIGHT + (int)picture->shown * ROW_HEIGHT + FOOT_HEIGHT;
}

static void put_begin(const struct picture *picture)
{
	fprintf(picture->out,
		"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
		"viewBox=\"0 0 %d %d\">\n"
		"<style>text{font:12px sans-serif;fill:#222}.title{font-size:17px}"
		".right{text-anchor:end}"
		"rect{shape-rendering:crispEdges}.paper{fill:#fff}"
		"@media (prefers-color-scheme:dark){.paper{fill:#1c1d20}text{fill:#e6e6e3}}"
		"</style>\n"
		"<defs><pattern id=\"unscanned\" width=\"4\" height=\"4\" "
		"patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">"
		"<rect width=\"4\" height=\"4\" fill=\"#d6d6dc\"/>"
		"<rect width=\"2\" height=\"4\" fill=\"#7a7a86\"/></pattern></defs>\n"
		"<rect class=\"paper\" width=\"100%%\" height=\"100%%\"/>\n",
		WIDTH, height_of(picture), WIDTH, height_of(picture));
}

static void put_title(const struct picture *picture, const char *title)
{
	uint64_t total = 0;
	char bytes[HL_FORMAT_MAX], count[HL_FORMAT_MAX];

	for (size_t i = 0; i < picture->carriers->count; i++)
		total += picture->carriers->carriers[i].total_bytes;
	fprintf(picture->out, "<text class=\"title\" x=\"%d\" y=\"26\">carriers of ", MARGIN);
	hl_xml_text_cut(picture->out, title, TITLE_CELLS);
	fprintf(picture->out, "</text>\n<text x=\"%d\" y=\"48\">%s in %s carrier%s</text>\n",
		MARGIN, hl_format_bytes(hl_heap_number(total), bytes),
		hl_format_count(hl_heap_number(picture->carriers->count), count),
		hl_format_plural(picture->carriers->count));
}

/* The kinds that there are, with their sums, side by side. */
static void put_legend(const struct picture *picture)
{
	char bytes[HL_FORMAT_MAX];
	int x = MARGIN;

	for (size_t kind = 0; kind < KIND_COUNT; kind++) {
		if (!picture->sums[kind])
			continue;
		put_rectangle(picture, x, LEGEND_TOP, 14, 12, kind);
		fprintf(picture->out, "<text x=\"%d\" y=\"%d\">%s: %s</text>\n", x + 20,
			LEGEND_TOP + 11, kinds[kind].words,
			hl_format_bytes(hl_heap_number(picture->sums[kind]), bytes));
		x += LEGEND_STEP;
	}
}

static void put_foot(const struct picture *picture)
{
	size_t left_out = picture->carriers->count - picture->shown;
	int y = HEAD_HEIGHT + (int)picture->shown * ROW_HEIGHT + 22;

	if (left_out)
		fprintf(picture->out,
			"<text x=\"%d\" y=\"%d\">there is no room for %zu smaller carrier%s; the "
			"sums above have them</text>\n",
			MARGIN, y, left_out, hl_format_plural(left_out));
	else if (!picture->shown)
		fprintf(picture->out, "<text x=\"%d\" y=\"%d\">there are no carriers</text>\n",
			MARGIN, y);
	else if (picture->has_lines)
		fprintf(picture->out,
			"<text x=\"%d\" y=\"%d\">a line below a strip is as long as the part of it "
			"that is unscanned</text>\n",
			MARGIN, y);
}

int hl_carriers_write_svg(FILE *out, const struct hl_carriers *carriers, const char *title)
{
	struct picture picture = {
		.carriers = carriers,
		.order = hl_carriers_by_size(carriers),
		.shown = carriers->count < ROWS_MAX ? carriers->count : ROWS_MAX,
		.out = out,
	};

	if (!picture.order)
		return -ENOMEM;
	sum_up(&picture);
	put_begin(&picture);
	put_title(&picture, title);
	put_legend(&picture);
	for (size_t row = 0; row < picture.shown; row++)
		put_row(&picture, row);
	put_foot(&picture);
	fputs("</svg>\n", out);
	free(picture.order);
	return 0;
}
