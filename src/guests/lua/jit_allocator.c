/* SPDX-License-Identifier: BSD-2-Clause */
/* Decodes what leads to LuaJIT's allocator; see jit_allocator.h. */
#include "guests/lua/jit_allocator.h"

#include <Zydis/Zydis.h>

#define ITS_OWN_ALLOCATOR (1237u << 4) /* LJ_ALLOCF_INTERNAL */
#define FIRST_MAX	  3u	       /* instructions before its size is looked at */

struct instruction {
	ZydisDecodedInstruction decoded;
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
};

static bool decode(const uint8_t *code, size_t bytes, struct instruction *ret_instruction)
{
	ZydisDecoder decoder;

	return ZYAN_SUCCESS(ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64,
					     ZYDIS_STACK_WIDTH_64)) &&
	       ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, code, bytes, &ret_instruction->decoded,
						   ret_instruction->operands));
}

static bool compares(const struct instruction *it, ZydisRegister address)
{
	if (it->decoded.mnemonic != ZYDIS_MNEMONIC_CMP)
		return false;
	for (unsigned i = 0; i < it->decoded.operand_count_visible; i++)
		if (it->operands[i].type == ZYDIS_OPERAND_TYPE_REGISTER &&
		    it->operands[i].reg.value == address)
			return true;
	return false;
}

static bool compares_with_number(const struct instruction *it)
{
	return it->decoded.mnemonic == ZYDIS_MNEMONIC_CMP &&
	       it->operands[1].type == ZYDIS_OPERAND_TYPE_IMMEDIATE &&
	       it->operands[1].imm.value.u == ITS_OWN_ALLOCATOR;
}

uint64_t hl_luajit_allocator_find(const uint8_t *code, size_t bytes, uint64_t address)
{
	ZydisRegister loaded = ZYDIS_REGISTER_NONE;
	uint64_t found = 0;
	bool is_asked = false;
	struct instruction it;

	for (size_t at = 0; at < bytes && decode(code + at, bytes - at, &it);) {
		at += it.decoded.length;
		is_asked |= compares_with_number(&it);
		if (is_asked && found && compares(&it, loaded))
			return found;
		/* The address of code or data is loaded into a register by LEA. */
		if (it.decoded.mnemonic == ZYDIS_MNEMONIC_LEA &&
		    it.operands[1].mem.base == ZYDIS_REGISTER_RIP) {
			loaded = it.operands[0].reg.value;
			found = address + at + (uint64_t)it.operands[1].mem.disp.value;
		} else if (it.operands[0].type == ZYDIS_OPERAND_TYPE_REGISTER &&
			   it.operands[0].reg.value == loaded) {
			found = 0; /* something else by now */
		}
	}
	return 0;
}

bool hl_luajit_allocator_is(const uint8_t *code, size_t bytes)
{
	struct instruction it;

	for (size_t at = 0, i = 0; i < FIRST_MAX && decode(code + at, bytes - at, &it); i++) {
		at += it.decoded.length;
		if (it.decoded.mnemonic == ZYDIS_MNEMONIC_TEST &&
		    it.operands[0].type == ZYDIS_OPERAND_TYPE_REGISTER &&
		    it.operands[0].reg.value == ZYDIS_REGISTER_RCX)
			return true;
	}
	return false;
}
