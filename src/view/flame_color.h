/* SPDX-License-Identifier: BSD-2-Clause */
/* The colours of flame graphs: few, so that a picture names them once and frames by number. */
#pragma once

#include "view/flame_layout.h"

#define HL_FLAME_COLOR_COUNT 24

struct hl_flame_palette {
	size_t count;
	unsigned rgb[HL_FLAME_COLOR_COUNT]; /* all light enough for dark text */
};

/* The palette that ${options} ask for; AUTO depends on whether ${profile} was compared. */
enum hl_view_palette hl_flame_palette_choice(const struct hl_profile *profile,
					     const struct hl_view_options *options);

const struct hl_flame_palette *hl_flame_palette(enum hl_view_palette choice);

/* The palette's colours as they stand on a dark background, as in the page of a report. */
unsigned hl_flame_dark(unsigned rgb);

/* Of HL_VIEW_PALETTE_MODULE, by a function's name: the same in every picture. */
unsigned hl_flame_color_of_name(const char *name);

/* By growth: the middle colour for none, the last for what is new, the first for what shrank to
 * nothing, in steps of a sixth of the larger of both. */
unsigned hl_flame_color_of_growth(int64_t before, int64_t after);
