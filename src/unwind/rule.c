/* SPDX-License-Identifier: BSD-2-Clause */
/* Packs the states of call frame programs into rules, and steps from a frame to its caller by one, on all machines; see rule.h. */
#include "unwind/rule.h"

#include "base/machine.h"
#include "unwind/saved.h"

/* ---- from states to rules ---- */

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
	if (cfa->kind != HL_CFI_EXPRESSION || !hl_rule_read_expression(cfa, &found))
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

/* ---- steps ---- */

/* Reads a word of the stack, if it may be read, and keeps it as one that the step depended on. */
HL_READS_STACK static bool read_word(struct hl_walk *walk, uint64_t address,
				     struct hl_arch_reads *reads, uint64_t *ret_value)
{
	if (!hl_memory_is_readable(walk, address)) {
		reads->unrepeatable = true; /* it may become readable */
		return false;
	}
	const uint64_t *word = (const uint64_t *)address;
	*ret_value = *word;
	if (reads->count < HL_COUNT_OF(reads->word)) {
		reads->word[reads->count] = word;
		reads->value[reads->count++] = *ret_value;
	} else {
		reads->unrepeatable = true;
	}
	return true;
}

/* The interrupted frame: its program counter has not run yet, so it is looked up as it is. */
static enum hl_arch_outcome step_signal(struct hl_walk *walk, struct hl_arch_frame *frame,
					uint64_t *interrupted_context, struct hl_arch_reads *reads)
{
	uint64_t context = frame->sp;

	reads->unrepeatable = true;
	if (!read_word(walk, context + HL_UCONTEXT_RSP, reads, &frame->sp) ||
	    !read_word(walk, context + HL_UCONTEXT_RBP, reads, &frame->bp) ||
	    !read_word(walk, context + HL_UCONTEXT_RIP, reads, &frame->pc))
		return HL_STEP_LOST;
	*interrupted_context = context;
	return frame->pc ? HL_STEP_OUT : HL_STEP_END;
}

/* What is at ${place}, which has been read where it is stored. */
static bool read_place(struct hl_walk *walk, struct hl_rule_place place,
		       struct hl_arch_reads *reads, uint64_t *ret_value)
{
	if (place.is_stored && !read_word(walk, place.base, reads, &place.base))
		return false;
	*ret_value = place.base + place.addend;
	return true;
}

/* The caller's frame, once its registers are known. */
static enum hl_arch_outcome leave(struct hl_arch_frame *frame, uint64_t ra, uint64_t sp,
				  uint64_t bp)
{
	ra = hl_machine_code_address(ra);
	*frame = (struct hl_arch_frame){.pc = ra - 1, .sp = sp, .bp = bp};
	return ra ? HL_STEP_OUT : HL_STEP_END;
}

/* ${context}: of the signal that interrupted the frame, or 0. */
static enum hl_arch_outcome step_by_cfa(struct hl_walk *walk, hl_rule rule,
					struct hl_arch_frame *frame, uint64_t context,
					struct hl_arch_reads *reads)
{
	struct hl_rule_place place;
	uint64_t cfa, ra, bp;

	reads->unrepeatable |= hl_rule_kind_of(rule) == HL_RULE_REGISTER;
	if (!hl_rule_find_cfa(rule, frame, context, &place) ||
	    !read_place(walk, place, reads, &cfa))
		return HL_STEP_LOST;
	if (HL_ARCH_RETURN_IN_REGISTER(rule)) {
		uint64_t at = context + hl_arch_ucontext_offset(HL_ARCH_RETURN_REGISTER);
		reads->unrepeatable = true;
		if (!context || cfa < frame->sp || !read_word(walk, at, reads, &ra))
			return HL_STEP_LOST;
		return leave(frame, ra, cfa, frame->bp);
	}
	if (cfa <= frame->sp || !read_word(walk, HL_ARCH_RETURN_AT(rule, cfa), reads, &ra) ||
	    !read_place(walk, hl_rule_find_bp(rule, frame, cfa), reads, &bp))
		return HL_STEP_LOST;
	return leave(frame, ra, cfa, bp);
}

/* ${reach}: how far outward of sp the frame record that bp points at can be. */
static enum hl_arch_outcome step_frame_pointer(struct hl_walk *walk, struct hl_arch_frame *frame,
					       uint64_t reach, struct hl_arch_reads *reads)
{
	uint64_t bp, ra;

	if (frame->bp - frame->sp > reach || !read_word(walk, frame->bp, reads, &bp) ||
	    !read_word(walk, frame->bp + 8, reads, &ra))
		return HL_STEP_LOST;
	return leave(frame, ra, HL_ARCH_SP_BEYOND(frame->bp, bp), bp);
}

enum hl_arch_outcome hl_step(struct hl_walk *walk, hl_rule rule, struct hl_arch_frame *frame,
			     uint64_t *interrupted_context, struct hl_arch_reads *ret_reads)
{
	uint64_t context = *interrupted_context;

	*interrupted_context = 0;
	if (HL_ARCH_IS_RECORD(rule))
		rule = HL_RULE_NONE;
	switch (hl_rule_kind_of(rule)) {
	case HL_RULE_NONE: /* JIT mostly: bp is believed if it can be a frame pointer. Where it is 0, as at a
			    * thread's start, the code keeps none, and may have callers. */
		return step_frame_pointer(walk, frame, HL_FRAME_POINTER_REACH, ret_reads);
	case HL_RULE_OTHER_STACK: /* which may lie anywhere; 0: what the ABI sets at a thread's start */
		if (!frame->bp)
			return HL_STEP_END;
		return step_frame_pointer(walk, frame, UINT64_MAX, ret_reads);
	case HL_RULE_SIGNAL:
		return step_signal(walk, frame, interrupted_context, ret_reads);
	case HL_RULE_END:
		return HL_STEP_END;
	case HL_RULE_UNSUPPORTED:
		return HL_STEP_LOST;
	default:
		return step_by_cfa(walk, rule, frame, context, ret_reads);
	}
}
