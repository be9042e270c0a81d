/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads instructions; see rule_cache.h. */
#include "unwind/rule_cache.h"

#include "base/instruction.h"

#define IS_RETURN(word) HL_IS(word, 0xfffff000u, 0xd65f0000u) /* with or without authentication */
#define IS_JUMP_OF_REGISTER(word) \
	(HL_IS(word, 0xfffff000u, 0xd61f0000u) || HL_IS(word, 0xfffff000u, 0xd71f0000u))
#define IS_CALL_OF_REGISTER(word) \
	(HL_IS(word, 0xfffff000u, 0xd63f0000u) || HL_IS(word, 0xfffff000u, 0xd73f0000u))
#define STORES_RECORD(word) \
	(HL_IS(word, 0xffc07fffu, 0xa9807bfdu) || HL_IS(word, 0xffc07fffu, 0xa9007bfdu))
#define SETS_FRAME(word)    HL_IS(word, 0xffc003ffu, 0x910003fdu) /* add x29, sp, #N, or mov */
#define SETS_SP(word)	    HL_IS(word, 0xff80001fu, 0x9100001fu) /* add sp, register, #N */
#define IS_SP_FROM_SP(word) (((word) >> 5 & 31) == 31)

bool hl_code_read(const uint8_t *code, size_t bytes, struct hl_code *ret_code)
{
	uint64_t target;

	if (bytes < HL_WORD_BYTES)
		return false;
	uint32_t word = hl_word_at(code);
	bool leaves = IS_RETURN(word) || HL_IS_JUMP(word) || IS_JUMP_OF_REGISTER(word);
	bool branches = leaves || IS_CALL_OF_REGISTER(word) || hl_branch_target(word, 0, &target);
	*ret_code = (struct hl_code){
		HL_WORD_BYTES,
		(word == HL_NOP ? HL_DOES_NOTHING : 0u) | (word ? 0u : HL_DOES_FILL) |
			(branches ? HL_DOES_BRANCH : 0u) | (leaves ? HL_DOES_LEAVE : 0u) |
			(IS_JUMP_OF_REGISTER(word) ? HL_DOES_JUMP_TO_REGISTER : 0u) |
			(STORES_RECORD(word) || SETS_SP(word) ? HL_DOES_MOVE_SP : 0u) |
			(SETS_SP(word) && !IS_SP_FROM_SP(word) ? HL_DOES_SWITCH_STACK : 0u)};
	return true;
}

size_t hl_instructions_frame_pointer_made(const uint8_t *function, size_t bytes)
{
	size_t searched = bytes < HL_PROLOGUE_BYTES ? bytes : HL_PROLOGUE_BYTES;
	bool is_stored = false;

	for (size_t i = 0; i + HL_WORD_BYTES <= searched; i += HL_WORD_BYTES) {
		uint32_t word = hl_word_at(function + i);
		if (is_stored && SETS_FRAME(word))
			return i + HL_WORD_BYTES;
		is_stored |= STORES_RECORD(word);
	}
	return 0;
}

uint64_t hl_instructions_jump_target(const uint8_t *code)
{
	uint64_t at = (uint64_t)code, target = 0;

	if (at % HL_CODE_ALIGNMENT || HL_IS_CALL(hl_word_at(code)))
		return 0;
	return hl_branch_target(hl_word_at(code), at, &target) ? target : 0;
}

/* ---- stacks ---- */

bool hl_instructions_follow_call_of_register(const uint8_t *code)
{
	return IS_CALL_OF_REGISTER(hl_word_at(code - HL_WORD_BYTES));
}

bool hl_instructions_follow_call(const uint8_t *code)
{
	return HL_IS_CALL(hl_word_at(code - HL_WORD_BYTES)) ||
	       hl_instructions_follow_call_of_register(code);
}

uint64_t hl_instructions_called(const uint8_t *code, uint64_t address)
{
	uint32_t word = hl_word_at(code - HL_WORD_BYTES);
	uint64_t target = 0;

	return HL_IS_CALL(word) && hl_branch_target(word, address - HL_WORD_BYTES, &target) ? target
											    : 0;
}

/* musl's clone(): the function of a thread returns to "mov x8, #__NR_exit; svc #0". Others return to a function's beginning, or by a frame
 * record that ends with 0. */
bool hl_instructions_start_stack(const uint8_t *code, uint64_t address)
{
	(void)address;
	return hl_word_at(code) == 0xd2800ba8 && hl_word_at(code + HL_WORD_BYTES) == 0xd4000001;
}
