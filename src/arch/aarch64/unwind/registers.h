/* SPDX-License-Identifier: BSD-2-Clause */
/* The registers of aarch64 that functions keep for their callers. */
#pragma once

#include <stdint.h>

/* The registers that a function keeps for its caller, x19 to x28; x29 last, which hooks get another way. */
enum hl_saved_register {
	HL_SAVED_X19,
	HL_SAVED_FRAME = HL_SAVED_X19 + 10, /* the frame pointer on any machine */
	HL_SAVED_COUNT,
};

/* enum hl_cfi_tracked by numbers in DWARF (DWARF for the Arm 64-bit Architecture, section 4.1): one more; 0: not tracked. */
#define HL_CFI_BY_DWARF                                                                           \
	[19] = HL_SAVED_X19 + 1, HL_SAVED_X19 + 2, HL_SAVED_X19 + 3, HL_SAVED_X19 + 4,            \
	HL_SAVED_X19 + 5, HL_SAVED_X19 + 6, HL_SAVED_X19 + 7, HL_SAVED_X19 + 8, HL_SAVED_X19 + 9, \
	HL_SAVED_X19 + 10, [29] = HL_SAVED_FRAME + 1, HL_CFI_RA + 1, HL_CFI_SP + 1

/* The first ten as they were when the function was entered: the compiler saves them where it likes, so they are unknown. */
#define HL_SAVED_HERE() ((const uint64_t *)NULL)

/* Whether hooks hand their callers' on. */
#define HL_SAVED_HANDED_ON 0

/* From a frame's CFA to its return address, in words; 0: that depends on the function. */
#define HL_SAVED_RETURN_WORD 0

#ifndef HL_ATTACHED /* the stubs of the image have their frame records at the end of their frames */
/*
 * The caller of a hook, for functions compiled with a frame pointer, which lives until the last of these is used: [x29]
 * is the caller's x29 and [x29 + 8] the return address. Where the caller's stack pointer is depends on the function.
 * ${frame} is x29, and stands for the caller's until HL_HOOK_OUTER() reads that.
 */
#define HL_HOOK_SP(frame)     ((void)(frame), (uint64_t)__builtin_dwarf_cfa())
#define HL_HOOK_BP(frame)     (frame)
#define HL_HOOK_PC(sp, bp)    ((void)(sp), ((const uint64_t *)(bp))[1])
#define HL_HOOK_OUTER(sp, bp) (*(const uint64_t *)(bp))
#endif
