/* SPDX-License-Identifier: BSD-2-Clause */
/* Makes a table of stack nodes of doubtful origin a tree. */
#pragma once

#include "recording/recording.h"

/*
 * Hangs nodes whose parent is out of range, and one node of each cycle, on the root. ${marks} is
 * scratch space for ${count} numbers. Returns how many nodes it had to change: 0 for a sound tree.
 */
uint32_t hl_tree_repair(struct hl_recording_node *nodes, uint32_t count, uint32_t *marks);
