/* SPDX-License-Identifier: BSD-2-Clause */
/* The registers of x86-64 that functions keep for their callers. */
#pragma once

#include <stdint.h>

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

/* enum hl_cfi_tracked by numbers in DWARF (System V ABI x86-64, figure 3.36): one more; 0: not tracked. */
#define HL_CFI_BY_DWARF                                                            \
	[3] = HL_SAVED_RBX + 1, [6] = HL_SAVED_RBP + 1, [7] = HL_CFI_SP + 1,       \
	[12] = HL_SAVED_R12 + 1, [13] = HL_SAVED_R13 + 1, [14] = HL_SAVED_R14 + 1, \
	[15] = HL_SAVED_R15 + 1, [16] = HL_CFI_RA + 1

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
