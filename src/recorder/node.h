/* SPDX-License-Identifier: BSD-2-Clause */
/* Stack nodes: a lock-free, grow-only set of (parent, frame key) -> node id in the region. */
#pragma once

#include "recorder/region_map.h"
#include "unwind/unwind.h"

#include <stdint.h>

#define HL_NODE_NONE UINT32_MAX

/* What one thread has interned lately; used by it only. Zero-initialize. */
#define HL_NODE_CACHE_SLOTS 1024u

struct hl_node_cache {
	uint32_t spare; /* an id taken but beaten to its place by another thread, kept for the next
			   new node; 0 = none */
	struct hl_node_cache_slot { /* by the hash of the path */
		uint64_t frame;
		uint32_t parent;
		uint32_t node;
	} slots[HL_NODE_CACHE_SLOTS];
};

/* What stands for hl_frame_key_is_generated() code: a frame of the interpreter that has made it. */
extern HL_HIDDEN _Atomic uint64_t hl_node_generated_key;

/* Of the node of ${frame}. All code that a runtime has generated is one place: which trace runs, its script frames say. */
static inline uint64_t hl_node_key(const struct hl_walk_frame *frame)
{
	return HL_UNLIKELY(hl_frame_key_is_generated(frame->key))
		       ? atomic_load_explicit(&hl_node_generated_key, memory_order_relaxed)
		       : frame->key;
}

/* Makes the first table of the index. False when there is no memory. Once, before any other call.
 */
bool hl_node_init(struct hl_region_map *region);

/*
 * Returns the id of the node (${parent}, ${frame}), made if it is new; HL_NODE_NONE when nodes or
 * memory are used up. Thread-safe, lock-free. While the index grows two ids can be given for one
 * node; readers merge them.
 */
uint32_t hl_node_intern(struct hl_region_map *region, struct hl_node_cache *cache, uint32_t parent,
			uint64_t frame);

/*
 * Interns ${count} frames, outermost first, each with the node before as its parent, the first with
 * ${parent}, and sets their nodes. Frames of the recorder's own code get the node of their parent.
 * Where a node is looked for follows from the frames alone, so that no look waits for the one
 * before. Returns how many have got a node: fewer than ${count} when nodes or memory are used up.
 */
uint32_t hl_node_intern_path(struct hl_region_map *region, struct hl_node_cache *cache,
			     uint32_t parent, struct hl_walk_frame *frames, uint32_t count);
