/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The program's own live mappings: address ranges -> stack node, for `record --mappings`.
 *
 *   mapping  what one call of mmap, mremap, brk or sbrk has made; one object until its last byte
 *            has gone
 *   range    a part of a mapping that is still there; cutting a hole makes two of one
 *   number   mappings are numbered in the order in which they were added
 *
 * Ranges are taken out after the system has unmapped them. Meanwhile another thread may have got
 * the same addresses and have added its mapping; so a thread that unmaps takes the next number
 * before the system call, and takes out only ranges with smaller ones.
 *
 * All functions are thread-safe and keep errno. None may be called by a signal handler that
 * interrupted another.
 */
#pragma once

#include "recorder/spin.h"

#include <stdbool.h>
#include <stdint.h>

#define HL_MAPPING_ANY UINT64_MAX /* a bound above every number */

struct hl_mapping_range; /* mappings.c */

/* Zero-initialize. */
struct hl_mappings {
	_Atomic uint32_t lock;
	uint32_t count, capacity;
	struct hl_mapping_range *ranges; /* private memory, sorted by address, disjoint */
	_Atomic uint64_t next_number;
};

/* Called for each range taken out; ${last}: its mapping has gone with it. Under the lock. */
typedef void hl_mapping_gone_fn(void *context, uint32_t node, uint64_t bytes, bool last);

/* The number that the next mapping will get. */
static inline uint64_t hl_mappings_next(const struct hl_mappings *mappings)
{
	return atomic_load_explicit(&mappings->next_number, memory_order_acquire);
}

/* Adds the mapping [${start}, ${end}), where no range may be. False without memory for it. */
bool hl_mappings_add(struct hl_mappings *mappings, uint64_t start, uint64_t end, uint32_t node);

/*
 * Takes out what lies in [${start}, ${end}) of mappings numbered below ${bound}. False when there
 * was no memory to cut a hole: the range that should have got it stays whole.
 */
bool hl_mappings_remove(struct hl_mappings *mappings, uint64_t start, uint64_t end, uint64_t bound,
			hl_mapping_gone_fn *gone, void *context);
