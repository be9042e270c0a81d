/* SPDX-License-Identifier: BSD-2-Clause */
/* Begins a thread without libc; see sys.h. */
#include "recorder/sys.h"

/* The thread begins after the system call and ends before label 1, where only its parent goes on. */
long hl_clone_and_call(unsigned long flags, void *stack_end, hl_clone_fn *run, void *argument)
{
	register long r10 __asm__("r10") = 0;
	register long r8 __asm__("r8") = 0;
	register hl_clone_fn *r12 __asm__("r12") = run;
	register void *r13 __asm__("r13") = argument;
	long result;
	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t" /* the end of the stack, for those who unwind it */
			 "mov %%r13, %%rdi\n\t"
			 "call *%%r12\n\t"
			 "xor %%edi, %%edi\n\t"
			 "mov %[exit], %%eax\n\t"
			 "syscall\n"
			 "1:"
			 : "=a"(result)
			 : "a"(SYS_clone), "D"(flags), "S"(stack_end), "d"(0), "r"(r10), "r"(r8),
			   "r"(r12), "r"(r13), [exit] "i"(SYS_exit)
			 : "rcx", "r11", "memory");
	return result;
}
