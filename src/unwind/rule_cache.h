/* SPDX-License-Identifier: BSD-2-Clause */
/* Where rules come from while a stack is walked: the table of all threads, and a function's own instructions. */
#pragma once

#include "base/compiler.h"
#include "base/machine.h"
#include "unwind/rule.h"
#include "unwind/unwind.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- rule cache ---- */

/* The direct-mapped table lookup pc -> rule and module, shared by all threads without a lock. */

#define HL_RULE_MASK HL_FRAME_PC_MASK

/* Finds the rule where the table does not have it, and puts it there. Same result as below. */
uint64_t hl_rule_cache_miss(struct hl_unwind *unwind, uint32_t generation, uint64_t pc);

/* The rule of generated code that called with ${sp} what ${callee}, or NULL, is of, if it is known; or 0. One by find_generated is put there. */
uint64_t hl_rule_cache_generated(struct hl_unwind *unwind, struct hl_walk *walk,
				 uint32_t generation, uint64_t pc, uint64_t sp,
				 const struct hl_walk_frame *callee);

static inline uint64_t hl_rule_key(uint32_t generation, uint64_t pc)
{
	return pc | (uint64_t)generation << HL_MODULE_SHIFT;
}

static inline struct hl_rule_slot *hl_rule_slot_of(struct hl_unwind *unwind, uint64_t pc)
{
	return &unwind->slots[(uint32_t)(pc * UINT64_C(0x9e3779b97f4a7c15) >> 50)];
}

/*
 * The rule for lookup pc ${pc}, with the module id in the upper 16 bits.
 *
 * Relaxed: the two words of a slot are published in no order, and two writers may mix theirs, but a
 * reader believes only a pair whose xor is its own key. A rule is a value, nothing hangs on it.
 */
static inline uint64_t hl_rule_cache_find(struct hl_unwind *unwind, uint32_t generation,
					  uint64_t pc)
{
	struct hl_rule_slot *slot = hl_rule_slot_of(unwind, pc);
	uint64_t rule = atomic_load_explicit(&slot->rule, memory_order_relaxed);

	uint64_t check = atomic_load_explicit(&slot->check, memory_order_relaxed);
	if (HL_LIKELY((check ^ rule) == hl_rule_key(generation, pc)))
		return rule;
	return hl_rule_cache_miss(unwind, generation, pc);
}

/* ---- instructions ---- */

/*
 * What a function's own instructions say of its frame, where call frame information is
 * missing, or wrong as in functions that change the stack pointer to another stack.
 *
 * In-process code, as unwind.h says; reads nothing outside the bytes it was given.
 */

/* The bytes of the instruction that begins at ${code}, of which ${bytes} can be read; 0: there are
 * not enough, or they are not valid in 64-bit mode. */
size_t hl_instructions_length(const uint8_t *code, size_t bytes);

/* Whether ${bytes} of code do nothing: nop in all its lengths. */
bool hl_instructions_are_padding(const uint8_t *code, size_t bytes);

/*
 * Where, in bytes from its start, a function of ${bytes} has made rbp its frame pointer by its
 * first HL_PROLOGUE_BYTES: rbp then points at the caller's, below the return address. 0 when it
 * does not.
 */
#define HL_PROLOGUE_BYTES 128u
size_t hl_instructions_frame_pointer_made(const uint8_t *function, size_t bytes);

/*
 * Code up to the first return or jump behind ${start}, which is not padding: a function, or its first part. Bytes from the start of what is
 * searched.
 */
struct hl_instructions_part {
	size_t start, end;
};

/* The part that begins at ${part->end} or, past padding, behind it. The last one may be cut off by the end of ${bytes}. Returns false where
 * there is none, or an instruction that is not valid. */
bool hl_instructions_next_part(const uint8_t *code, size_t bytes,
			       struct hl_instructions_part *part);

/* Where the instruction at ${code}, of which HL_JUMP_BYTES can be read, goes to if it is a jump over a long distance, conditional or
 * not; 0: of any other. */
#define HL_JUMP_BYTES 6u
uint64_t hl_instructions_jump_target(const uint8_t *code);

/* Bytes around a return address that the following read at most: of those after it, as many as
 * there are up to ${bytes}. */
#define HL_CALL_BYTES	8u
#define HL_RETURN_BYTES 64u

/* Whether a call may end before ${code}. */
bool hl_instructions_follow_call(const uint8_t *code);

/* Whether a call of what a register points at ends before ${code}. */
bool hl_instructions_follow_call_of_register(const uint8_t *code);

/* What the relative call that may end before ${code}, at ${address}, calls; 0 when none does. */
uint64_t hl_instructions_called(const uint8_t *code, uint64_t address);

/* Whether the first HL_HANDED_BYTES of a function jump to what a register points at, in the frame of the caller. */
#define HL_HANDED_BYTES 16u
bool hl_instructions_jump_to_register(const uint8_t *function, size_t bytes);

/*
 * Whether a call that returns to ${code} was made on a stack that its function had switched to, if
 * it was the call of a register, directly or by a function that jumps to one: what follows takes
 * the stack pointer from elsewhere than from the stack pointer. rbp is the one that was in force on
 * the stack before.
 */
bool hl_instructions_leave_stack(const uint8_t *code, size_t bytes);

/* Whether no call returns to ${code}, so that somebody put it where a stack starts: it comes after
 * a jump, or after a function's first byte. ${address}: of ${code} in its module, whose pages are
 * aligned. */
bool hl_instructions_start_stack(const uint8_t *code, uint64_t address);

/* ---- unwind/instructions.c of the machine, which has those that know their bytes, too ---- */

enum hl_code_does {
	HL_DOES_NOTHING = 1 << 0, /* nop */
	HL_DOES_FILL = 1 << 1,	  /* stands between functions, too */
	HL_DOES_BRANCH = 1 << 2,  /* what comes next in memory is not all that can come next */
	HL_DOES_LEAVE = 1 << 3,	  /* what comes next in memory is reached from elsewhere alone */
	HL_DOES_JUMP_TO_REGISTER = 1 << 4,
	HL_DOES_MOVE_SP = 1 << 5,      /* by any way */
	HL_DOES_SWITCH_STACK = 1 << 6, /* takes the stack pointer from elsewhere */
	HL_DOES_SET_BP = 1 << 7,       /* where that is saved otherwise than by a frame record */
};

/* An instruction. */
struct hl_code {
	size_t bytes;
	unsigned does; /* enum hl_code_does */
};

/* The one that begins at ${code}. False: it is cut off, or not valid. */
bool hl_code_read(const uint8_t *code, size_t bytes, struct hl_code *ret_code);
