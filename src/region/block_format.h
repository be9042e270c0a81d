/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How block tables lie in the target's memory, for the recorder, and for tools that read them from
 * outside while the target runs.
 */
#pragma once

#include "base/machine.h"

#include <stdatomic.h>
#include <stdint.h>

#define HL_DRAW_BITS 10
#define HL_DRAW_MAX  ((1u << HL_DRAW_BITS) - 1)

struct hl_block {
	uint32_t node; /* never 0 for a block that is in a table */
	uint32_t draw; /* of a block that was hit 1 to HL_DRAW_MAX, at random (sample.h), else 0 */
	uint64_t requested; /* bytes asked for */
};

/*
 * ---- array: two planes; in the first one an entry for each 32 bytes of heap ----
 *
 *	granule	32 bytes of heap, in which blocks may begin at two places, 16 bytes apart: its halves
 *	word	what an entry holds: node, half, and slack or a meaning of its own; 0: no block
 *
 * A block's word is in the first plane, or in the second one if the other half's is, or was, in the first. Of glibc's blocks,
 * which begin at least 32 bytes apart, all are in the first. The second one has entries for those pages of heap alone that need
 * them: a run for each, in the order in which they came.
 */

#define HL_BLOCK_ADDRESS_BITS HL_ADDRESS_BITS
#define HL_BLOCK_LEAF_BITS    26 /* a leaf covers 64 MiB of heap with 8 MiB, and 2 MiB for objects */
#define HL_BLOCK_GRANULE_BITS 5
#define HL_BLOCK_LEAVES	      (UINT64_C(1) << (HL_BLOCK_ADDRESS_BITS - HL_BLOCK_LEAF_BITS))
#define HL_BLOCK_LEAF_ENTRIES (UINT64_C(1) << (HL_BLOCK_LEAF_BITS - HL_BLOCK_GRANULE_BITS))
#define HL_BLOCK_PLANES	      2
#define HL_BLOCK_PAGE_ENTRIES 1024u /* in a page */
#define HL_BLOCK_HEAP_PAGE    12
#define HL_BLOCK_RUN_ENTRIES  (1u << (HL_BLOCK_HEAP_PAGE - HL_BLOCK_GRANULE_BITS))
#define HL_BLOCK_LEAF_RUNS    (1u << (HL_BLOCK_LEAF_BITS - HL_BLOCK_HEAP_PAGE))

/* node << HL_BLOCK_NODE_SHIFT | half | slack */
typedef _Atomic uint32_t hl_block_entry;

#define HL_BLOCK_NODE_SHIFT    8
#define HL_BLOCK_HALF	       128u /* the block begins in the upper half */
#define HL_BLOCK_SLACK_IN_HASH 127u /* the word says only: look in the hash */
#define HL_BLOCK_SLACK_MAX     110u /* larger values have meanings of their own */

struct hl_block_array {
	_Atomic(hl_block_entry *) leaves[HL_BLOCK_PLANES][HL_BLOCK_LEAVES];
	_Atomic(struct hl_block_leaf *) newest; /* of all of them; for the recorder alone */
};

struct hl_block_leaf {
	hl_block_entry entries[HL_BLOCK_LEAF_ENTRIES];
	_Atomic uint8_t steps[HL_BLOCK_LEAF_ENTRIES]; /* of objects, see below */
	struct hl_block_leaf *older;		      /* for the recorder alone */
	/* Of the second plane: runs that were given out, and the number of each page's, from 1 on; 0: it has none. */
	_Atomic uint32_t run_count;
	_Alignas(4096) _Atomic uint16_t runs[HL_BLOCK_LEAF_RUNS];
};

static inline uint32_t hl_block_half(uintptr_t address)
{
	return (uint32_t)(address << 3) & HL_BLOCK_HALF;
}

/* A stamp, which a guest keeps beside a block, has no bit for the half of its granule: each half has a plane. */
static inline uint32_t hl_block_stamp_plane(uintptr_t address)
{
	return hl_block_half(address) != 0;
}

static inline uint32_t hl_block_word(uintptr_t address, uint32_t node, uint64_t slack)
{
	return node << HL_BLOCK_NODE_SHIFT | hl_block_half(address) | (uint32_t)slack;
}

/* ${word} without the half if it is of a block at ${address}, else 0. */
static inline uint32_t hl_block_word_of(uint32_t word, uintptr_t address)
{
	uint32_t own = word ^ hl_block_half(address);

	return own & HL_BLOCK_HALF ? 0 : own;
}

