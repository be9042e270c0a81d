/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline flame: a flame graph, as an SVG that answers to mouse and keyboard. */
#include "view/pictures/flame.h"
#include "view/keys.h"
#include "view/summary.h"
#include "view/table.h"

#include <errno.h>

/* In a picture: about 8 bytes each, of 3 MB that browsers open at once. */
#define FRAMES_MAX 200000

struct row {
	struct hl_keys_label label;
	uint32_t depth;
	int64_t value, self, start, base;
};

#define MEMBER(name) HL_MEMBER(struct row, name)

enum {
	IN_BYTES = 1,
	IN_OBJECTS = 2,
	HAS_BASE = 4,
};

static const struct hl_column columns[] = {
	{"name", NULL, HL_COLUMN_TEXT, MEMBER(label.name)},
	{"file", NULL, HL_COLUMN_TEXT, MEMBER(label.file)},
	{"line", NULL, HL_COLUMN_COUNT, MEMBER(label.line)},
	{"module", NULL, HL_COLUMN_TEXT, MEMBER(label.module)},
	{"depth", NULL, HL_COLUMN_COUNT, MEMBER(depth)},
	{"bytes", NULL, HL_COLUMN_COUNT, MEMBER(value), .shown_if = IN_BYTES},
	{"objects", NULL, HL_COLUMN_COUNT, MEMBER(value), .shown_if = IN_OBJECTS},
	{"self", NULL, HL_COLUMN_COUNT, MEMBER(self)},
	{"start", NULL, HL_COLUMN_COUNT, MEMBER(start)},
	{"base", NULL, HL_COLUMN_COUNT, MEMBER(base), .shown_if = HAS_BASE},
};

static int write_json(const struct hl_profile *profile, const struct hl_view_options *options,
		      const struct hl_flame_layout *layout)
{
	unsigned unit = options->unit == HL_UNIT_BYTES ? IN_BYTES : IN_OBJECTS;
	struct hl_emit *emit;

	int r = hl_emit_new(options->out, HL_EMIT_JSON, false, "flame/1", &emit);
	if (r < 0)
		return r;
	hl_summary_members(emit, profile, options);
	hl_emit_object(emit, "left_out");
	hl_emit_integer(emit, "negative_stacks", (int64_t)layout->negative_count);
	hl_emit_integer(emit, "negative", layout->negative_sum);
	hl_emit_integer(emit, "vanished_frames", (int64_t)layout->vanished_count);
	hl_emit_integer(emit, "vanished", layout->vanished_sum);
	hl_emit_object_end(emit);
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", columns),
						.facts = unit | (profile->base ? HAS_BASE : 0)});
	for (size_t i = 0; i < layout->count; i++) {
		const struct hl_flame_frame *frame = &layout->frames[i];
		struct row row = {hl_keys_frame_label(profile, frame->frame),
				  frame->depth,
				  frame->value,
				  frame->self,
				  frame->start,
				  frame->base};
		if (!frame->depth)
			row.label.name = "all";
		hl_table_row(emit, &row, 0);
	}
	hl_table_end(emit);
	return hl_emit_finish(emit);
}

int hl_flame_view(const struct hl_profile *profile, const struct hl_view_options *options,
		  struct hl_error *err)
{
	struct hl_flame_layout layout;

	if (options->flame.palette == HL_VIEW_PALETTE_DIFF && !profile->base)
		return hl_error_set(err, -EINVAL,
				    "cannot colour '%s' by growth: there is nothing to compare it "
				    "with; name an earlier profile first",
				    hl_profile_text(profile, profile->name));
	int r = hl_flame_layout_init(&layout, profile, options,
				     options->json ? SIZE_MAX : FRAMES_MAX);
	if (r == 0)
		r = options->json ? write_json(profile, options, &layout)
				  : hl_flame_svg_write(profile, options, &layout);
	hl_flame_layout_release(&layout);
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
