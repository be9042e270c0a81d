/* SPDX-License-Identifier: BSD-2-Clause */
/* What stands above a flame graph: whose profile it is, its totals, and all that is missing. */
#pragma once

#include "view/flame_layout.h"

enum hl_flame_line_kind {
	HL_FLAME_LINE_PLAIN,
	HL_FLAME_LINE_WARNING,
	HL_FLAME_LINE_NOTE,
};

#define HL_FLAME_LINE_KINDS 3

struct hl_flame_line {
	enum hl_flame_line_kind kind;
	const char *text;
};

struct hl_flame_head {
	char *title;
	struct hl_flame_line *lines; /* broken at HL_FLAME_LINE_CELLS; few are longer */
	size_t line_count;
	char *texts[HL_FLAME_LINE_KINDS]; /* where the lines lie */
};

#define HL_FLAME_LINE_CELLS 140

/* What ${unit} counts in ${profile}: "bytes", "blocks", "pages"; static text. */
const char *hl_flame_unit(const struct hl_profile *profile, enum hl_unit unit);

/* ${narrow_count}: frames that are too narrow to be drawn before one zooms in. 0 or -ENOMEM, after
 * which ${head} is all zero. */
int hl_flame_head_init(struct hl_flame_head *head, const struct hl_profile *profile,
		       const struct hl_view_options *options, const struct hl_flame_layout *layout,
		       size_t narrow_count);

void hl_flame_head_release(struct hl_flame_head *head);
