/* SPDX-License-Identifier: BSD-2-Clause */
/* Rewrites the first instructions of a function for another address, with Zydis; see relocate.h. */
#include "hook/relocate_move.h"

#include "base/instruction.h"

#include <errno.h>
#include <string.h>

#define OPCODE_JCC_REL8	 0x70 /* and the condition in the lower four bits */
#define OPCODE_JCC_REL32 0x80 /* after 0x0f */
#define OPCODE_LOOPNE	 0xe0 /* loope, loop and jrcxz follow */
#define OPCODE_JRCXZ	 0xe3
#define OPCODE_JMP_REL8	 0xeb
#define PREFIX_ADDRESS	 0x67

/* ---- what may be moved ---- */

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

static const char *why_fixed(const struct hl_decoded *instruction)
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
	if (hl_is_relative_branch(instruction) &&
	    (decoded->attributes & ZYDIS_ATTRIB_HAS_OPERANDSIZE ||
	     !(is_call || is_jcc(decoded) || is_loop(decoded) ||
	       decoded->mnemonic == ZYDIS_MNEMONIC_JMP)))
		return "a branch among its first instructions is of a kind that cannot be moved";
	/* The return address is pushed before the operand is read. */
	if (is_call && !hl_is_relative_branch(instruction) &&
	    (decoded->attributes & ZYDIS_ATTRIB_HAS_OPERANDSIZE ||
	     decoded->meta.branch_type == ZYDIS_BRANCH_TYPE_FAR ||
	     hl_registers_of(&instruction->operands[0]) >> HL_REGISTER_RSP & 1))
		return "a call among its first instructions is of a kind that cannot be moved";
	if (decoded->attributes & ZYDIS_ATTRIB_IS_RELATIVE && !hl_is_relative_branch(instruction) &&
	    decoded->attributes & ZYDIS_ATTRIB_HAS_ADDRESSSIZE)
		return "an address of 32 bits is among its first instructions";
	return NULL;
}

bool hl_instruction_decode(const uint8_t *code, size_t bytes, uint64_t address,
			   struct hl_instruction *ret_instruction)
{
	struct hl_decoded instruction;

	if (!hl_decode(code, bytes, address, &instruction))
		return false;
	const ZydisDecodedInstruction *decoded = &instruction.decoded;
	bool is_call = decoded->meta.category == ZYDIS_CATEGORY_CALL;
	bool is_trap = decoded->mnemonic == ZYDIS_MNEMONIC_INT3;
	*ret_instruction = (struct hl_instruction){
		.target = hl_branch_target(&instruction),
		.why_fixed = why_fixed(&instruction),
		.bytes = decoded->length,
		.is_branch = hl_is_relative_branch(&instruction),
		.is_call = is_call,
		.is_end = is_call || decoded->meta.category == ZYDIS_CATEGORY_UNCOND_BR ||
			  decoded->meta.category == ZYDIS_CATEGORY_RET,
		.is_padding = is_trap || decoded->mnemonic == ZYDIS_MNEMONIC_NOP,
		.is_trap = is_trap,
	};
	for (unsigned i = 0; i < decoded->operand_count; i++) /* implicit ones too */
		ret_instruction->uses_scratch |=
			hl_registers_of(&instruction.operands[i]) >> HL_REGISTER_R11 & 1;
	return true;
}

/* ---- the trampoline ---- */

static bool is_near(uint64_t from, uint64_t to, int32_t *ret_distance)
{
	*ret_distance = (int32_t)(to - from);
	return (int64_t)(to - from) == *ret_distance;
}

