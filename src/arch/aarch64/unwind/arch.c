/* SPDX-License-Identifier: BSD-2-Clause */
/* Packs aarch64 frame states into rules; see arch.h. */
#include "unwind/arch.h"

#include "base/machine.h"
#include "unwind/saved.h"

/* DWARF for the Arm 64-bit Architecture, section 4.1. */
enum dwarf_register {
	DWARF_X19 = 19,
	DWARF_X28 = 28,
};

int hl_arch_tracked(uint64_t dwarf_register)
{
	if (dwarf_register >= DWARF_X19 && dwarf_register <= DWARF_X28)
		return HL_CFI_X19 + (int)(dwarf_register - DWARF_X19);
	switch (dwarf_register) {
	case HL_ARCH_BP_REGISTER:
		return HL_CFI_BP;
	case HL_ARCH_RETURN_REGISTER:
		return HL_CFI_RA;
	case HL_ARCH_SP_REGISTER:
		return HL_CFI_SP;
	default:
		return -1;
	}
}

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
