/* SPDX-License-Identifier: BSD-2-Clause */
/* Decodes the beginning of functions of x86-64 with Zydis; see bpf/probe.h. */
#include "bpf/probe.h"

#include "base/instruction.h"

#include <string.h>

const uint8_t hl_probe_arguments[HL_PROBE_ARGUMENTS_MAX] = {7, 6, 2, 1}; /* rdi, rsi, rdx, rcx */

/* As arch/x86/kernel/uprobes.c does it since Linux 4.16. Longer nops are emulated since 6.18 only,
 * and in the middle of a function they are replaced by a call, which older code may not survive. */
static bool is_emulated(const uint8_t *code, const ZydisDecodedInstruction *decoded)
{
	uint8_t opcode = decoded->opcode;

	if (decoded->attributes & ZYDIS_ATTRIB_HAS_OPERANDSIZE)
		return false;
	if (decoded->opcode_map == ZYDIS_OPCODE_MAP_0F)
		return (opcode & 0xf0) == 0x80;
	if (decoded->opcode_map != ZYDIS_OPCODE_MAP_DEFAULT)
		return false;
	if ((opcode & 0xf8) == 0x50)
		return decoded->length == 1 || (decoded->length == 2 && code[0] == 0x41);
	if (opcode == 0x90)
		return decoded->length == 1;
	return opcode == 0xe8 || opcode == 0xe9 || opcode == 0xeb || (opcode & 0xf0) == 0x70;
}

/* Whether it goes on to the next one, writes no memory, and leaves both stack registers alone; then what it does to others. */
static bool may_precede(const struct hl_decoded *instruction, struct hl_probe_instruction *effect)
{
	const ZydisDecodedInstruction *decoded = &instruction->decoded;
	const ZydisDecodedOperand *operands = instruction->operands;

	switch (decoded->meta.category) {
	case ZYDIS_CATEGORY_CALL:
	case ZYDIS_CATEGORY_COND_BR:
	case ZYDIS_CATEGORY_INTERRUPT:
	case ZYDIS_CATEGORY_RET:
	case ZYDIS_CATEGORY_SYSCALL:
	case ZYDIS_CATEGORY_SYSTEM:
	case ZYDIS_CATEGORY_UNCOND_BR:
		return false;
	default:
		break;
	}
	for (unsigned i = 0; i < decoded->operand_count; i++) {
		if (!(operands[i].actions & ZYDIS_OPERAND_ACTION_MASK_WRITE))
			continue;
		if (operands[i].type == ZYDIS_OPERAND_TYPE_MEMORY)
			return false;
		effect->written |= hl_registers_of(&operands[i]);
	}
	if (decoded->mnemonic == ZYDIS_MNEMONIC_MOV && decoded->operand_width == 64 &&
	    operands[1].type == ZYDIS_OPERAND_TYPE_REGISTER)
		effect->copied = hl_registers_of(&operands[1]);
	return !(effect->written & (1u << HL_REGISTER_RSP | 1u << HL_REGISTER_RBP));
}

bool hl_probe_read(const uint8_t *code, size_t bytes, uint64_t address,
		   struct hl_probe_instruction *ret_instruction)
{
	struct hl_decoded instruction;

	*ret_instruction = (struct hl_probe_instruction){.bytes = 1};
	if (!hl_decode(code, bytes, address, &instruction))
		return false;
	*ret_instruction = (struct hl_probe_instruction){
		.bytes = instruction.decoded.length,
		.is_emulated = is_emulated(code, &instruction.decoded),
		.is_branch = hl_is_relative_branch(&instruction),
		.target = hl_branch_target(&instruction),
	};
	ret_instruction->may_precede = may_precede(&instruction, ret_instruction);
	return true;
}

/* Whether the first bytes are endbr64, and how many these are. */
static size_t landing_bytes(const uint8_t *code, size_t bytes)
{
	static const uint8_t endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};

	return bytes > sizeof(endbr64) && !memcmp(code, endbr64, sizeof(endbr64)) ? sizeof(endbr64)
										  : 0;
}

/* mov $N,%eax, syscall, cmp $-4096,%rax, a conditional jump. The kernel leaves rsp and the arguments as they are. */
uint32_t hl_probe_place_after_call(const uint8_t *code, size_t bytes, unsigned argument_count)
{
	size_t at = landing_bytes(code, bytes);
	const uint8_t *mov = code + at, *call = mov + 5, *compare = call + 2, *jump = compare + 6;

	if (at + 15 > bytes || argument_count > 3)
		return 0;
	bool is_jump = (jump[0] & 0xf0) == 0x70 || (jump[0] == 0x0f && (jump[1] & 0xf0) == 0x80);
	return mov[0] == 0xb8 && call[0] == 0x0f && call[1] == 0x05 && compare[0] == 0x48 &&
			       compare[1] == 0x3d && is_jump
		       ? (uint32_t)(jump - code)
		       : 0;
}

size_t hl_probe_place_jump_bytes(const uint8_t *code, size_t bytes)
{
	size_t length = bytes && code[0] == 0xe9 ? 5 : bytes && code[0] == 0xeb ? 2 : 0;

	return length <= bytes ? length : 0;
}

/* endbr64 or nothing, then bnd or nothing, then `jmp *slot(%rip)`. */
uint64_t hl_probe_place_stub_slot(const uint8_t *code, size_t bytes, uint64_t address)
{
	size_t at = landing_bytes(code, bytes);
	int32_t displacement;

	at += at < bytes && code[at] == 0xf2;
	if (at + 6 > bytes || code[at] != 0xff || code[at + 1] != 0x25)
		return 0;
	memcpy(&displacement, code + at + 2, sizeof(displacement));
	return address + at + 6 + (uint64_t)(int64_t)displacement;
}
