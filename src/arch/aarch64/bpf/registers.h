/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Registers of aarch64 as BPF programs see them: those of user space, what functions are called with, and what a walk of the
 * stack begins with.
 */
#pragma once

/* At the start of the kernel's struct pt_regs, in the order of ptrace's; all of bpf_user_pt_regs_t. */
#define HL_REGS_WORDS 34

#ifdef __bpf__
#include "base/frame_key.h"

#include <stdbool.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct pt_regs {
	unsigned long regs[31], sp, pc, pstate;
	int syscallno; /* -1 outside of a system call */
};

struct thread_struct {
	struct {
		unsigned long tp_value;
	} uw;
};

#pragma clang attribute pop

/* A return address as it lies on a stack or in a register, as the address that it is: without its signature. */
#define HL_CODE_ADDRESS(word) (HL_FRAME_PC_MASK & (word))

#define HL_BPF_USER_END	      (UINT64_C(1) << 48)
#define HL_THREAD_POINTER(of) ((of)->uw.tp_value)

#define HL_REGS_PC(regs)      ((regs)->pc)
#define HL_REGS_SP(regs)      ((regs)->sp)
#define HL_REGS_BP(regs)      ((regs)->regs[29])
#define HL_REGS_LINK(regs)    HL_CODE_ADDRESS((regs)->regs[30])
#define HL_REGS_IN_CALL(regs) ((regs)->syscallno != -1)
#define HL_REGS_RESULT(regs)  ((regs)->regs[0])
/* Of a function that was just entered, from 0. Probes are set where nothing has moved them. */
#define HL_REGS_ARGUMENT(regs, number)     \
	((number) == 0	 ? (regs)->regs[0] \
	 : (number) == 1 ? (regs)->regs[1] \
	 : (number) == 2 ? (regs)->regs[2] \
			 : (regs)->regs[3])
#define HL_REGS_NUMBERED(CASE)

/* The return address of a function that was just entered is in x30. */
#define HL_REGS_CALLER(regs)	      (HL_REGS_LINK(regs) - 1)
#define HL_CALLER_IS_ON_STACK	      false
#define HL_REGS_READ_RETURN(regs, to) (*(to) = HL_REGS_LINK(regs), 0)
#define HL_REGS_ENTRY_SP(regs)	      ((regs)->sp)

/*
 * Whether a function that was entered with stack pointer ${entry_sp} has yet to return to ${address}: then this is in x30, or in a
 * frame record below. One that stores its return address elsewhere is taken to have returned.
 */
#define HL_RECORDS_MAX 16
#define HL_REGS_RETURN_TO(regs, entry_sp, address) \
	hl_return_to(HL_REGS_LINK(regs), HL_REGS_BP(regs), entry_sp, address)
static __attribute__((noinline)) bool hl_return_to(uint64_t link, uint64_t bp, uint64_t entry_sp,
						   uint64_t address)
{
	uint64_t record[2] = {bp, link};

	for (int i = 0; i < HL_RECORDS_MAX; i++) {
		if (HL_CODE_ADDRESS(record[1]) == address)
			return true;
		if (record[0] >= entry_sp ||
		    bpf_probe_read_user(record, sizeof(record), (const void *)record[0]))
			return false;
	}
	return false;
}

/* What the frame that a signal interrupted needs of ${ucontext}: x30. */
#define HL_KEEP_CONTEXT(walk, ucontext) \
	hl_read_word(walk, (ucontext) + HL_UCONTEXT_X30, &(walk)->context)
#endif
