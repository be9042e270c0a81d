/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pictures in SVG: one style for all, light and dark, and the elements that they are made of.
 *
 * Texts may hold any bytes: control characters become their pictures (U+2400 and on), and U+FFFD
 * stands for bytes that are not UTF-8 and for characters that change the direction of text. Sizes
 * are pixels; errors stay in the stream, where ferror() finds them.
 *
 *	class	    of	   looks like
 *	title	    text   large and bold
 *	plain	    text   muted
 *	warning	    text   bold, in a warning's colour
 *	right	    text   ends at its x
 *	middle	    text   centred at its x
 *	cN	    rect   colour N of the palette
 *	grid	    line   faint
 *	axis	    line   muted
 *	mark	    line   dashed
 *	signal	    line   in a warning's colour
 *	hole	    rect   a veil over time without data
 */
#pragma once

#include "base/compiler.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ---- colours: few, so that a picture names them once and its parts by number ---- */

#define HL_PALETTE_MAX 24

struct hl_palette {
	size_t count;
	unsigned rgb[HL_PALETTE_MAX]; /* all light enough for dark text */
};

extern const struct hl_palette hl_palette_names;  /* once around the hues */
extern const struct hl_palette hl_palette_growth; /* blue, grey, red: for the colour-blind too */

/* A colour of hl_palette_names: the same for a name in every picture. */
unsigned hl_palette_of_name(const char *name);

/*
 * Chooses colours of hl_palette_names for ${count} names: a name gets hl_palette_of_name(), or the
 * next free colour where an earlier name has that one or a neighbour.
 */
void hl_palette_assign(const char *const *names, size_t count, unsigned *ret_colors);

/*
 * A colour of hl_palette_growth: the middle one for what stayed the same, the last for what is new,
 * the first for what shrank to nothing; in steps of a sixth of the larger of both.
 */
unsigned hl_palette_of_growth(int64_t before, int64_t after);

#define HL_SVG_CELL 6.7 /* width of a character of all texts but titles */

/* On a dark background; graphviz draws call graphs, which get these too. */
#define HL_SVG_DARK_PAPER "#1c1d20"
#define HL_SVG_DARK_TEXT  "#f0f0ed"
#define HL_SVG_DARK_MUTED "#9a9da3"

/* Begins a picture that is called ${title}; its rectangles have colours of ${palette}. */
void hl_svg_begin(FILE *out, int width, int height, const char *title,
		  const struct hl_palette *palette);

void hl_svg_end(FILE *out);

/* The title, as a text. */
void hl_svg_heading(FILE *out, double x, double y, const char *title);

/* A group of elements that share a tooltip, of up to 2 KB. */
void hl_svg_group_begin(FILE *out, const char *tooltip, ...) HL_PRINTF(2, 3);
void hl_svg_group_end(FILE *out);

void hl_svg_rect(FILE *out, const char *class, double x, double y, double width, double height);

void hl_svg_line(FILE *out, const char *class, double x, double y, double dx, double dy);

/* A text that is put piece by piece; ${class} may be NULL. */
void hl_svg_text_begin(FILE *out, const char *class, double x, double y);
void hl_svg_text_end(FILE *out);

/* A text that is put at once, of up to 2 KB. */
void hl_svg_text(FILE *out, const char *class, double x, double y, const char *format, ...)
	HL_PRINTF(5, 6);

/* Puts ${text}, or as much of it as ${cell_max} cells hold, then an ellipsis. */
void hl_svg_put(FILE *out, const char *text, size_t cell_max);

/* A box of ${color} with ${text}, cut to ${cell_max}, after it. Returns where the next one fits. */
double hl_svg_swatch(FILE *out, unsigned color, double x, double y, const char *text,
		     size_t cell_max);

/* Puts ${text} with its line breaks: a script, whose author uses no control characters. */
void hl_svg_source(FILE *out, const char *text);

/* Cells of a fixed-width font that ${text} takes; counted up to the first beyond ${cell_max}. */
size_t hl_svg_cells(const char *text, size_t cell_max);
