/* SPDX-License-Identifier: BSD-2-Clause */
/* What the programs of tests say in the words of their machine. */
#pragma once

/* A system call past the C library, where no hook can be. */
static inline long call_by_instruction(long number, long a, long b, long c)
{
#ifdef __x86_64__
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c)
			 : "rcx", "r11", "memory");
	return result;
#else
	register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b,
			 x2 __asm__("x2") = c;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
	return x0;
#endif
}

/* Clears the registers that functions keep, but the frame pointer; and of x86-64 all others, too. */
#ifdef __x86_64__
#define CLEAR_REGISTERS()                                                                        \
	__asm__ volatile("xor %%ebx, %%ebx\n\txor %%r12d, %%r12d\n\txor %%r13d, %%r13d\n\t"      \
			 "xor %%r14d, %%r14d\n\txor %%r15d, %%r15d"                              \
			 :                                                                       \
			 :                                                                       \
			 : "rbx", "r12", "r13", "r14", "r15", "rax", "rcx", "rdx", "rsi", "rdi", \
			   "r8", "r9", "r10", "r11", "memory")
#else
#define CLEAR_REGISTERS()                                                                         \
	__asm__ volatile("mov x19, 0\n\tmov x20, 0\n\tmov x21, 0\n\tmov x22, 0\n\tmov x23, 0\n\t" \
			 "mov x24, 0\n\tmov x25, 0\n\tmov x26, 0\n\tmov x27, 0\n\tmov x28, 0"     \
			 :                                                                        \
			 :                                                                        \
			 : "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28",  \
			   "memory")
#endif
