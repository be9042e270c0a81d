/* SPDX-License-Identifier: BSD-2-Clause */
/* Packs x86-64 frame states into rules; see arch.h. */
#include "unwind/rule.h"

/* What the linker writes for lazy PLT entries: rsp + 8 + ((rip & 15) >= K) << 3. */
static bool read_plt(const struct hl_cfi_value *value, int64_t *ret_threshold)
{
	enum { THRESHOLD_AT = 6, LIT0 = 0x30 };
	static const uint8_t plt[] = {
		0x77, 8,    /* DW_OP_breg7, rsp */
		0x80, 0,    /* DW_OP_breg16, rip */
		0x3f, 0x1a, /* DW_OP_lit15, DW_OP_and */
		LIT0, 0x2a, /* DW_OP_lit0 + K, DW_OP_ge */
		0x33, 0x24, /* DW_OP_lit3, DW_OP_shl */
		0x22,	    /* DW_OP_plus */
	};

	if (value->kind != HL_CFI_EXPRESSION || value->expression_bytes != sizeof(plt))
		return false;
	for (size_t i = 0; i < sizeof(plt); i++)
		if (i != THRESHOLD_AT && value->expression[i] != plt[i])
			return false;
	*ret_threshold = value->expression[THRESHOLD_AT] - LIT0;
	return *ret_threshold >= 0 && *ret_threshold <= 15;
}

static bool is_at_sp(const struct hl_cfi_value *value, enum hl_ucontext_offset offset)
{
	struct hl_rule_expression found;

	return value->kind == HL_CFI_EXPRESSION && hl_rule_read_expression(value, &found) &&
	       found.reg == HL_ARCH_SP_REGISTER && found.offset == (int64_t)offset &&
	       !found.dereferenced;
}

/* A signal frame is one that says so and finds the registers where the kernel puts them. */
static bool is_kernel_signal_frame(const struct hl_cfi_state *state)
{
	struct hl_rule_expression cfa;

	return state->cfa.kind == HL_CFI_EXPRESSION && hl_rule_read_expression(&state->cfa, &cfa) &&
	       cfa.reg == HL_ARCH_SP_REGISTER && cfa.offset == HL_UCONTEXT_RSP &&
	       cfa.dereferenced && !cfa.addend &&
	       is_at_sp(&state->saved[HL_CFI_BP], HL_UCONTEXT_RBP) &&
	       is_at_sp(&state->saved[HL_CFI_RA], HL_UCONTEXT_RIP);
}

hl_rule hl_arch_rule(const struct hl_cfi_state *state, bool is_signal_frame)
{
	const struct hl_cfi_value *ra = &state->saved[HL_CFI_RA];
	const struct hl_cfi_value *sp = &state->saved[HL_CFI_SP];
	struct hl_rule_parts parts = {0};

	if (ra->kind == HL_CFI_UNDEFINED)
		return HL_RULE_END;
	if (is_signal_frame)
		return is_kernel_signal_frame(state) ? HL_RULE_SIGNAL : HL_RULE_UNSUPPORTED;
	if (ra->kind != HL_CFI_OFFSET || ra->offset != -8 || sp->kind != HL_CFI_UNSPECIFIED ||
	    !hl_rule_set_bp(&parts, &state->saved[HL_CFI_BP]))
		return HL_RULE_UNSUPPORTED;
	if (read_plt(&state->cfa, &parts.extra))
		parts.kind = HL_RULE_PLT;
	else if (!hl_rule_set_cfa(&parts, &state->cfa))
		return HL_RULE_UNSUPPORTED;
	return hl_rule_pack(&parts);
}
