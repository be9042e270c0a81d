/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Registers of x86-64 as BPF programs see them: those of user space, what functions are called with, and what a walk of the
 * stack begins with.
 */
#pragma once

/* At the start of the kernel's struct pt_regs, in the order of ptrace's; all of bpf_user_pt_regs_t. */
#define HL_REGS_WORDS 21

#ifdef __bpf__
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
	unsigned long orig_ax; /* number of the system call; -1 outside of one */
	unsigned long ip, cs, flags, sp, ss;
};

struct thread_struct {
	unsigned long fsbase;
};

#pragma clang attribute pop

#define HL_BPF_USER_END	      (UINT64_C(1) << 47)
#define HL_THREAD_POINTER(of) ((of)->fsbase)

#define HL_REGS_PC(regs)      ((regs)->ip)
#define HL_REGS_SP(regs)      ((regs)->sp)
#define HL_REGS_BP(regs)      ((regs)->bp)
#define HL_REGS_LINK(regs)    UINT64_C(0) /* the return address, where a register may hold it */
#define HL_REGS_IN_CALL(regs) ((long)(regs)->orig_ax != -1)
#define HL_REGS_RESULT(regs)  ((regs)->ax)
/* Of a function that was just entered, from 0; and where they may have been moved to. */
#define HL_REGS_ARGUMENT(regs, number) \
	((number) == 0	 ? (regs)->di  \
	 : (number) == 1 ? (regs)->si  \
	 : (number) == 2 ? (regs)->dx  \
			 : (regs)->cx)
/* clang-format off */
#define HL_REGS_NUMBERED(CASE) \
	CASE(0, ax) CASE(1, cx) CASE(2, dx) CASE(3, bx) CASE(6, si) CASE(7, di) CASE(8, r8) CASE(9, r9) \
	CASE(10, r10) CASE(11, r11) CASE(12, r12) CASE(13, r13) CASE(14, r14) CASE(15, r15)
/* clang-format on */

/* The return address of a function that was just entered is on the stack: into *${to}, or what is not 0. */
#define HL_REGS_CALLER(regs)  UINT64_C(0)
#define HL_CALLER_IS_ON_STACK true
#define HL_REGS_READ_RETURN(regs, to) \
	bpf_probe_read_user((to), sizeof(*(to)), (const void *)(regs)->sp)
/* The stack pointer that a function was entered with that has returned. */
#define HL_REGS_ENTRY_SP(regs) ((regs)->sp - 8)

/* Whether a function that was entered with stack pointer ${entry_sp} has yet to return to ${address}. */
#define HL_REGS_RETURN_TO(regs, entry_sp, address)                                       \
	({                                                                               \
		uint64_t slot_ = 0;                                                      \
		!bpf_probe_read_user(&slot_, sizeof(slot_), (const void *)(entry_sp)) && \
			slot_ == (address);                                              \
	})

/* A return address as it lies on a stack, as the address that it is. */
#define HL_CODE_ADDRESS(word) (word)
/* What the frame that a signal interrupted needs of ${context}, its ucontext. */
#define HL_KEEP_CONTEXT(walk, ucontext) ((walk)->context = (ucontext), true)
#endif
