/* SPDX-License-Identifier: BSD-2-Clause */
/* Packs aarch64 frame states into rules and steps by them; see arch.h. */
#include "unwind/arch.h"

#include "base/machine.h"
#include "unwind/step.h"

/* DWARF for the Arm 64-bit Architecture, section 4.1. */
enum dwarf_register {
	DWARF_X19 = 19,
	DWARF_X28 = 28,
	DWARF_X29 = 29,
	DWARF_X30 = 30,
	DWARF_SP = 31,
};

int hl_arch_tracked(uint64_t dwarf_register)
{
	if (dwarf_register >= DWARF_X19 && dwarf_register <= DWARF_X28)
		return HL_CFI_X19 + (int)(dwarf_register - DWARF_X19);
	switch (dwarf_register) {
	case DWARF_X29:
		return HL_CFI_BP;
	case DWARF_X30:
		return HL_CFI_RA;
	case DWARF_SP:
		return HL_CFI_SP;
	default:
		return -1;
	}
}

static bool fits(int64_t value, unsigned bits)
{
	int64_t limit = INT64_C(1) << (bits - 1);

	return value >= -limit && value < limit;
}

static uint64_t field(int64_t value, unsigned bits, unsigned shift)
{
	return ((uint64_t)value & ((UINT64_C(1) << bits) - 1)) << shift;
}

/* ${saved_offset}: of x29, or of x30 where x29 is the caller's; x30 lies ${distance} behind. In bytes. */
static hl_rule pack(enum hl_rule_kind kind, enum hl_rule_bp bp, int64_t distance,
		    int64_t saved_offset, int64_t cfa_offset)
{
	if ((distance | saved_offset | cfa_offset) & 7 || !fits(distance / 8, 6) ||
	    !fits(saved_offset / 8, 12) || !fits(cfa_offset / 8, 24))
		return HL_RULE_UNSUPPORTED;
	return field(kind, 4, 0) | field(bp, 2, 4) | field(distance / 8, 6, 6) |
	       field(saved_offset / 8, 12, 12) | field(cfa_offset / 8, 24, 24);
}

/* Not mentioned, or said to be unchanged; of what is undefined nobody outward needs the value. */
static bool is_kept(const struct hl_cfi_value *value)
{
	return value->kind == HL_CFI_UNSPECIFIED || value->kind == HL_CFI_SAME ||
	       value->kind == HL_CFI_UNDEFINED;
}

hl_rule hl_arch_rule(const struct hl_cfi_state *state, bool is_signal_frame)
{
	const struct hl_cfi_value *ra = &state->saved[HL_CFI_RA], *bp = &state->saved[HL_CFI_BP];
	const struct hl_cfi_value *cfa = &state->cfa;

	if (ra->kind == HL_CFI_UNDEFINED)
		return HL_RULE_END;
	if (is_signal_frame)
		return HL_RULE_SIGNAL;
	if (cfa->kind != HL_CFI_OFFSET || (cfa->reg != DWARF_SP && cfa->reg != DWARF_X29) ||
	    state->saved[HL_CFI_SP].kind != HL_CFI_UNSPECIFIED ||
	    (bp->kind != HL_CFI_OFFSET && !is_kept(bp)) ||
	    (ra->kind != HL_CFI_OFFSET && !is_kept(ra)))
		return HL_RULE_UNSUPPORTED;
	enum hl_rule_kind kind = cfa->reg == DWARF_SP ? HL_RULE_SP : HL_RULE_BP;
	if (ra->kind != HL_CFI_OFFSET)
		return is_kept(bp) ? pack(kind, HL_BP_RA_IN_REGISTER, 0, 0, cfa->offset)
				   : HL_RULE_UNSUPPORTED;
	if (is_kept(bp))
		return pack(kind, HL_BP_SAME, 0, ra->offset, cfa->offset);
	return pack(kind, HL_BP_CFA, ra->offset - bp->offset, bp->offset, cfa->offset);
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
	struct hl_arch_plain step = hl_arch_plain_step(rule, frame->sp, frame->bp);
	uint64_t ra, bp = frame->bp;

	if (hl_rule_bp_of(rule) == HL_BP_RA_IN_REGISTER) {
		reads->unrepeatable = true;
		if (!context || step.cfa < frame->sp ||
		    !hl_step_read(walk, context + HL_UCONTEXT_X30, reads, &ra))
			return HL_STEP_LOST;
		return leave(frame, ra, step.cfa, bp);
	}
	if (step.cfa <= frame->sp || !hl_step_read(walk, step.ra_at, reads, &ra) ||
	    (step.bp_saved && !hl_step_read(walk, step.bp_at, reads, &bp)))
		return HL_STEP_LOST;
	return leave(frame, ra, step.cfa, bp);
}

/* ${reach}: how far outward of sp the record that x29 points at can be. */
static enum hl_arch_outcome step_frame_record(struct hl_walk *walk, struct hl_arch_frame *frame,
					      uint64_t reach, struct hl_arch_reads *reads)
{
	uint64_t bp, ra;

	if (frame->bp - frame->sp > reach || !hl_step_read(walk, frame->bp, reads, &bp) ||
	    !hl_step_read(walk, frame->bp + 8, reads, &ra))
		return HL_STEP_LOST;
	return leave(frame, ra, HL_ARCH_SP_BEYOND(frame->bp, bp), bp);
}

enum hl_arch_outcome hl_arch_step(struct hl_walk *walk, hl_rule rule, struct hl_arch_frame *frame,
				  uint64_t *interrupted_context, struct hl_arch_reads *ret_reads)
{
	uint64_t context = *interrupted_context;

	*interrupted_context = 0;
	switch (hl_rule_kind_of(rule)) {
	case HL_RULE_SP:
	case HL_RULE_BP:
		return step_by_cfa(walk, rule, frame, context, ret_reads);
	case HL_RULE_NONE: /* code that is generated, mostly: see x86_64 */
	case HL_RULE_DEREF_BP:
		return step_frame_record(walk, frame, HL_FRAME_POINTER_REACH, ret_reads);
	case HL_RULE_OTHER_STACK:
		if (!frame->bp)
			return HL_STEP_END;
		return step_frame_record(walk, frame, UINT64_MAX, ret_reads);
	case HL_RULE_SIGNAL:
		return hl_step_signal(walk, frame, interrupted_context, ret_reads);
	case HL_RULE_END:
		return HL_STEP_END;
	default:
		return HL_STEP_LOST;
	}
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
