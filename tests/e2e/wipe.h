/* SPDX-License-Identifier: BSD-2-Clause */
/* For programs whose tests know each pointer to a block. */
#pragma once

#include <stddef.h>

/* Leaves no copy of a pointer where a root would be seen. */
static __attribute__((noinline)) void wipe(void)
{
	volatile char stack[65536];

	for (size_t i = 0; i < sizeof(stack); i++)
		stack[i] = 0;
	__asm__ volatile("xor %%ebx, %%ebx\n\txor %%r12d, %%r12d\n\txor %%r13d, %%r13d\n\t"
			 "xor %%r14d, %%r14d\n\txor %%r15d, %%r15d"
			 :
			 :
			 : "rbx", "r12", "r13", "r14", "r15", "rax", "rcx", "rdx", "rsi", "rdi",
			   "r8", "r9", "r10", "r11", "memory");
}
