/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How much of what each stack has allocated is in RAM. Blocks count with their usable bytes, as far
 * as these lie on present pages: pages that were never touched, that madvise() gave back or that
 * were swapped out do not count, nor does the zero page; a small block on a huge page counts whole.
 */
#pragma once

#include "base/error.h"
#include "heap/heap.h"

#include <stdbool.h>
#include <stdint.h>

struct hl_resident_bytes {
	uint64_t resident, swapped;
	uint64_t walked; /* of the resident ones, those in the heap that was walked */
	bool is_met;	 /* by the walk */
	bool has_inner; /* it has blocks that lie in others, with which what is in RAM of them counts */
};

struct hl_resident {
	/* Glibc's heap, whose live blocks in RAM are the sum of ${walked}; NULL: the allocator
	 * cannot be walked. */
	struct hl_heap *heap;
	struct hl_block_owners *owners; /* names the stacks */
	/* By the number of the stack, see block_owners.h; [0]: of blocks whose stack is not known. */
	struct hl_resident_bytes *stacks;
	size_t stack_count;
	uint64_t walked, listed; /* resident bytes of blocks that the walk found, and of others */
	uint64_t
		listed_whole; /* all bytes of the latter, as far as these fit between their neighbours */
	bool sizes_are_means; /* listed blocks count with the mean size of their stack's */
};

/*
 * Reads process ${pid} while it goes on; ${settings} are those of the walk, but for its callbacks.
 * 0; or a negative errno with a sentence, among them -ENODATA when there is no recorder that knows
 * stacks. Nothing in the process changes: no page that is not there is touched.
 */
int hl_resident_read(pid_t pid, const struct hl_heap_settings *settings,
		     struct hl_resident **ret_resident, struct hl_error *err);

/*
 * Gives ${resident}, which has no heap, one with where resident memory of ${pid} is: what the recorder
 * that it knows has counted is live, if there is one, and the rest of the allocator's memory is not known.
 * 0 or as hl_heap_read_pages().
 */
int hl_resident_read_pages(pid_t pid, struct hl_resident *resident, struct hl_error *err);

void hl_resident_free(struct hl_resident *resident); /* NULL is fine */
