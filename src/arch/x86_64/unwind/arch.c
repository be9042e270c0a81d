/* SPDX-License-Identifier: BSD-2-Clause */
/* Packs x86-64 frame states into rules and steps by them; see arch.h. */
#include "unwind/arch.h"

#include "unwind/cfi.h"
#include "unwind/step.h"

#include <string.h>

/* System V ABI x86-64, figure 3.36. */
enum dwarf_register {
	DWARF_RBX = 3,
	DWARF_RBP = 6,
	DWARF_RSP = 7,
	DWARF_R12 = 12,
	DWARF_R15 = 15,
	DWARF_RIP = 16,
};

enum dwarf_operation {
	OP_DEREF = 0x06,
	OP_AND = 0x1a,
	OP_PLUS = 0x22,
	OP_PLUS_UCONST = 0x23,
	OP_SHL = 0x24,
	OP_GE = 0x2a,
	OP_LIT0 = 0x30,
	OP_LIT3 = OP_LIT0 + 3,
	OP_LIT15 = OP_LIT0 + 15,
	OP_BREG0 = 0x70,
	OP_BREG_RSP = OP_BREG0 + DWARF_RSP,
	OP_BREG_RIP = OP_BREG0 + DWARF_RIP,
};

int hl_arch_tracked(uint64_t dwarf_register)
{
	if (dwarf_register >= DWARF_R12 && dwarf_register <= DWARF_R15)
		return HL_CFI_R12 + (int)(dwarf_register - DWARF_R12);
	switch (dwarf_register) {
	case DWARF_RBX:
		return HL_CFI_RBX;
	case DWARF_RBP:
		return HL_CFI_BP;
	case DWARF_RSP:
		return HL_CFI_SP;
	case DWARF_RIP:
		return HL_CFI_RA;
	default:
		return -1;
	}
}

