/* SPDX-License-Identifier: BSD-2-Clause */
/* System calls of x86-64 without libc. */
#pragma once

#include <sys/syscall.h>

/* A system call. Returns what the kernel does. */
static inline long hl_machine_call(long number, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long result;
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}

/* Begins a thread by clone() of ${flags}, with nothing on the stack that ends at ${stack_end}. It calls ${run} with ${argument} and
 * ends before label 1, where only the caller goes on. */
static __attribute__((noinline, unused)) long hl_machine_clone(unsigned long flags, void *stack_end,
							       void (*run)(void *), void *argument)
{
	register long r10 __asm__("r10") = 0;
	register long r8 __asm__("r8") = 0;
	register void (*r12)(void *) __asm__("r12") = run;
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
