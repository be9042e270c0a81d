/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Thread caches: freed chunks that threads keep, which their neighbours take for used.
 *
 * From glibc 2.34 on such a chunk's second word is a random number, one for the process: all
 * threads' caches are told in passing. A chunk that was in a cache when its thread ended keeps the
 * word, though, until somebody writes there; so those with the word are compared with the lists
 * afterwards. Before 2.34 there is nothing but the lists: a first walk looks for the caches, which
 * are blocks of a size of their own.
 */
#pragma once

#include "heap/glibc_state.h"

/* Size of the chunk that a tcache is, if the allocator found one that fits. */
uint64_t hl_glibc_tcache_chunk_size(const struct hl_glibc_layout *layout);

/* The random number, from the lists of the tcache in the chunk at ${address}; 0 when there is none,
 * or nothing in its lists. */
uint64_t hl_glibc_tcache_key_at(struct hl_memory *memory, const struct hl_glibc *glibc,
				uint64_t address);

/* Appends the chunks in the lists of those of ${blocks}, blocks of a tcache's size, that are one.
 * Sorted; 0 or -ENOMEM. */
int hl_glibc_cached_chunks(struct hl_memory *memory, const struct hl_glibc *glibc,
			   const struct hl_addresses *blocks, struct hl_addresses *chunks);

/* Whether the chunk at ${address} has ${key} where a cached one has it. */
bool hl_glibc_has_tcache_key(struct hl_memory *memory, uint64_t address, uint64_t key);
