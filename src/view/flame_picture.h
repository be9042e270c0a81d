/* SPDX-License-Identifier: BSD-2-Clause */
/* The SVG of a flame graph: what one sees without script, and what the script makes of it. */
#pragma once

#include "view/flame_color.h"
#include "view/flame_head.h"
#include "view/flame_modules.h"

/* Pixels. The script has them from the picture, so that both draw alike. */
#define HL_FLAME_WIDTH	     1200 /* without script; with it the window's */
#define HL_FLAME_WIDTH_MIN   960  /* the lines of the head need it */
#define HL_FLAME_MARGIN	     12
#define HL_FLAME_ROW	     18	 /* of frames, with the gap between two */
#define HL_FLAME_CELL	     6.7 /* width of a character */
#define HL_FLAME_NARROW	     0.5 /* frames narrower than this are not drawn */
#define HL_FLAME_LABEL_CELLS 3	 /* names that would be cut to less are not written */
#define HL_FLAME_NAME_CELLS  400 /* names are cut to this even where there is room */

struct hl_flame_picture {
	const struct hl_profile *profile;
	const struct hl_view_options *options;
	const struct hl_flame_layout *layout;
	const struct hl_flame_head *head;
	enum hl_view_palette palette;
	struct hl_flame_modules modules; /* with HL_VIEW_PALETTE_MODULE */
	uint32_t depth_max;		 /* of the frames that are drawn without script */
};

/* Number of the function's colour in the palette, unless it goes by growth. */
unsigned hl_flame_picture_function_color(const struct hl_flame_picture *picture, uint32_t function);

/* Number of the frame's colour in the palette; after the last one for the root. */
unsigned hl_flame_picture_color(const struct hl_flame_picture *picture,
				const struct hl_flame_frame *frame);

/* The whole file. Errors of the output stay in it, where ferror() finds them. 0 or -ENOMEM. */
int hl_flame_picture_write(const struct hl_flame_picture *picture);

/* Within it: the data for the script, and the script. 0 or -ENOMEM. */
int hl_flame_script_write(const struct hl_flame_picture *picture, int top);
