/* SPDX-License-Identifier: BSD-2-Clause */
/* Instructions of x86-64, by Zydis: for tools, not for what runs in programs. */
#pragma once

#include <Zydis/Zydis.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HL_REGISTER_RSP 4
#define HL_REGISTER_RBP 5
#define HL_REGISTER_R11 11

struct hl_decoded {
	ZydisDecodedInstruction decoded;
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
	uint64_t next; /* the address after it */
};

static inline bool hl_decode(const uint8_t *code, size_t bytes, uint64_t address,
			     struct hl_decoded *ret_instruction)
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

static inline bool hl_is_relative_branch(const struct hl_decoded *instruction)
{
	return instruction->decoded.raw.imm[0].is_relative;
}

static inline uint64_t hl_branch_target(const struct hl_decoded *instruction)
{
	return instruction->next + (uint64_t)instruction->decoded.raw.imm[0].value.s;
}

/* The general registers that an operand names: a mask of their numbers. */
static inline uint32_t hl_registers_of(const ZydisDecodedOperand *operand)
{
	bool is_memory = operand->type == ZYDIS_OPERAND_TYPE_MEMORY;
	ZydisRegister names[] = {is_memory ? operand->mem.base
				 : operand->type == ZYDIS_OPERAND_TYPE_REGISTER
					 ? operand->reg.value
					 : ZYDIS_REGISTER_NONE,
				 is_memory ? operand->mem.index : ZYDIS_REGISTER_NONE};
	uint32_t mask = 0;

	for (unsigned i = 0; i < 2; i++) {
		ZydisRegister whole =
			ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, names[i]);
		if (ZydisRegisterGetClass(whole) == ZYDIS_REGCLASS_GPR64)
			mask |= UINT32_C(1) << ZydisRegisterGetId(whole);
	}
	return mask;
}
