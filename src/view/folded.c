/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline folded: one line for each stack, as flame graph programs read them. */
#include "profile/calltree.h"
#include "view/keys.h"
#include "view/summary.h"

#include <errno.h>
#include <stdlib.h>

static void emit_stacks(struct hl_emit *emit, const struct hl_profile *profile,
			const struct hl_calltree *tree, const char **path)
{
	for (size_t i = 0; i < tree->count; i++) {
		const struct hl_calltree_node *node = &tree->nodes[i];
		uint32_t length = node->depth ? node->depth : 1;
		path[length - 1] = i ? hl_profile_text(profile, node->name) : HL_KEYS_NO_STACK;
		if (!node->self)
			continue;
		hl_emit_row(emit, 0);
		hl_emit_cell_stack(emit, path, length);
		hl_emit_cell_integer(emit, node->self);
	}
}

static int emit_tree(const struct hl_profile *profile, const struct hl_view_options *options,
		     const struct hl_calltree *tree)
{
	const struct hl_emit_column columns[] = {
		{"stack", "stack", HL_EMIT_STACK, 0},
		{hl_unit_names[options->unit], "value",
		 options->unit == HL_UNIT_BYTES ? HL_EMIT_BYTES : HL_EMIT_COUNT, 0},
	};
	const char **path = calloc(tree->depth_max + 1, sizeof(*path));
	struct hl_emit *emit;

	if (!path)
		return -ENOMEM;
	int r = hl_emit_new(options->out, options->json ? HL_EMIT_JSON : HL_EMIT_LINES, false,
			    &emit);
	if (r == 0) {
		hl_emit_begin(emit, "folded");
		hl_summary_members(emit, profile, options);
		hl_emit_rows(emit, "rows", columns, HL_COUNT_OF(columns));
		emit_stacks(emit, profile, tree, path);
		hl_emit_rows_end(emit);
		r = hl_emit_finish(emit);
	}
	free(path);
	return r;
}

int hl_view_folded(const struct hl_profile *profile, const struct hl_view_options *options,
		   struct hl_error *err)
{
	struct hl_calltree tree;

	int r = hl_calltree_init(&tree, profile, options->value, options->unit);
	if (r == 0)
		r = emit_tree(profile, options, &tree);
	hl_calltree_release(&tree);
	if (r == 0 && !options->json)
		r = hl_summary_note(profile, options);
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
