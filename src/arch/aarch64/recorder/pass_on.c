/* SPDX-License-Identifier: BSD-2-Clause */
/* Hooks that pass a call on by a jump, as if they were not there. gcc has no naked functions for this machine. */
#include "base/compiler.h"
#include "recorder/libc.h"

#include <sys/syscall.h>

#define TEXT_OF(number) #number
#define NUMBER(number)	TEXT_OF(number)
/* hint 34: bti c, so that a library whose pages are guarded can be called through a pointer. */
#define BEGIN(NAME)                                  \
	".globl " #NAME "\n"                         \
	".type " #NAME ", %function\n" #NAME ":\n\t" \
	".cfi_startproc\n\t"                         \
	"hint #34\n\t"
#define JUMP(POINTER)                            \
	"adrp x16, " #POINTER "\n\t"             \
	"ldr x16, [x16, :lo12:" #POINTER "]\n\t" \
	"br x16\n\t"
#define END(NAME)          \
	".cfi_endproc\n\t" \
	".size " #NAME ", . - " #NAME "\n"

/* Calls NOTE before that, with nothing lost of three arguments. */
#define CALL_AND_JUMP(NOTE, POINTER)    \
	"stp x29, x30, [sp, #-48]!\n\t" \
	".cfi_def_cfa_offset 48\n\t"    \
	".cfi_offset x29, -48\n\t"      \
	".cfi_offset x30, -40\n\t"      \
	"mov x29, sp\n\t"               \
	"stp x0, x1, [sp, #16]\n\t"     \
	"str x2, [sp, #32]\n\t"         \
	"bl " #NOTE "\n\t"              \
	"ldp x0, x1, [sp, #16]\n\t"     \
	"ldr x2, [sp, #32]\n\t"         \
	"ldp x29, x30, [sp], #48\n\t"   \
	".cfi_restore x29\n\t"          \
	".cfi_restore x30\n\t"          \
	".cfi_def_cfa_offset 0\n\t" JUMP(POINTER)

/* The loader looks for libraries where its caller's would be, so the call is passed on by a jump. A namespace brings a libc
 * of its own, which nothing is put before. */
__asm__(".text\n" BEGIN(dlopen) CALL_AND_JUMP(hl_hooks_note_library, hl_libc_dlopen) END(dlopen));
__asm__(".text\n" BEGIN(dlmopen) CALL_AND_JUMP(hl_hooks_note_namespace, hl_libc_dlmopen)
		END(dlmopen));

#define JUMP_IF(number, target)           \
	"cmp x0, #" NUMBER(number) "\n\t" \
				   "b.eq hl_hooks_" #target "_by_number\n\t"

/* May be called in any way, so nothing but the registers of calls between modules is touched. */
__asm__(".text\n" BEGIN(syscall) JUMP_IF(__NR_execve, exec) JUMP_IF(__NR_execveat, exec)
		JUMP_IF(__NR_seccomp, filter) JUMP_IF(__NR_prctl, filter) JUMP(hl_libc_syscall)
			END(syscall));
