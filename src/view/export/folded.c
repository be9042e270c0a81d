/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline folded: one line for each stack, as flame graph programs read them. */
#include "view/keys.h"
#include "view/stack_path.h"
#include "view/summary.h"

static void emit_stacks(struct hl_emit *emit, struct hl_stack_path *path)
{
	static const char *const no_stack[] = {HL_KEYS_NO_STACK};

	for (uint32_t i = 0; i < path->tree->count; i++) {
		const struct hl_calltree_node *node = &path->tree->nodes[i];
		if (!node->self)
			continue;
		size_t depth = hl_stack_path_fill(path, i);
		hl_emit_row(emit, 0);
		hl_emit_cell_stack(emit, i ? path->names : no_stack, i ? depth : 1);
		hl_emit_cell_frames(emit, path->frames, depth);
		hl_emit_cell_integer(emit, node->self);
	}
}

static int emit_tree(const struct hl_profile *profile, const struct hl_view_options *options,
		     struct hl_stack_path *path)
{
	const struct hl_emit_column columns[] = {
		{"stack", "stack", HL_EMIT_STACK, 0},
		{"frames", NULL, HL_EMIT_FRAMES, HL_EMIT_JSON_ONLY},
		{hl_unit_names[options->unit], "value",
		 options->unit == HL_UNIT_BYTES ? HL_EMIT_BYTES : HL_EMIT_COUNT, 0},
	};
	struct hl_emit *emit;

	int r = hl_emit_new(options->out, options->json ? HL_EMIT_JSON : HL_EMIT_LINES, false,
			    &emit);
	if (r < 0)
		return r;
	hl_emit_begin(emit, "folded");
	hl_summary_members(emit, profile, options);
	hl_emit_rows(emit, "rows", columns, HL_COUNT_OF(columns));
	emit_stacks(emit, path);
	hl_emit_rows_end(emit);
	return hl_emit_finish(emit);
}

int hl_view_folded(const struct hl_profile *profile, const struct hl_view_options *options,
		   struct hl_error *err)
{
	struct hl_calltree tree;
	struct hl_stack_path path = {0};

	int r = hl_calltree_init(&tree, profile, options->value, options->unit);
	if (r == 0)
		r = hl_stack_path_init(&path, profile, &tree);
	if (r == 0)
		r = emit_tree(profile, options, &path);
	hl_stack_path_release(&path);
	hl_calltree_release(&tree);
	if (r == 0 && !options->json)
		r = hl_summary_note(profile, options);
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
