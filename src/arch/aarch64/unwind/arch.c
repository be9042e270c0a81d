/* SPDX-License-Identifier: BSD-2-Clause */
/* Packs aarch64 frame states into rules; see arch.h. */
#include "unwind/rule.h"

#include "base/instruction.h"
#include "base/machine.h"
#include "unwind/saved.h"

#define FAR_FROM_CFA (-16384) /* in rules there are 12 bits for it, of words */

/* The offset is that of x29, or of x30 where x29 is the caller's. */
hl_rule hl_arch_rule(const struct hl_cfi_state *state, bool is_signal_frame)
{
	const struct hl_cfi_value *ra = &state->saved[HL_CFI_RA], *bp = &state->saved[HL_CFI_BP];
	struct hl_rule_parts parts = {0};

	if (ra->kind == HL_CFI_UNDEFINED)
		return HL_RULE_END;
	if (is_signal_frame)
		return HL_RULE_SIGNAL;
	if (state->saved[HL_CFI_SP].kind != HL_CFI_UNSPECIFIED ||
	    !hl_rule_set_cfa(&parts, &state->cfa) || !hl_rule_set_bp(&parts, bp) ||
	    (parts.kind != HL_RULE_SP && parts.kind != HL_RULE_BP) ||
	    (parts.bp != HL_BP_SAME && parts.bp != HL_BP_CFA))
		return HL_RULE_UNSUPPORTED;
	bool is_in_register = ra->kind == HL_CFI_UNSPECIFIED || ra->kind == HL_CFI_SAME;
	if (is_in_register ? parts.bp != HL_BP_SAME : ra->kind != HL_CFI_OFFSET || ra->offset & 7)
		return HL_RULE_UNSUPPORTED;
	if (is_in_register)
		parts.bp = HL_BP_RA_IN_REGISTER;
	else if (parts.bp == HL_BP_SAME)
		parts.bp_offset = ra->offset;
	else
		parts.extra = (ra->offset - bp->offset) / 8;
	/* gcc has records at the beginning of frames, of which those with large arrays end too far from there. */
	if (parts.kind == HL_RULE_SP && parts.bp == HL_BP_CFA && parts.bp_offset < FAR_FROM_CFA) {
		parts.bp = HL_BP_AT_SP;
		parts.bp_offset += parts.cfa_offset;
	}
	return hl_rule_pack(&parts);
}

/* The trampoline of the vDSO, of a C library or of an emulator: mov x8, #__NR_rt_sigreturn; svc #0. */
HL_READS_STACK static bool is_trampoline(const uint32_t *code)
{
	return code[0] == 0xd2801168 && code[1] == 0xd4000001;
}

size_t hl_arch_find_trampoline(const uint8_t *code, size_t bytes)
{
	size_t at = 0;

	while (at + HL_TRAMPOLINE_BYTES <= bytes && !is_trampoline((const uint32_t *)(code + at)))
		at += 4;
	return at + HL_TRAMPOLINE_BYTES <= bytes ? at : bytes;
}

HL_READS_STACK bool hl_arch_returns_from_signal(uint64_t address)
{
	return !(address & 3) && (address & 4095) <= 4088 && address < HL_USER_END &&
	       hl_memory_page_is_readable(address & ~UINT64_C(4095)) &&
	       is_trampoline((const uint32_t *)address);
}

#define PACIASP UINT32_C(0xd503233f)

#define BR_X17	  UINT32_C(0xd61f0220)
#define AUTIA1716 UINT32_C(0xd503219f)

/* Of "[bti c;] adrp x16; ldr x17, [x16, #N]; add x16, x16, #N; [autia1716;] br x17" each. Not the first stub, which has stored two registers before
 * ("stp x16, x30, [sp, #-16]!"). */
HL_READS_STACK static bool is_in_stub(const uint32_t *code)
{
	code += *code == HL_BTI_C;
	for (unsigned i = 0; i < 5; i++, code--)
		if ((code[0] & 0x9f00001f) == 0x90000010)
			return code[-1] != 0xa9bf7bf0 && (code[1] & 0xffc003ff) == 0xf9400211 &&
			       (code[2] & 0xffc003ff) == 0x91000210 &&
			       code[3 + (code[3] == AUTIA1716)] == BR_X17;
	return false;
}

/* Calls, and adds to the stack pointer, by themselves or by what loads and stores. */
static bool makes_frame(uint32_t word)
{
	bool moves_base = (word & 0x3a800000) == 0x28800000 || (word & 0x3b200400) == 0x38000400;

	return HL_IS_CALL(word) || HL_IS(word, 0xfefff000u, 0xd63f0000u) ||
	       (word & 0xbf80001f) == 0x9100001f || (moves_base && (word >> 5 & 31) == 31);
}

/* Whether the function begins in this page with a landing pad, or signs x30, and has made no frame yet, as those of the vDSO. */
HL_READS_STACK static bool is_before_frame(const uint32_t *code)
{
	while (*code != HL_BTI_C && *code != PACIASP)
		if (!((uintptr_t)code & 4095) || makes_frame(*--code))
			return false;
	return true;
}

HL_READS_STACK bool hl_arch_has_no_frame(uint64_t address)
{
	const uint32_t *code = (const uint32_t *)address;

	return !(address & 3) && hl_memory_page_is_readable((address - 16) & ~UINT64_C(4095)) &&
	       (is_in_stub(code) || is_before_frame(code));
}
