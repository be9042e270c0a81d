/* SPDX-License-Identifier: BSD-2-Clause */
/* Rewrites the first instructions of a function for another address, with Zydis; see relocate.h. */
#include "hook/relocate.h"

#include <Zydis/Zydis.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#define FUNCTION_ALIGNMENT 16u /* up to which compilers fill the room between functions */
#define INNER_JUMPS_MAX	   (HL_ENTRY_MAX / 2)

#define OPCODE_JCC_REL8	 0x70 /* and the condition in the lower four bits */
#define OPCODE_JCC_REL32 0x80 /* after 0x0f */
#define OPCODE_LOOPNE	 0xe0 /* loope, loop and jrcxz follow */
#define OPCODE_JRCXZ	 0xe3
#define OPCODE_JMP_REL8	 0xeb
#define PREFIX_ADDRESS	 0x67

struct instruction {
	ZydisDecodedInstruction decoded;
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
	uint64_t next; /* the address after it, where it stands in the function */
};

struct move {
	const uint8_t *code;
	size_t code_bytes;
	uint64_t address, function_bytes, trampoline;
	struct hl_error *err;

	uint32_t starts; /* a bit for each offset of the entry where an instruction begins */
	bool has_end;	 /* the entry does not go on to what follows it */
	bool uses_r11;
	bool is_full; /* the trampoline has no room for all */
	struct hl_relocated moved;

	struct {
		uint8_t field;	/* offset in the trampoline of a distance that is not known yet */
		uint8_t target; /* offset in the entry */
	} inner_jumps[INNER_JUMPS_MAX];
	unsigned inner_jump_count;
};

static const char jumps_back[] = "it jumps back into its first bytes";

static int refuse(const struct move *move, const char *reason)
{
	return hl_error_set(move->err, -ENOTSUP,
			    "the function at 0x%" PRIx64 " cannot be patched: %s", move->address,
			    reason);
}

static bool decode(const uint8_t *code, size_t bytes, uint64_t address,
		   struct instruction *ret_instruction)
{
	ZydisDecoder decoder;

	if (ZYAN_FAILED(
		    ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64)) ||
	    ZYAN_FAILED(ZydisDecoderDecodeFull(&decoder, code, bytes, &ret_instruction->decoded,
					       ret_instruction->operands)))
		return false;
	ret_instruction->next = address + ret_instruction->decoded.length;
	return true;
}

/* ---- what may be moved ---- */

static bool names_register(const ZydisDecodedOperand *operand, ZydisRegister name)
{
	ZydisRegister names[] = {operand->reg.value, ZYDIS_REGISTER_NONE};

	if (operand->type == ZYDIS_OPERAND_TYPE_MEMORY) {
		names[0] = operand->mem.base;
		names[1] = operand->mem.index;
	} else if (operand->type != ZYDIS_OPERAND_TYPE_REGISTER) {
		return false;
	}
	for (unsigned i = 0; i < 2; i++)
		if (ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, names[i]) == name)
			return true;
	return false;
}

/* Implicit operands too. */
static bool uses_register(const struct instruction *instruction, ZydisRegister name)
{
	for (unsigned i = 0; i < instruction->decoded.operand_count; i++)
		if (names_register(&instruction->operands[i], name))
			return true;
	return false;
}

static bool is_relative_branch(const struct instruction *instruction)
{
	return instruction->decoded.raw.imm[0].is_relative;
}

static uint64_t branch_target(const struct instruction *instruction)
{
	return instruction->next + (uint64_t)instruction->decoded.raw.imm[0].value.s;
}

static bool is_jcc(const ZydisDecodedInstruction *decoded)
{
	uint8_t kind = decoded->opcode & 0xf0;

	return decoded->opcode_map == ZYDIS_OPCODE_MAP_DEFAULT
		       ? kind == OPCODE_JCC_REL8
		       : decoded->opcode_map == ZYDIS_OPCODE_MAP_0F && kind == OPCODE_JCC_REL32;
}

static bool is_loop(const ZydisDecodedInstruction *decoded)
{
	return decoded->opcode_map == ZYDIS_OPCODE_MAP_DEFAULT &&
	       decoded->opcode >= OPCODE_LOOPNE && decoded->opcode <= OPCODE_JRCXZ;
}

