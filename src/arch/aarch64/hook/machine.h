/* SPDX-License-Identifier: BSD-2-Clause */
/* What entering a process needs to know of aarch64. */
#pragma once

#include "base/machine.h"

#include <elf.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <ucontext.h>

/* ---- remote calls ---- */

#define HL_VECTOR_SETS NT_ARM_SVE, NT_PRFPREG
/* A system call clears what SVE has beyond V0 to V31: Documentation/arch/arm64/sve.rst. */
#define HL_CALLS_KEEP_VECTORS false
/* The vector registers lie in it. */
#define HL_REMOTE_FRAME_BYTES (128 + sizeof(ucontext_t) + 16)

/* svc #0; ret; mov x8, #139; svc #0 */
static const uint8_t hl_gadgets_planted[] = {0x01, 0,	 0,    0xd4, 0xc0, 0x03, 0x5f, 0xd6,
					     0x68, 0x11, 0x80, 0xd2, 0x01, 0,	 0,    0xd4};

/*
 * A signal frame on aarch64 Linux, from the program counter in its struct sigcontext on: that, the state, and the first
 * record behind them, which the kernel always makes of the vector registers. Source: arch/arm64/kernel/signal.c.
 */
#define HL_SIGNAL_FRAME_PC    0
#define HL_SIGNAL_FRAME_WORDS 4

/* ---- patches ---- */

#define HL_PATCH_BYTES	    4u				       /* b */
#define HL_FAR_JUMP	    0x50, 0, 0, 0x58, 0, 2, 0x1f, 0xd6 /* ldr x16, of the word behind it; br x16 */
#define HL_ENTRY_MAX	    4u
#define HL_TRAMPOLINE_MAX   40u
#define HL_WAY_MAX	    24u
#define HL_PATCH_REACH	    (UINT64_C(1) << 27)
#define HL_PATCH_REACH_TEXT "128 MiB"
/* brk #5, which the kernel writes for a uprobe. */
#define HL_UPROBE_BYTES 0xa0, 0, 0x20, 0xd4

/* ---- libc and the kernel ---- */

#define HL_VDSO_CLOCK "__kernel_clock_gettime"

#define hl_reads_thread_pointer()  true
#define HL_THREAD_POINTER_NAME	   "gettid"
#define HL_THREAD_POINTER_CALL	   SYS_gettid
#define HL_THREAD_POINTER_ARGUMENT 0

#define HL_CLOCK_IS_FREE true /* before Linux 6.12 */

#define HL_RELOCATION_SLOT     R_AARCH64_JUMP_SLOT
#define HL_RELOCATION_DATA     R_AARCH64_GLOB_DAT
#define HL_RELOCATION_WORD     R_AARCH64_ABS64
#define HL_RELOCATION_INDIRECT R_AARCH64_IRELATIVE
