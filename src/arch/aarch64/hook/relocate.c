/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rewrites an instruction of aarch64 for another address; see relocate.h. A patch is one branch, written at once: no thread
 * ever stands inside of it.
 */
#include "hook/relocate_move.h"

#include "base/instruction.h"

#include <errno.h>
#include <string.h>

#define RET_X16 UINT32_C(0xd65f0200) /* wants no landing pad where it leads to, unlike br */
#define PACIASP UINT32_C(0xd503233f)
#define PACIBSP UINT32_C(0xd503237f)
#define AUTIASP UINT32_C(0xd50323bf)
#define AUTIBSP UINT32_C(0xd50323ff)
#define ADD_SP	UINT32_C(0x910003ff) /* add sp, sp, #0 */
#define LITERAL UINT32_C(0x58000000) /* ldr x0, of 8 bytes from here */

/* What hl_instruction_can_be_undone() says of the instructions that sign return addresses. */
enum { UNDO_PACIASP = -1, UNDO_PACIBSP = -2 };

/* Whether an indirect branch may lead to it alone where pages are guarded: bti c, j, jc; and those that sign. */
static bool is_landing_pad(uint32_t word)
{
	return (word & 0xffffff3f) == 0xd503241f || word == PACIASP || word == PACIBSP;
}

static void put_word(struct hl_move *move, uint32_t word)
{
	hl_move_put(move, &word, sizeof(word));
}

/* Register ${number} becomes ${value}: ldr, and a branch over that. */
static void put_value(struct hl_move *move, uint32_t number, uint64_t value)
{
	put_word(move, LITERAL | 2 << 5 | number);
	put_word(move, HL_B | 3);
	hl_move_put(move, &value, sizeof(value));
}

static bool is_near(uint64_t from, uint64_t to)
{
	return (int64_t)(to - from) < (int64_t)HL_PATCH_REACH &&
	       (int64_t)(to - from) >= -(int64_t)HL_PATCH_REACH;
}

static uint32_t branch(uint64_t from, uint64_t to)
{
	return HL_B | ((uint32_t)((to - from) / HL_WORD_BYTES) & 0x3ffffff);
}

void hl_move_jump(struct hl_move *move, uint64_t target)
{
	uint64_t here = hl_move_here(move);

	if (is_near(here, target)) {
		put_word(move, branch(here, target));
		return;
	}
	put_word(move, LITERAL | 2 << 5 | 16);
	put_word(move, RET_X16);
	hl_move_put(move, &target, sizeof(target));
}

/* Loads ${register} of ${kind}, the upper bits of a literal load: x17 has the address. */
static void put_load(struct hl_move *move, uint32_t word, uint64_t data)
{
	static const uint32_t general[] = {0xb9400220, 0xf9400220,
					   0xb9800220};			       /* ldr w, x; ldrsw */
	static const uint32_t vector[] = {0xbd400220, 0xfd400220, 0x3dc00220}; /* ldr s, d, q */
	uint32_t kind = word >> 30;

	if (kind == 3)
		return; /* prfm, which changes nothing */
	put_value(move, 17, data);
	put_word(move, (word & 1 << 26 ? vector : general)[kind] | (word & 31));
}

static bool is_literal(uint32_t word)
{
	return (word & 0x3b000000) == 0x18000000;
}

int hl_move_instruction(struct hl_move *move, size_t at)
{
	uint32_t word = hl_word_at(move->code + at);
	uint64_t target = 0, address = move->address + at, next = address + HL_WORD_BYTES;

	if (!is_near(hl_move_here(move), address))
		return hl_move_refuse(move, "its trampoline is too far away");
	if (HL_IS_ADDRESS(word)) {
		put_value(move, word & 31, hl_address_made(word, address));
		return 0;
	}
	if (is_literal(word)) {
		put_load(move, word, address + (uint64_t)hl_number_in(word, 5, 19) * HL_WORD_BYTES);
		return 0;
	}
	if (!hl_branch_target(word, address, &target)) {
		put_word(move, word);
		return 0;
	}
	if (HL_IS_JUMP(word) || HL_IS_CALL(word)) {
		if (word >> 31)
			put_value(move, 30, next);
		hl_move_jump(move, target);
		return 0;
	}
	/* It leads over the jump to what follows. */
	uint32_t field = HL_IS_JUMP_IF_BIT(word) ? 0x3fffu << 5 : 0x7ffffu << 5;
	put_word(move, (word & ~field) | 2 << 5);
	hl_move_jump(move, next);
	hl_move_jump(move, target);
	return 0;
}

/* Why the instruction cannot be replaced or moved; NULL when it can. */
static const char *why_fixed(uint32_t word)
{
	if (is_landing_pad(word))
		return "its landing pad has to stay";
	if ((word & 0xff000000) == 0xd4000000)
		return "a trap or a system call is its first instruction";
	if ((word & 0xfeff0000) == 0xd63f0000) /* blr */
		return "its first instruction is a branch of a kind that cannot be moved";
	return NULL;
}

bool hl_instruction_decode(const uint8_t *code, size_t bytes, uint64_t address,
			   struct hl_instruction *ret_instruction)
{
	if (bytes < HL_WORD_BYTES)
		return false;
	uint32_t word = hl_word_at(code);
	*ret_instruction = (struct hl_instruction){
		.why_fixed = why_fixed(word), .bytes = HL_WORD_BYTES, .is_padding = word == HL_NOP};
	ret_instruction->is_branch = hl_branch_target(word, address, &ret_instruction->target);
	ret_instruction->is_call = HL_IS_CALL(word);
	ret_instruction->is_end = ret_instruction->is_branch; /* by which the trampoline leaves */
	return word >> 16;				      /* none begins with 16 zeros */
}

/* Landing pads, `stp x, x, [sp, #-N]!` and `sub sp, sp, #N`. */
bool hl_instruction_can_be_undone(const uint8_t *code, size_t bytes, int32_t *ret_stack_bytes)
{
	uint32_t word = hl_word_at(code), rows = word >> 15 & 0x7f;

	(void)bytes;
	*ret_stack_bytes = 0;
	if (word == PACIASP || word == PACIBSP)
		*ret_stack_bytes = word == PACIASP ? UNDO_PACIASP : UNDO_PACIBSP;
	else if ((word & 0xffe003e0) == 0xa9a003e0)
		*ret_stack_bytes = (int32_t)(0x80 - rows) * 8;
	else if ((word & 0xffc003ff) == 0xd10003ff)
		*ret_stack_bytes = (int32_t)(word >> 10 & 0xfff);
	else
		return is_landing_pad(word);
	return true;
}

int hl_relocate_jump(uint64_t address, uint64_t hook, uint8_t ret_code[HL_PATCH_BYTES])
{
	uint32_t word = branch(address, hook);

	if (!is_near(address, hook))
		return -ERANGE;
	memcpy(ret_code, &word, sizeof(word));
	return 0;
}

size_t hl_relocate_undo(int32_t stack_bytes, uint8_t *ret_code)
{
	uint32_t undo = stack_bytes == UNDO_PACIASP   ? AUTIASP
			: stack_bytes == UNDO_PACIBSP ? AUTIBSP
						      : ADD_SP | (uint32_t)stack_bytes << 10;

	memcpy(ret_code, &undo, sizeof(undo));
	return sizeof(undo);
}
