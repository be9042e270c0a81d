/* SPDX-License-Identifier: BSD-2-Clause */
/* Carriers as a picture: a strip for each, by colour what it holds; see heap.h. */
#include "view/heap.h"
#include "view/pictures/svg.h"

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
#define FOOT_HEIGHT  40
#define ROWS_MAX     300 /* smaller carriers are summed up in a line below */
#define NAME_CELLS   30

/* The colours of stretches: by enum hl_stretch_kind, then free bytes of unknown residency. */
#define KIND_FREE  HL_STRETCH_COUNT
#define KIND_COUNT (HL_STRETCH_COUNT + 1)

static const char *const kind_words[KIND_COUNT] = {
	[HL_STRETCH_LIVE] = "in use",
	[HL_STRETCH_CACHED] = "cached",
	[HL_STRETCH_FREE_RESIDENT] = "free, in memory",
	[HL_STRETCH_FREE_ABSENT] = "free, not in memory",
	[HL_STRETCH_UNSCANNED] = "unscanned",
	[KIND_FREE] = "free",
};

static const struct hl_palette palette = {
	KIND_COUNT,
	{
		[HL_STRETCH_LIVE] = 0x67b1fa,
		[HL_STRETCH_CACHED] = 0xbcd7f4,
		[HL_STRETCH_FREE_RESIDENT] = 0xf39a8e,
		[HL_STRETCH_FREE_ABSENT] = 0xf1e4da,
		[HL_STRETCH_UNSCANNED] = 0xd6d6dc, /* hatched, see HATCH */
		[KIND_FREE] = 0xedc3a8,
	}};

#define HATCH                                                                                   \
	"<defs><pattern id=\"hatch\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\" " \
	"patternTransform=\"rotate(45)\"><rect width=\"4\" height=\"4\" fill=\"#d6d6dc\"/>"     \
	"<rect width=\"2\" height=\"4\" fill=\"#7a7a86\"/></pattern></defs>\n"                  \
	"<style>rect{shape-rendering:crispEdges}.c4{fill:url(#hatch)}</style>\n"
_Static_assert(HL_STRETCH_UNSCANNED == 4, "the class that is hatched");

struct picture {
	const struct hl_carriers *carriers;
	const struct hl_carrier **order;
	size_t shown;
	uint64_t total_bytes, sums[KIND_COUNT]; /* also of the carriers that are not shown */
	bool has_lines;				/* below strips, for unscanned bytes */
	FILE *out;
};

