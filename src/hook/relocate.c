/* SPDX-License-Identifier: BSD-2-Clause */
/* Decides which first instructions of a function are moved to another address, and whether they can be; see relocate.h. */
#include "hook/relocate_move.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define FUNCTION_ALIGNMENT 16u /* up to which compilers fill the room between functions */

static const char jumps_back[] = "it jumps back into its first bytes";

int hl_move_refuse(const struct hl_move *move, const char *reason)
{
	return hl_error_set(move->err, -ENOTSUP,
			    "the function at 0x%" PRIx64 " cannot be patched: %s", move->address,
			    reason);
}

/* Offset of the end of what may be displaced: the function, and the padding after it. */
static size_t room_bytes(const struct hl_move *move)
{
	uint64_t end = move->address + move->function_bytes;
	uint64_t room = move->function_bytes + (0 - end) % FUNCTION_ALIGNMENT;

	return move->function_bytes && room < move->code_bytes ? room : move->code_bytes;
}

/* Why the instruction at ${at} cannot be moved. */
static const char *why_fixed(const struct hl_instruction *instruction, size_t at, size_t needed)
{
	size_t after = at + instruction->bytes;

	if (instruction->is_call && after < HL_PATCH_BYTES)
		return "a call among its first instructions returns to where the patch would be";
	/* It returns to the loop as it stands in the function, which jumps into the patch. */
	if (instruction->is_call && after < needed)
		return jumps_back;
	return instruction->why_fixed;
}

/* Finds the instructions of the first ${needed} bytes. */
static int measure(struct hl_move *move, size_t needed)
{
	size_t room = room_bytes(move), at = 0;
	const char *too_short = needed == HL_PATCH_BYTES ? "it is too short" : jumps_back;
	struct hl_instruction instruction;

	move->starts = 0;
	move->has_end = move->uses_scratch = false;
	for (; at < needed; at += instruction.bytes) {
		bool is_over = move->function_bytes ? at >= move->function_bytes : move->has_end;
		if (!hl_instruction_decode(move->code + at, room - at, move->address + at,
					   &instruction))
			return hl_move_refuse(move,
					      is_over || at == room
						      ? too_short
						      : "its first bytes are not instructions");
		if (is_over && !instruction.is_padding)
			return hl_move_refuse(move, too_short);
		if (move->has_end && (is_over || instruction.is_trap))
			continue; /* never reached */
		const char *reason = why_fixed(&instruction, at, needed);
		if (reason)
			return hl_move_refuse(move, reason);
		move->starts |= UINT32_C(1) << at;
		move->has_end = instruction.is_end;
		move->uses_scratch |= instruction.uses_scratch;
	}
	move->moved.entry_bytes = (uint8_t)at;
	return 0;
}

/*
 * Looks for a jump that would lead into the patch: one that is not moved, or that leads to between
 * moved instructions. Where more than the patch is ${needed}, a loop is moved, and none may lead to
 * the loop as it stands in the function. Returns the offset after it, or 0. Calls of the function by
 * itself are fine.
 */
static size_t find_jump_back(const struct hl_move *move, size_t needed)
{
	size_t end = move->code_bytes;
	struct hl_instruction instruction;

	if (move->function_bytes && move->function_bytes < end)
		end = move->function_bytes;
	for (size_t at = 0; at < end;) {
		if (!hl_instruction_decode(move->code + at, end - at, move->address + at,
					   &instruction)) {
			at += HL_CODE_ALIGNMENT; /* data in between, or the end is cut off */
			continue;
		}
		uint64_t from = move->address + at, target = instruction.target - move->address;
		at += instruction.bytes;
		if (!instruction.is_branch || target >= needed ||
		    (target == 0 && instruction.is_call))
			continue;
		if (!hl_move_has(move, from) || !hl_move_has(move, instruction.target))
			return at;
	}
	return 0;
}

void hl_move_put(struct hl_move *move, const void *bytes, size_t count)
{
	struct hl_relocated *moved = &move->moved;

	if (count > sizeof(moved->code) - moved->code_bytes) {
		move->is_full = true;
		return;
	}
	memcpy(moved->code + moved->code_bytes, bytes, count);
	moved->code_bytes = (uint8_t)(moved->code_bytes + count);
}

/* All is written: the distances of inner jumps are known. */
static void put_inner_jumps(struct hl_move *move)
{
	for (unsigned i = 0; i < move->inner_jump_count; i++) {
		uint8_t field = move->inner_jumps[i].field;
		int32_t distance = move->moved.twin[move->inner_jumps[i].target] -
				   (field + (int32_t)sizeof(distance));
		memcpy(move->moved.code + field, &distance, sizeof(distance));
	}
}

int hl_relocate(const uint8_t *code, size_t code_bytes, uint64_t address, uint64_t function_bytes,
		uint64_t trampoline, struct hl_relocated *ret_relocated, struct hl_error *err)
{
	struct hl_move move = {
		.code = code,
		.code_bytes = code_bytes,
		.address = address,
		.function_bytes = function_bytes,
		.trampoline = trampoline,
		.err = err,
	};
	struct hl_relocated *moved = &move.moved;

	memset(moved->twin, HL_RELOCATE_NO_TWIN, sizeof(moved->twin));
	/* A short loop at the beginning is moved as a whole. */
	for (size_t needed = HL_PATCH_BYTES; needed;) {
		if (needed > HL_ENTRY_MAX)
			return hl_move_refuse(&move, jumps_back);
		int r = measure(&move, needed);
		if (r < 0)
			return r;
		size_t jump_end = find_jump_back(&move, needed);
		if (jump_end && jump_end <= needed)
			return hl_move_refuse(&move, "it jumps to between its first instructions");
		needed = jump_end;
	}
	for (size_t at = 0; at < HL_ENTRY_MAX; at++) {
		if (!(move.starts >> at & 1))
			continue;
		moved->twin[at] = moved->code_bytes;
		int r = hl_move_instruction(&move, at);
		if (r < 0)
			return r;
	}
	if (!move.has_end)
		hl_move_jump(&move, address + moved->entry_bytes);
	if (move.is_full)
		return hl_move_refuse(
			&move, "its first instructions are too long where they would be moved");
	put_inner_jumps(&move);
	*ret_relocated = *moved;
	return 0;
}

size_t hl_relocate_first(const uint8_t *code, size_t code_bytes, uint64_t address,
			 uint64_t function_bytes, int32_t *ret_stack_bytes)
{
	struct hl_move move = {.code = code,
			       .code_bytes = code_bytes,
			       .address = address,
			       .function_bytes = function_bytes};
	struct hl_instruction instruction;

	if (!hl_instruction_decode(code, code_bytes, address, &instruction) ||
	    !hl_instruction_can_be_undone(code, code_bytes, ret_stack_bytes) ||
	    (function_bytes && function_bytes <= instruction.bytes) ||
	    find_jump_back(&move, instruction.bytes))
		return 0;
	return instruction.bytes;
}

size_t hl_relocate_way(uint64_t at, int32_t stack_bytes, uint64_t hook,
		       uint8_t ret_code[HL_WAY_MAX])
{
	static const uint8_t far[] = {HL_FAR_JUMP};
	size_t used = stack_bytes ? hl_relocate_undo(stack_bytes, ret_code) : 0;

	if (hl_relocate_jump(at + used, hook, ret_code + used) == 0)
		return used + HL_PATCH_BYTES;
	memcpy(ret_code + used, far, sizeof(far));
	memcpy(ret_code + used + sizeof(far), &hook, sizeof(hook));
	return used + sizeof(far) + sizeof(hook);
}
