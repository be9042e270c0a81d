/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline folded, and export --format heaptrack-folded: one line for each stack, as flame graph programs read them. */
#include "base/cleanup.h"
#include "base/names.h"
#include "profile/calltree.h"
#include "view/rows.h"
#include "view/summary.h"
#include "view/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct stack_row {
	uint32_t node;
	int64_t value;
};

/* What was allocated with no frame at all has a name. */
static void stack_cell(struct hl_emit *emit, const void *node, const void *path)
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

#define VALUE HL_MEMBER(struct stack_row, value)

static const struct hl_column stack_columns[] = {
	{"stack", "stack", HL_COLUMN_STACK, HL_MEMBER_CELL(struct stack_row, node, stack_cell)},
	{"frames", NULL, HL_COLUMN_FRAMES,
	 HL_MEMBER_CELL(struct stack_row, node, hl_stack_path_cell_frames)},
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
		hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", stack_columns),
							.context = &path, .facts = unit});
		for (uint32_t i = 0; i < tree.count; i++)
			if (tree.nodes[i].self)
				hl_table_row(emit, &(struct stack_row){i, tree.nodes[i].self}, 0);
		hl_table_end(emit);
		r = hl_emit_finish(emit);
	}
	hl_stack_path_release(&path);
	hl_calltree_release(&tree);
	if (r == 0 && !options->json)
		r = hl_summary_note(profile, options);
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}

/* ---- heaptrack ---- */

/*
 * heapline export --format heaptrack-folded: the lines that `heaptrack_print --print-flamegraph`
 * writes. There a frame is "function (file)", where the file is known, and each ends with ';'.
 */

/* What a frame is called; NULL when memory is short. To be freed. */
static char *frame_text(const struct hl_profile *profile, const struct hl_calltree_node *node)
{
	if (!node->depth)
		return strdup(HL_KEYS_NO_STACK);
	const char *name = hl_profile_text(profile, node->name);
	const struct hl_profile_frame *frame = &profile->frames[node->frame];
	const char *file = hl_profile_text(profile, frame->file);
	char *text;

	if (profile->functions[frame->function].name != node->name) /* its label has the file */
		file = "";
	if (asprintf(&text, *file ? "%s (%s)" : "%s", name, hl_path_basename(file)) < 0)
		return NULL;
	return text;
}

struct trace_row {
	char **frames;
	size_t count;
	int64_t value;
};

static void trace_cell(struct hl_emit *emit, const void *at, const void *context)
{
	const struct trace_row *row = at;

	(void)context;
	hl_cell_stack(emit, (const char *const *)row->frames, row->count);
}

static const struct hl_column trace_columns[] = {
	{"stack", "stack", HL_COLUMN_STACK, .cell = trace_cell},
	{"value", "value", HL_COLUMN_COUNT, HL_MEMBER(struct trace_row, value)},
};

/* path[] holds the frames from the root; the empty one after them ends the last with a ';'. */
static int emit_tree(const struct hl_profile *profile, const struct hl_view_options *options,
		     const struct hl_calltree *tree)
{
	char **path = calloc(tree->depth_max + 2, sizeof(*path));
	struct hl_emit *emit;

	int r = path ? hl_emit_new(options->out, HL_EMIT_LINES, false, NULL, &emit) : -ENOMEM;
	if (r == 0) {
		hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", trace_columns)});
		for (size_t i = 0; r == 0 && i < tree->count; i++) {
			const struct hl_calltree_node *node = &tree->nodes[i];
			uint32_t length = node->depth ? node->depth : 1;
			char *deeper = path[length], **frame = &path[length - 1];
			free(*frame);
			*frame = frame_text(profile, node);
			if (!*frame)
				r = -ENOMEM;
			if (r < 0 || !node->self)
				continue;
			path[length] = "";
			hl_table_row(emit, &(struct trace_row){path, length + 1, node->self}, 0);
			path[length] = deeper;
		}
		hl_table_end(emit);
		int finished = hl_emit_finish(emit);
		r = r < 0 ? r : finished;
	}
	for (size_t i = 0; path && i < tree->depth_max + 1; i++)
		free(path[i]);
	free(path);
	return r;
}

int hl_heaptrack_view(const struct hl_profile *profile, const struct hl_view_options *options,
		      struct hl_error *err)
{
	HL_CLEANUP(hl_calltree_release) struct hl_calltree tree = {0};

	int r = hl_calltree_init(&tree, profile, options->value, options->unit);
	if (r == 0)
		r = emit_tree(profile, options, &tree);
	if (r == 0)
		r = hl_summary_note(profile, options);
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
