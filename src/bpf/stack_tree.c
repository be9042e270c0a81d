/* SPDX-License-Identifier: BSD-2-Clause */
/* Keeps stacks as a tree; see walker.h. */
#include "bpf/walker.h"

#include "base/array.h"

static uint32_t hash_of(uint64_t stack)
{
	return hl_hash_pair(stack, 0);
}

int hl_stack_tree_node(struct hl_stack_tree *tree, uint32_t parent, uint64_t frame,
		       uint32_t *ret_node)
{
	uint32_t hash = hl_hash_pair(frame, parent), at = hash, id;

	while ((id = hl_index_next(&tree->node_index, hash, &at))) {
		const struct hl_recording_node *node = &tree->nodes[id - 1];
		if (node->frame == frame && node->parent == parent) {
			*ret_node = id;
			return 0;
		}
	}
	id = (uint32_t)tree->count + 1;
	int r = HL_ARRAY_RESERVE(tree->nodes, tree->capacity, id);
	if (r == 0)
		r = hl_index_add(&tree->node_index, hash, id);
	if (r < 0)
		return r;
	tree->nodes[tree->count++] = (struct hl_recording_node){.frame = frame, .parent = parent};
	*ret_node = id;
	return 0;
}

int hl_stack_tree_add(struct hl_stack_tree *tree, uint64_t stack, const uint64_t *keys,
		      size_t count)
{
	size_t id = tree->leaf_count + 1;
	uint32_t node = 0;
	int r = 0;

	if (hl_stack_tree_find(tree, stack))
		return 0;
	for (size_t i = count; i-- > 0 && r == 0;)
		r = hl_stack_tree_node(tree, node, keys[i], &node);
	if (r == 0)
		r = HL_ARRAY_RESERVE(tree->leaves, tree->leaf_capacity, id);
	if (r == 0)
		r = hl_index_add(&tree->leaf_index, hash_of(stack), (uint32_t)id);
	if (r == 0)
		tree->leaves[tree->leaf_count++] = (struct hl_stack_leaf){stack, node};
	return r;
}

uint32_t hl_stack_tree_find(const struct hl_stack_tree *tree, uint64_t stack)
{
	uint32_t hash = hash_of(stack), at = hash, id;

	while ((id = hl_index_next(&tree->leaf_index, hash, &at)))
		if (tree->leaves[id - 1].stack == stack)
			return tree->leaves[id - 1].node;
	return 0;
}

void hl_stack_tree_release(struct hl_stack_tree *tree)
{
	free(tree->nodes);
	free(tree->leaves);
	hl_index_release(&tree->node_index);
	hl_index_release(&tree->leaf_index);
	*tree = (struct hl_stack_tree){0};
}
