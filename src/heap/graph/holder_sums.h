/* SPDX-License-Identifier: BSD-2-Clause */
/* From blocks, edges and dominators to who holds how much: holders and branches of struct hl_holders. */
#pragma once

#include "heap/graph/block_edges.h"
#include "heap/graph/holders.h"

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
