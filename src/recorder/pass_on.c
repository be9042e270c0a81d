/* SPDX-License-Identifier: BSD-2-Clause */
/* Hooks that pass a call on by a jump, as if they were not there. Not all compilers have naked functions for all machines. */
#include "recorder/pass_on.h"

#include "recorder/libc.h"

#include <sys/syscall.h>

#define TEXT_OF(number) #number
#define NUMBER(number)	TEXT_OF(number)

#define FUNCTION(NAME, CODE)                                                \
	__asm__(".text\n"                                                   \
		".globl " #NAME "\n"                                        \
		".type " #NAME ", %function\n" #NAME ":\n\t"                \
		".cfi_startproc\n\t" HL_LANDING_PAD CODE ".cfi_endproc\n\t" \
		".size " #NAME ", . - " #NAME "\n")

/* The loader looks for libraries where its caller's would be, so the call is passed on by a jump. A namespace brings a libc
 * of its own, which nothing is put before. */
FUNCTION(dlopen, HL_CALL("hl_hooks_note_library") HL_JUMP("hl_libc_dlopen"));
FUNCTION(dlmopen, HL_CALL("hl_hooks_note_namespace") HL_JUMP("hl_libc_dlmopen"));

/* May be called in any way, so nothing but the registers of calls between modules is touched. */
FUNCTION(syscall,
	 HL_JUMP_IF(NUMBER(__NR_execve), "hl_hooks_exec_by_number")
		 HL_JUMP_IF(NUMBER(__NR_execveat), "hl_hooks_exec_by_number")
			 HL_JUMP_IF(NUMBER(__NR_seccomp), "hl_hooks_filter_by_number")
				 HL_JUMP_IF(NUMBER(__NR_prctl), "hl_hooks_filter_by_number")
					 HL_JUMP("hl_libc_syscall"));
