/* SPDX-License-Identifier: BSD-2-Clause */
/* Decodes the beginning of functions of x86-64 with Zydis; see bpf/probe.h. */
#include "bpf/probe.h"

#include "base/instruction.h"

#include <string.h>

/* How much code may come before the probe: a known free() has 48 bytes. */
#define SKIPPED_BYTES_MAX 64

/* The System V ABI's first integer arguments: rdi, rsi, rdx, rcx. */
static const uint8_t abi_arguments[HL_PROBE_ARGUMENTS_MAX] = {7, 6, 2, 1};

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

/* Which registers hold each argument, as masks of register numbers. */
struct argument_holders {
	uint32_t masks[HL_PROBE_ARGUMENTS_MAX];
	unsigned count;
};

/*
 * Whether the instruction may come before the probe: it goes on to the next one, writes no memory, and leaves both stack
 * registers alone. Follows where the arguments are then.
 */
static bool skip(const struct hl_decoded *instruction, struct argument_holders *holders)
{
	const ZydisDecodedInstruction *decoded = &instruction->decoded;
	const ZydisDecodedOperand *operands = instruction->operands;
	uint32_t written = 0, source = 0; /* masks of registers */

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
		written |= hl_registers_of(&operands[i]);
	}
	if (written & (1u << HL_REGISTER_RSP | 1u << HL_REGISTER_RBP))
		return false;
	if (decoded->mnemonic == ZYDIS_MNEMONIC_MOV && decoded->operand_width == 64 &&
	    operands[1].type == ZYDIS_OPERAND_TYPE_REGISTER) /* it holds what the source holds */
		source = hl_registers_of(&operands[1]);
	for (unsigned i = 0; i < holders->count; i++) {
		if (holders->masks[i] & source)
			holders->masks[i] |= written;
		else
			holders->masks[i] &= ~written;
		if (!holders->masks[i])
			return false;
	}
	return true;
}

bool hl_probe_place_visit_branches(const uint8_t *code, size_t bytes,
				   bool (*visit)(int64_t target, void *context), void *context)
{
	struct hl_decoded instruction;

	for (size_t at = 0; at < bytes;) {
		if (!hl_decode(code + at, bytes - at, at, &instruction)) {
			at++; /* data in between, or the end is cut off */
			continue;
		}
		at += instruction.decoded.length;
		if (hl_is_relative_branch(&instruction) &&
		    visit((int64_t)hl_branch_target(&instruction), context))
			return true;
	}
	return false;
}

/* Whether a jump leads to a byte after the first, up to *${context}. */
static bool is_within_skipped(int64_t target, void *context)
{
	return target > 0 && target <= (int64_t) * (const uint32_t *)context;
}

/* For each argument the register of the ABI, if it still holds it; else any that does. */
static void say_holders(const struct argument_holders *holders, struct hl_probe_place *place)
{
	for (unsigned i = 0; i < holders->count; i++)
		place->arguments[i] = holders->masks[i] & UINT32_C(1) << abi_arguments[i]
					      ? abi_arguments[i]
					      : (uint8_t)__builtin_ctz(holders->masks[i]);
}

struct hl_probe_place hl_probe_place(const uint8_t *code, size_t bytes, unsigned argument_count)
{
	struct hl_probe_place entry = {0};
	struct argument_holders holders = {.count = argument_count};
	struct hl_decoded instruction;

	for (unsigned i = 0; i < argument_count; i++)
		holders.masks[i] = UINT32_C(1) << abi_arguments[i];
	say_holders(&holders, &entry);
	for (uint32_t at = 0; at <= SKIPPED_BYTES_MAX && at < bytes;
	     at += instruction.decoded.length) {
		if (!hl_decode(code + at, bytes - at, at, &instruction))
			break;
		if (is_emulated(code + at, &instruction.decoded)) {
			struct hl_probe_place place = {.offset = at, .emulated = true};
			say_holders(&holders, &place);
			return at && hl_probe_place_visit_branches(code, bytes, is_within_skipped,
								   &at)
				       ? entry
				       : place;
		}
		if (!skip(&instruction, &holders))
			break;
	}
	return entry;
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
