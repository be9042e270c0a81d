/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes SVG 1.1, and any text into XML (Extensible Markup Language 1.0, section 2.2); see svg.h.
 */
#include "view/pictures/svg.h"

#include "base/index.h"
#include "base/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

/* ---- palettes, made with equal steps in the OKLCH colour space ---- */

#define DARK_PERCENT   45
#define GROWTH_STEPS   6     /* on each side of "the same" */
#define GROWTH_IGNORED 0.005 /* a smaller share counts as the same */
#define COLOR_STEP     7     /* to a colour that differs well; prime to HL_PALETTE_MAX */

const struct hl_palette hl_palette_names = {
	24, {0xfaaab8, 0xffbcb7, 0xfaaf97, 0xffc39a, 0xedb980, 0xf3cf8b, 0xd4c57c, 0xd4db92,
	     0xb2d08d, 0xb0e5ac, 0x8ed7ad, 0x8fe9ce, 0x75d8cf, 0x83e7f0, 0x77d3ed, 0x93dfff,
	     0x92caff, 0xb3d5ff, 0xb5bfff, 0xd6c9ff, 0xd5b4f4, 0xf3c0f9, 0xedadda, 0xffbbda}};

const struct hl_palette hl_palette_growth = {2 * GROWTH_STEPS + 1,
					     {0x4ea6fb, 0x67b1fa, 0x7ebaf9, 0x93c4f8, 0xa7cef6,
					      0xbcd7f4, 0xe1e1e1, 0xf3c8c2, 0xf4b9b0, 0xf4a99f,
					      0xf39a8e, 0xf2897d, 0xf0796b}};

unsigned hl_palette_of_name(const char *name)
{
	return hl_hash_bytes(name, strlen(name)) % (unsigned)hl_palette_names.count;
}

void hl_palette_assign(const char *const *names, size_t count, unsigned *ret_colors)
{
	const unsigned all = (unsigned)hl_palette_names.count;
	bool taken[HL_PALETTE_MAX] = {false};

	for (size_t i = 0; i < count; i++) {
		unsigned color = hl_palette_of_name(names[i]);
		for (unsigned tries = 0; taken[color] && tries < all; tries++)
			color = (color + COLOR_STEP) % all;
		if (taken[color]) /* all are: names have to share colours */
			memset(taken, 0, sizeof(taken));
		/* Together with its neighbours, which look much like it. */
		taken[color] = taken[(color + 1) % all] = taken[(color + all - 1) % all] = true;
		ret_colors[i] = color;
	}
}

unsigned hl_palette_of_growth(int64_t before, int64_t after)
{
	double larger = (double)(before > after ? before : after);
	double growth = larger > 0 ? ((double)after - (double)before) / larger : 0;
	double size = growth < 0 ? -growth : growth;

	if (size <= GROWTH_IGNORED)
		return GROWTH_STEPS;
	int step = size < 1 ? 1 + (int)(size * GROWTH_STEPS) : GROWTH_STEPS;
	return (unsigned)(GROWTH_STEPS + (growth < 0 ? -step : step));
}

/* The colour for a dark background, as in the page of a report. */
static unsigned palette_dark(unsigned rgb)
{
	unsigned dark = 0;

	for (int shift = 0; shift < 24; shift += 8)
		dark |= ((rgb >> shift & 255) * DARK_PERCENT + 50) / 100 << shift;
	return dark;
}

#define REPLACEMENT	0xfffdu
#define CONTROL_PICTURE 0x2400u
#define DELETE_PICTURE	0x2421u
#define ELLIPSIS	"\xe2\x80\xa6"
#define FORMATTED_MAX	2048
#define TITLE_CELLS	76 /* fit the narrowest picture beside the buttons of flame graphs */

/* ---- characters ---- */

struct character {
	uint32_t code_point; /* as it is to be shown */
	size_t length;	     /* bytes of the text that it takes, at least 1 */
	bool is_replaced;
};

static struct character next_character(const char *text)
{
	uint32_t code_point;
	int length = hl_utf8_decode(text, &code_point);

