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

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* ---- where fields lie on 64-bit machines with pages of 4 KiB: the same in 1.2.1 to 1.2.5 ---- */

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

/* ---- finding and reading it ---- */

struct hl_musl {
	uint64_t context;
	uint64_t secret;
	uint64_t first_area;
};

/* Finds the context, without symbols: by the secret, which the first page of metas begins with as
 * well. 0; -ENOTSUP when there is none; -ENOMEM. */
int hl_musl_find(struct hl_memory *memory, struct hl_musl *ret_musl);
