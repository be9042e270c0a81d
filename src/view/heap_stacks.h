/* SPDX-License-Identifier: BSD-2-Clause */
/* The live blocks of a heap that lie in RAM, by the stacks that allocated them; see resident.h. */
#pragma once

#include "view/emit.h"

#include <stddef.h>
#include <stdint.h>

#define HL_HEAP_STACK_TEXT 160

struct hl_resident;

struct hl_heap_stack {
	uint64_t number, bytes;
};

/* Those with bytes in RAM, the heaviest first. */
struct hl_heap_stacks {
	const struct hl_resident *resident;
	struct hl_heap_stack *stacks;
	size_t count;
};

/* None where ${resident} is NULL or knows no stacks. 0 or -ENOMEM. */
int hl_heap_stacks_init(struct hl_heap_stacks *stacks, const struct hl_resident *resident);

void hl_heap_stacks_release(struct hl_heap_stacks *stacks);

/* Calls ${row} for the heaviest ones, for all others and for blocks without a known stack: the sum
 * of all. ${part} is valid during the call. 0 or a negative errno. */
int hl_heap_stacks_each(const struct hl_heap_stacks *stacks,
			void (*row)(void *context, const char *part, uint64_t bytes),
			void *context);

/* The member `stacks` of JSON: all of them. 0 or a negative errno. */
int hl_heap_stacks_emit(struct hl_emit *emit, const struct hl_heap_stacks *stacks);
