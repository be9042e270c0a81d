/* SPDX-License-Identifier: BSD-2-Clause */
/* System calls of aarch64 without libc. */
#pragma once

#include <sys/syscall.h>

/* A system call. Returns what the kernel does. */
static inline long hl_machine_call(long number, long a, long b, long c, long d, long e, long f)
{
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ volatile("svc #0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			 : "memory");
	return x0;
}

/* Begins a thread by clone() of ${flags}, with nothing on the stack that ends at ${stack_end}. It calls ${run} with ${argument} and
 * ends before label 1, where only the caller goes on. */
static __attribute__((noinline, unused)) long hl_machine_clone(unsigned long flags, void *stack_end,
							       void (*run)(void *), void *argument)
{
	register unsigned long x0 __asm__("x0") = flags;
	register void *x1 __asm__("x1") = stack_end;
	register long x2 __asm__("x2") = 0;
	register long x3 __asm__("x3") = 0;
	register long x4 __asm__("x4") = 0;
	register long x8 __asm__("x8") = SYS_clone;
	register void (*x19)(void *) __asm__("x19") = run;
	register void *x20 __asm__("x20") = argument;

	__asm__ volatile("svc #0\n\t"
			 "cbnz x0, 1f\n\t"
			 "mov x29, xzr\n\t" /* the end of the stack, for those who unwind it */
			 "mov x30, xzr\n\t"
			 "mov x0, x20\n\t"
			 "blr x19\n\t"
			 "mov x0, #0\n\t"
			 "mov x8, %[exit]\n\t"
			 "svc #0\n"
			 "1:"
			 : "+r"(x0)
			 : "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x8), "r"(x19),
			   "r"(x20), [exit] "i"(SYS_exit)
			 : "memory");
	return (long)x0;
}
