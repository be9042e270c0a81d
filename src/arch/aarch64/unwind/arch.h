/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What unwinding on aarch64 is: the parts of rules, how a plain one steps out of a frame, contexts of signals.
 *
 * A call leaves its return address in x30, which a function that calls others stores beside x29, as a frame record, at any
 * place of its frame. In a rule, extra is the distance from the saved x29 to the saved x30 in words; where x29 is not saved,
 * the offset of the former is that of x30. A stored return address may be signed (PAC): hl_machine_code_address() drops the
 * signature, so whether it is need not be known.
 */
#pragma once

#include "unwind/cfi.h"

/* DWARF numbers, of the return address' column as well. */
#define HL_ARCH_SP_REGISTER	31u
#define HL_ARCH_BP_REGISTER	29u
#define HL_ARCH_RETURN_REGISTER 30u

/* x30 holds the return address, as in functions that call nothing: known only after a signal frame. */
#define HL_BP_RA_IN_REGISTER HL_BP_AT_BP

/* x29 points at a frame record, which does not say where its frame ends. The caller's own record mostly lies where its stack
 * pointer is, as gcc has it, or its rule does not use that, as clang's; else hl_rule_correct_sp() finds it. */
#define HL_RULE_FRAME_POINTER HL_RULE_DEREF_BP
#define HL_ARCH_CALLERS_HAVE_RECORDS \
	true /* musl's functions, of which nothing else is known, too */

/* The frame record lies at the end of the frame, as in code that runtimes generate: CFA = x29 + 16. */
#define HL_RULE_SAVED_RECORD ((uint64_t)HL_BP_CFA << 4 | UINT64_C(1) << 6 | UINT64_C(0xffe) << 12)
#define HL_RULE_OUTER_RECORD (HL_RULE_BP | HL_RULE_SAVED_RECORD | UINT64_C(2) << 24)

/* Of a frame without a record: not known here. */
#define hl_arch_rule_of_leaf_frame(bytes) ((void)(bytes), HL_RULE_UNSUPPORTED)

/* Of a plain rule: where the return address is. ${saved_at}: where the rule has the saved x29. */
#define HL_ARCH_PLAIN_RETURN_AT(rule, cfa, saved_at) \
	((saved_at) + (uint64_t)hl_rule_extra(rule) * 8)

/* Of walks of other processes' stacks (src/bpf, src/watch): where the return address of a frame is stored, or whether a register
 * holds it, which is known of interrupted frames. Whether bp leads to a frame record and no more is known. Whether a step guesses sp, and its guess. */
#define HL_ARCH_RETURN_AT(rule, cfa)                                                             \
	((cfa) - (uint64_t)(hl_rule_bp_of(rule) == HL_BP_AT_SP ? hl_rule_cfa_offset(rule) : 0) + \
	 (uint64_t)(hl_rule_bp_offset(rule) + hl_rule_extra(rule) * 8))
#define HL_ARCH_RETURN_IN_REGISTER(rule) (hl_rule_bp_of(rule) == HL_BP_RA_IN_REGISTER)
#define HL_ARCH_IS_RECORD(rule)		 (hl_rule_kind_of(rule) == HL_RULE_DEREF_BP)
#define HL_ARCH_GUESSES_SP(rule)                                             \
	(hl_rule_kind_of(rule) == HL_RULE_NONE || HL_ARCH_IS_RECORD(rule) || \
	 hl_rule_kind_of(rule) == HL_RULE_OTHER_STACK)
#define HL_ARCH_SP_BEYOND(record, outer) \
	((outer) - (record)-17 < HL_FRAME_POINTER_REACH ? (outer) : (record) + 16)

/* Where the kernel puts a signal's registers, from the stack pointer of its handler's caller: siginfo_t has 128 bytes,
 * struct sigcontext lies 176 behind the beginning of the ucontext, x0 8 bytes within. */
enum hl_ucontext_offset {
	HL_UCONTEXT_X0 = 128 + 176 + 8,
	HL_UCONTEXT_RBP = HL_UCONTEXT_X0 + 29 * 8,
	HL_UCONTEXT_X30 = HL_UCONTEXT_X0 + 30 * 8,
	HL_UCONTEXT_RSP = HL_UCONTEXT_X0 + 31 * 8,
	HL_UCONTEXT_RIP = HL_UCONTEXT_X0 + 32 * 8,
};

/* The register with DWARF number 0 .. 31. */
static inline uint64_t hl_arch_ucontext_offset(int64_t dwarf_register)
{
	return HL_UCONTEXT_X0 + ((uint64_t)dwarf_register & 31) * 8;
}

/* Whether the operation of a call frame program has no operand, and nothing that a walk needs: whether return addresses are
 * signed from here on (DW_CFA_AARCH64_negate_ra_state, and the same with the program counter). */
static inline bool hl_arch_cfi_is_mark(unsigned operation)
{
	return operation == 0x2c || operation == 0x2d;
}

/* Stubs of the procedure linkage table leave x30 as it was. */
#define HL_RULE_STUB (HL_RULE_SP | (uint64_t)HL_BP_RA_IN_REGISTER << 4)

/* Whether that holds where a thread was interrupted, in a stub or elsewhere; 64 bytes from ${address} on can be read. */
bool hl_arch_has_no_frame(uint64_t address);

/* Of a file whose code is searched for what signal handlers return to: the vDSO's, a C library's. Where that begins, or ${bytes}. */
#define HL_TRAMPOLINE_CODE_BYTES (4u << 20)
#define HL_TRAMPOLINE_BYTES	 8u
size_t hl_arch_find_trampoline(const uint8_t *code, size_t bytes);

/* Whether what returns to ${address} is a signal's handler: no call frame information says so. */
bool hl_arch_returns_from_signal(uint64_t address);
