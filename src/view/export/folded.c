/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline folded: one line for each stack, as flame graph programs read them. */
#include "view/rows.h"
#include "view/stacks.h"
#include "view/summary.h"
#include "view/table.h"

struct row {
	uint32_t node;
	int64_t value;
};

/* What was allocated with no frame at all has a name. */
static void stack(struct hl_emit *emit, const void *node, const void *path)
{
	static const char *const no_stack[] = {HL_KEYS_NO_STACK};

	if (*(const uint32_t *)node)
		hl_stack_path_cell_names(emit, node, path);
	else
		hl_cell_stack(emit, no_stack, 1);
}

enum {
	IN_BYTES = 1,
	IN_OBJECTS = 2,
};

#define VALUE HL_MEMBER(struct row, value)

static const struct hl_column columns[] = {
	{"stack", "stack", HL_COLUMN_STACK, HL_MEMBER_CELL(struct row, node, stack)},
	{"frames", NULL, HL_COLUMN_FRAMES,
	 HL_MEMBER_CELL(struct row, node, hl_stack_path_cell_frames)},
	{"bytes", "bytes", HL_COLUMN_BYTES, VALUE, .shown_if = IN_BYTES},
	{"objects", "objects", HL_COLUMN_COUNT, VALUE, .shown_if = IN_OBJECTS},
};

int hl_folded_view(const struct hl_profile *profile, const struct hl_view_options *options,
		   struct hl_error *err)
{
	unsigned unit = options->unit == HL_UNIT_BYTES ? IN_BYTES : IN_OBJECTS;
	struct hl_calltree tree;
	struct hl_stack_path path = {0};
	struct hl_emit *emit;

	int r = hl_calltree_init(&tree, profile, options->value, options->unit);
	if (r == 0)
		r = hl_stack_path_init(&path, profile, &tree);
	if (r == 0)
		r = hl_summary_begin_lines(profile, options, "folded/1", &emit);
	if (r == 0) {
		hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", columns), .context = &path,
							.facts = unit});
		for (uint32_t i = 0; i < tree.count; i++)
			if (tree.nodes[i].self)
				hl_table_row(emit, &(struct row){i, tree.nodes[i].self}, 0);
		hl_table_end(emit);
		r = hl_emit_finish(emit);
	}
	hl_stack_path_release(&path);
	hl_calltree_release(&tree);
	if (r == 0 && !options->json)
		r = hl_summary_note(profile, options);
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
