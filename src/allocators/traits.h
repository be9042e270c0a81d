/* SPDX-License-Identifier: BSD-2-Clause */
/* The malloc family, under the names of every allocator that gives it names of its own. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* What a function of an allocator does, by where its arguments are. */
enum hl_heap_call {
	HL_HEAP_FREE,		/* (block, ...) */
	HL_HEAP_MALLOC,		/* (size, ...) -> block */
	HL_HEAP_CALLOC,		/* (count, size) -> block */
	HL_HEAP_MEMALIGN,	/* (anything, size) -> block */
	HL_HEAP_POSIX_MEMALIGN, /* (where to, alignment, size) -> error */
	HL_HEAP_REALLOC,	/* (block, size) -> block */
	HL_HEAP_REALLOCARRAY,	/* (block, count, size) -> block */
	HL_HEAP_CALLS,
	HL_HEAP_CALIBRATION = HL_HEAP_CALLS, /* heapline's own, to see what a probe costs */
};

struct hl_allocator_name {
	const char *name;
	enum hl_heap_call call;
	bool throws; /* an exception may leave the function */
};

/*
 * What the function called ${name} does, or NULL when it does not belong to an allocator. The
 * plainer the name, the smaller *${ret_rank}: show the alias with the smallest rank.
 */
const struct hl_allocator_name *hl_allocator_names_find(const char *name, uint32_t *ret_rank);

/*
 * Whether ${name} is one by which such an allocator would call a function that allocates or frees,
 * known or not: a later release has more than those that are known.
 */
bool hl_allocator_names_resemble(const char *name);
