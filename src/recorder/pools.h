/* SPDX-License-Identifier: BSD-2-Clause */
/* What programs tell of their pools, by heapline.h: pieces of memory that no allocator knows. */
#pragma once

#include <stddef.h>

struct hl_registers;

/*
 * ${block}, ${size} bytes, has been cut from pool ${pool} by the caller at ${caller}; and is given back
 * to it. NULL is fine. In the image called by a rule's stub. Async-signal-safe.
 */
void hl_pools_alloc(const char *pool, const void *block, size_t size,
		    const struct hl_registers *caller);
void hl_pools_free(const void *block);
/* Before memory is unmapped: what was cut from it ends. */
void hl_pools_unmap(const void *start, size_t bytes);
