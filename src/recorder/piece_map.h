/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where pieces begin, so that those in a block that is freed are found: a bit for each 8 bytes, and above
 * that a bit for each page of bits. A free of a block that lies where no piece ever began reads one of
 * the latter.
 *
 *	piece	what a pool, or another allocator above malloc(), has cut from a larger block
 *
 * A bit may remain where a piece has ended. Pieces themselves are in the block table.
 * All functions: thread-safe; async-signal-safe; errno is kept.
 */
#pragma once

#include "region/block_format.h"

#include <stdbool.h>
#include <stdint.h>

#define HL_PIECE_GRANULE_BITS 3
#define HL_PIECE_PAGE_BITS    18 /* 256 KiB, whose bits fill a page of 4096 bytes */
#define HL_PIECE_LEAF_BITS    30
#define HL_PIECE_LEAVES	      (UINT64_C(1) << (HL_BLOCK_ADDRESS_BITS - HL_PIECE_LEAF_BITS))
#define HL_PIECE_WORD_BITS    (HL_PIECE_GRANULE_BITS + 6) /* what a word of bits covers */

struct hl_piece_leaf {
	_Alignas(4096) _Atomic uint64_t
		pages[UINT64_C(1) << (HL_PIECE_LEAF_BITS - HL_PIECE_PAGE_BITS - 6)];
	_Alignas(4096) _Atomic uint64_t
		words[UINT64_C(1) << (HL_PIECE_LEAF_BITS - HL_PIECE_WORD_BITS)];
};

struct hl_piece_map {
	_Atomic(struct hl_piece_leaf *) leaves[HL_PIECE_LEAVES];
	/* All leaves lie in [~inverted_start, end); 0, 0: there are none. */
	_Atomic uintptr_t inverted_start, end;
	_Atomic uintptr_t user; /* the thread that cuts pieces, HL_PIECE_MAP_SHARED, or 0: nobody */
};

#define HL_PIECE_MAP_SHARED UINTPTR_MAX

/* NULL without memory. */
struct hl_piece_map *hl_piece_map_new(void);
/* For a map that nobody has seen. */
void hl_piece_map_free(struct hl_piece_map *map);

/* A piece begins at ${address}. False without memory. */
bool hl_piece_map_note(struct hl_piece_map *map, uintptr_t address);

/* ${user} cuts pieces, beside others or alone. */
void hl_piece_map_use(struct hl_piece_map *map, uintptr_t user);

/* The first granule that ends after *${at} and begins before ${end}, where pieces may begin: *${at} becomes its
 * start. False when there are no more. */
bool hl_piece_map_find(struct hl_piece_map *map, uintptr_t *at, uintptr_t end);

/* No piece begins in the granule at ${address}. */
void hl_piece_map_clear(struct hl_piece_map *map, uintptr_t address);