static inline uint64_t hl_block_place_in_leaf(uintptr_t address)
{
	return (address >> HL_BLOCK_GRANULE_BITS) & (HL_BLOCK_LEAF_ENTRIES - 1);
}

/* The place of the page's run number in a leaf of the second plane. */
static inline uint64_t hl_block_run_place(uintptr_t address)
{
	return (address >> HL_BLOCK_HEAP_PAGE) & (HL_BLOCK_LEAF_RUNS - 1);
}

/*
 * An object that an interpreter's own allocator has cut from an arena, in steps of 16 bytes: instead of its slack
 * HL_BLOCK_OBJECT + slack. How many steps it has is beside the entry, and was written before the word; it
 * means nothing without that. In the second plane each has one.
 */
#define HL_BLOCK_OBJECT		  111u
#define HL_BLOCK_OBJECT_SLACK_MAX 15u
#define HL_BLOCK_STEP_BITS	  4
#define HL_BLOCK_OBJECT_BYTES_MAX (UINT8_MAX << HL_BLOCK_STEP_BITS)

static inline int hl_block_word_is_object(uint32_t word)
{
	return (word & ~(UINT32_MAX << HL_BLOCK_NODE_SHIFT | HL_BLOCK_HALF)) - HL_BLOCK_OBJECT <=
	       HL_BLOCK_OBJECT_SLACK_MAX;
}

/* The bytes that were asked for of an object of ${steps}. */
static inline uint64_t hl_block_object_requested(uint32_t word, uint32_t steps)
{
	return ((uint64_t)steps << HL_BLOCK_STEP_BITS) -
	       ((word & HL_BLOCK_SLACK_IN_HASH) - HL_BLOCK_OBJECT);
}

/*
 * ---- pieces of a pool that is reset: a word for each 8 bytes of its memory ----
 *
 *	word	where a piece begins, node << HL_BLOCK_NODE_SHIFT | tag; elsewhere 0, or a part of a size
 *	tag	the bytes asked for and one; or HL_PIECE_LARGE or HL_PIECE_HUGE: they are in the next word, or in the next two, 23 bits in
 *		each, above a tag of 0. Such a piece is so long that these words are its own.
 */

#define HL_PIECE_ARRAY_GRANULE_BITS 3
#define HL_PIECE_ARRAY_PAGE_BITS    12
#define HL_PIECE_ARRAY_LEAF_BITS \
	26 /* a leaf covers 64 MiB with 32 MiB, of which there is memory where pieces begin */
#define HL_PIECE_ARRAY_LEAVES	  (UINT64_C(1) << (HL_BLOCK_ADDRESS_BITS - HL_PIECE_ARRAY_LEAF_BITS))
#define HL_PIECE_ARRAY_PAGES	  (1u << (HL_PIECE_ARRAY_LEAF_BITS - HL_PIECE_ARRAY_PAGE_BITS))
#define HL_PIECE_ARRAY_PAGE_WORDS (1u << (HL_PIECE_ARRAY_PAGE_BITS - HL_PIECE_ARRAY_GRANULE_BITS))
#define HL_PIECE_ARRAY_WORDS	  (HL_PIECE_ARRAY_PAGES * HL_PIECE_ARRAY_PAGE_WORDS) /* of a leaf */
#define HL_PIECE_TAG		  255u
#define HL_PIECE_LARGE		  255u
#define HL_PIECE_HUGE		  254u
#define HL_PIECE_ARRAYS_MAX	  7u /* HL_RULE_POOLS_MAX */
#define HL_PIECE_BYTES_BITS	  23 /* of a word that is a part of a size */

struct hl_piece_array_leaf {
	hl_block_entry words[HL_PIECE_ARRAY_WORDS];
	_Atomic uint8_t begun
		[HL_PIECE_ARRAY_PAGES]; /* pages in which pieces have begun since the last reset */
};

/* Where pieces lie: in [~inverted_start, end); 0, 0: there were none. */
struct hl_piece_bounds {
	_Atomic uintptr_t inverted_start, end;
	_Atomic uintptr_t user; /* the thread that cuts pieces, HL_PIECES_SHARED, or 0: nobody */
};

struct hl_piece_array {
	_Atomic(struct hl_piece_array_leaf *) leaves[HL_PIECE_ARRAY_LEAVES];
	struct hl_piece_array *older; /* of another pool; NULL: none */
	struct hl_piece_bounds bounds;
};

