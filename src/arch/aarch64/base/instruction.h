/* SPDX-License-Identifier: BSD-2-Clause */
/* Instructions of aarch64: their kinds, and where branches lead to. Encodings are by the Arm Architecture Reference Manual, chapter C4. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define HL_WORD_BYTES 4u
#define HL_NOP	      UINT32_C(0xd503201f)
#define HL_BTI_C      UINT32_C(0xd503245f)
#define HL_B	      UINT32_C(0x14000000)

/* ${mask}ed bits of all instructions of a kind. */
#define HL_IS(word, mask, value) (((word) & (mask)) == (value))
#define HL_IS_JUMP(word)	 HL_IS(word, 0xfc000000u, HL_B)	       /* b */
#define HL_IS_CALL(word)	 HL_IS(word, 0xfc000000u, 0x94000000u) /* bl */
#define HL_IS_JUMP_IF(word)	 HL_IS(word, 0xff000000u, 0x54000000u) /* b.cond */
#define HL_IS_JUMP_IF_ZERO(word) HL_IS(word, 0x7e000000u, 0x34000000u) /* cbz, cbnz */
#define HL_IS_JUMP_IF_BIT(word)	 HL_IS(word, 0x7e000000u, 0x36000000u) /* tbz, tbnz */
#define HL_IS_ADDRESS(word)	 HL_IS(word, 0x1f000000u, 0x10000000u) /* adr, adrp */

static inline uint32_t hl_word_at(const uint8_t *code)
{
	uint32_t word;

	__builtin_memcpy(&word, code, sizeof(word));
	return word;
}

/* The signed number of ${bits} from bit ${low} on. */
static inline int64_t hl_number_in(uint32_t word, unsigned low, unsigned bits)
{
	return (int64_t)((uint64_t)word << (64 - low - bits)) >> (64 - bits);
}

/* Where a branch by a distance leads to from ${address}. False: of any other instruction. */
static inline bool hl_branch_target(uint32_t word, uint64_t address, uint64_t *ret_target)
{
	int64_t words;

	if (HL_IS_JUMP(word) || HL_IS_CALL(word))
		words = hl_number_in(word, 0, 26);
	else if (HL_IS_JUMP_IF(word) || HL_IS_JUMP_IF_ZERO(word))
		words = hl_number_in(word, 5, 19);
	else if (HL_IS_JUMP_IF_BIT(word))
		words = hl_number_in(word, 5, 14);
	else
		return false;
	*ret_target = address + (uint64_t)words * HL_WORD_BYTES;
	return true;
}

/* What adr or adrp at ${address} makes of it. */
static inline uint64_t hl_address_made(uint32_t word, uint64_t address)
{
	uint64_t distance = (uint64_t)hl_number_in(word, 5, 19) << 2 | (word >> 29 & 3);

	return word >> 31 ? (address & ~UINT64_C(4095)) + (distance << 12) : address + distance;
}