static uint64_t minimum(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* A runtime that is asked does not know which pages of its carriers are resident. */
static bool knows_residency(const struct hl_carrier *carrier)
{
	return carrier->strip || carrier->resident_bytes;
}

/* By the carriers' own figures, as in tables, however finely strips are drawn. */
static void sum_up(struct picture *picture)
{
	uint64_t *sums = picture->sums;

	for (size_t i = 0; i < picture->carriers->count; i++) {
		const struct hl_carrier *carrier = &picture->carriers->carriers[i];
		uint64_t absent = carrier->free_bytes -
				  minimum(carrier->free_resident_bytes, carrier->free_bytes);
		picture->total_bytes += carrier->total_bytes;
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
	const char class[] = {'c', (char)('0' + kind), '\0'};

	hl_svg_rect(picture->out, class, x, y, width, height);
}

/* A carrier without a strip: the share of each kind. Its parts add up to its size. */
static void put_shares(const struct picture *picture, const struct hl_carrier *carrier, double y)
{
	const uint64_t parts[][2] = {
		{HL_STRETCH_LIVE, carrier->allocated_bytes},
		{HL_STRETCH_CACHED, carrier->cached_bytes},
		{HL_STRETCH_FREE_RESIDENT,
		 knows_residency(carrier) ? carrier->free_resident_bytes : 0},
		{HL_STRETCH_UNSCANNED, knows_residency(carrier) ? carrier->unscanned_bytes : 0},
		{knows_residency(carrier) ? HL_STRETCH_FREE_ABSENT : KIND_FREE, UINT64_MAX},
	};
	uint64_t bytes[KIND_COUNT] = {0}, left = carrier->total_bytes;
	double x = STRIP_LEFT;

	for (size_t i = 0; i < HL_COUNT_OF(parts); i++) {
		bytes[parts[i][0]] = minimum(parts[i][1], left);
		left -= bytes[parts[i][0]];
	}
	for (size_t kind = 0; kind < KIND_COUNT; kind++) {
		if (!bytes[kind])
			continue;
		double width = (double)bytes[kind] / (double)carrier->total_bytes * STRIP_WIDTH;
		put_rectangle(picture, x, y, width, STRIP_HEIGHT, kind);
		x += width;
	}
}

/* Parts that hold the same are one column: what it holds is stacked, live bytes below. */
static void put_strip(const struct picture *picture, const struct hl_carrier *carrier, double y)
{
	const double part = (double)STRIP_WIDTH / carrier->strip_count;

	for (uint32_t first = 0, end; first < carrier->strip_count; first = end) {
		const uint64_t *bytes = carrier->strip[first];
		double bottom = y + STRIP_HEIGHT;
		uint64_t total = 0;
		end = first + 1;
		while (end < carrier->strip_count &&
		       !memcmp(carrier->strip[end], bytes, sizeof(*carrier->strip)))
			end++;
		for (size_t kind = 0; kind < HL_STRETCH_COUNT; kind++)
			total += bytes[kind];
		for (size_t kind = 0; kind < HL_STRETCH_COUNT; kind++) {
			if (!bytes[kind])
				continue;
			double height = (double)bytes[kind] / (double)total * STRIP_HEIGHT;
			bottom -= height;
			put_rectangle(picture, STRIP_LEFT + first * part, bottom,
				      (end - first) * part, height, kind);
		}
	}
}

/* ---- rows ---- */

static void put_row(const struct picture *picture, size_t row)
{
	const struct hl_carrier *carrier = picture->order[row];
	const double y = HEAD_HEIGHT + (double)row * ROW_HEIGHT, base = y + STRIP_HEIGHT - 3;
	FILE *out = picture->out;

	hl_svg_group_begin(
		out, "%s %s of %s: %s in %s block%s in use%s%s%s%s", carrier->allocator,
		carrier->type, HL_HEAP_BYTES(carrier->total_bytes),
		HL_HEAP_BYTES(carrier->allocated_bytes), HL_HEAP_COUNT(carrier->allocated_blocks),
		hl_format_plural(carrier->allocated_blocks), carrier->unscanned_bytes ? ", " : "",
		carrier->unscanned_bytes ? HL_HEAP_BYTES(carrier->unscanned_bytes) : "",
		carrier->unscanned_bytes ? " unscanned" : "",
		carrier->in_pool ? ", in the pool" : "");
	hl_svg_text_begin(out, NULL, MARGIN, base);
	hl_svg_put(out, carrier->allocator, NAME_CELLS);
	putc(' ', out);
	hl_svg_put(out, carrier->type, NAME_CELLS);
	if (carrier->address)
		fprintf(out, " %#" PRIx64, carrier->address);
	hl_svg_text_end(out);
	hl_svg_text(out, "right", STRIP_LEFT - 10, base, "%s", HL_HEAP_BYTES(carrier->total_bytes));
	if (carrier->total_bytes && carrier->strip) {
		put_strip(picture, carrier, y);
	} else if (carrier->total_bytes) {
		put_shares(picture, carrier, y);
		/* A line under it, as long as the part of it that is unscanned. */
		uint64_t bytes = minimum(carrier->unscanned_bytes, carrier->total_bytes);
		double part = (double)bytes / (double)carrier->total_bytes;
		if (bytes)
			put_rectangle(picture, STRIP_LEFT, y + STRIP_HEIGHT, part * STRIP_WIDTH, 3,
				      HL_STRETCH_UNSCANNED);
	}
	hl_svg_text(out, "right", STRIP_LEFT + STRIP_WIDTH + 60, base, "%s",
		    HL_HEAP_PERCENT(carrier->allocated_bytes, carrier->total_bytes));
	if (carrier->in_pool)
		hl_svg_text(out, NULL, STRIP_LEFT + STRIP_WIDTH + 72, base, "pool");
	hl_svg_group_end(out);
}

int hl_carriers_svg_write(FILE *out, const struct hl_carriers *carriers, const char *title)
{
	struct picture picture = {
		.carriers = carriers,
		.order = hl_carriers_by_size(carriers),
		.shown = carriers->count < ROWS_MAX ? carriers->count : ROWS_MAX,
		.out = out,
	};
	size_t left_out = carriers->count - picture.shown;
	double foot = HEAD_HEIGHT + (double)picture.shown * ROW_HEIGHT + 22;
	char heading[512], words[2 * HL_FORMAT_MAX];
	double x = MARGIN;

	if (!picture.order)
		return -ENOMEM;
	sum_up(&picture);
	snprintf(heading, sizeof(heading), "carriers of %s", title);
	hl_svg_begin(out, WIDTH, HEAD_HEIGHT + (int)picture.shown * ROW_HEIGHT + FOOT_HEIGHT,
		     heading, &palette);
	fputs(HATCH, out);
	hl_svg_heading(out, MARGIN, 26, heading);
	hl_svg_text(out, "plain", MARGIN, 48, "%s in %s carrier%s",
		    HL_HEAP_BYTES(picture.total_bytes), HL_HEAP_COUNT(carriers->count),
		    hl_format_plural(carriers->count));
	/* The kinds that there are, with their sums, side by side. */
	for (unsigned kind = 0; kind < KIND_COUNT; kind++) {
		if (!picture.sums[kind])
			continue;
		snprintf(words, sizeof(words), "%s: %s", kind_words[kind],
			 HL_HEAP_BYTES(picture.sums[kind]));
		x = hl_svg_swatch(out, kind, x, LEGEND_TOP, words, sizeof(words));
	}
	for (size_t row = 0; row < picture.shown; row++)
		put_row(&picture, row);
	if (left_out)
		hl_svg_text(out, "plain", MARGIN, foot,
			    "there is no room for %zu smaller carrier%s; the sums above have them",
			    left_out, hl_format_plural(left_out));
	else if (!picture.shown)
		hl_svg_text(out, "plain", MARGIN, foot, "there are no carriers");
	else if (picture.has_lines)
		hl_svg_text(out, "plain", MARGIN, foot,
			    "a line below a strip is as long as the part of it that is unscanned");
	hl_svg_end(out);
	free(picture.order);
	return 0;
}
