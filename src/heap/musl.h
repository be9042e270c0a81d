/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * musl's allocator since 1.2.1 (mallocng) in the memory of a process: where its context is, and what
 * its groups hold. Nothing that is read is trusted.
 *
 *	context		__malloc_context, one for the process: a secret number, and where the areas begin
 *	meta area	a page of metas; it begins with the secret
 *	meta		of a group: where it is, which of its slots are free, the size of each, and
 *			how many pages it has of its own
 *	group		up to 32 slots of one size in memory of its own, in a slot of a larger group, or
 *			in what a module leaves of its last page (donated)
 *	slot		the memory of a block; the block may begin later, at a multiple of 16 bytes. The
 *			4 bytes before a block have its slot's number and how far its end is from the slot's
 */
#pragma once

#include "base/error.h"
#include "heap/memory.h"

struct hl_heap;
struct hl_heap_settings;

struct hl_musl {
	uint64_t context;
	uint64_t secret;
	uint64_t first_area;
};

/* Finds the context, without symbols: by the secret, which the first page of metas begins with as
 * well. 0; -ENOTSUP when there is none; -ENOMEM. */
int hl_musl_find(struct hl_memory *memory, struct hl_musl *ret_musl);

/* Like hl_heap_walk(), of this allocator alone: sums, carriers, each live block with the bytes that were asked
 * for. It reports how many bytes are inconsistent. 0 or a negative errno. */
int hl_musl_heap_read(struct hl_memory *memory, const struct hl_musl *musl,
		      const struct hl_heap_settings *settings, struct hl_heap *heap,
		      struct hl_error *err);
