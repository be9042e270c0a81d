/* SPDX-License-Identifier: BSD-2-Clause */
/* Stacks by their ids, and trees of nodes with common outer frames; see walker.h. */
#include "bpf/walker.h"

#include "base/array.h"

#include <stdlib.h>

static uint32_t hash_of(uint64_t stack)
{
	return hl_hash_pair(stack, 0);
}

/* The node of ${frame} below ${parent} (0: none); made if need be. 0, or -ENOMEM. */
static int stack_tree_node(struct hl_stack_tree *tree, uint32_t parent, uint64_t frame,
			   uint32_t *ret_node)
{
	uint32_t hash = hl_hash_pair(frame, parent), at = hash, id;

	while ((id = hl_index_next(&tree->index, hash, &at))) {
		const struct hl_recording_node *node = &tree->nodes[id - 1];
		if (node->frame == frame && node->parent == parent) {
			*ret_node = id;
			return 0;
		}
	}
	id = (uint32_t)tree->count + 1;
	int r = HL_ARRAY_RESERVE(tree->nodes, tree->capacity, id);
	if (r == 0)
		r = hl_index_add(&tree->index, hash, id);
	if (r < 0)
		return r;
	tree->nodes[tree->count++] = (struct hl_recording_node){.frame = frame, .parent = parent};
	*ret_node = id;
	return 0;
}

int hl_stack_leaves_add(struct hl_stack_leaves *leaves, struct hl_stack_tree *tree,
			struct hl_stack_leaf leaf, const uint64_t *keys, size_t count)
{
	size_t id = leaves->count + 1;
	int r = 0;

	if (hl_stack_leaves_find(leaves, leaf.stack).node)
		return 0;
	leaf.node = 0;
	for (size_t i = count; i-- > 0 && r == 0;)
		r = stack_tree_node(tree, leaf.node, keys[i], &leaf.node);
	if (r == 0)
		r = HL_ARRAY_RESERVE(leaves->leaves, leaves->capacity, id);
	if (r == 0)
		r = hl_index_add(&leaves->index, hash_of(leaf.stack), (uint32_t)id);
	if (r == 0)
		leaves->leaves[leaves->count++] = leaf;
	return r;
}

struct hl_stack_leaf hl_stack_leaves_find(const struct hl_stack_leaves *leaves, uint64_t stack)
{
	uint32_t hash = hash_of(stack), at = hash, id;

	while ((id = hl_index_next(&leaves->index, hash, &at)))
		if (leaves->leaves[id - 1].stack == stack)
			return leaves->leaves[id - 1];
	return (struct hl_stack_leaf){0};
}

void hl_stack_leaves_release(struct hl_stack_leaves *leaves)
{
	free(leaves->leaves);
	hl_index_release(&leaves->index);
	*leaves = (struct hl_stack_leaves){0};
}

void hl_stack_tree_release(struct hl_stack_tree *tree)
{
	free(tree->nodes);
	hl_index_release(&tree->index);
	*tree = (struct hl_stack_tree){0};
}
