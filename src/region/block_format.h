/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How block tables lie in the target's memory, for the recorder, and for tools that read them from
 * outside while the target runs.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#define HL_DRAW_BITS 10
#define HL_DRAW_MAX  ((1u << HL_DRAW_BITS) - 1)

struct hl_block {
	uint32_t node; /* never 0 for a block that is in a table */
	uint32_t draw; /* of a block that was hit 1 to HL_DRAW_MAX, at random (sample.h), else 0 */
	uint64_t requested; /* bytes asked for */
};

/* ---- array: two levels; an entry for each 16 bytes of heap ---- */

#define HL_BLOCK_ADDRESS_BITS  47
#define HL_BLOCK_LEAF_BITS     26 /* a leaf covers 64 MiB of heap with 16 MiB */
#define HL_BLOCK_GRANULE_BITS  4
#define HL_BLOCK_LEAVES	       (UINT64_C(1) << (HL_BLOCK_ADDRESS_BITS - HL_BLOCK_LEAF_BITS))
#define HL_BLOCK_LEAF_ENTRIES  (UINT64_C(1) << (HL_BLOCK_LEAF_BITS - HL_BLOCK_GRANULE_BITS))
#define HL_BLOCK_SLACK_BITS    8
#define HL_BLOCK_SLACK_IN_HASH 255u /* the entry says only: look in the hash */
#define HL_BLOCK_SLACK_MAX     223u /* larger values have meanings of their own */

/* node << HL_BLOCK_SLACK_BITS | slack; 0: no block. */
typedef _Atomic uint32_t hl_block_entry;

struct hl_block_array {
	_Atomic(hl_block_entry *) leaves[HL_BLOCK_LEAVES];
	_Atomic(struct hl_block_leaf *) newest; /* of all of them; for the recorder alone */
};

struct hl_block_leaf {
	hl_block_entry entries[HL_BLOCK_LEAF_ENTRIES];
	struct hl_block_leaf *older; /* for the recorder alone */
};

static inline uint32_t hl_block_entry_of(uint32_t node, uint64_t slack)
{
	return node << HL_BLOCK_SLACK_BITS | (uint32_t)slack;
}

/*
 * An object that an interpreter's own allocator has cut from an arena, in steps of a granule: instead of
 * its slack HL_BLOCK_OBJECT + slack. If it is larger than a granule, the entry of the second one
 * says how many it has, with node 0; else that entry is another block's, or 0.
 */
#define HL_BLOCK_OBJECT		   224u
#define HL_BLOCK_OBJECT_SLACK_MASK 15u
#define HL_BLOCK_OBJECT_BYTES_MAX  (HL_BLOCK_SLACK_IN_HASH << HL_BLOCK_GRANULE_BITS)
#define HL_BLOCK_PAGE_ENTRIES	   1024u /* in a page; the two entries of an object are in one */

static inline int hl_block_entry_is_object(uint32_t entry)
{
	return (entry & (HL_BLOCK_SLACK_IN_HASH & ~HL_BLOCK_OBJECT_SLACK_MASK)) == HL_BLOCK_OBJECT;
}

/* Whether it begins no block, but says how large one is. */
static inline int hl_block_entry_is_size(uint32_t entry)
{
	return entry && !(entry >> HL_BLOCK_SLACK_BITS);
}

/* Usable bytes of an object, of which ${next} is the second granule's entry. */
static inline uint64_t hl_block_object_bytes(uint32_t next)
{
	return (hl_block_entry_is_size(next) ? next : UINT64_C(1)) << HL_BLOCK_GRANULE_BITS;
}

static inline uint64_t hl_block_place_in_leaf(uintptr_t address)
{
	return (address >> HL_BLOCK_GRANULE_BITS) & (HL_BLOCK_LEAF_ENTRIES - 1);
}

/* ---- hash: shards of open addressing ---- */

#define HL_BLOCK_SHARDS	     64u
#define HL_BLOCK_FILTER_BITS 15

/* address | requested >> 40 << 47 | draw << 54;  node << 40 | requested & (2^40 - 1). No block is
 * larger than the 2^47 bytes of the address space. An empty slot has address 0. */
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
	40 /* requested bits above these 40 lie above the 47 bits of the address */
#define HL_BLOCK_ADDRESS_MASK ((UINT64_C(1) << HL_BLOCK_ADDRESS_BITS) - 1)
#define HL_BLOCK_LOW_MASK     ((UINT64_C(1) << HL_BLOCK_REQUESTED_HIGH) - 1)

static inline struct hl_block_slot hl_block_slot_make(uintptr_t address, struct hl_block block)
{
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
