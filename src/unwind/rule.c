/* SPDX-License-Identifier: BSD-2-Clause */
/* Packs the states of call frame programs into rules, as far as that is alike on all machines; see rule.h. */
#include "unwind/rule.h"

#include "unwind/arch.h"

/* DWARF 5, section 7.7.1. */
enum dwarf_operation {
	OP_DEREF = 0x06,
	OP_PLUS_UCONST = 0x23,
	OP_BREG0 = 0x70,
	OP_BREG31 = OP_BREG0 + 31,
};

static bool fits(int64_t value, unsigned bits)
{
	int64_t limit = INT64_C(1) << (bits - 1);

	return value >= -limit && value < limit;
}

static uint64_t field(int64_t value, unsigned bits, unsigned shift)
{
	return ((uint64_t)value & ((UINT64_C(1) << bits) - 1)) << shift;
}

hl_rule hl_rule_pack(const struct hl_rule_parts *parts)
{
	if (parts->bp_offset % 8 || parts->cfa_offset % 8 || !fits(parts->extra, 6) ||
	    !fits(parts->bp_offset / 8, 12) || !fits(parts->cfa_offset / 8, 24))
		return HL_RULE_UNSUPPORTED;
	return field(parts->kind, 4, 0) | field(parts->bp, 2, 4) | field(parts->extra, 6, 6) |
	       field(parts->bp_offset / 8, 12, 12) | field(parts->cfa_offset / 8, 24, 24);
}

bool hl_rule_read_expression(const struct hl_cfi_value *value, struct hl_rule_expression *ret)
{
	struct hl_cfi_reader reader = {value->expression,
				       value->expression + value->expression_bytes, false};
	struct hl_rule_expression found = {0};

	unsigned operation = hl_cfi_read_byte(&reader);
	if (operation < OP_BREG0 || operation > OP_BREG31)
		return false;
	found.reg = operation - OP_BREG0;
	found.offset = hl_cfi_read_sleb(&reader);
	if (hl_cfi_left(&reader) && *reader.at == OP_DEREF) {
		found.dereferenced = true;
		reader.at++;
		if (hl_cfi_left(&reader) && *reader.at == OP_PLUS_UCONST) {
			reader.at++;
			found.addend = (int64_t)hl_cfi_read_uleb(&reader);
		}
	}
	if (reader.failed || hl_cfi_left(&reader))
		return false;
	*ret = found;
	return true;
}

static bool set_cfa_register(struct hl_rule_parts *parts, unsigned reg, int64_t offset)
{
	if (reg >= HL_ARCH_RETURN_REGISTER && reg != HL_ARCH_SP_REGISTER)
		return false;
	parts->kind = reg == HL_ARCH_SP_REGISTER   ? HL_RULE_SP
		      : reg == HL_ARCH_BP_REGISTER ? HL_RULE_BP
						   : HL_RULE_REGISTER;
	parts->extra = parts->kind == HL_RULE_REGISTER ? (int64_t)reg : 0;
	parts->cfa_offset = offset;
	return true;
}

bool hl_rule_set_cfa(struct hl_rule_parts *parts, const struct hl_cfi_value *cfa)
{
	struct hl_rule_expression found;

	if (cfa->kind == HL_CFI_OFFSET)
		return set_cfa_register(parts, cfa->reg, cfa->offset);
	if (cfa->kind != HL_CFI_EXPRESSION)
		return false;
	if (!hl_rule_read_expression(cfa, &found))
		return false;
	if (!found.dereferenced)
		return set_cfa_register(parts, found.reg, found.offset);
	if ((found.reg != HL_ARCH_SP_REGISTER && found.reg != HL_ARCH_BP_REGISTER) ||
	    found.addend % 8)
		return false;
	parts->kind = found.reg == HL_ARCH_SP_REGISTER ? HL_RULE_DEREF_SP : HL_RULE_DEREF_BP;
	parts->cfa_offset = found.offset;
	parts->extra = found.addend / 8;
	return true;
}

bool hl_rule_set_bp(struct hl_rule_parts *parts, const struct hl_cfi_value *bp)
{
	struct hl_rule_expression found;

	switch (bp->kind) {
	case HL_CFI_UNSPECIFIED: /* callee-saved by the ABI, so not changed */
	case HL_CFI_UNDEFINED:	 /* nobody outward may rely on it */
	case HL_CFI_SAME:
		parts->bp = HL_BP_SAME;
		return true;
	case HL_CFI_OFFSET:
		parts->bp = HL_BP_CFA;
		parts->bp_offset = bp->offset;
		return true;
	case HL_CFI_EXPRESSION:
		if (!hl_rule_read_expression(bp, &found) || found.dereferenced ||
		    (found.reg != HL_ARCH_BP_REGISTER && found.reg != HL_ARCH_SP_REGISTER))
			return false;
		parts->bp = found.reg == HL_ARCH_BP_REGISTER ? HL_BP_AT_BP : HL_BP_AT_SP;
		parts->bp_offset = found.offset;
		return true;
	default:
		return false;
	}
}
