/* SPDX-License-Identifier: BSD-2-Clause */
/* What the parts of reading a glibc heap share: arenas, main_arena's memory, mapped blocks. */
#pragma once

#include "base/index.h"
#include "heap/account.h"
#include "heap/glibc.h"

/* Walks the heap of ${glibc} and fills ${heap}: arenas, carriers, and their share of RSS. 0, a
 * negative errno with a sentence, or what the visitor of blocks returned. */
int hl_glibc_heap_read(struct hl_memory *memory, const struct hl_glibc *glibc,
		       const struct hl_heap_settings *settings, struct hl_heap *heap,
		       struct hl_error *err);

/* How far a heap agrees with a layout. */
enum hl_glibc_agreement {
	HL_GLIBC_DISAGREES,
	HL_GLIBC_AGREES_BUT_CACHES, /* in all but thread caches, of which none with chunks was found */
	HL_GLIBC_AGREES,
};

/*
 * Walks the heap of ${glibc} with its layout, which may be wrong. The heap agrees if all chunks are
 * consistent, each arena's memory was found to the byte, free chunks in lists are free by their
 * neighbours, there are as many mapped blocks as glibc counts, and a thread cache holds what it
 * counts. A running process may change meanwhile: a heap that disagrees is walked again. -ENOMEM,
 * -ESRCH.
 */
int hl_glibc_heap_agreement(struct hl_memory *memory, const struct hl_glibc *glibc);

struct hl_glibc_reader {
	struct hl_memory *memory;
	const struct hl_glibc *glibc;
	struct hl_heap *heap;
	struct hl_error *err;
	bool wants_stop;
	struct hl_glibc_common common;
	struct hl_glibc_arena *arenas; /* as heap->arenas */
	size_t arena_count, arena_capacity;
	struct hl_index heaps; /* of arenas by address: index of the carrier + 1 */
	uint64_t main_bytes;   /* found so far of main_arena's memory */
	uint32_t tries;	       /* to find more of it */
	struct hl_account account;
	struct hl_glibc_walker_settings walk;
	struct hl_glibc_walker *walker;
	struct hl_glibc_walker *strict; /* reports nothing, and stops where chunks do not fit */
};

/* Walks the memory that main_arena has from the break. Like all functions below that walk, returns
 * 0, a negative errno, or what the visitor of blocks returned. */
int hl_glibc_main_read_break(struct hl_glibc_reader *reader);

/* Whether memory of main_arena is still missing. */
bool hl_glibc_main_lacks_pieces(const struct hl_glibc_reader *reader);

/* Finds blocks that have mappings of their own, and pieces of main_arena that are not from the
 * break. */
int hl_glibc_mmapped_read(struct hl_glibc_reader *reader);
