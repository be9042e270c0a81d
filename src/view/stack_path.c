/* SPDX-License-Identifier: BSD-2-Clause */
/* Climbs from a node to the root; see stack_path.h. */
#include "view/stack_path.h"

#include "base/array.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define FRAMES_SHOWN 4	 /* of a shortened stack, from its leaf */
#define TABLE_MAX    256 /* each stack is compared with each */

int hl_stack_path_init(struct hl_stack_path *path, const struct hl_profile *profile,
		       const struct hl_calltree *tree)
{
	*path = (struct hl_stack_path){
		.profile = profile,
		.tree = tree,
		.names = calloc((size_t)tree->depth_max + 1, sizeof(*path->names)),
		.labels = calloc((size_t)tree->depth_max + 1, sizeof(*path->labels)),
		.frames = calloc((size_t)tree->depth_max + 1, sizeof(*path->frames)),
	};
	return path->names && path->labels && path->frames ? 0 : -ENOMEM;
}

void hl_stack_path_release(struct hl_stack_path *path)
{
	free(path->names);
	free(path->labels);
	free(path->frames);
	free(path->table);
	*path = (struct hl_stack_path){0};
}

size_t hl_stack_path_fill(const struct hl_stack_path *path, uint32_t node)
{
	const struct hl_profile_node *nodes = path->profile->nodes;
	size_t depth = path->tree->nodes[node].depth;
	uint32_t at = path->tree->heaviest[node];

	for (size_t i = depth; i-- > 0; at = nodes[at].parent) {
		const struct hl_profile_frame *frame = &path->profile->frames[nodes[at].frame];
		const struct hl_keys_label label =
			hl_keys_frame_label(path->profile, nodes[at].frame);
		path->names[i] = hl_profile_text(path->profile,
						 path->profile->functions[frame->function].label);
		path->labels[i] = label;
		path->frames[i] =
			(struct hl_emit_frame){label.name, label.module, label.file, label.line};
	}
	return depth;
}

/* ---- in one line ---- */

void hl_stack_path_begin_table(struct hl_stack_path *path)
{
	path->table_count = 0;
}

int hl_stack_path_add(struct hl_stack_path *path, uint32_t node)
{
	if (path->table_count == TABLE_MAX)
		return 0;
	return HL_ARRAY_APPEND(path->table, path->table_count, path->table_capacity, node);
}

/* The frame that tells the stack from the others of the table; counted from the leaf, which is 0.
 */
static uint32_t telling_frame(const struct hl_stack_path *path, uint32_t node)
{
	const struct hl_calltree_node *nodes = path->tree->nodes;
	uint32_t most = 0;

	for (size_t i = 0; i < path->table_count; i++) {
		uint32_t a = node, b = path->table[i], shared = 0;
		if (a == b)
			continue;
		for (; a && b && nodes[a].name == nodes[b].name; shared++) {
			a = nodes[a].parent;
			b = nodes[b].parent;
		}
		if (shared > most)
			most = shared;
	}
	return most;
}

char *hl_stack_path_line(const struct hl_stack_path *path, uint32_t node)
{
	const struct hl_calltree_node *nodes = path->tree->nodes;
	uint32_t telling = path->full ? 0 : telling_frame(path, node), at = 0, next = 0;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	for (; node; node = nodes[node].parent, at++) {
		if (!path->full && at >= FRAMES_SHOWN && at != telling)
			continue;
		fprintf(out, "%s%s%s", next < at ? " < ..." : "", at ? " < " : "",
			hl_profile_text(path->profile, nodes[node].name));
		next = at + 1;
	}
	if (next < at)
		fputs(" < ...", out);
	if (!at)
		fputs(HL_KEYS_NO_STACK, out);
	if (fclose(out) == 0)
		return text;
	free(text);
	return NULL;
}

/* ---- cells ---- */

void hl_stack_path_cell_line(struct hl_emit *emit, const void *node, const void *path)
{
	char *line = hl_stack_path_line(path, *(const uint32_t *)node);

	if (line)
		hl_cell_text(emit, line);
	else
		hl_emit_fail(emit, -ENOMEM);
	free(line);
}

void hl_stack_path_cell_names(struct hl_emit *emit, const void *node, const void *context)
{
	const struct hl_stack_path *path = context;

	hl_cell_stack(emit, path->names, hl_stack_path_fill(path, *(const uint32_t *)node));
}

void hl_stack_path_cell_frames(struct hl_emit *emit, const void *node, const void *context)
{
	const struct hl_stack_path *path = context;

	hl_cell_frames(emit, path->frames, hl_stack_path_fill(path, *(const uint32_t *)node));
}