/* The fields of a rule before packing; offsets in bytes. */
struct rule_parts {
	enum hl_rule_kind kind;
	enum hl_rule_bp bp;
	int64_t extra, bp_offset, cfa_offset;
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

static hl_rule pack(const struct rule_parts *parts)
{
	if (parts->bp_offset % 8 || parts->cfa_offset % 8 || !fits(parts->extra, 6) ||
	    !fits(parts->bp_offset / 8, 12) || !fits(parts->cfa_offset / 8, 24))
		return HL_RULE_UNSUPPORTED;
	return field(parts->kind, 4, 0) | field(parts->bp, 2, 4) | field(parts->extra, 6, 6) |
	       field(parts->bp_offset / 8, 12, 12) | field(parts->cfa_offset / 8, 24, 24);
}

/* An expression of the form: register + offset, maybe dereferenced, maybe plus a constant. */
struct simple_expression {
	unsigned reg;
	int64_t offset;
	bool dereferenced;
	int64_t addend; /* after the dereference */
};

static bool read_simple(const struct hl_cfi_value *value, struct simple_expression *ret)
{
	struct hl_cfi_reader reader = {value->expression,
				       value->expression + value->expression_bytes, false};
	struct simple_expression found = {0};

	unsigned operation = hl_cfi_read_byte(&reader);
	if (operation < OP_BREG0 || operation > OP_BREG_RIP)
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

/* What the linker writes for lazy PLT entries: rsp + 8 + ((rip & 15) >= K) << 3. */
static bool read_plt(const struct hl_cfi_value *value, int64_t *ret_threshold)
{
	static const uint8_t head[] = {OP_BREG_RSP, 8, OP_BREG_RIP, 0, OP_LIT15, OP_AND};
	static const uint8_t tail[] = {OP_GE, OP_LIT3, OP_SHL, OP_PLUS};
	const uint8_t *bytes = value->expression;

	if (value->expression_bytes != sizeof(head) + 1 + sizeof(tail))
		return false;
	for (size_t i = 0; i < sizeof(head); i++)
		if (bytes[i] != head[i])
			return false;
	for (size_t i = 0; i < sizeof(tail); i++)
		if (bytes[sizeof(head) + 1 + i] != tail[i])
			return false;
	int64_t threshold = bytes[sizeof(head)] - OP_LIT0;
	if (threshold < 0 || threshold > 15)
		return false;
	*ret_threshold = threshold;
	return true;
}

static bool is_at_sp(const struct hl_cfi_value *value, enum hl_ucontext_offset offset)
{
	struct simple_expression found;

	return value->kind == HL_CFI_EXPRESSION && read_simple(value, &found) &&
	       found.reg == DWARF_RSP && found.offset == (int64_t)offset && !found.dereferenced;
}

/* A signal frame is one that says so and finds the registers where the kernel puts them. */
static bool is_kernel_signal_frame(const struct hl_cfi_state *state)
{
	struct simple_expression cfa;

	return state->cfa.kind == HL_CFI_EXPRESSION && read_simple(&state->cfa, &cfa) &&
	       cfa.reg == DWARF_RSP && cfa.offset == HL_UCONTEXT_RSP && cfa.dereferenced &&
	       !cfa.addend && is_at_sp(&state->saved[HL_CFI_BP], HL_UCONTEXT_RBP) &&
	       is_at_sp(&state->saved[HL_CFI_RA], HL_UCONTEXT_RIP);
}

static bool set_cfa_register(struct rule_parts *parts, unsigned reg, int64_t offset)
{
	if (reg >= DWARF_RIP)
		return false;
	parts->kind = reg == DWARF_RSP	 ? HL_RULE_SP
		      : reg == DWARF_RBP ? HL_RULE_BP
					 : HL_RULE_REGISTER;
	parts->extra = parts->kind == HL_RULE_REGISTER ? (int64_t)reg : 0;
	parts->cfa_offset = offset;
	return true;
}

static bool set_cfa(struct rule_parts *parts, const struct hl_cfi_value *cfa)
{
	struct simple_expression found;

	if (cfa->kind == HL_CFI_OFFSET)
		return set_cfa_register(parts, cfa->reg, cfa->offset);
	if (cfa->kind != HL_CFI_EXPRESSION)
		return false;
	if (read_plt(cfa, &parts->extra)) {
		parts->kind = HL_RULE_PLT;
		return true;
	}
	if (!read_simple(cfa, &found))
		return false;
	if (!found.dereferenced)
		return set_cfa_register(parts, found.reg, found.offset);
	if ((found.reg != DWARF_RSP && found.reg != DWARF_RBP) || found.addend % 8)
		return false;
	parts->kind = found.reg == DWARF_RSP ? HL_RULE_DEREF_SP : HL_RULE_DEREF_BP;
	parts->cfa_offset = found.offset;
	parts->extra = found.addend / 8;
	return true;
}

static bool set_bp(struct rule_parts *parts, const struct hl_cfi_value *bp)
{
	struct simple_expression found;

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
		if (!read_simple(bp, &found) || found.dereferenced ||
		    (found.reg != DWARF_RBP && found.reg != DWARF_RSP))
			return false;
		parts->bp = found.reg == DWARF_RBP ? HL_BP_AT_BP : HL_BP_AT_SP;
		parts->bp_offset = found.offset;
		return true;
	default:
		return false;
	}
}

hl_rule hl_arch_rule(const struct hl_cfi_state *state, bool is_signal_frame)
{
	const struct hl_cfi_value *ra = &state->saved[HL_CFI_RA];
	const struct hl_cfi_value *sp = &state->saved[HL_CFI_SP];
	struct rule_parts parts = {0};

	if (ra->kind == HL_CFI_UNDEFINED)
		return HL_RULE_END;
	if (is_signal_frame)
		return is_kernel_signal_frame(state) ? HL_RULE_SIGNAL : HL_RULE_UNSUPPORTED;
	if (ra->kind != HL_CFI_OFFSET || ra->offset != -8 || sp->kind != HL_CFI_UNSPECIFIED ||
	    !set_cfa(&parts, &state->cfa) || !set_bp(&parts, &state->saved[HL_CFI_BP]))
		return HL_RULE_UNSUPPORTED;
	return pack(&parts);
}

static bool find_cfa(struct hl_walk *walk, hl_rule rule, const struct hl_arch_frame *frame,
		     uint64_t context, struct hl_arch_reads *reads, uint64_t *ret_cfa)
{
	uint64_t offset = (uint64_t)hl_rule_cfa_offset(rule);
	int64_t extra = hl_rule_extra(rule);
	uint64_t base;

	switch (hl_rule_kind_of(rule)) {
	case HL_RULE_SP:
		*ret_cfa = frame->sp + offset;
		return true;
	case HL_RULE_BP:
		*ret_cfa = frame->bp + offset;
		return true;
	case HL_RULE_PLT:
		*ret_cfa = frame->sp + ((int64_t)(frame->pc & 15) >= extra ? 16 : 8);
		return true;
	case HL_RULE_DEREF_SP:
	case HL_RULE_DEREF_BP:
		base = hl_rule_kind_of(rule) == HL_RULE_DEREF_SP ? frame->sp : frame->bp;
		if (!hl_step_read(walk, base + offset, reads, &base))
			return false;
		*ret_cfa = base + (uint64_t)(extra * 8);
		return true;
	case HL_RULE_REGISTER:
		reads->unrepeatable = true;
		if (!context ||
		    !hl_step_read(walk, context + hl_arch_ucontext_offset(extra), reads, &base))
			return false;
		*ret_cfa = base + offset;
		return true;
	default:
		return false;
	}
}

static bool find_bp(struct hl_walk *walk, hl_rule rule, const struct hl_arch_frame *frame,
		    uint64_t cfa, struct hl_arch_reads *reads, uint64_t *ret_bp)
{
	uint64_t offset = (uint64_t)hl_rule_bp_offset(rule);

	switch (hl_rule_bp_of(rule)) {
	case HL_BP_CFA:
		return hl_step_read(walk, cfa + offset, reads, ret_bp);
	case HL_BP_AT_BP:
		return hl_step_read(walk, frame->bp + offset, reads, ret_bp);
	case HL_BP_AT_SP:
		return hl_step_read(walk, frame->sp + offset, reads, ret_bp);
	default:
		*ret_bp = frame->bp;
		return true;
	}
}

static enum hl_arch_outcome step_by_cfa(struct hl_walk *walk, hl_rule rule,
					struct hl_arch_frame *frame, uint64_t context,
					struct hl_arch_reads *reads)
{
	uint64_t cfa, ra, bp;

