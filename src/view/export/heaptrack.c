/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heapline export --format heaptrack-folded: the lines that `heaptrack_print --print-flamegraph`
 * writes. There a frame is "function (file)", where the file is known, and each ends with ';'.
 */
#include "base/cleanup.h"
#include "base/names.h"
#include "profile/calltree.h"
#include "view/rows.h"
#include "view/summary.h"
#include "view/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

struct row {
	char **frames;
	size_t count;
	int64_t value;
};

static void stack(struct hl_emit *emit, const void *at, const void *context)
{
	const struct row *row = at;

	(void)context;
	hl_cell_stack(emit, (const char *const *)row->frames, row->count);
}

static const struct hl_column columns[] = {
	{"stack", "stack", HL_COLUMN_STACK, .cell = stack},
	{"value", "value", HL_COLUMN_COUNT, HL_MEMBER(struct row, value)},
};

/* path[] holds the frames from the root; the empty one after them ends the last with a ';'. */
static int emit_tree(const struct hl_profile *profile, const struct hl_view_options *options,
		     const struct hl_calltree *tree)
{
	char **path = calloc(tree->depth_max + 2, sizeof(*path));
	struct hl_emit *emit;

	int r = path ? hl_emit_new(options->out, HL_EMIT_LINES, false, NULL, &emit) : -ENOMEM;
	if (r == 0) {
		hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", columns)});
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
			hl_table_row(emit, &(struct row){path, length + 1, node->self}, 0);
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
