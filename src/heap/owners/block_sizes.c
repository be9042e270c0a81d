/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How large the blocks of a recorder's table are, where no allocator can be asked. The array form
 * holds slack alone. But the counters know what each stack has in use: where all its blocks have the
 * same slack they are taken to be of one size, the mean; else the mean is an estimate. No block
 * reaches into the next one.
 */
#include "heap/owners/owner_table.h"

#include <stdlib.h>

/* Of one stack. */
struct node_sizes {
	int64_t bytes, blocks; /* in use, by the counters */
	uint32_t slack;	       /* of its first block in the array, and one more; 0: it has none */
	bool differs;	       /* another block has another slack */
};

struct hl_block_sizes {
	uint32_t node_count;
	struct node_sizes *nodes; /* by id */
};

static int take_slack(void *context, const struct hl_listed_block *block)
{
	struct hl_block_sizes *sizes = context;

	if (block->has_size || block->node > sizes->node_count)
		return 0;
	struct node_sizes *node = &sizes->nodes[block->node];
	node->differs |= node->slack && node->slack != block->slack + 1;
	node->slack = block->slack + 1;
	return 0;
}

int hl_block_sizes_new(const struct hl_open_region *region, struct hl_block_reader *blocks,
		       struct hl_block_sizes **ret_sizes)
{
	struct hl_recording_process process = {0};
	struct hl_region_times times = {0};

	int r = hl_region_read(&region->view, &times, &process, NULL);
	if (r < 0)
		return r;
	struct hl_block_sizes *sizes = calloc(1, sizeof(*sizes));
	if (sizes)
		sizes->nodes = calloc(process.node_count + (size_t)1, sizeof(*sizes->nodes));
	r = sizes && sizes->nodes ? 0 : -ENOMEM;
	if (r == 0)
		sizes->node_count = process.node_count;
	for (uint32_t i = 0; r == 0 && i < process.value_count; i++) {
		const struct hl_recording_value *value = &process.values[i];
		struct node_sizes *node = &sizes->nodes[value->node];
		node->bytes += (int64_t)(value->alloc_bytes - value->free_bytes);
		node->blocks += (int64_t)(value->alloc_objects - value->free_objects);
	}
	hl_recording_process_release(&process);
	if (r == 0)
		r = hl_block_reader_each(blocks, take_slack, sizes);
	if (r < 0) {
		hl_block_sizes_free(sizes);
		return r;
	}
	*ret_sizes = sizes;
	return 0;
}

uint64_t hl_block_sizes_find(const struct hl_block_sizes *sizes,
			     const struct hl_listed_block *block, bool *ret_is_exact)
{
	static const struct node_sizes unknown;
	const struct node_sizes *node =
		block->node <= sizes->node_count ? &sizes->nodes[block->node] : &unknown;
	uint64_t bytes;

	if (block->has_size) {
		*ret_is_exact = true;
		return block->requested;
	}
	bool has_mean = node->blocks > 0 && node->bytes >= 0;
	bytes = (has_mean ? (uint64_t)(node->bytes / node->blocks) : 0) + block->slack;
	*ret_is_exact = has_mean && !node->differs && node->bytes % node->blocks == 0 &&
			bytes <= block->most_bytes;
	return bytes < block->most_bytes ? bytes : block->most_bytes;
}

void hl_block_sizes_free(struct hl_block_sizes *sizes)
{
	if (!sizes)
		return;
	free(sizes->nodes);
	free(sizes);
}
