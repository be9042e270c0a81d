/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What unwinding on x86-64 is: the parts of rules, how a plain one steps out of a frame, contexts of signals.
 *
 * In a rule, extra is an addend after a dereference, a register's number or a threshold in a PLT. The return address
 * lies at CFA - 8 always; frames for which that is not so are "not supported".
 */
#pragma once

#include "unwind/cfi.h"

/* DWARF numbers, of the return address' column as well. */
#define HL_ARCH_SP_REGISTER	7u
#define HL_ARCH_BP_REGISTER	6u
#define HL_ARCH_RETURN_REGISTER 16u

#define HL_ARCH_CALLERS_HAVE_RECORDS false

/* What push %rbp; mov %rsp,%rbp makes: CFA = rbp + 16, and the saved rbp below the return address. */
#define HL_RULE_SAVED_RECORD  ((uint64_t)HL_BP_CFA << 4 | UINT64_C(0xffe) << 12)
#define HL_RULE_FRAME_POINTER (HL_RULE_BP | HL_RULE_SAVED_RECORD | UINT64_C(2) << 24)

/* All frames with a frame pointer have it there, so nothing needs to be said. */
#define HL_RULE_OUTER_RECORD HL_RULE_NONE

/* CFA = rsp + ${bytes}, rbp is the caller's. */
#define hl_arch_rule_of_leaf_frame(bytes) (HL_RULE_SP | (bytes) / 8 << 24)

/* Of a plain rule: where the return address is. ${saved_at}: where the rule has the saved rbp. */
#define HL_ARCH_PLAIN_RETURN_AT(rule, cfa, saved_at) ((cfa)-8)

/* Of walks of other processes' stacks (src/bpf, src/watch): where the return address of a frame is stored, or whether a register
 * holds it, which is known of interrupted frames. Whether bp leads to a frame record and no more is known. Whether a step guesses sp, and its guess. */
#define HL_ARCH_RETURN_AT(rule, cfa)	 ((cfa)-8)
#define HL_ARCH_RETURN_IN_REGISTER(rule) false
#define HL_ARCH_IS_RECORD(rule)		 false
#define HL_ARCH_GUESSES_SP(rule)	 false
#define HL_ARCH_SP_BEYOND(record, outer) ((record) + 16)

/* Operations of call frame programs without operands, and with nothing that a walk needs. */
#define hl_arch_cfi_is_mark(operation) ((void)(operation), false)

/* Call frame information says it of trampolines, and of stubs of the procedure linkage table: code is not searched for others. */
#define HL_RULE_STUB			     HL_RULE_NONE
#define HL_TRAMPOLINE_CODE_BYTES	     0u
#define HL_TRAMPOLINE_BYTES		     1u
#define hl_arch_find_trampoline(code, bytes) ((void)(code), (bytes))
#define hl_arch_returns_from_signal(address) ((void)(address), false)
#define hl_arch_has_no_frame(address)	     ((void)(address), false)

/* Offsets in the kernel's ucontext: uc_flags, uc_link, uc_stack, then the registers r8 r9 r10 r11
 * r12 r13 r14 r15 rdi rsi rbp rbx rdx rax rcx rsp rip (struct sigcontext_64). */
enum hl_ucontext_offset {
	HL_UCONTEXT_RBP = 120,
	HL_UCONTEXT_RSP = 160,
	HL_UCONTEXT_RIP = 168,
};

/* The register with DWARF number 0 .. 15. BPF has no place for a table: the bytes of the
 * constant are the words at which rax rdx rcx rbx rsi rdi rbp rsp are; r8 .. r15 follow each other.
 */
static inline uint64_t hl_arch_ucontext_offset(int64_t dwarf_register)
{
	uint64_t number = (uint64_t)dwarf_register & 15;
	uint64_t words = UINT64_C(0x140f0d0e10131112);

	return (number < 8 ? words >> 8 * number & 0xff : number - 3) * 8;
}
