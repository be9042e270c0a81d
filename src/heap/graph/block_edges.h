/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The blocks of a graph as numbered nodes, with their edges in memory: node 0 is the root, then come
 * the live blocks by address, then holders, to which the edges of the root lead.
 *
 *	hl_block_edges_init() on a settled graph; _read(); { _add_holder(); { _add_to_holder() } };
 *	_finish()
 */
#pragma once

#include "heap/graph/class_names.h"
#include "heap/graph/dominators.h"
#include "heap/graph/graph.h"

#define HL_BLOCK_EDGES_HOLDERS_MAX 65536u

/* What blocks have in common that look alike; of one class and one size, or of similar sizes. */
struct hl_block_label {
	uint32_t type; /* 0: no class is known */
	uint64_t size_min, size_max;
};

struct hl_block_edge_word {
	uint64_t word;
	uint32_t source; /* node */
};

#define HL_BLOCK_EDGES_BATCH 256u

struct hl_block_edges {
	struct hl_graph *graph;
	struct hl_class_names *classes;
	uint32_t *ranks; /* live blocks before each page of the graph's regions, in order */
	uint32_t blocks; /* their nodes are 1 .. blocks */
	uint32_t holders;
	struct hl_digraph_node *nodes;
	uint32_t *targets;
	size_t edge_count, edge_capacity;
	uint32_t *block_labels; /* by node */
	struct hl_block_label *labels;
	size_t label_count, label_capacity;
	struct hl_index label_index;
	struct hl_block_edge_word batch[HL_BLOCK_EDGES_BATCH]; /* read, not resolved yet */
	unsigned batch_count;
	uint32_t begun; /* nodes whose first edge is known */
};

/* 0; -ENOMEM; -E2BIG when there are too many blocks for numbers of 32 bits. Release in any case. */
int hl_block_edges_init(struct hl_block_edges *edges, struct hl_graph *graph,
			struct hl_class_names *classes);

void hl_block_edges_release(struct hl_block_edges *edges);

/* Reads all live blocks. 0; -E2BIG when there are too many edges; another negative errno. */
int hl_block_edges_read(struct hl_block_edges *edges);

/* The node of the live block that ${word} points into; 0: none. */
uint32_t hl_block_edges_node(const struct hl_block_edges *edges, uint64_t word);

/* Address of the block of ${node}. */
uint64_t hl_block_edges_address(const struct hl_block_edges *edges, uint32_t node);

/* Calls ${visit} with each live block, by address, until it returns non-zero; returns that. */
int hl_block_edges_each(struct hl_block_edges *edges,
			int (*visit)(void *context, uint32_t node, uint64_t block), void *context);

/* Begins the next holder, to which the root leads. -E2BIG: there are HL_BLOCK_EDGES_HOLDERS_MAX. */
int hl_block_edges_add_holder(struct hl_block_edges *edges);

/* The holder that was added last leads to ${node}. 0 or a negative errno. */
int hl_block_edges_add_to_holder(struct hl_block_edges *edges, uint32_t node);

/* The whole graph; no more is to be added. */
struct hl_digraph hl_block_edges_finish(struct hl_block_edges *edges);
