/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a BEAM knows of its allocators without its module `instrument`: sums of each instance of an
 * allocator, of which each scheduler has one.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hl_beam_instance {
	char allocator[32];
	char type[8];	 /* "mbc" carriers hold many blocks, "sbc" ones one each */
	uint64_t number; /* 0: for all threads that are no schedulers */
	bool in_pool;	 /* carriers that any instance may take */
	uint64_t carriers, total_bytes;
	uint64_t allocated_blocks, allocated_bytes;
};

/* Zero-initialize for an empty one. */
struct hl_beam_instances {
	struct hl_beam_instance *instances;
	size_t count, capacity;
};

void hl_beam_instances_release(struct hl_beam_instances *instances);
