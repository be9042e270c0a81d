/* SPDX-License-Identifier: BSD-2-Clause */
/* Where the fields of musl's allocator lie on 64-bit machines with pages of 4 KiB: the same in 1.2.1
 * to 1.2.5. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define HL_MUSL_UNIT	    16u /* of sizes and places of slots; also the header of a group */
#define HL_MUSL_TRAILER	    4u	/* bytes of a slot that are never the program's */
#define HL_MUSL_CLASSES	    48u
#define HL_MUSL_CLASS_ALONE 63u /* a block with a mapping of its own */
#define HL_MUSL_SLOTS	    32u
#define HL_MUSL_PAGE	    4096u /* in which groups count their length */

#define HL_MUSL_CONTEXT_READY	   8u
#define HL_MUSL_CONTEXT_FREE_METAS 32u /* never used ones of the last area */
#define HL_MUSL_CONTEXT_SHIFT	   48u
#define HL_MUSL_CONTEXT_HEAD	   56u
#define HL_MUSL_CONTEXT_TAIL	   64u
#define HL_MUSL_CONTEXT_BYTES	   928u

#define HL_MUSL_AREA_BYTES 4096u
#define HL_MUSL_AREA_NEXT  8u
#define HL_MUSL_AREA_FIRST 24u /* meta */
#define HL_MUSL_META_BYTES 40u
#define HL_MUSL_AREA_METAS ((HL_MUSL_AREA_BYTES - HL_MUSL_AREA_FIRST) / HL_MUSL_META_BYTES)

/* Upper 3 bits of the byte 3 before a block, of which the lower 5 are the number of its slot. */
#define HL_MUSL_REST_FAR    5u /* the rest behind the block is in the slot's last 4 bytes */
#define HL_MUSL_REST_NESTED 6u /* a group lies in the slot */
#define HL_MUSL_REST_LATER  7u /* of a slot: its block begins later */

static inline uint64_t hl_musl_word(const uint8_t *bytes)
{
	uint64_t word;

	memcpy(&word, bytes, sizeof(word));
	return word;
}

struct hl_musl_meta {
	uint64_t address;
	uint64_t group; /* 0: the meta is not used */
	uint32_t free;	/* bits: slots */
	uint32_t last_slot;
	uint32_t size_class;
	uint64_t pages; /* 0: it lies in another group, or was donated */
	bool is_donated;
};

static inline struct hl_musl_meta hl_musl_meta(uint64_t address, const uint8_t *bytes)
{
	uint64_t bits = hl_musl_word(bytes + 32), masks = hl_musl_word(bytes + 24);

	return (struct hl_musl_meta){.address = address,
				     .group = hl_musl_word(bytes + 16),
				     .free = (uint32_t)(masks | masks >> 32),
				     .last_slot = bits & 31,
				     .size_class = bits >> 6 & 63,
				     .pages = bits >> 12,
				     .is_donated = !(bits >> 12) && !(bits & 32)};
}