	if (length == 0)
		return (struct character){REPLACEMENT, 1, true};
	uint32_t shown = code_point;
	if (code_point < 0x20)
		shown = CONTROL_PICTURE + code_point;
	else if (code_point == 0x7f)
		shown = DELETE_PICTURE;
	else if (hl_utf8_is_control(code_point) || (code_point & 0xfffe) == 0xfffe)
		shown = REPLACEMENT;
	return (struct character){shown, (size_t)length, shown != code_point};
}

static size_t cells_of(struct character character)
{
	uint32_t code_point = character.code_point;
	bool is_wide = (code_point >= 0x1100 && code_point < 0x1160) ||
		       (code_point >= 0x2e80 && code_point != REPLACEMENT);

	return is_wide ? 2 : 1;
}

static void put_character(FILE *out, const char *text, struct character character)
{
	uint32_t code_point = character.code_point;

	if (character.is_replaced) { /* U+0800 to U+FFFF: three bytes of UTF-8 */
		putc((int)(0xe0 | code_point >> 12), out);
		putc((int)(0x80 | (code_point >> 6 & 0x3f)), out);
		putc((int)(0x80 | (code_point & 0x3f)), out);
	} else if (code_point == '&') {
		fputs("&amp;", out);
	} else if (code_point == '<') {
		fputs("&lt;", out);
	} else if (code_point == '>') {
		fputs("&gt;", out);
	} else if (code_point == '"') {
		fputs("&quot;", out);
	} else {
		fwrite(text, 1, character.length, out);
	}
}

size_t hl_svg_cells(const char *text, size_t cell_max)
{
	size_t cells = 0;

	while (*text && cells <= cell_max) {
		struct character character = next_character(text);
		cells += cells_of(character);
		text += character.length;
	}
	return cells;
}

void hl_svg_put(FILE *out, const char *text, size_t cell_max)
{
	bool whole = hl_svg_cells(text, cell_max) <= cell_max;
	size_t cells = whole ? 0 : 1; /* the ellipsis */

	while (*text) {
		struct character character = next_character(text);
		cells += cells_of(character);
		if (cells > cell_max)
			break;
		put_character(out, text, character);
		text += character.length;
	}
	if (!whole)
		fputs(ELLIPSIS, out);
}

void hl_svg_source(FILE *out, const char *text)
{
	for (; *text; text++)
		put_character(out, text, (struct character){(unsigned char)*text, 1, false});
}

/* Puts a number with at most two decimals. */
static void svg_put_number(FILE *out, double number)
{
	fprintf(out, "%.9g", round(number * 100) / 100);
}

static void HL_PRINTF(2, 0) put_formatted(FILE *out, const char *format, va_list args)
{
	char text[FORMATTED_MAX];

	vsnprintf(text, sizeof(text), format, args);
	hl_svg_put(out, text, SIZE_MAX);
}

/* ---- elements ---- */

static void put_attribute(FILE *out, const char *name, double number)
{
	fprintf(out, " %s=\"", name);
	svg_put_number(out, number);
	putc('"', out);
}

static void begin_element(FILE *out, const char *name, const char *class)
{
	fprintf(out, "<%s", name);
	if (class)
		fprintf(out, " class=\"%s\"", class);
}

void hl_svg_rect(FILE *out, const char *class, double x, double y, double width, double height)
{
	begin_element(out, "rect", class);
	put_attribute(out, "x", x);
	put_attribute(out, "y", y);
	put_attribute(out, "width", width);
	put_attribute(out, "height", height);
	fputs("/>", out);
}

void hl_svg_line(FILE *out, const char *class, double x, double y, double dx, double dy)
{
	begin_element(out, "line", class);
	put_attribute(out, "x1", x);
	put_attribute(out, "y1", y);
	put_attribute(out, "x2", x + dx);
	put_attribute(out, "y2", y + dy);
	fputs("/>\n", out);
}

void hl_svg_text_begin(FILE *out, const char *class, double x, double y)
{
	begin_element(out, "text", class);
	put_attribute(out, "x", x);
	put_attribute(out, "y", y);
	putc('>', out);
}

void hl_svg_text_end(FILE *out)
{
	fputs("</text>\n", out);
}

