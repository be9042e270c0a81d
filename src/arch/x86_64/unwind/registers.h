/* SPDX-License-Identifier: BSD-2-Clause */
/* The registers of x86-64 that functions keep for their callers. */
#pragma once

#include <stdint.h>

/* Registers whose saved places the call frame machine tracks; the others are skipped over. */
enum hl_cfi_tracked {
	HL_CFI_BP,
	HL_CFI_SP,
	HL_CFI_RA,
	HL_CFI_RBX,
	HL_CFI_R12,
	HL_CFI_R13,
	HL_CFI_R14,
	HL_CFI_R15,
	HL_CFI_TRACKED,
};

/* The registers that a function keeps for its caller; rbp last, which hooks get another way. */
enum hl_saved_register {
	HL_SAVED_RBX,
	HL_SAVED_R12,
	HL_SAVED_R13,
	HL_SAVED_R14,
	HL_SAVED_R15,
	HL_SAVED_RBP,
	HL_SAVED_COUNT,
	HL_SAVED_FRAME = HL_SAVED_RBP, /* the frame pointer on any machine */
};

/* Of each of them the other number. */
#define HL_SAVED_TRACKED                                                  \
	{                                                                 \
		[HL_SAVED_RBX] = HL_CFI_RBX, [HL_SAVED_R12] = HL_CFI_R12, \
		[HL_SAVED_R13] = HL_CFI_R13, [HL_SAVED_R14] = HL_CFI_R14, \
		[HL_SAVED_R15] = HL_CFI_R15, [HL_SAVED_RBP] = HL_CFI_BP,  \
	}

/*
 * The first five as they were when the function was entered that this is expanded in: the compiler is
 * made to push them right below the frame pointer. For functions compiled with one; expand it first.
 */
#define HL_SAVED_HERE()                                                       \
	({                                                                    \
		__asm__ volatile("" : : : "rbx", "r12", "r13", "r14", "r15"); \
		(const uint64_t *)__builtin_frame_address(0) - HL_SAVED_RBP;  \
	})

/* Whether hooks hand their callers' on. */
#define HL_SAVED_HANDED_ON 1

/* From a frame's CFA to its return address, in words; 0: that depends on the function. */
#define HL_SAVED_RETURN_WORD (-1)

/*
 * The caller of a hook, for functions compiled with a frame pointer: [rbp] is the caller's rbp, [rbp + 8] the return
 * address, and rbp + 16 the caller's stack pointer after the return. ${frame} is rbp.
 */
#define HL_HOOK_SP(frame)     ((frame) + 16)
#define HL_HOOK_BP(frame)     (*(uint64_t *)(frame))
#define HL_HOOK_PC(sp, bp)    (((const uint64_t *)(sp))[-1])
#define HL_HOOK_OUTER(sp, bp) (bp)
