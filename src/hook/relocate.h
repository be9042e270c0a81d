/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Moves the first instructions of a function to a trampoline, so that a jump can take their place.
 *
 * Only the first HL_PATCH_BYTES of a function change. Code behind them stays as it is, even where
 * the trampoline has a copy of it, and may be jumped and returned to.
 */
#pragma once

#include "base/error.h"
#include "hook/machine.h"

#include <stddef.h>
#include <stdint.h>

#define HL_RELOCATE_NO_TWIN 0xffu

struct hl_relocated {
	uint8_t entry_bytes; /* that the trampoline stands for; whole instructions */
	uint8_t code_bytes;
	uint8_t code[HL_TRAMPOLINE_MAX];
	/* By offset in the entry: where the same instruction begins in the code, for a thread that
	 * stands there when the entry is patched; HL_RELOCATE_NO_TWIN where none begins. */
	uint8_t twin[HL_ENTRY_MAX];
};

/*
 * Writes the trampoline for the function of ${function_bytes} bytes at ${address}, of which
 * ${code} holds the first ${code_bytes}. It will run at ${trampoline} and end with a jump to the
 * rest of the function. All of the function should be in ${code}, and the padding up to the next
 * multiple of 16: jumps are looked for in what is there. ${function_bytes} is 0 when unknown; then
 * all of ${code} counts as the function.
 *
 * A call among the first instructions becomes a jump, with the return address pushed that the call
 * had: no return address into the trampoline is ever on a stack.
 *
 * Where data is more than 2 GiB away from the trampoline, it is reached through r11, which a call
 * may change, and which the hook has changed already.
 *
 * 0; -ENOTSUP with a sentence when the function cannot be patched: too short, code that jumps into
 * its own first bytes, an instruction that cannot be moved that far. Jumps from other functions
 * into the first bytes, and those through tables, are not seen.
 */
int hl_relocate(const uint8_t *code, size_t code_bytes, uint64_t address, uint64_t function_bytes,
		uint64_t trampoline, struct hl_relocated *ret_relocated, struct hl_error *err);

/*
 * Bytes of the function's first instruction, where a patch may stand behind it, for the sake of a uprobe there: the
 * kernel puts a breakpoint in the place of that instruction, makes what the file says, and goes on
 * behind it. 0 where there is none: the instruction does more than ${ret_stack_bytes} can undo, which
 * it takes from the stack pointer, or the function jumps back to it. The bytes may run anywhere.
 */
size_t hl_relocate_first(const uint8_t *code, size_t code_bytes, uint64_t address,
			 uint64_t function_bytes, int32_t *ret_stack_bytes);

/* Writes the patch: a jump from ${address} to ${hook}. -ERANGE when that is too far. */
int hl_relocate_jump(uint64_t address, uint64_t hook, uint8_t ret_code[HL_PATCH_BYTES]);

/* Writes the way at ${at} from an entry to ${hook}, wherever that is, which undoes the first instruction by ${stack_bytes}.
 * Its bytes. */
size_t hl_relocate_way(uint64_t at, int32_t stack_bytes, uint64_t hook,
		       uint8_t ret_code[HL_WAY_MAX]);
