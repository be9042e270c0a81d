/* SPDX-License-Identifier: BSD-2-Clause */
/* Steps from a frame to its caller by a rule, on all machines; see rule.h. */
#include "base/compiler.h"
#include "base/machine.h"
#include "unwind/arch.h"
#include "unwind/saved.h"

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
		if (!read_word(walk, base + offset, reads, &base))
			return false;
		*ret_cfa = base + (uint64_t)(extra * 8);
		return true;
	case HL_RULE_REGISTER:
		reads->unrepeatable = true;
		if (!context ||
		    !read_word(walk, context + hl_arch_ucontext_offset(extra), reads, &base))
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
		return read_word(walk, cfa + offset, reads, ret_bp);
	case HL_BP_AT_BP:
		return read_word(walk, frame->bp + offset, reads, ret_bp);
	case HL_BP_AT_SP:
		return read_word(walk, frame->sp + offset, reads, ret_bp);
	default:
		*ret_bp = frame->bp;
		return true;
	}
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
	uint64_t cfa, ra, bp;

	if (!find_cfa(walk, rule, frame, context, reads, &cfa))
		return HL_STEP_LOST;
	if (HL_ARCH_RETURN_IN_REGISTER(rule)) {
		uint64_t at = context + hl_arch_ucontext_offset(HL_ARCH_RETURN_REGISTER);
		reads->unrepeatable = true;
		if (!context || cfa < frame->sp || !read_word(walk, at, reads, &ra))
			return HL_STEP_LOST;
		return leave(frame, ra, cfa, frame->bp);
	}
	if (cfa <= frame->sp || !read_word(walk, HL_ARCH_RETURN_AT(rule, cfa), reads, &ra) ||
	    !find_bp(walk, rule, frame, cfa, reads, &bp))
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
