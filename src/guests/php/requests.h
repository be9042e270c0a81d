/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which request of PHP allocated a block of malloc(), in the target's memory; for the recorder, and for tools that read it from
 * outside. What the memory manager gives ends with its request, and has no stamp.
 *
 *	number	of the request that runs, from 1 on; between two of them, of the next one
 *	stamp	the number at the allocation: true where the block's stack has frames of PHP, or of the code around its scripts
 */
#pragma once

#include "region/block_format.h"

#include <stdatomic.h>
#include <stdint.h>

struct hl_php_requests {
	_Atomic uint32_t number;
	uint64_t around_start, around_end; /* code that begins and ends requests; 0: unknown */
	struct hl_block_array stamps;
};
