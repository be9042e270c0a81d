/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Dominators of a directed graph: a node dominates another one if every path from the root to that
 * one leads through it. What a node alone keeps are the nodes that it dominates.
 *
 * Method: Semi-NCA (L. Georgiadis, Linear-Time Algorithms for Dominators and Related Problems,
 * Princeton 2005, section 2.3). Takes O(edges * log(nodes)) time; at its height 36 bytes for each
 * node and 4 for each edge, beside the graph.
 */
#pragma once

#include <stdint.h>

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
