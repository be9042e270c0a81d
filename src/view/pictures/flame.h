/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A flame graph: a call tree laid out as frames side by side, the lines above them, and the
 * picture.
 */
#pragma once

#include "profile/calltree.h"
#include "view/format.h"
#include "view/pictures/svg.h"
#include "view/view.h"

/* ---- layout ---- */

struct hl_flame_frame {
	uint32_t parent, end; /* preorder, as in hl_profile_node; frame 0 is the root */
	uint32_t depth;	      /* of the root: 0 */
	uint32_t function;    /* of the profile; of the root: 0 */
	uint32_t frame;	      /* of the profile, at its heaviest call site; of the root: 0 */
	int64_t start;	      /* left edge, in units of the value: siblings lie side by side */
	int64_t value, self;  /* width; and the part of it that no callee has */
	int64_t other;	      /* the value in the other unit */
	int64_t base;	      /* the earlier profile's value */
};

struct hl_flame_layout {
	struct hl_flame_frame *frames;
	size_t count;
	/* Too light to be kept, and the heaviest of them. */
	size_t light_count;
	int64_t light_max;
	/* Stacks with less than nothing, which have no width: more was freed there than is known to
	 * have been allocated. */
	size_t negative_count;
	int64_t negative_sum;
	/* Frames that only the earlier profile has; the sum is of the stacks through them. */
	size_t vanished_count;
	int64_t vanished_sum;
};

/*
 * Lays out ${profile} by options->value, unit and reversed. Only the ${count_max} heaviest frames
 * are kept; what the others hold stays in their callers. 0 or -ENOMEM, after which
 * ${layout} is all zero.
 */
int hl_flame_layout_init(struct hl_flame_layout *layout, const struct hl_profile *profile,
			 const struct hl_view_options *options, size_t count_max);

void hl_flame_layout_release(struct hl_flame_layout *layout);

/* ---- the lines above ---- */

struct hl_flame_line {
	const char *text;
	bool is_warning;
};

/* Whose profile it is, its totals, and all that is missing. */
struct hl_flame_head {
	char *title;
	struct hl_flame_line *lines; /* broken at HL_FLAME_HEAD_CELLS; few are longer */
	size_t line_count;
	char *text; /* where the lines lie */
};

#define HL_FLAME_HEAD_CELLS 140

/* What ${unit} counts in ${profile}: "bytes", "blocks", "pages"; static text. */
const char *hl_flame_head_unit(const struct hl_profile *profile, enum hl_unit unit);

/* "1.5 MiB", or a plain count where options->unit or countname ask for it. Returns ${buffer}. */
const char *hl_flame_head_figure(int64_t figure, const struct hl_view_options *options,
				 char buffer[HL_FORMAT_MAX]);

/* ${narrow_count}: frames that are too narrow to be drawn before one zooms in. 0 or -ENOMEM;
 * release in any case. */
int hl_flame_head_init(struct hl_flame_head *head, const struct hl_profile *profile,
		       const struct hl_view_options *options, const struct hl_flame_layout *layout,
		       size_t narrow_count);

void hl_flame_head_release(struct hl_flame_head *head);

/* ---- colours of modules ---- */

struct hl_flame_modules {
	uint32_t *by_area; /* modules of the profile that have frames, largest area first */
	size_t count;
	unsigned *colors; /* by module of the profile: of hl_palette_names, by its file name */
};

/* 0 or -ENOMEM; release in any case. */
int hl_flame_svg_modules_init(struct hl_flame_modules *modules, const struct hl_profile *profile,
			      const struct hl_flame_layout *layout);

/* A zero-initialized one is fine. */
void hl_flame_svg_modules_release(struct hl_flame_modules *modules);

/* ---- the picture ---- */

/* Pixels; web/src/picture.ts has the same. */
#define HL_FLAME_MARGIN	     12
#define HL_FLAME_ROW	     18	 /* of frames, with the gap between two */
#define HL_FLAME_NARROW	     0.5 /* frames narrower than this are not drawn */
#define HL_FLAME_LABEL_CELLS 3	 /* names that would be cut to less are not written */

#define HL_FLAME_NAME_CELLS 400 /* names are cut to this even where there is room */

struct hl_flame_picture {
	const struct hl_profile *profile;
	const struct hl_view_options *options;
	const struct hl_flame_layout *layout;
	const struct hl_palette *palette;
	struct hl_flame_modules modules; /* with hl_palette_names */
	uint32_t depth_max;		 /* of the frames that are drawn without script */
};

/* Writes the whole file to options->out. 0 or a negative errno. */
int hl_flame_svg_write(const struct hl_profile *profile, const struct hl_view_options *options,
		       const struct hl_flame_layout *layout);
