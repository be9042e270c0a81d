/* SPDX-License-Identifier: BSD-2-Clause */
/* Stacks by their ids, as a tree of nodes with common outer frames. */
#pragma once

#include "base/index.h"
#include "recording/recording.h"

#include <stddef.h>
#include <stdint.h>

/* Zero-initialize for an empty one. */
struct hl_stack_tree {
	struct hl_recording_node *nodes; /* ids 1 .. count; parents before children */
	size_t count, capacity;
	struct hl_index node_index;
	struct hl_stack_leaf {
		uint64_t stack;
		uint32_t node;
	} * leaves;
	size_t leaf_count, leaf_capacity;
	struct hl_index leaf_index;
};

/* The node of ${frame} below ${parent} (0: none); made if need be. 0, or -ENOMEM. */
int hl_stack_tree_node(struct hl_stack_tree *tree, uint32_t parent, uint64_t frame,
		       uint32_t *ret_node);

/* Says that ${stack} (not 0) is the stack of the ${count} frames ${keys}, innermost first. 0, or
 * -ENOMEM and the stack stays unknown. */
int hl_stack_tree_add(struct hl_stack_tree *tree, uint64_t stack, const uint64_t *keys,
		      size_t count);

/* The node of the innermost frame of ${stack}; 0 when it is unknown. */
uint32_t hl_stack_tree_find(const struct hl_stack_tree *tree, uint64_t stack);

void hl_stack_tree_release(struct hl_stack_tree *tree);
