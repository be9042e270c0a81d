/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds bad parents and cycles among stack nodes; see recording_tree.h. */
#include "recording/recording_tree.h"

#include <string.h>

/* Walks rootward from ${id} until a node that some walk has seen. When it was this walk, the last
 * step closed a cycle and is cut. */
static uint32_t cut_cycle_above(struct hl_recording_node *nodes, uint32_t *marks, uint32_t id)
{
	uint32_t walk = id;
	while (marks[id - 1] == 0) {
		marks[id - 1] = walk;
		uint32_t parent = nodes[id - 1].parent;
		if (parent == 0)
			return 0;
		if (marks[parent - 1] == walk) {
			nodes[id - 1].parent = 0;
			return 1;
		}
		id = parent;
	}
	return 0;
}

uint32_t hl_tree_repair(struct hl_recording_node *nodes, uint32_t count, uint32_t *marks)
{
	uint32_t changed = 0;
	for (uint32_t i = 0; i < count; i++) {
		if (nodes[i].parent > count) {
			nodes[i].parent = 0;
			changed++;
		}
	}
	memset(marks, 0, count * sizeof(*marks));
	for (uint32_t id = 1; id <= count; id++)
		changed += cut_cycle_above(nodes, marks, id);
	return changed;
}