/* Writes a branch with a distance of 32 bits; false when that is too far. */
static bool put_near_branch(struct hl_move *move, const uint8_t *opcode, size_t opcode_bytes,
			    uint64_t target)
{
	int32_t distance = 0;

	if (hl_move_has(move, target)) {
		move->inner_jumps[move->inner_jump_count].field =
			(uint8_t)(move->moved.code_bytes + opcode_bytes);
		move->inner_jumps[move->inner_jump_count++].target =
			(uint8_t)(target - move->address);
	} else if (!is_near(hl_move_here(move) + opcode_bytes + sizeof(distance), target,
			    &distance)) {
		return false;
	}
	hl_move_put(move, opcode, opcode_bytes);
	hl_move_put(move, &distance, sizeof(distance));
	return true;
}

void hl_move_jump(struct hl_move *move, uint64_t target)
{
	static const uint8_t near[] = {0xe9}, far[] = {HL_FAR_JUMP};

	if (put_near_branch(move, near, sizeof(near), target))
		return;
	hl_move_put(move, far, sizeof(far));
	hl_move_put(move, &target, sizeof(target));
}

static void put_conditional(struct hl_move *move, const struct hl_decoded *instruction)
{
	uint8_t condition = instruction->decoded.opcode & 0x0f;
	uint8_t near[] = {0x0f, (uint8_t)(OPCODE_JCC_REL32 | condition)};
	/* The branch over a jump over the jump to the target: of some, only short ones exist. */
	uint8_t narrow[] = {PREFIX_ADDRESS, instruction->decoded.opcode, 2, OPCODE_JMP_REL8, 0};
	bool has_prefix = instruction->decoded.attributes & ZYDIS_ATTRIB_HAS_ADDRESSSIZE;

	if (is_jcc(&instruction->decoded)) {
		if (put_near_branch(move, near, sizeof(near), hl_branch_target(instruction)))
			return;
		narrow[1] = (uint8_t)(OPCODE_JCC_REL8 | condition);
		has_prefix = false;
	}
	hl_move_put(move, narrow + !has_prefix, sizeof(narrow) - !has_prefix);
	uint8_t before = move->moved.code_bytes;
	hl_move_jump(move, hl_branch_target(instruction));
	move->moved.code[before - 1] = (uint8_t)(move->moved.code_bytes - before);
}

static void put_return_address(struct hl_move *move, uint64_t address)
{
	/* push 2(%rip), which is the address; jmp over it */
	static const uint8_t push[] = {0xff, 0x35, 2, 0, 0, 0, OPCODE_JMP_REL8, sizeof(address)};

	hl_move_put(move, push, sizeof(push));
	hl_move_put(move, &address, sizeof(address));
}

/* Writes an instruction whose data at ${data} a distance of 32 bits does not reach. */
static int put_far_access(struct hl_move *move, const struct hl_decoded *instruction, uint64_t data)
{
	static const uint8_t load[] = {0x49, 0xbb}; /* mov $data, %r11 */
	uint8_t bytes[ZYDIS_MAX_INSTRUCTION_LENGTH];
	ZyanUSize length = sizeof(bytes);
	ZydisEncoderRequest request;

	if (move->uses_scratch || ZYAN_FAILED(ZydisEncoderDecodedInstructionToEncoderRequest(
					  &instruction->decoded, instruction->operands,
					  instruction->decoded.operand_count_visible, &request)))
		return hl_move_refuse(move, "its data is too far away from the trampoline");
	for (unsigned i = 0; i < request.operand_count; i++)
		if (request.operands[i].mem.base == ZYDIS_REGISTER_RIP) {
			request.operands[i].mem.base = ZYDIS_REGISTER_R11;
			request.operands[i].mem.displacement = 0;
		}
	if (ZYAN_FAILED(ZydisEncoderEncodeInstruction(&request, bytes, &length)))
		return hl_move_refuse(move, "its data is too far away from the trampoline");
	hl_move_put(move, load, sizeof(load));
	hl_move_put(move, &data, sizeof(data));
	hl_move_put(move, bytes, length);
	return 0;
}