/* Why the instruction at ${at} cannot be moved at all; NULL when it can, unless too far. */
static const char *why_fixed(const struct instruction *instruction, size_t at, size_t needed)
{
	const ZydisDecodedInstruction *decoded = &instruction->decoded;
	bool is_call = decoded->meta.category == ZYDIS_CATEGORY_CALL;

	switch (decoded->meta.category) {
	case ZYDIS_CATEGORY_INTERRUPT:
	case ZYDIS_CATEGORY_SYSCALL:
	case ZYDIS_CATEGORY_SYSTEM:
		return "a trap or a system call is among its first instructions";
	default:
		break;
	}
	if (decoded->mnemonic == ZYDIS_MNEMONIC_UD0 || decoded->mnemonic == ZYDIS_MNEMONIC_UD1 ||
	    decoded->mnemonic == ZYDIS_MNEMONIC_UD2)
		return "it does not go on after its first instructions";
	/* Processors disagree on what a branch of 16 bits is. */
	if (is_relative_branch(instruction) &&
	    (decoded->attributes & ZYDIS_ATTRIB_HAS_OPERANDSIZE ||
	     !(is_call || is_jcc(decoded) || is_loop(decoded) ||
	       decoded->mnemonic == ZYDIS_MNEMONIC_JMP)))
		return "a branch among its first instructions is of a kind that cannot be moved";
	if (is_call && at + decoded->length < HL_PATCH_BYTES)
		return "a call among its first instructions returns to where the patch would be";
	/* It returns to the loop as it stands in the function, which jumps into the patch. */
	if (is_call && at + decoded->length < needed)
		return jumps_back;
	/* The return address is pushed before the operand is read. */
	if (is_call && !is_relative_branch(instruction) &&
	    (decoded->attributes & ZYDIS_ATTRIB_HAS_OPERANDSIZE ||
	     decoded->meta.branch_type == ZYDIS_BRANCH_TYPE_FAR ||
	     names_register(&instruction->operands[0], ZYDIS_REGISTER_RSP)))
		return "a call among its first instructions is of a kind that cannot be moved";
	if (decoded->attributes & ZYDIS_ATTRIB_IS_RELATIVE && !is_relative_branch(instruction) &&
	    decoded->attributes & ZYDIS_ATTRIB_HAS_ADDRESSSIZE)
		return "an address of 32 bits is among its first instructions";
	return NULL;
}

/* Whether what follows in memory is not executed next; a call returns to the function itself. */
static bool is_end(const ZydisDecodedInstruction *decoded)
{
	return decoded->meta.category == ZYDIS_CATEGORY_UNCOND_BR ||
	       decoded->meta.category == ZYDIS_CATEGORY_RET ||
	       decoded->meta.category == ZYDIS_CATEGORY_CALL;
}

static bool is_padding(const ZydisDecodedInstruction *decoded)
{
	return decoded->mnemonic == ZYDIS_MNEMONIC_NOP || decoded->mnemonic == ZYDIS_MNEMONIC_INT3;
}

/* Offset of the end of what may be displaced: the function, and the padding after it. */
static size_t room_bytes(const struct move *move)
{
	uint64_t end = move->address + move->function_bytes;
	uint64_t room = move->function_bytes + (0 - end) % FUNCTION_ALIGNMENT;

	return move->function_bytes && room < move->code_bytes ? room : move->code_bytes;
}

/* Finds the instructions of the first ${needed} bytes. */
static int measure(struct move *move, size_t needed)
{
	size_t room = room_bytes(move), at = 0;
	const char *too_short = needed == HL_PATCH_BYTES ? "it is too short" : jumps_back;
	struct instruction instruction;

	move->starts = 0;
	move->has_end = move->uses_r11 = false;
	for (; at < needed; at += instruction.decoded.length) {
		bool is_over = move->function_bytes ? at >= move->function_bytes : move->has_end;
		if (!decode(move->code + at, room - at, move->address + at, &instruction))
			return refuse(move, is_over || at == room
						    ? too_short
						    : "its first bytes are not instructions");
		if (is_over && !is_padding(&instruction.decoded))
			return refuse(move, too_short);
		if (move->has_end &&
		    (is_over || instruction.decoded.mnemonic == ZYDIS_MNEMONIC_INT3))
			continue; /* never reached */
		const char *reason = why_fixed(&instruction, at, needed);
		if (reason)
			return refuse(move, reason);
		move->starts |= UINT32_C(1) << at;
		move->has_end = is_end(&instruction.decoded);
		move->uses_r11 |= uses_register(&instruction, ZYDIS_REGISTER_R11);
	}
	move->moved.entry_bytes = (uint8_t)at;
	return 0;
}

