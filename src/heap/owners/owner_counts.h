/* SPDX-License-Identifier: BSD-2-Clause */
/* Blocks counted by a number that stands for their owner, before it has a name. */
#pragma once

#include "base/index.h"
#include "heap/histogram.h"

#include <stddef.h>
#include <stdint.h>

struct hl_owner_count {
	uint64_t key;
	uint64_t blocks, bytes;
	struct hl_log2_histogram histogram;
};

/* All zero but ${shape} is empty. */
struct hl_owner_counts {
	struct hl_log2_shape shape;
	struct hl_owner_count *counts;
	size_t count, capacity;
	struct hl_index index;
	size_t last; /* where the last block was counted: the next one's owner is often the same */
};

/* Counts ${blocks} blocks of ${bytes} each. 0 or -ENOMEM. */
int hl_owner_counts_add(struct hl_owner_counts *counts, uint64_t key, uint64_t bytes,
			uint64_t blocks);

void hl_owner_counts_release(struct hl_owner_counts *counts);
