/* SPDX-License-Identifier: BSD-2-Clause */
/* Merges and numbers stack nodes that were copied from a region. */
#pragma once

#include "recording/recording.h"

/*
 * ${nodes}: ${count} nodes as copied, id i + 1 at index i; frame 0 = not there. Any parents. They
 * are made a tree, nodes of equal parent and frame become one, and all are renumbered, parents
 * before children.
 *
 * ${ret_map}[id] is the new id of an old one, 0 for one that is not there; count + 1 numbers, as
 * ${ret_nodes} the caller's to free. Returns 0 or -ENOMEM.
 */
int hl_region_tree_build(struct hl_recording_node *nodes, uint32_t count,
			 struct hl_recording_node **ret_nodes, uint32_t *ret_count,
			 uint32_t **ret_map);