/* Whether an instruction that is moved begins at ${address}, where it stands in the function. */
static bool is_moved(const struct move *move, uint64_t address)
{
	uint64_t offset = address - move->address;

	return offset < HL_ENTRY_MAX && move->starts >> offset & 1;
}

/*
 * Looks for a jump that would lead into the patch: one that is not moved, or that leads to between
 * moved instructions. Where more than the patch is ${needed}, a loop is moved, and none may lead to
 * the loop as it stands in the function. Returns the offset after it, or 0. Calls of the function by
 * itself are fine.
 */
static size_t find_jump_back(const struct move *move, size_t needed)
{
	size_t end = move->code_bytes;
	struct instruction instruction;

	if (move->function_bytes && move->function_bytes < end)
		end = move->function_bytes;
	for (size_t at = 0; at < end;) {
		if (!decode(move->code + at, end - at, move->address + at, &instruction)) {
			at++; /* data in between, or the end is cut off */
			continue;
		}
		uint64_t from = move->address + at;
		at += instruction.decoded.length;
		if (!is_relative_branch(&instruction))
			continue;
		uint64_t target = branch_target(&instruction) - move->address;
		if (target >= needed ||
		    (target == 0 && instruction.decoded.meta.category == ZYDIS_CATEGORY_CALL))
			continue;
		if (!is_moved(move, from) || !is_moved(move, branch_target(&instruction)))
			return at;
	}
	return 0;
}

/* ---- the trampoline ---- */

static void put(struct move *move, const void *bytes, size_t count)
{
	struct hl_relocated *moved = &move->moved;

	if (count > sizeof(moved->code) - moved->code_bytes) {
		move->is_full = true;
		return;
	}
	memcpy(moved->code + moved->code_bytes, bytes, count);
	moved->code_bytes = (uint8_t)(moved->code_bytes + count);
}

static uint64_t here(const struct move *move)
{
	return move->trampoline + move->moved.code_bytes;
}

static bool is_near(uint64_t from, uint64_t to, int32_t *ret_distance)
{
	*ret_distance = (int32_t)(to - from);
	return (int64_t)(to - from) == *ret_distance;
}

/* Writes a branch with a distance of 32 bits; false when that is too far. */
static bool put_near_branch(struct move *move, const uint8_t *opcode, size_t opcode_bytes,
			    uint64_t target)
{
	int32_t distance = 0;

	if (is_moved(move, target)) {
		move->inner_jumps[move->inner_jump_count].field =
			(uint8_t)(move->moved.code_bytes + opcode_bytes);
		move->inner_jumps[move->inner_jump_count++].target =
			(uint8_t)(target - move->address);
	} else if (!is_near(here(move) + opcode_bytes + sizeof(distance), target, &distance)) {
		return false;
	}
	put(move, opcode, opcode_bytes);
	put(move, &distance, sizeof(distance));
	return true;
}

static void put_jump(struct move *move, uint64_t target)
{
	static const uint8_t near[] = {0xe9}, far[] = {0xff, 0x25, 0, 0, 0, 0}; /* jmp *(%rip) */

	if (put_near_branch(move, near, sizeof(near), target))
		return;
	put(move, far, sizeof(far));
	put(move, &target, sizeof(target));
}

