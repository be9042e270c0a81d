/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads instructions; see rule_cache.h. Encodings are by the Arm Architecture Reference Manual, chapter C4. */
#include "unwind/rule_cache.h"

#include <string.h>

#define WORD_BYTES 4u
#define NOP	   0xd503201fu

/* ${mask}ed bits of all instructions of a kind. */
#define IS(word, mask, value) (((word) & (mask)) == (value))
#define IS_RETURN(word)	      IS(word, 0xfffff000u, 0xd65f0000u) /* with or without authentication */
#define IS_JUMP(word)	      IS(word, 0xfc000000u, 0x14000000u) /* b */
#define IS_CALL(word)	      IS(word, 0xfc000000u, 0x94000000u) /* bl */
#define IS_JUMP_OF_REGISTER(word) \
	(IS(word, 0xfffff000u, 0xd61f0000u) || IS(word, 0xfffff000u, 0xd71f0000u))
#define IS_CALL_OF_REGISTER(word) \
	(IS(word, 0xfffff000u, 0xd63f0000u) || IS(word, 0xfffff000u, 0xd73f0000u))
#define IS_JUMP_IF(word)    IS(word, 0xff000000u, 0x54000000u) /* b.cond */
#define IS_JUMP_IF_ZERO(w)  IS(w, 0x7e000000u, 0x34000000u)    /* cbz, cbnz */
#define IS_JUMP_IF_BIT(w)   IS(w, 0x7e000000u, 0x36000000u)    /* tbz, tbnz */
#define STORES_RECORD(w)    (IS(w, 0xffc07fffu, 0xa9807bfdu) || IS(w, 0xffc07fffu, 0xa9007bfdu))
#define SETS_FRAME(word)    IS(word, 0xffc003ffu, 0x910003fdu) /* add x29, sp, #N, or mov */
#define SETS_SP(word)	    IS(word, 0xff80001fu, 0x9100001fu) /* add sp, register, #N */
#define IS_SP_FROM_SP(word) (((word) >> 5 & 31) == 31)

static uint32_t word_at(const uint8_t *code)
{
	uint32_t word;

	memcpy(&word, code, sizeof(word));
	return word;
}

/* The signed number of ${bits} from bit ${shift} on, in bytes: distances count words. */
static uint64_t distance(uint32_t word, unsigned shift, unsigned bits)
{
	return (uint64_t)((int64_t)((uint64_t)word << (64 - bits - shift)) >> (64 - bits)) *
	       WORD_BYTES;
}

size_t hl_instructions_length(const uint8_t *code, size_t bytes)
{
	(void)code;
	return bytes >= WORD_BYTES ? WORD_BYTES : 0;
}

/* From the first instruction on that begins there. */
bool hl_instructions_are_padding(const uint8_t *code, size_t bytes)
{
	for (size_t i = -(uintptr_t)code & (WORD_BYTES - 1); i + WORD_BYTES <= bytes;
	     i += WORD_BYTES)
		if (word_at(code + i) != NOP)
			return false;
	return true;
}

size_t hl_instructions_frame_pointer_made(const uint8_t *function, size_t bytes)
{
	size_t searched = bytes < HL_PROLOGUE_BYTES ? bytes : HL_PROLOGUE_BYTES;
	bool is_stored = false;

	for (size_t i = 0; i + WORD_BYTES <= searched; i += WORD_BYTES) {
		uint32_t word = word_at(function + i);
		if (is_stored && SETS_FRAME(word))
			return i + WORD_BYTES;
		is_stored |= STORES_RECORD(word);
	}
	return 0;
}

bool hl_instructions_next_part(const uint8_t *code, size_t bytes, struct hl_instructions_part *part)
{
	size_t at = part->end, start = bytes;

	for (; at + WORD_BYTES <= bytes; at += WORD_BYTES) {
		uint32_t word = word_at(code + at);
		if (start == bytes && word != NOP && word)
			start = at;
		if (start != bytes &&
		    (IS_RETURN(word) || IS_JUMP(word) || IS_JUMP_OF_REGISTER(word)))
			break;
	}
	at = at + WORD_BYTES < bytes ? at + WORD_BYTES : bytes;
	*part = (struct hl_instructions_part){start, at};
	return start != bytes;
}

uint64_t hl_instructions_jump_target(const uint8_t *code)
{
	uint64_t at = (uint64_t)code;

	if (at & (WORD_BYTES - 1))
		return 0;
	uint32_t word = word_at(code);
	if (IS_JUMP(word))
		return at + distance(word, 0, 26);
	if (IS_JUMP_IF(word) || IS_JUMP_IF_ZERO(word))
		return at + distance(word, 5, 19);
	return IS_JUMP_IF_BIT(word) ? at + distance(word, 5, 14) : 0;
}

/* ---- stacks ---- */

bool hl_instructions_follow_call_of_register(const uint8_t *code)
{
	return IS_CALL_OF_REGISTER(word_at(code - WORD_BYTES));
}

bool hl_instructions_follow_call(const uint8_t *code)
{
	return IS_CALL(word_at(code - WORD_BYTES)) || hl_instructions_follow_call_of_register(code);
}

uint64_t hl_instructions_called(const uint8_t *code, uint64_t address)
{
	uint32_t word = word_at(code - WORD_BYTES);

	return IS_CALL(word) ? address - WORD_BYTES + distance(word, 0, 26) : 0;
}

/* Whether what comes next in memory is not all that can come next. */
static bool branches(uint32_t word)
{
	return IS_JUMP(word) || IS_CALL(word) || IS_RETURN(word) || IS_JUMP_OF_REGISTER(word) ||
	       IS_CALL_OF_REGISTER(word) || IS_JUMP_IF(word) || IS_JUMP_IF_ZERO(word) ||
	       IS_JUMP_IF_BIT(word);
}

bool hl_instructions_jump_to_register(const uint8_t *function, size_t bytes)
{
	size_t searched = bytes < HL_HANDED_BYTES ? bytes : HL_HANDED_BYTES;

	for (size_t i = 0; i + WORD_BYTES <= searched; i += WORD_BYTES) {
		uint32_t word = word_at(function + i);
		if (IS_JUMP_OF_REGISTER(word))
			return true;
		if (branches(word) || STORES_RECORD(word) || SETS_SP(word))
			return false;
	}
	return false;
}

bool hl_instructions_leave_stack(const uint8_t *code, size_t bytes)
{
	size_t searched = bytes < HL_RETURN_BYTES ? bytes : HL_RETURN_BYTES;

	for (size_t i = 0; i + WORD_BYTES <= searched; i += WORD_BYTES) {
		uint32_t word = word_at(code + i);
		if (branches(word))
			return false;
		if (SETS_SP(word) && !IS_SP_FROM_SP(word))
			return true;
	}
	return false;
}

/* Those who start stacks here return to a function's beginning, or by a frame record that ends with 0. */
bool hl_instructions_start_stack(const uint8_t *code, uint64_t address)
{
	(void)code, (void)address;
	return false;
}
