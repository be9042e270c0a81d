/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How a rule is packed, and what a machine does with it: the same on each machine, but for what the parts stand for, which
 * unwind/arch.h says of its own.
 *
 * A rule, from the low bit:
 *   0-3    kind (enum hl_rule_kind)
 *   4-5    where the caller's frame pointer is (enum hl_rule_bp)
 *   6-11   extra: a small number, by the kind; 1 in HL_RULE_END_BEFORE
 *   12-23  offset of the saved frame pointer, in words of 8 bytes, signed
 *   24-47  offset of the CFA, in words of 8 bytes, signed
 */
#pragma once

#include "base/compiler.h"
#include "unwind/arch.h"
#include "unwind/cfi.h"

/* The numbers of SP and BP differ in bit 0 only, as those of DEREF_SP and DEREF_BP do, and HL_BP_SAME and HL_BP_CFA in bit 4 only: one
 * masked compare finds the frames that step_plain can do, nearly all. */
enum hl_rule_kind {
	HL_RULE_NONE = 0,	 /* no information */
	HL_RULE_SP = 2,		 /* CFA = sp + N */
	HL_RULE_BP = 3,		 /* CFA = bp + N */
	HL_RULE_DEREF_SP = 4,	 /* CFA = *(sp + N) + extra */
	HL_RULE_DEREF_BP = 5,	 /* CFA = *(bp + N) + extra */
	HL_RULE_PLT = 6,	 /* CFA = sp + 8 + ((pc & 15) >= extra) * 8 */
	HL_RULE_SIGNAL = 7,	 /* registers from the ucontext at sp */
	HL_RULE_END = 8,	 /* outermost frame */
	HL_RULE_UNSUPPORTED = 9, /* information that a rule cannot say */
	HL_RULE_REGISTER = 10,	 /* CFA = register extra + N; known only after a signal frame */
	/* The function has changed to another stack than the one that it was called on; bp is the
	 * frame pointer that was in force there. */
	HL_RULE_OTHER_STACK = 11,
};

enum hl_rule_bp {
	HL_BP_SAME = 0,	 /* bp is the caller's */
	HL_BP_CFA = 1,	 /* at CFA + N */
	HL_BP_AT_BP = 2, /* at bp + N */
	HL_BP_AT_SP = 3, /* at sp + N */
};

#define HL_RULE_BITS	   48
#define HL_RULE_PLAIN_MASK UINT64_C(0x2e)
#define HL_RULE_PLAIN	   UINT64_C(0x02)

/* Outermost frame, whose function begins at the next byte: no call returns there, so nothing lies
 * before it. */
#define HL_RULE_END_BEFORE (HL_RULE_END | UINT64_C(1) << 6)

static inline enum hl_rule_kind hl_rule_kind_of(hl_rule rule)
{
	return (enum hl_rule_kind)(rule & 15);
}

static inline enum hl_rule_bp hl_rule_bp_of(hl_rule rule)
{
	return (enum hl_rule_bp)(rule >> 4 & 3);
}

static inline int64_t hl_rule_extra(hl_rule rule)
{
	return (int64_t)(rule << 52) >> 58;
}

/* Whether the frame is named by the byte after its lookup pc: nobody called it, so its address is
 * that of its first instruction. */
static inline bool hl_rule_is_at_next(hl_rule rule)
{
	return hl_rule_kind_of(rule) == HL_RULE_SIGNAL || rule == HL_RULE_END_BEFORE;
}

/* In bytes. */
static inline int64_t hl_rule_bp_offset(hl_rule rule)
{
	return ((int64_t)(rule << 40) >> 52) * 8;
}

/* In bytes. */
static inline int64_t hl_rule_cfa_offset(hl_rule rule)
{
	return ((int64_t)(rule << 16) >> 40) * 8;
}

/* CFA = sp + ${bytes}, with the saved frame pointer and the return address right below. */
static inline hl_rule hl_arch_rule_of_frame(uint64_t bytes)
{
	return HL_RULE_SP | HL_RULE_SAVED_RECORD | bytes / 8 << 24;
}

/* The registers of a frame that a walk carries. */
struct hl_arch_frame {
	uint64_t pc; /* lookup pc */
	uint64_t sp, bp;
};

/* A step whose kind is plain: what it reads, before anything is read. */
struct hl_arch_plain {
	uint64_t cfa;
	uint64_t ra_at; /* where the return address is */
	uint64_t bp_at; /* where the caller's bp is; ra_at when bp was not saved */
	bool bp_saved;
};

/* Without branches: which of the cases a frame is cannot be predicted. */
static inline struct hl_arch_plain hl_arch_plain_step(hl_rule rule, uint64_t sp, uint64_t bp)
{
	struct hl_arch_plain step;

	step.cfa = (rule & 1 ? bp : sp) + (uint64_t)hl_rule_cfa_offset(rule);
	step.bp_saved = rule & 0x10;
	uint64_t saved_at = step.cfa + (uint64_t)hl_rule_bp_offset(rule);
	step.ra_at = HL_ARCH_PLAIN_RETURN_AT(rule, step.cfa, saved_at);
	step.bp_at = step.bp_saved ? saved_at : step.ra_at;
	return step;
}

static inline bool hl_arch_is_plain(hl_rule rule)
{
	return (rule & HL_RULE_PLAIN_MASK) == HL_RULE_PLAIN;
}

/* Whether stepping out of a frame depends on its bp otherwise than by handing it on. */
static inline bool hl_arch_uses_bp(hl_rule rule)
{
	enum hl_rule_kind kind = hl_rule_kind_of(rule);

	return kind == HL_RULE_BP || kind == HL_RULE_DEREF_BP || kind == HL_RULE_NONE ||
	       kind == HL_RULE_OTHER_STACK || hl_rule_bp_of(rule) == HL_BP_AT_BP;
}