	if (!find_cfa(walk, rule, frame, context, reads, &cfa) || cfa <= frame->sp ||
	    !hl_step_read(walk, cfa - 8, reads, &ra) ||
	    !find_bp(walk, rule, frame, cfa, reads, &bp))
		return HL_STEP_LOST;
	*frame = (struct hl_arch_frame){.pc = ra - 1, .sp = cfa, .bp = bp};
	return ra ? HL_STEP_OUT : HL_STEP_END;
}

/* ${reach}: how far outward of rsp the frame that rbp points at can be. */
static enum hl_arch_outcome step_frame_pointer(struct hl_walk *walk, struct hl_arch_frame *frame,
					       uint64_t reach, struct hl_arch_reads *reads)
{
	uint64_t bp, ra;

	if (frame->bp - frame->sp > reach || !hl_step_read(walk, frame->bp, reads, &bp) ||
	    !hl_step_read(walk, frame->bp + 8, reads, &ra))
		return HL_STEP_LOST;
	*frame = (struct hl_arch_frame){.pc = ra - 1, .sp = frame->bp + 16, .bp = bp};
	return ra ? HL_STEP_OUT : HL_STEP_END;
}

enum hl_arch_outcome hl_arch_step(struct hl_walk *walk, hl_rule rule, struct hl_arch_frame *frame,
				  uint64_t *interrupted_context, struct hl_arch_reads *ret_reads)
{
	uint64_t context = *interrupted_context;

	*interrupted_context = 0;
	switch (hl_rule_kind_of(rule)) {
	case HL_RULE_NONE: /* JIT mostly: rbp is believed if it can be a frame pointer. Where it is 0, as at a
			    * thread's start, the code keeps none, and may have callers. */
		return step_frame_pointer(walk, frame, HL_FRAME_POINTER_REACH, ret_reads);
	case HL_RULE_OTHER_STACK: /* which may lie anywhere; 0: what the ABI sets at a thread's start */
		if (!frame->bp)
			return HL_STEP_END;
		return step_frame_pointer(walk, frame, UINT64_MAX, ret_reads);
	case HL_RULE_SIGNAL:
		return hl_step_signal(walk, frame, interrupted_context, ret_reads);
	case HL_RULE_END:
		return HL_STEP_END;
	case HL_RULE_UNSUPPORTED:
		return HL_STEP_LOST;
	default:
		return step_by_cfa(walk, rule, frame, context, ret_reads);
	}
}
