/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads code of functions of aarch64; see bpf/probe.h.
 *
 * Probes are set at the first instruction: the next ones store and sign x30, which the kernel replaces where returns are watched.
 */
#include "bpf/probe.h"

#include "base/instruction.h"

#define IS_PAGE_TO_X16(word)   HL_IS(word, 0x9f00001fu, 0x90000010u) /* adrp x16, page */
#define IS_LOAD_FROM_X16(word) HL_IS(word, 0xffc003ffu, 0xf9400211u) /* ldr x17, [x16, #N] */

const uint8_t hl_probe_arguments[HL_PROBE_ARGUMENTS_MAX] = {0, 1, 2, 3};

bool hl_probe_read(const uint8_t *code, size_t bytes, uint64_t address,
		   struct hl_probe_instruction *ret_instruction)
{
	*ret_instruction =
		(struct hl_probe_instruction){.bytes = HL_WORD_BYTES, .is_emulated = true};
	if (bytes < HL_WORD_BYTES)
		return false;
	ret_instruction->is_branch =
		hl_branch_target(hl_word_at(code), address, &ret_instruction->target) &&
		ret_instruction->target != address;
	return true;
}

uint32_t hl_probe_place_after_call(const uint8_t *code, size_t bytes, unsigned argument_count)
{
	(void)code, (void)bytes, (void)argument_count;
	return 0; /* x0 is the result then */
}

size_t hl_probe_place_jump_bytes(const uint8_t *code, size_t bytes)
{
	return bytes >= HL_WORD_BYTES && HL_IS_JUMP(hl_word_at(code)) ? HL_WORD_BYTES : 0;
}

/* bti c or nothing, then adrp x16, ldr x17 from there. */
uint64_t hl_probe_place_stub_slot(const uint8_t *code, size_t bytes, uint64_t address)
{
	size_t at = bytes >= HL_WORD_BYTES && hl_word_at(code) == HL_BTI_C ? HL_WORD_BYTES : 0;

	if (at + 2 * HL_WORD_BYTES > bytes)
		return 0;
	uint32_t page = hl_word_at(code + at), load = hl_word_at(code + at + HL_WORD_BYTES);
	if (!IS_PAGE_TO_X16(page) || !IS_LOAD_FROM_X16(load))
		return 0;
	return hl_address_made(page, address + at) + (load >> 10 & 0xfff) * 8;
}
