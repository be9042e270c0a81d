/* SPDX-License-Identifier: BSD-2-Clause */
/* The registers of x86-64 where they are: of the running thread. Not for BPF. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The calling function's registers as they are; false: hooks have those of their callers. */
static inline bool hl_saved_now(uint64_t *ret_pc, uint64_t *ret_sp, uint64_t *ret_saved)
{
	(void)ret_pc, (void)ret_sp, (void)ret_saved;
	return false;
}

/*
 * Calls ${function} with ${context} on the stack that ends at ${top}. Vector registers are kept, since who allocates may know that an
 * allocator leaves them alone.
 */
static __attribute__((noinline, unused)) void
hl_saved_call_on_stack(void *top, void (*function)(void *), void *context)
{
	__asm__ volatile("mov %%rsp, %%rbx\n\t"
			 "lea -528(%[top]), %%rsp\n\t"
			 "fxsave64 (%%rsp)\n\t"
			 "call *%[function]\n\t"
			 "fxrstor64 (%%rsp)\n\t"
			 "mov %%rbx, %%rsp"
			 : "+D"(context)
			 : [top] "r"(top), [function] "r"(function)
			 : "rax", "rbx", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "cc",
			   "memory");
}

/* Clears the registers that functions keep, but the frame pointer. */
#define HL_SAVED_CLEAR()                                                                    \
	__asm__ volatile("xor %%ebx, %%ebx\n\txor %%r12d, %%r12d\n\txor %%r13d, %%r13d\n\t" \
			 "xor %%r14d, %%r14d\n\txor %%r15d, %%r15d"                         \
			 :                                                                  \
			 :                                                                  \
			 : "rbx", "r12", "r13", "r14", "r15", "cc")
