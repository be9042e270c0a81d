/* SPDX-License-Identifier: BSD-2-Clause */
/* What entering a process needs to know of x86-64. */
#pragma once

#include "base/machine.h"

#include <asm/hwcap2.h>
#include <asm/prctl.h>
#include <elf.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <ucontext.h>

/* ---- remote calls ---- */

#define HL_VECTOR_SETS NT_X86_XSTATE
/* Whether a system call leaves vector registers as they were. */
#define HL_CALLS_KEEP_VECTORS true
/* What a frame has beside the vector registers, with room to align both parts. */
#define HL_REMOTE_FRAME_BYTES (2 * sizeof(uint64_t) + sizeof(ucontext_t) + 128)

/* syscall; ret; xchg %eax, %edx; ret; mov $15, %eax; syscall */
static const uint8_t hl_gadgets_planted[] = {0x0f, 0x05, 0xc3, 0x92, 0xc3, 0xb8,
					     0x0f, 0,	 0,    0,    0x0f, 0x05};

/*
 * A signal frame on x86-64 Linux: the address of the restorer, then the ucontext. rip is the 17th of
 * its registers. Source: arch/x86/include/asm/sigframe.h and uapi/asm/sigcontext.h of the kernel.
 */
#define HL_SIGNAL_FRAME_PC    22
#define HL_SIGNAL_FRAME_WORDS (HL_SIGNAL_FRAME_PC + 1)

/* ---- patches ---- */

#define HL_PATCH_BYTES	    5u			   /* jmp rel32 */
#define HL_FAR_JUMP	    0xff, 0x25, 0, 0, 0, 0 /* jmp *(%rip), of the word behind it */
#define HL_ENTRY_MAX	    24u
#define HL_TRAMPOLINE_MAX   128u
#define HL_WAY_MAX	    32u
#define HL_PATCH_REACH	    (UINT64_C(1) << 31)
#define HL_PATCH_REACH_TEXT "2 GiB"
/* The first byte of a uprobe, which the kernel has written. */
#define HL_UPROBE_BYTES 0xcc

/* ---- libc and the kernel ---- */

#define HL_VDSO_CLOCK "__vdso_clock_gettime"

/* Whether programs may read the thread pointer by an instruction; else the recorder asks the kernel, by this call. */
static inline bool hl_reads_thread_pointer(void)
{
	return getauxval(AT_HWCAP2) & HWCAP2_FSGSBASE;
}
#define HL_THREAD_POINTER_NAME	   "arch_prctl"
#define HL_THREAD_POINTER_CALL	   SYS_arch_prctl
#define HL_THREAD_POINTER_ARGUMENT ARCH_GET_FS

/* Whether reading the clock cannot be forbidden where the kernel does not know PR_GET_TSC. */
#define HL_CLOCK_IS_FREE false

#define HL_RELOCATION_SLOT     R_X86_64_JUMP_SLOT
#define HL_RELOCATION_DATA     R_X86_64_GLOB_DAT
#define HL_RELOCATION_WORD     R_X86_64_64
#define HL_RELOCATION_INDIRECT R_X86_64_IRELATIVE
