/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A sweep: one linear look at live memory for words that lead to a few blocks, those of a graph that
 * holds no others. A thread of its own reads while the caller walks the heap.
 */
#pragma once

#include "heap/graph/graph.h"

struct hl_sweep;

/* ${graph} is settled, and until hl_sweep_end() its bits are the sweep's. 0; -ENOMEM; what starting
 * a thread failed with. */
int hl_sweep_begin(struct hl_graph *graph, struct hl_sweep **ret_sweep);

/* [${start}, ${end}) is live memory, mostly in rising order. What is not in RAM is not read. */
void hl_sweep_add(struct hl_sweep *sweep, uint64_t start, uint64_t end);

/* Reads the rest and frees ${sweep}: what the words lead to is reached and pending. 0 or a negative
 * errno. NULL is fine. */
int hl_sweep_end(struct hl_sweep *sweep);
