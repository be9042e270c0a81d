/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline flame: a flame graph, as an SVG that answers to mouse and keyboard. */
#include "view/pictures/flame.h"
#include "view/keys.h"
#include "view/summary.h"

#include <errno.h>

/* In a picture: some 8 bytes each, of 3 MB that browsers open at once. */
#define FRAMES_MAX 200000

static void emit_row(struct hl_emit *emit, const struct hl_profile *profile,
		     const struct hl_flame_frame *frame)
{
	const struct hl_keys_label label = hl_keys_frame_label(profile, frame->frame);

	hl_emit_row(emit, 0);
	hl_emit_cell_text(emit, frame->depth ? label.name : "all");
	hl_emit_cell_text(emit, label.file);
	hl_emit_cell_integer(emit, label.line);
	hl_emit_cell_text(emit, label.module);
	hl_emit_cell_integer(emit, frame->depth);
	hl_emit_cell_integer(emit, frame->value);
	hl_emit_cell_integer(emit, frame->self);
	hl_emit_cell_integer(emit, frame->start);
	hl_emit_cell_integer(emit, frame->base);
}

static void emit_rows(struct hl_emit *emit, const struct hl_profile *profile,
		      const struct hl_view_options *options, const struct hl_flame_layout *layout)
{
	enum hl_emit_type type = options->unit == HL_UNIT_BYTES ? HL_EMIT_BYTES : HL_EMIT_COUNT;
	const struct hl_emit_column columns[] = {
		{"name", NULL, HL_EMIT_TEXT, HL_EMIT_JSON_ONLY},
		{"file", NULL, HL_EMIT_TEXT, HL_EMIT_JSON_ONLY},
		{"line", NULL, HL_EMIT_COUNT, HL_EMIT_JSON_ONLY},
		{"module", NULL, HL_EMIT_TEXT, HL_EMIT_JSON_ONLY},
		{"depth", NULL, HL_EMIT_COUNT, HL_EMIT_JSON_ONLY},
		{hl_unit_names[options->unit], NULL, type, HL_EMIT_JSON_ONLY},
		{"self", NULL, type, HL_EMIT_JSON_ONLY},
		{"start", NULL, type, HL_EMIT_JSON_ONLY},
		{"base", NULL, type, profile->base ? HL_EMIT_JSON_ONLY : HL_EMIT_TEXT_ONLY},
	};
	hl_emit_rows(emit, "rows", columns, HL_COUNT_OF(columns));
	for (size_t i = 0; i < layout->count; i++)
		emit_row(emit, profile, &layout->frames[i]);
	hl_emit_rows_end(emit);
}

static int write_json(const struct hl_profile *profile, const struct hl_view_options *options,
		      const struct hl_flame_layout *layout)
{
	struct hl_emit *emit;

	int r = hl_emit_new(options->out, HL_EMIT_JSON, false, &emit);
	if (r < 0)
		return r;
	hl_emit_begin(emit, "flame");
	hl_summary_members(emit, profile, options);
	hl_emit_object(emit, "left_out");
	hl_emit_integer(emit, "negative_stacks", (int64_t)layout->negative_count);
	hl_emit_integer(emit, "negative", layout->negative_sum);
	hl_emit_integer(emit, "vanished_frames", (int64_t)layout->vanished_count);
	hl_emit_integer(emit, "vanished", layout->vanished_sum);
	hl_emit_object_end(emit);
	emit_rows(emit, profile, options, layout);
	return hl_emit_finish(emit);
}

int hl_view_flame(const struct hl_profile *profile, const struct hl_view_options *options,
		  struct hl_error *err)
{
	struct hl_flame_layout layout;

	if (options->palette == HL_VIEW_PALETTE_DIFF && !profile->base)
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
