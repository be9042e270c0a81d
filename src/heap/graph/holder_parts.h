/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the search for holders consists of: blocks and their edges in memory, who dominates whom, sums and
 * chains; see holders.h.
 */
#pragma once

#include "heap/glibc.h"
#include "heap/graph/graph.h"
#include "heap/graph/holders.h"
#include "heap/owners/owners.h"

#include <stdint.h>

/* ---- dominators ---- */

/*
 * Dominators of a directed graph: a node dominates another one if every path from the root to that
 * one leads through it. What a node alone keeps are the nodes that it dominates.
 *
 * Method: Semi-NCA (L. Georgiadis, Linear-Time Algorithms for Dominators and Related Problems,
 * Princeton 2005, section 2.3). Takes O(edges * log(nodes)) time; at its height 36 bytes for each
 * node and 4 for each edge, beside the graph.
 */

#define HL_DOMINATORS_NONE UINT32_MAX /* the number of a node that the root does not lead to */

/* The edges of node n are targets[nodes[n].first .. nodes[n + 1].first). Node 0 is the root. */
struct hl_digraph_node {
	uint32_t first;
	uint32_t number; /* set by hl_dominators_find() */
};

struct hl_digraph {
	struct hl_digraph_node *nodes; /* count + 1 */
	uint32_t count;		       /* at least 1, below HL_DOMINATORS_NONE */
	uint32_t *targets;
};

/* Nodes by number: in the order of a depth-first search, so that a dominator comes before what it
 * dominates. */
struct hl_dominators {
	uint32_t count;	     /* nodes that the root leads to */
	uint32_t *order;     /* the node of a number */
	uint32_t *dominator; /* the number of the nearest one; that of the root is its own, 0 */
};

/* Numbers the nodes of ${graph} and finds their dominators. 0 or -ENOMEM. */
int hl_dominators_find(struct hl_digraph *graph, struct hl_dominators *ret_dominators);

void hl_dominators_release(struct hl_dominators *dominators);

/* Memory for ${count} elements of ${size} bytes, in huge pages where the system has them: these
 * arrays are read at random. NULL for want of memory; free() it. */
void *hl_dominators_array(uint64_t count, uint64_t size);

/* ---- block edges ---- */

/*
 * The blocks of a graph as numbered nodes, with their edges in memory: node 0 is the root, then come
 * the live blocks by address, then holders, to which the edges of the root lead.
 *
 *	hl_block_edges_init() on a settled graph; _read(); { _add_holder(); { _add_to_holder() } };
 *	_finish()
 */

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

/* ---- what the search for holders shares among its files; see holders.h ---- */

#define HL_HOLDER_REGISTERS (sizeof(struct hl_thread_registers) / 8)

/* A word of a root that leads to a block. */
struct hl_root_word {
	uint64_t
		address; /* of a register: thread * HL_HOLDER_REGISTERS + its number, less than any address */
	uint32_t node;
	uint32_t holder;
};

/* What was seen of the roots at one moment. */
struct hl_holder_look {
	struct hl_root_thread *threads;
	size_t thread_count, thread_capacity;
	struct hl_root_word *words;
	size_t word_count, word_capacity;
};

/* A stack or tag, and whether its blocks are asked for. */
struct hl_asked_owner {
	uint64_t number;
	bool matches;
};

/* A process that runs on is looked at before and after its heap is read: a pointer may move meanwhile. */
#define HL_HOLDER_LOOKS_MAX 2u

struct hl_holder_finder {
	pid_t pid; /* 0: a core file */
	const struct hl_holders_settings *settings;
	struct hl_holders *holders;
	struct hl_error *err;
	struct hl_memory *memory;
	struct hl_glibc glibc;
	struct hl_extents heap, foreign;
	struct hl_graph graph;
	struct hl_class_names classes;
	struct hl_block_edges edges;
	struct hl_holder_look looks[HL_HOLDER_LOOKS_MAX], *look;
	unsigned look_count;
	struct hl_root_names *names;
	struct hl_index holder_index;
	struct hl_digraph digraph;
	struct hl_dominators dominators;
	struct hl_block_owners *owners; /* NULL: stacks are not asked for */
	struct hl_asked_owner *asked;	/* owners of the blocks visited */
	size_t asked_count, asked_capacity;
	struct hl_index asked_index; /* by number */
	bool has_table;		     /* blocks come from a recorder's table, too */
	struct hl_error cannot_stop;
};

/* Whether a word of a look lies at ${address} in memory: else it is a register, or the kernel has it. */
bool hl_holder_is_in_memory(const struct hl_holder_finder *finder, uint64_t address);

/* ---- holder_chain.c ---- */

/* Fills in the chain to the block at the address that is asked for, if one is; its words are named by the types that are declared
 * for them. 0; -ENODATA when no live block is there, -ENOMEM, and err is set. */
int hl_holder_follow(struct hl_holder_finder *finder);

/* Names the first word of each variable, if that is asked for. 0; -ENOMEM. */
int hl_holder_name_words(struct hl_holder_finder *finder);

/* ---- holder_sums.c: from blocks, edges and dominators to who holds how much ---- */

/*
 * Fills in holders->branches and the sums of holders->holders, which has one element for each holder of
 * ${edges}, in their order; adds those that are shared, and what is lost. Only blocks count
 * for which ${is_selected} (NULL: all) returns 1; a negative errno ends the work. 0 or a negative errno.
 */
int hl_holder_sums_make(struct hl_holders *holders, struct hl_block_edges *edges,
			const struct hl_digraph *graph, const struct hl_dominators *dominators,
			int (*is_selected)(void *context, uint32_t node, uint64_t block,
					   uint64_t usable_bytes),
			void *context);
