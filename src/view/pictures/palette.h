/* SPDX-License-Identifier: BSD-2-Clause */
/* The colours of pictures: few, so that a picture names them once and its parts by number. */
#pragma once

#include <stddef.h>
#include <stdint.h>

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

/* The colour for a dark background, as in the page of a report. */
unsigned hl_palette_dark(unsigned rgb);
