/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Thread caches: freed chunks that threads keep, which their neighbours take for used.
 *
 * From glibc 2.34 on such a chunk's second word is a random number, one for the process: all
 * threads' caches are told in passing. Before, the caches are looked for, chunks of one size that
 * begin a thread's life, and their lists followed.
 */
#pragma once

#include "heap/glibc_walk.h"

/* Size of the chunk that a tcache is. */
uint64_t hl_glibc_tcache_chunk_size(const struct hl_glibc_layout *layout);

/* The random number, from the lists of the tcache in the chunk at ${address}; 0 when there is none,
 * or nothing in its lists. */
uint64_t hl_glibc_tcache_key_at(struct hl_memory *memory, const struct hl_glibc *glibc,
				uint64_t address);
