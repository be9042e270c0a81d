/* SPDX-License-Identifier: BSD-2-Clause */
/* Climbs from a node to the root; see stack_path.h. */
#include "view/stack_path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int hl_stack_path_init(struct hl_stack_path *path, const struct hl_profile *profile,
		       const struct hl_calltree *tree)
{
	*path = (struct hl_stack_path){profile, tree,
				       calloc((size_t)tree->depth_max + 1, sizeof(*path->names))};
	return path->names ? 0 : -ENOMEM;
}

void hl_stack_path_release(struct hl_stack_path *path)
{
	free(path->names);
	path->names = NULL;
}

size_t hl_stack_path_fill(struct hl_stack_path *path, uint32_t node)
{
	const struct hl_calltree_node *nodes = path->tree->nodes;
	size_t depth = nodes[node].depth;

	for (; node; node = nodes[node].parent)
		path->names[nodes[node].depth - 1] =
			hl_profile_text(path->profile, nodes[node].name);
	return depth;
}

char *hl_stack_path_join(const struct hl_stack_path *path, size_t depth)
{
	char *joined = NULL;
	size_t size;
	FILE *out = open_memstream(&joined, &size);

	if (!out)
		return NULL;
	for (size_t i = depth; i-- > 0;)
		fprintf(out, "%s%s", path->names[i], i ? " < " : "");
	if (!depth)
		fputs("[no stack]", out);
	if (fclose(out) == 0)
		return joined;
	free(joined);
	return NULL;
}
