/* SPDX-License-Identifier: BSD-2-Clause */
/* What stayed, or was allocated at all, summed up by stack: reads the maps of heap.bpf.c. */
#pragma once

#include "base/index.h"

#include <stddef.h>
#include <stdint.h>

struct hl_heap_sum {
	uint64_t stack;
	double bytes, objects; /* scaled, where they were sampled */
};

/* Zero-initialize for an empty one. */
struct hl_heap_sums {
	struct hl_heap_sum *sums;
	size_t count, capacity;
	struct hl_index index; /* by stack */
};

/* Which blocks count, and for how much. */
struct hl_heap_selection {
	uint64_t sample_bytes; /* 0: each block stands for itself */
	uint64_t before_ns;    /* blocks that are younger do not count */
};

/* Adds the blocks of the map ${live_fd} (struct hl_live_block by address). 0 or a negative errno.
 */
int hl_heap_sums_add_live(struct hl_heap_sums *sums, int live_fd,
			  const struct hl_heap_selection *selection);

/* Adds the totals of the per-CPU map ${totals_fd} (struct hl_stack_total by stack). As above. */
int hl_heap_sums_add_totals(struct hl_heap_sums *sums, int totals_fd, uint64_t sample_bytes);

/* Adds ${more} multiplied by ${times}; -1 subtracts it. Returns as above. */
int hl_heap_sums_add(struct hl_heap_sums *sums, const struct hl_heap_sums *more, double times);

void hl_heap_sums_release(struct hl_heap_sums *sums);
