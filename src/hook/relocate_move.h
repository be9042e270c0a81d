/* SPDX-License-Identifier: BSD-2-Clause */
/* What moving the first instructions of a function needs of the machine: arch/MACHINE/hook/relocate.c. */
#pragma once

#include "hook/relocate.h"

#include <stdbool.h>

/* Half of the entry may be jumps among its instructions. */
#define HL_INNER_JUMPS_MAX ((HL_ENTRY_MAX + 1) / 2)

struct hl_move {
	const uint8_t *code;
	size_t code_bytes;
	uint64_t address, function_bytes, trampoline;
	struct hl_error *err;

	uint32_t starts; /* a bit for each offset of the entry where an instruction begins */
	bool has_end;	 /* the entry does not go on to what follows it */
	bool uses_scratch;
	bool is_full; /* the trampoline has no room for all */
	struct hl_relocated moved;

	struct {
		uint8_t field; /* offset in the trampoline of a distance of 32 bits, not known yet */
		uint8_t target; /* offset in the entry */
	} inner_jumps[HL_INNER_JUMPS_MAX];
	unsigned inner_jump_count;
};

/* An instruction, as far as it decides what may be moved. */
struct hl_instruction {
	uint64_t target;       /* of a branch by a distance */
	const char *why_fixed; /* it cannot be moved at all; NULL when it can, unless too far */
	uint8_t bytes;
	bool is_branch; /* by a distance */
	bool is_call;
	bool is_end; /* what follows in memory is not executed next; a call returns to the function itself */
	bool is_padding;
	bool is_trap;
	bool uses_scratch; /* the register by which the trampoline reaches data */
};

/* ---- relocate.c ---- */

int hl_move_refuse(const struct hl_move *move, const char *reason);
void hl_move_put(struct hl_move *move, const void *bytes, size_t count);

/* Where what is put next will run. */
static inline uint64_t hl_move_here(const struct hl_move *move)
{
	return move->trampoline + move->moved.code_bytes;
}

/* Whether an instruction that is moved begins at ${address}, where it stands in the function. */
static inline bool hl_move_has(const struct hl_move *move, uint64_t address)
{
	uint64_t offset = address - move->address;

	return offset < HL_ENTRY_MAX && move->starts >> offset & 1;
}

/* ---- the machine ---- */

/* False where no instruction begins. */
bool hl_instruction_decode(const uint8_t *code, size_t bytes, uint64_t address,
			   struct hl_instruction *ret_instruction);

/* Whether nothing of the first instruction in ${code} is left but flags, which no function expects of its caller, once the way
 * to the hook has undone ${ret_stack_bytes}. */
bool hl_instruction_can_be_undone(const uint8_t *code, size_t bytes, int32_t *ret_stack_bytes);

/* Writes what undoes ${stack_bytes}; its bytes. */
size_t hl_relocate_undo(int32_t stack_bytes, uint8_t *ret_code);

/* Writes the instruction ${at} bytes into the entry. 0, or what hl_move_refuse() returns. */
int hl_move_instruction(struct hl_move *move, size_t at);

/* Writes a jump. */
void hl_move_jump(struct hl_move *move, uint64_t target);