/* A word that is a part ${number} of a size, with a bit that says so. */
static inline uint32_t hl_piece_size_word(uint64_t bytes, uint32_t number)
{
	uint32_t part = (uint32_t)(bytes >> number * HL_PIECE_BYTES_BITS) &
			((1u << HL_PIECE_BYTES_BITS) - 1);

	return (part | 1u << HL_PIECE_BYTES_BITS) << HL_BLOCK_NODE_SHIFT;
}

/* The bytes of a piece that begins with the first of ${words}, which is ${word}. */
static inline uint64_t hl_piece_bytes(const hl_block_entry *words, uint32_t word)
{
	uint32_t tag = word & HL_PIECE_TAG;
	uint64_t bytes = 0;

	if (tag < HL_PIECE_HUGE)
		return tag - 1;
	for (uint32_t number = tag == HL_PIECE_HUGE ? 2 : 1; number; number--) {
		uint32_t part = atomic_load_explicit(&words[number], memory_order_relaxed) >>
				HL_BLOCK_NODE_SHIFT;
		bytes = bytes << HL_PIECE_BYTES_BITS | (part & ((1u << HL_PIECE_BYTES_BITS) - 1));
	}
	return bytes;
}

/* ---- hash: shards of open addressing ---- */

#define HL_BLOCK_SHARDS	     64u
#define HL_BLOCK_FILTER_BITS 15

/* address | requested >> 40 << HL_BLOCK_ADDRESS_BITS | draw << 54;  node << 40 | requested & (2^40 - 1). A block of 2^46 bytes
 * or more, for which addresses of 48 bits leave no room, counts as the largest that has. An empty slot has address 0. */
struct hl_block_slot {
	uint64_t address;
	uint64_t value;
};

struct hl_block_shard {
	_Alignas(64) _Atomic uint32_t lock; /* recorder/spin.h */
	uint32_t bits;			    /* 2^bits slots, if there are any */
	uint64_t used;
	struct hl_block_slot *slots;
};

struct hl_block_hash {
	struct hl_block_shard shards[HL_BLOCK_SHARDS];
	/* How many blocks of a hash class are in the table, stuck at 255: the cheap answer for
	 * blocks that are not. */
	_Atomic uint8_t filter[1u << HL_BLOCK_FILTER_BITS];
};

#define HL_BLOCK_REQUESTED_HIGH \
	40 /* requested bits above these 40 lie above those of the address */
#define HL_BLOCK_REQUESTED_BITS \
	(HL_BLOCK_REQUESTED_HIGH + 64 - HL_DRAW_BITS - HL_BLOCK_ADDRESS_BITS)
#define HL_BLOCK_ADDRESS_MASK ((UINT64_C(1) << HL_BLOCK_ADDRESS_BITS) - 1)
#define HL_BLOCK_LOW_MASK     ((UINT64_C(1) << HL_BLOCK_REQUESTED_HIGH) - 1)

static inline struct hl_block_slot hl_block_slot_make(uintptr_t address, struct hl_block block)
{
	const uint64_t most = (UINT64_C(1) << HL_BLOCK_REQUESTED_BITS) - 1;

	if (HL_BLOCK_REQUESTED_BITS < HL_BLOCK_ADDRESS_BITS && block.requested > most)
		block.requested = most;
	return (struct hl_block_slot){
		.address = address |
			   (block.requested >> HL_BLOCK_REQUESTED_HIGH) << HL_BLOCK_ADDRESS_BITS |
			   (uint64_t)block.draw << (64 - HL_DRAW_BITS),
		.value = (uint64_t)block.node << HL_BLOCK_REQUESTED_HIGH |
			 (block.requested & HL_BLOCK_LOW_MASK),
	};
}

static inline struct hl_block hl_block_of_slot(struct hl_block_slot slot)
{
	return (struct hl_block){
		.node = (uint32_t)(slot.value >> HL_BLOCK_REQUESTED_HIGH),
		.draw = (uint32_t)(slot.address >> (64 - HL_DRAW_BITS)),
		.requested = (slot.address << HL_DRAW_BITS >> (HL_BLOCK_ADDRESS_BITS + HL_DRAW_BITS)
								      << HL_BLOCK_REQUESTED_HIGH) |
			     (slot.value & HL_BLOCK_LOW_MASK),
	};
}
