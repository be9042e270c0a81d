/* SPDX-License-Identifier: BSD-2-Clause */
/* Begins a thread without libc; see sys.h. */
#include "recorder/sys.h"

/* The thread begins after the system call and ends before label 1, where only its parent goes on. */
long hl_clone_and_call(unsigned long flags, void *stack_end, hl_clone_fn *run, void *argument)
{
	register unsigned long x0 __asm__("x0") = flags;
	register void *x1 __asm__("x1") = stack_end;
	register long x2 __asm__("x2") = 0;
	register long x3 __asm__("x3") = 0;
	register long x4 __asm__("x4") = 0;
	register long x8 __asm__("x8") = SYS_clone;
	register hl_clone_fn *x19 __asm__("x19") = run;
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