/* The code at a module's entry point, where nothing lies outward: the loader's has no rules. */
#define HL_ENTRY_CODE_BYTES 128u

/* A frame pointer farther away is a register put to other use, or one of another stack. */
#define HL_FRAME_POINTER_REACH (UINT64_C(512) << 10)

/* What a step looks for: ${base}, or the word that is stored there, and ${addend} more. */
struct hl_rule_place {
	uint64_t base, addend;
	bool is_stored;
};

/* Where the CFA of ${frame} is. ${context}: of the signal that interrupted the frame, or 0. False: it is not known. */
static inline bool hl_rule_find_cfa(hl_rule rule, const struct hl_arch_frame *frame,
				    uint64_t context, struct hl_rule_place *ret_place)
{
	uint64_t offset = (uint64_t)hl_rule_cfa_offset(rule),
		 base = rule & 1 ? frame->bp : frame->sp;
	int64_t extra = hl_rule_extra(rule);

	switch (hl_rule_kind_of(rule)) {
	case HL_RULE_SP:
	case HL_RULE_BP:
		*ret_place = (struct hl_rule_place){base, offset, false};
		return true;
	case HL_RULE_PLT:
		*ret_place = (struct hl_rule_place){
			base, (int64_t)(frame->pc & 15) >= extra ? 16 : 8, false};
		return true;
	case HL_RULE_DEREF_SP:
	case HL_RULE_DEREF_BP:
		*ret_place = (struct hl_rule_place){base + offset, (uint64_t)extra * 8, true};
		return true;
	case HL_RULE_REGISTER:
		base = context + hl_arch_ucontext_offset(extra);
		*ret_place = (struct hl_rule_place){base, offset, true};
		return context;
	default:
		return false;
	}
}

/* Where the bp of the caller of ${frame}, whose CFA is ${cfa}, is. */
static inline struct hl_rule_place hl_rule_find_bp(hl_rule rule, const struct hl_arch_frame *frame,
						   uint64_t cfa)
{
	enum hl_rule_bp bp = hl_rule_bp_of(rule);
	uint64_t base = bp == HL_BP_CFA ? cfa : bp == HL_BP_AT_SP ? frame->sp : frame->bp;
	uint64_t offset = bp == HL_BP_SAME ? 0 : (uint64_t)hl_rule_bp_offset(rule);

	return (struct hl_rule_place){base + offset, 0, bp != HL_BP_SAME};
}

/*
 * The caller ${frame} after a step that guesses sp (HL_ARCH_GUESSES_SP), by the frame record at ${record}; 0: after another. It was taken to
 * have its own record at sp. gcc puts protected arrays below that; bp points at it all the same, and ${rule} says how far above sp it is.
 */
static inline void hl_rule_correct_sp(hl_rule rule, uint64_t record, struct hl_arch_frame *frame)
{
	uint64_t cfa = frame->sp + (uint64_t)hl_rule_cfa_offset(rule);
	uint64_t above = hl_rule_find_bp(rule, frame, cfa).base - frame->sp;

	if (record && hl_rule_kind_of(rule) == HL_RULE_SP && frame->sp == frame->bp &&
	    above <= frame->bp - record - 16)
		frame->sp -= above;
}

struct hl_walk;

enum hl_arch_outcome {
	HL_STEP_OUT,  /* ${frame} is now the caller */
	HL_STEP_END,  /* the frame is the outermost one */
	HL_STEP_LOST, /* cannot be walked further */
};

/* What a step read beside the registers. */
struct hl_arch_reads {
	const uint64_t *word[2];
	uint64_t value[2];
	unsigned count;
	bool unrepeatable; /* it depended on more than that: not to be remembered */
};

/*
 * Steps out of ${frame} by a rule of any kind. ${interrupted_context} is the ucontext that a signal
 * frame just left held, 0 for other frames; set for the next step. Reads only addresses that
 * hl_memory_is_readable allows.
 */
enum hl_arch_outcome hl_step(struct hl_walk *walk, hl_rule rule, struct hl_arch_frame *frame,
			     uint64_t *interrupted_context, struct hl_arch_reads *ret_reads);

/* ---- rule.c: from states to rules ---- */

/* The fields of a rule before packing; offsets in bytes. */
struct hl_rule_parts {
	enum hl_rule_kind kind;
	enum hl_rule_bp bp;
	int64_t extra, bp_offset, cfa_offset;
};

/* "Not supported" when the layout has no place for them. */
hl_rule hl_rule_pack(const struct hl_rule_parts *parts);

/* Where the CFA and the caller's bp are; false: a rule cannot say it. */
bool hl_rule_set_cfa(struct hl_rule_parts *parts, const struct hl_cfi_value *cfa);
bool hl_rule_set_bp(struct hl_rule_parts *parts, const struct hl_cfi_value *bp);

/* An expression of the form: register + offset, maybe dereferenced, maybe plus a constant. */
struct hl_rule_expression {
	unsigned reg;
	int64_t offset;
	bool dereferenced;
	int64_t addend; /* after the dereference */
};

/* False: it has another form. */
bool hl_rule_read_expression(const struct hl_cfi_value *value, struct hl_rule_expression *ret);

/* ---- unwind/arch.c of the machine ---- */

/* Packs a state; "not supported" when the layout has no place for it. */
hl_rule hl_arch_rule(const struct hl_cfi_state *state, bool is_signal_frame);