/* Writes an instruction, of the ${bytes} given, that is not a relative branch. */
static int put_plain(struct hl_move *move, const uint8_t *bytes,
		     const struct hl_decoded *instruction)
{
	uint8_t copy[ZYDIS_MAX_INSTRUCTION_LENGTH];
	const ZydisDecodedInstruction *decoded = &instruction->decoded;
	int32_t distance;

	memcpy(copy, bytes, decoded->length);
	if (decoded->attributes & ZYDIS_ATTRIB_IS_RELATIVE) {
		uint64_t data = instruction->next + (uint64_t)decoded->raw.disp.value;
		if (!is_near(hl_move_here(move) + decoded->length, data, &distance))
			return put_far_access(move, instruction, data);
		memcpy(copy + decoded->raw.disp.offset, &distance, sizeof(distance));
	}
	hl_move_put(move, copy, decoded->length);
	return 0;
}

/* Writes `call *operand` as `jmp *operand`, which differs by three bits. */
static int put_indirect_call(struct hl_move *move, const uint8_t *bytes,
			     const struct hl_decoded *instruction)
{
	uint8_t jump[ZYDIS_MAX_INSTRUCTION_LENGTH];
	struct hl_decoded as_jump;

	memcpy(jump, bytes, instruction->decoded.length);
	jump[instruction->decoded.raw.modrm.offset] ^= 0x30;
	if (!hl_decode(jump, instruction->decoded.length,
		       instruction->next - instruction->decoded.length, &as_jump))
		return hl_move_refuse(move, "a call among its first instructions cannot be moved");
	return put_plain(move, jump, &as_jump);
}

int hl_move_instruction(struct hl_move *move, size_t at)
{
	const uint8_t *bytes = move->code + at;
	struct hl_decoded moved;

	if (!hl_decode(bytes, move->code_bytes - at, move->address + at, &moved))
		return hl_move_refuse(move, "its first bytes are not instructions");
	bool is_call = moved.decoded.meta.category == ZYDIS_CATEGORY_CALL;
	if (is_call)
		put_return_address(move, moved.next);
	if (!hl_is_relative_branch(&moved))
		return is_call ? put_indirect_call(move, bytes, &moved)
			       : put_plain(move, bytes, &moved);
	if (moved.decoded.meta.category == ZYDIS_CATEGORY_COND_BR)
		put_conditional(move, &moved);
	else
		hl_move_jump(move, hl_branch_target(&moved));
	return 0;
}

bool hl_instruction_can_be_undone(const uint8_t *code, size_t bytes, int32_t *ret_stack_bytes)
{
	struct hl_decoded instruction;
	const ZydisDecodedOperand *operands = instruction.operands;

	if (!hl_decode(code, bytes, 0, &instruction))
		return false;
	*ret_stack_bytes = 0;
	switch (instruction.decoded.mnemonic) {
	case ZYDIS_MNEMONIC_ENDBR64:
	case ZYDIS_MNEMONIC_NOP:
	case ZYDIS_MNEMONIC_TEST:
	case ZYDIS_MNEMONIC_CMP:
		return !(instruction.decoded.attributes & ZYDIS_ATTRIB_IS_RELATIVE);
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

int hl_relocate_jump(uint64_t address, uint64_t hook, uint8_t ret_code[HL_PATCH_BYTES])
{
	int32_t distance;

	if (!is_near(address + HL_PATCH_BYTES, hook, &distance))
		return -ERANGE;
	ret_code[0] = 0xe9;
	memcpy(ret_code + 1, &distance, sizeof(distance));
	return 0;
}

size_t hl_relocate_undo(int32_t stack_bytes, uint8_t *ret_code)
{
	static const uint8_t add[] = {0x48, 0x8d, 0xa4, 0x24}; /* lea stack_bytes(%rsp), %rsp */

	memcpy(ret_code, add, sizeof(add));
	memcpy(ret_code + sizeof(add), &stack_bytes, sizeof(stack_bytes));
	return sizeof(add) + sizeof(stack_bytes);
}
