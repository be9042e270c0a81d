/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The arenas of Python's own allocator, pymalloc, as an interpreter without debug information shows them:
 * by the pools that they are cut into.
 *
 *	arena	what pymalloc maps; unmapped when all of its pools are free
 *	pool	a part of an arena, for blocks of one size class; free when none of its blocks is used
 */
#pragma once

#include "heap/memory.h"

#include <stdint.h>

#define HL_PYTHON_CLASSES 32u /* of 16 bytes each */

struct hl_python_class {
	uint64_t pools;	      /* with a block that is used */
	uint64_t used_blocks; /* which keep their pools */
	uint64_t free_blocks; /* of these pools: kept for blocks of this size alone */
};

struct hl_python_arenas {
	uint64_t pool_bytes; /* 0: there are no arenas */
	uint64_t arenas;
	/* Pools that were used and are free now, kept by the arena's other pools. Those that have never
	 * been used are not counted. */
	uint64_t free_pools;
	struct hl_python_class classes[HL_PYTHON_CLASSES];
};

/* Bytes of a block of class ${number}. */
static inline uint64_t hl_python_block_bytes(uint32_t number)
{
	return (number + UINT64_C(1)) * 16;
}

/* Whether most of what is in memory of [${start}, ${end}), of which ${pages} are, are pools; of how many bytes. 0: no. */
uint64_t hl_python_arenas_pool_bytes(struct hl_memory *memory, uint64_t start, uint64_t end,
				     const struct hl_pages *pages);

/* A pool as it was at one moment. Words of blocks that were never used are not read. */
#define HL_PYTHON_POOL_BYTES_MAX (16u << 10)

struct hl_python_pool {
	uint32_t block_bytes;
	uint32_t first,
		blocks; /* offset of the first block; how many there are, used ones and free ones */
	uint32_t used;
	uint8_t is_free[HL_PYTHON_POOL_BYTES_MAX / 16]; /* by block */
	uint64_t words[HL_PYTHON_POOL_BYTES_MAX / 8];
};

/* Reads the pool at ${address} of ${bytes}. 0; -EAGAIN if it changed meanwhile; -EFAULT if blocks of it are not in memory;
 * -ESRCH, -EACCES, -ENOMEM. */
int hl_python_pool_read(struct hl_memory *memory, uint64_t address, uint64_t bytes,
			struct hl_python_pool *ret_pool);

/*
 * Reads all arenas of the process: of CPython 3.8 to 3.14, of all its interpreters. Pages that are not in memory are
 * not touched. Figures are exact where the process is stopped. Calls ${pool}, if it is not NULL, with each pool that
 * has a used block, until it returns non-zero, and returns that. 0; -ESRCH, -EACCES, -ENOMEM.
 */
int hl_python_arenas_read(struct hl_memory *memory,
			  int (*pool)(void *context, uint64_t address, uint64_t bytes),
			  void *context, struct hl_python_arenas *ret_arenas);
