/* SPDX-License-Identifier: BSD-2-Clause */
/* Builds the tree of a recording from a region's nodes; see region_read.h. */
#include "collector/region_read.h"

#include "recording/recording.h"

#include <errno.h>
#include <stdlib.h>

struct builder {
	const struct hl_recording_node *old;
	struct hl_recording_node *nodes; /* new ones, by id - 1 */
	uint32_t count;
	uint32_t *map;	 /* old id -> new id */
	uint32_t *chain; /* ancestors waiting for their turn */
	uint32_t *slots; /* open addressing over new ids; 0 = empty */
	uint32_t mask;
};

/* The new node of that parent and frame, made if need be. */
static uint32_t intern(struct builder *builder, uint32_t parent, uint64_t frame)
{
	uint64_t hash = (frame ^ (uint64_t)parent << 40 ^ parent) * UINT64_C(0x9e3779b97f4a7c15);
	uint32_t slot = (uint32_t)(hash >> 32) & builder->mask;

	for (uint32_t id; (id = builder->slots[slot]); slot = (slot + 1) & builder->mask)
		if (builder->nodes[id - 1].parent == parent &&
		    builder->nodes[id - 1].frame == frame)
			return id;
	builder->nodes[builder->count] = (struct hl_recording_node){frame, parent};
	return builder->slots[slot] = ++builder->count;
}

/* Maps a node after its ancestors. */
static void map_node(struct builder *builder, uint32_t id)
{
	uint32_t waiting = 0;

	for (; id && !builder->map[id]; id = builder->old[id - 1].parent)
		builder->chain[waiting++] = id;
	while (waiting) {
		id = builder->chain[--waiting];
		const struct hl_recording_node *node = &builder->old[id - 1];
		builder->map[id] = intern(builder, builder->map[node->parent], node->frame);
	}
}

int hl_region_tree_build(struct hl_recording_node *nodes, uint32_t count,
			 struct hl_recording_node **ret_nodes, uint32_t *ret_count,
			 uint32_t **ret_map)
{
	uint32_t slots = 16;

	while (slots < 2 * count)
		slots *= 2;
	struct builder builder = {
		.old = nodes,
		.nodes = calloc(count + 1, sizeof(*builder.nodes)),
		.map = calloc(count + 1, sizeof(*builder.map)),
		.chain = calloc(count + 1, sizeof(*builder.chain)),
		.slots = calloc(slots, sizeof(*builder.slots)),
		.mask = slots - 1,
	};
	int r = builder.nodes && builder.map && builder.chain && builder.slots ? 0 : -ENOMEM;
	if (r == 0) {
		/* Nodes that are not there are nobody's parents. */
		for (uint32_t i = 0; i < count; i++) {
			uint32_t parent = nodes[i].parent;
			if (!nodes[i].frame || parent > count ||
			    (parent && !nodes[parent - 1].frame))
				nodes[i].parent = 0;
		}
		hl_recording_repair_tree(nodes, count, builder.chain);
		for (uint32_t id = 1; id <= count; id++)
			if (nodes[id - 1].frame)
				map_node(&builder, id);
		*ret_nodes = builder.nodes;
		*ret_count = builder.count;
		*ret_map = builder.map;
	} else {
		free(builder.nodes);
		free(builder.map);
	}
	free(builder.chain);
	free(builder.slots);
	return r;
}
