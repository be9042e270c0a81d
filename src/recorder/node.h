/* SPDX-License-Identifier: BSD-2-Clause */
/* Stack nodes: a lock-free, grow-only set of (parent, frame key) -> node id in the region. */
#pragma once

#include "recorder/shared.h"

#include <stdint.h>

#define HL_NODE_NONE UINT32_MAX

/* Makes the first table of the index. False when there is no memory. Once, before any other call.
 */
bool hl_node_init(struct hl_shared *shared);

/*
 * Returns the id of the node (${parent}, ${frame}), made if it is new; HL_NODE_NONE when nodes or
 * memory are used up.
 * ${spare} is the calling thread's: an id taken but beaten to its place by another thread is kept
 * there for the next node. Thread-safe, lock-free. While the index grows two ids can be given for
 * one node; readers merge them.
 */
uint32_t hl_node_intern(struct hl_shared *shared, uint32_t *spare, uint32_t parent, uint64_t frame);
