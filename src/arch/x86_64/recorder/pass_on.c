/* SPDX-License-Identifier: BSD-2-Clause */
/* Hooks that pass a call on by a jump, as if they were not there. */
#include "base/compiler.h"
#include "recorder/libc.h"

#include <sys/syscall.h>

/* The loader looks for libraries where its caller's would be, so the call is passed on by a jump. */
HL_EXPORT __attribute__((naked)) void *dlopen(const char *file __attribute__((unused)),
					      int mode __attribute__((unused)))
{
	__asm__("push %rdi\n\t"
		".cfi_adjust_cfa_offset 8\n\t"
		"push %rsi\n\t"
		".cfi_adjust_cfa_offset 8\n\t"
		"push %rsi\n\t" /* the stack is aligned */
		".cfi_adjust_cfa_offset 8\n\t"
		"call hl_hooks_note_library\n\t"
		"pop %rsi\n\t"
		".cfi_adjust_cfa_offset -8\n\t"
		"pop %rsi\n\t"
		".cfi_adjust_cfa_offset -8\n\t"
		"pop %rdi\n\t"
		".cfi_adjust_cfa_offset -8\n\t"
		"jmp *hl_libc_dlopen(%rip)");
}

/* A namespace brings a libc of its own, which nothing is put before. */
HL_EXPORT __attribute__((naked)) void *dlmopen(Lmid_t namespace __attribute__((unused)),
					       const char *file __attribute__((unused)),
					       int mode __attribute__((unused)))
{
	__asm__("push %rdi\n\t"
		".cfi_adjust_cfa_offset 8\n\t"
		"push %rsi\n\t"
		".cfi_adjust_cfa_offset 8\n\t"
		"push %rdx\n\t"
		".cfi_adjust_cfa_offset 8\n\t"
		"call hl_hooks_note_namespace\n\t"
		"pop %rdx\n\t"
		".cfi_adjust_cfa_offset -8\n\t"
		"pop %rsi\n\t"
		".cfi_adjust_cfa_offset -8\n\t"
		"pop %rdi\n\t"
		".cfi_adjust_cfa_offset -8\n\t"
		"jmp *hl_libc_dlmopen(%rip)");
}

#define TEXT_OF(number) #number
#define JUMP_IF(number, target)              \
	"cmp $" TEXT_OF(number) ", %rdi\n\t" \
				"je hl_hooks_" #target "_by_number\n\t"

/* May be called in any way, so nothing is touched. */
HL_EXPORT __attribute__((naked)) long syscall(long number __attribute__((unused)), ...)
{
	__asm__(JUMP_IF(__NR_execve, exec) JUMP_IF(__NR_execveat, exec) JUMP_IF(
		__NR_seccomp, filter) JUMP_IF(__NR_prctl, filter) "jmp *hl_libc_syscall(%rip)");
}
