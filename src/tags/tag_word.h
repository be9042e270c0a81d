/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The word that the tag shim leaves in the last 8 usable bytes of every block, as the shim writes
 *it and a walk of the heap reads it from outside.
 *
 *	bits 0-15	check: a hash of the rest and of where the word lies, so that what a program
 *			left there by itself passes for a tag once in 65,536 blocks only
 *	bits 16-63	who allocated: an address, or, with the uppermost bit set, a tag
 *
 * An address is the return address of the call, 47 bits. A tag has its number in bits 48-62 and the
 * lower 32 bits of the return address in bits 16-47, from which the mapping can be told that it
 * lies in, nearly always.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define HL_TAG_WORD_BYTES 8u

/* ${end}: the address after the word. */
static inline uint16_t hl_tag_check(uint64_t identity, uint64_t end)
{
	return (uint16_t)((identity ^ end << 13) * UINT64_C(0x9e3779b97f4a7c15) >> 48);
}

static inline uint64_t hl_tag_word(uint64_t identity, uint64_t end)
{
	return identity << 16 | hl_tag_check(identity, end);
}

/* ${tag} 0: none is set. */
static inline uint64_t hl_tag_identity(uint64_t return_address, uint32_t tag)
{
	if (!tag)
		return return_address;
	return UINT64_C(1) << 47 | (uint64_t)tag << 32 | (uint32_t)return_address;
}

/* Whether ${word}, which ends at ${end}, may have been left there by the shim. */
static inline bool hl_tag_word_is_valid(uint64_t word, uint64_t end)
{
	return (uint16_t)word == hl_tag_check(word >> 16, end);
}

/* The tag in ${word}, 0 when there is none: then it holds a whole return address. */
static inline uint32_t hl_tag_of_word(uint64_t word)
{
	return word >> 63 ? (uint32_t)(word >> 48) & 0x7fff : 0;
}

/* The return address in ${word}; of one with a tag the lower 32 bits. */
static inline uint64_t hl_tag_address_of_word(uint64_t word)
{
	return word >> 63 ? (uint32_t)(word >> 16) : word >> 16;
}
