/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How large the blocks of a recorder's table are, where no allocator can be asked. The array form
 * holds slack alone. But the counters know what each stack has in use: the size of a single block;
 * the mean of several, which is the size of each where there are many, all with the same slack, and
 * none of them has another block behind it that would be too near. No block is larger than all of its stack, nor
 * reaches into the next one. See owner_table.h.
 */
#include "heap/owners/owner_table.h"

#include "collector/region_read.h"

#include <errno.h>
#include <stdlib.h>

#define COUNT_MAX (UINT64_C(1) << 62) /* events of one thread at one node: more are damage */

#define MANY 16 /* blocks: fewer may be of several sizes by chance */

/* Of one stack. */
struct node_sizes {
	uint32_t slack;	    /* of its first block in the array, and one more; 0: it has none */
	bool differs;	    /* another block has another slack */
	uint64_t least_gap; /* from one of its blocks to the next of any stack */
	uint64_t given;	    /* blocks that hl_block_sizes_next() was called with */
};

struct hl_block_sizes {
	uint32_t node_count;
	struct hl_block_sum *sums; /* by id, without the blocks whose size the table has */
	struct node_sizes *nodes;  /* by id */
};

static int take_slack(void *context, const struct hl_listed_block *block)
{
	struct hl_block_sizes *sizes = context;

	if (block->node > sizes->node_count)
		return 0;
	if (block->has_size) {
		sizes->sums[block->node].blocks--;
		sizes->sums[block->node].bytes -= (int64_t)block->requested;
		return 0;
	}
	struct node_sizes *node = &sizes->nodes[block->node];
	node->differs |= node->slack && node->slack != block->slack + 1;
	if (!node->slack || block->most_bytes < node->least_gap)
		node->least_gap = block->most_bytes;
	node->slack = block->slack + 1;
	return 0;
}

int hl_block_sums_read(const struct hl_region_view *view, struct hl_block_sum **ret_sums,
		       uint64_t *ret_damaged)
{
	const struct hl_cell_chunk *chunks = hl_region_read_area(view, HL_AREA_CELLS);
	uint32_t chunk_count = hl_region_read_chunk_count(view);
	uint32_t node_count = hl_region_read_node_count(view);
	struct hl_block_sum *sums = calloc(node_count + (size_t)1, sizeof(*sums));
	uint64_t damaged = 0;

	if (!sums)
		return -ENOMEM;

	for (uint32_t chunk = 0; chunk < chunk_count; chunk++) {
		uint32_t used = atomic_load_explicit(&chunks[chunk].used, memory_order_acquire);
		for (uint32_t i = 0; i < used && i < HL_CHUNK_CELLS; i++) {
			const struct hl_cell *cell = &chunks[chunk].cells[i];
			if (!hl_region_check_cell(cell, COUNT_MAX)) {
				damaged++;
				continue;
			}
			if (cell->node > node_count) /* newer than the copy of the nodes */
				continue;
			sums[cell->node].bytes += (int64_t)(cell->alloc_bytes - cell->free_bytes);
			sums[cell->node].blocks +=
				(int64_t)(cell->alloc_objects - cell->free_objects);
		}
	}
	*ret_sums = sums;
	if (ret_damaged)
		*ret_damaged = damaged;
	return 0;
}

int hl_block_sizes_new(const struct hl_open_region *region, struct hl_block_reader *blocks,
		       struct hl_block_sizes **ret_sizes)
{
	struct hl_block_sizes *sizes = calloc(1, sizeof(*sizes));

	if (!sizes)
		return -ENOMEM;
	sizes->node_count = hl_region_read_node_count(&region->view);
	sizes->nodes = calloc(sizes->node_count + (size_t)1, sizeof(*sizes->nodes));
	int r = sizes->nodes ? hl_block_sums_read(&region->view, &sizes->sums, NULL) : -ENOMEM;
	if (r == 0)
		r = hl_block_reader_each(blocks, take_slack, sizes);
	if (r < 0) {
		hl_block_sizes_free(sizes);
		return r;
	}
	*ret_sizes = sizes;
	return 0;
}

/* The part of ${sum} that its block ${number} has: the mean, or one byte more. */
static uint64_t share_of(const struct hl_block_sum *sum, uint64_t number)
{
	uint64_t blocks = (uint64_t)sum->blocks, bytes = (uint64_t)sum->bytes;
	uint64_t rest = bytes % blocks, at = number % blocks;

	return bytes / blocks + ((at + 1) * rest / blocks - at * rest / blocks);
}

struct hl_block_size hl_block_sizes_next(struct hl_block_sizes *sizes,
					 const struct hl_listed_block *block)
{
	uint32_t id = block->node <= sizes->node_count ? block->node : 0; /* 0: nothing is known */
	struct node_sizes *node = &sizes->nodes[id];
	const struct hl_block_sum *sum = &sizes->sums[id];
	struct hl_block_size size = {.bytes = block->requested,
				     .requested = block->requested,
				     .most_bytes = block->most_bytes};

	if (block->has_size) {
		size.is_exact = true;
	} else if (sum->blocks > 0 && sum->bytes >= 0) {
		uint64_t most = (uint64_t)sum->bytes + block->slack;
		size.bytes = (uint64_t)(sum->bytes / sum->blocks) + block->slack;
		size.requested = share_of(sum, node->given++);
		size.is_exact = sum->blocks == 1 ||
				(sum->blocks >= MANY && !node->differs &&
				 sum->bytes % sum->blocks == 0 && node->least_gap >= size.bytes);
		size.most_bytes = most < size.most_bytes ? most : size.most_bytes;
	} else {
		size.bytes = block->slack;
	}
	if (size.bytes > block->most_bytes) {
		size.bytes = block->most_bytes;
		size.is_exact = false;
	}
	if (size.is_exact)
		size.most_bytes = size.bytes;
	return size;
}

void hl_block_sizes_free(struct hl_block_sizes *sizes)
{
	if (!sizes)
		return;
	free(sizes->sums);
	free(sizes->nodes);
	free(sizes);
}