static void put_conditional(struct move *move, const struct instruction *instruction)
{
	uint8_t condition = instruction->decoded.opcode & 0x0f;
	uint8_t near[] = {0x0f, (uint8_t)(OPCODE_JCC_REL32 | condition)};
	/* The branch over a jump over the jump to the target: of some, only short ones exist. */
	uint8_t narrow[] = {PREFIX_ADDRESS, instruction->decoded.opcode, 2, OPCODE_JMP_REL8, 0};
	bool has_prefix = instruction->decoded.attributes & ZYDIS_ATTRIB_HAS_ADDRESSSIZE;

	if (is_jcc(&instruction->decoded)) {
		if (put_near_branch(move, near, sizeof(near), branch_target(instruction)))
			return;
		narrow[1] = (uint8_t)(OPCODE_JCC_REL8 | condition);
		has_prefix = false;
	}
	put(move, narrow + !has_prefix, sizeof(narrow) - !has_prefix);
	uint8_t before = move->moved.code_bytes;
	put_jump(move, branch_target(instruction));
	move->moved.code[before - 1] = (uint8_t)(move->moved.code_bytes - before);
}

static void put_return_address(struct move *move, uint64_t address)
{
	/* push 2(%rip), which is the address; jmp over it */
	static const uint8_t push[] = {0xff, 0x35, 2, 0, 0, 0, OPCODE_JMP_REL8, sizeof(address)};

	put(move, push, sizeof(push));
	put(move, &address, sizeof(address));
}

/* Writes an instruction whose data at ${data} a distance of 32 bits does not reach. */
static int put_far_access(struct move *move, const struct instruction *instruction, uint64_t data)
{
	static const uint8_t load[] = {0x49, 0xbb}; /* mov $data, %r11 */
	uint8_t bytes[ZYDIS_MAX_INSTRUCTION_LENGTH];
	ZyanUSize length = sizeof(bytes);
	ZydisEncoderRequest request;

	if (move->uses_r11 || ZYAN_FAILED(ZydisEncoderDecodedInstructionToEncoderRequest(
				      &instruction->decoded, instruction->operands,
				      instruction->decoded.operand_count_visible, &request)))
		return refuse(move, "its data is too far away from the trampoline");
	for (unsigned i = 0; i < request.operand_count; i++)
		if (request.operands[i].mem.base == ZYDIS_REGISTER_RIP) {
			request.operands[i].mem.base = ZYDIS_REGISTER_R11;
			request.operands[i].mem.displacement = 0;
		}
	if (ZYAN_FAILED(ZydisEncoderEncodeInstruction(&request, bytes, &length)))
		return refuse(move, "its data is too far away from the trampoline");
	put(move, load, sizeof(load));
	put(move, &data, sizeof(data));
	put(move, bytes, length);
	return 0;
}

/* Writes an instruction, of the ${bytes} given, that is not a relative branch. */
static int put_plain(struct move *move, const uint8_t *bytes, const struct instruction *instruction)
{
	uint8_t copy[ZYDIS_MAX_INSTRUCTION_LENGTH];
	const ZydisDecodedInstruction *decoded = &instruction->decoded;
	int32_t distance;

	memcpy(copy, bytes, decoded->length);
	if (decoded->attributes & ZYDIS_ATTRIB_IS_RELATIVE) {
		uint64_t data = instruction->next + (uint64_t)decoded->raw.disp.value;
		if (!is_near(here(move) + decoded->length, data, &distance))
			return put_far_access(move, instruction, data);
		memcpy(copy + decoded->raw.disp.offset, &distance, sizeof(distance));
	}
	put(move, copy, decoded->length);
	return 0;
}

/* Writes `call *operand` as `jmp *operand`, which differs by three bits. */
static int put_indirect_call(struct move *move, const uint8_t *bytes,
			     const struct instruction *instruction)
{
	uint8_t jump[ZYDIS_MAX_INSTRUCTION_LENGTH];
	struct instruction as_jump;

	memcpy(jump, bytes, instruction->decoded.length);
	jump[instruction->decoded.raw.modrm.offset] ^= 0x30;
	if (!decode(jump, instruction->decoded.length,
		    instruction->next - instruction->decoded.length, &as_jump))
		return refuse(move, "a call among its first instructions cannot be moved");
	return put_plain(move, jump, &as_jump);
}

