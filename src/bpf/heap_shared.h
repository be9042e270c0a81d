/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the programs that watch an allocator and their loader share: the kinds of calls, and how a
 * probe says which one it stands for.
 */
#pragma once

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
};
