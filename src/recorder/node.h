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
	struct hl_node_cache_slot {
		uint64_t frame;
		uint32_t parent;
		uint32_t node;
	} slots[HL_NODE_CACHE_SLOTS];
};

/* Makes the first table of the index. False when there is no memory. Once, before any other call.
 */
bool hl_node_init(struct hl_region_map *region);

/*
 * Has the places of ${count} frames, of a path that begins with the node ${parent}, come into the
 * cache: a place follows from the path alone, so that interning need not wait for one after the
 * other. Pays for frames that are not in the cache of the thread.
 */
void hl_node_prefetch(const struct hl_region_map *region, uint32_t parent,
		      const struct hl_walk_frame *frames, uint32_t count);

/* hl_node_intern() for nodes that are not in the cache. */
uint32_t hl_node_intern_slow(struct hl_region_map *region, struct hl_node_cache *cache,
			     uint32_t parent, uint64_t frame);

/*
 * Returns the id of the node (${parent}, ${frame}), made if it is new; HL_NODE_NONE when nodes or
 * memory are used up. Thread-safe, lock-free. While the index grows two ids can be given for one
 * node; readers merge them.
 *
 * The nodes of a stack are interned outermost first, each with the one before as its parent. So the
 * parent enters the slot's number last, by one exclusive or: the rest is ready before the parent is
 * known.
 */
static inline uint32_t hl_node_intern(struct hl_region_map *region, struct hl_node_cache *cache,
				      uint32_t parent, uint64_t frame)
{
	uint32_t hash = (uint32_t)(frame * UINT64_C(0x9e3779b97f4a7c15) >> 40);
	struct hl_node_cache_slot *slot =
		&cache->slots[(hash ^ parent) & (HL_NODE_CACHE_SLOTS - 1)];

	if (HL_LIKELY(slot->frame == frame && slot->parent == parent))
		return slot->node;
	uint32_t node = hl_node_intern_slow(region, cache, parent, frame);
	if (HL_LIKELY(node != HL_NODE_NONE))
		*slot = (struct hl_node_cache_slot){frame, parent, node};
	return node;
}