static int move_instruction(struct move *move, size_t at)
{
	const uint8_t *bytes = move->code + at;
	struct instruction moved;

	if (!decode(bytes, move->code_bytes - at, move->address + at, &moved))
		return refuse(move, "its first bytes are not instructions");
	move->moved.twin[at] = move->moved.code_bytes;
	bool is_call = moved.decoded.meta.category == ZYDIS_CATEGORY_CALL;
	if (is_call)
		put_return_address(move, moved.next);
	if (!is_relative_branch(&moved))
		return is_call ? put_indirect_call(move, bytes, &moved)
			       : put_plain(move, bytes, &moved);
	if (moved.decoded.meta.category == ZYDIS_CATEGORY_COND_BR)
		put_conditional(move, &moved);
	else
		put_jump(move, branch_target(&moved));
	return 0;
}

int hl_relocate(const uint8_t *code, size_t code_bytes, uint64_t address, uint64_t function_bytes,
		uint64_t trampoline, struct hl_relocated *ret_relocated, struct hl_error *err)
{
	struct move move = {
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
			return refuse(&move, jumps_back);
		int r = measure(&move, needed);
		if (r < 0)
			return r;
		size_t jump_end = find_jump_back(&move, needed);
		if (jump_end && jump_end <= needed)
			return refuse(&move, "it jumps to between its first instructions");
		needed = jump_end;
	}
	for (size_t at = 0; at < HL_ENTRY_MAX; at++) {
		int r = move.starts >> at & 1 ? move_instruction(&move, at) : 0;
		if (r < 0)
			return r;
	}
	if (!move.has_end)
		put_jump(&move, address + moved->entry_bytes);
	if (move.is_full)
		return refuse(&move,
			      "its first instructions are too long where they would be moved");
	for (unsigned i = 0; i < move.inner_jump_count; i++) {
		uint8_t field = move.inner_jumps[i].field;
		int32_t distance = moved->twin[move.inner_jumps[i].target] -
				   (field + (int32_t)sizeof(distance));
		memcpy(moved->code + field, &distance, sizeof(distance));
	}
	*ret_relocated = *moved;
	return 0;
}

/* Whether nothing of the instruction is left but flags, which no function expects of its caller, once
 * ${ret_stack_bytes} are added to the stack pointer. */
static bool can_be_undone(const struct instruction *instruction, int32_t *ret_stack_bytes)
{
	const ZydisDecodedOperand *operands = instruction->operands;

	*ret_stack_bytes = 0;
	switch (instruction->decoded.mnemonic) {
	case ZYDIS_MNEMONIC_ENDBR64:
	case ZYDIS_MNEMONIC_NOP:
	case ZYDIS_MNEMONIC_TEST:
	case ZYDIS_MNEMONIC_CMP:
		return !(instruction->decoded.attributes & ZYDIS_ATTRIB_IS_RELATIVE);
	case ZYDIS_MNEMONIC_PUSH:
		*ret_stack_bytes = sizeof(uint64_t);
		return operands[0].type == ZYDIS_OPERAND_TYPE_REGISTER && operands[0].size == 64;
	case ZYDIS_MNEMONIC_SUB:
		*ret_stack_bytes = (int32_t)operands[1].imm.value.s;
		return operands[0].type == ZYDIS_OPERAND_TYPE_REGISTER &&
		       operands[0].reg.value == ZYDIS_REGISTER_RSP &&
		       operands[1].type == ZYDIS_OPERAND_TYPE_IMMEDIATE;
	default:
		return false;
	}
}

size_t hl_relocate_first(const uint8_t *code, size_t code_bytes, uint64_t address,
			 uint64_t function_bytes, int32_t *ret_stack_bytes)
{
	struct move move = {.code = code,
			    .code_bytes = code_bytes,
			    .address = address,
			    .function_bytes = function_bytes};
	struct instruction instruction;

	if (!decode(code, code_bytes, address, &instruction) ||
	    !can_be_undone(&instruction, ret_stack_bytes) ||
	    (function_bytes && function_bytes <= instruction.decoded.length) ||
	    find_jump_back(&move, instruction.decoded.length))
		return 0;
	return instruction.decoded.length;
}

int hl_relocate_jump(uint64_t address, uint64_t hook, uint8_t ret_code[HL_PATCH_BYTES])
{
	int32_t distance;

	if (!is_near(address + HL_PATCH_BYTES, hook, &distance))
		return -ERANGE;
	ret_code[0] = 0xe9;
	memcpy(ret_code + 1, &distance, sizeof(distance));
	return 0;
}