void hl_svg_text(FILE *out, const char *class, double x, double y, const char *format, ...)
{
	va_list args;

	hl_svg_text_begin(out, class, x, y);
	va_start(args, format);
	put_formatted(out, format, args);
	va_end(args);
	hl_svg_text_end(out);
}

void hl_svg_heading(FILE *out, double x, double y, const char *title)
{
	hl_svg_text_begin(out, "title", x, y);
	hl_svg_put(out, title, TITLE_CELLS);
	hl_svg_text_end(out);
}

void hl_svg_group_begin(FILE *out, const char *tooltip, ...)
{
	va_list args;

	fputs("<g><title>", out);
	va_start(args, tooltip);
	put_formatted(out, tooltip, args);
	va_end(args);
	fputs("</title>", out);
}

void hl_svg_group_end(FILE *out)
{
	fputs("</g>\n", out);
}

double hl_svg_swatch(FILE *out, unsigned color, double x, double y, const char *text,
		     size_t cell_max)
{
	size_t cells = hl_svg_cells(text, cell_max);
	char class[16];

	snprintf(class, sizeof(class), "c%u", color);
	hl_svg_rect(out, class, x, y, 14, 12);
	if (!cells)
		return x + 14;
	hl_svg_text_begin(out, "plain", x + 19, y + 10);
	hl_svg_put(out, text, cell_max);
	hl_svg_text_end(out);
	return x + 34 + HL_SVG_CELL * (double)(cells < cell_max ? cells : cell_max);
}

/* ---- the picture ---- */

void hl_svg_begin(FILE *out, int width, int height, const char *title,
		  const struct hl_palette *palette)
{
	fprintf(out,
		"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
		"viewBox=\"0 0 %d %d\">\n<!-- Made by heapline %s. -->\n<title>",
		width, height, width, height, HL_VERSION);
	hl_svg_put(out, title, SIZE_MAX);
	fputs("</title>\n<style>\n"
	      "svg{background:#fff;font:11px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,"
	      "'Liberation Mono',monospace;fill:#16191d}\n"
	      "#paper{fill:#fff}\n"
	      ".title{font:600 17px system-ui,'DejaVu Sans',sans-serif}\n"
	      ".plain{fill:#5a636e}.warning{fill:#b3261e;font-weight:600}\n"
	      ".right{text-anchor:end}.middle{text-anchor:middle}tspan{fill-opacity:.62}\n"
	      ".grid{stroke:#16191d;stroke-opacity:.12}.axis{stroke:#5a636e}\n"
	      ".mark{stroke:#16191d;stroke-dasharray:4 3}\n"
	      ".signal{stroke:#b3261e;stroke-width:1.5;fill:none}\n"
	      ".hole{fill:#8a949f;fill-opacity:.35}\n",
	      out);
	for (size_t i = 0; i < palette->count; i++)
		fprintf(out, ".c%zu{fill:#%06x}", i, palette->rgb[i]);
	fprintf(out, ".c%zu{fill:#dde2e8}\n", palette->count);
	fputs("@media (prefers-color-scheme:dark){\n"
	      "svg{background:" HL_SVG_DARK_PAPER ";fill:" HL_SVG_DARK_TEXT "}"
	      "#paper{fill:" HL_SVG_DARK_PAPER "}\n"
	      ".plain{fill:" HL_SVG_DARK_MUTED "}.warning{fill:#f0b866}\n"
	      ".grid{stroke:" HL_SVG_DARK_TEXT "}.axis{stroke:" HL_SVG_DARK_MUTED "}"
	      ".mark{stroke:" HL_SVG_DARK_TEXT "}.signal{stroke:#f0b866}\n",
	      out);
	for (size_t i = 0; i < palette->count; i++)
		fprintf(out, ".c%zu{fill:#%06x}", i, palette_dark(palette->rgb[i]));
	fprintf(out,
		".c%zu{fill:#36383c}}\n</style>\n"
		"<rect id=\"paper\" width=\"100%%\" height=\"100%%\"/>\n",
		palette->count);
}

void hl_svg_end(FILE *out)
{
	fputs("</svg>\n", out);
}
