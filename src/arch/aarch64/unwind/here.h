/* SPDX-License-Identifier: BSD-2-Clause */
/* The registers of aarch64 where they are: of the running thread. Not for BPF. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The calling function's registers as they are; false: hooks have those of their callers. */
static inline __attribute__((always_inline)) bool hl_saved_now(uint64_t *ret_pc, uint64_t *ret_sp,
							       uint64_t *ret_saved)
{
	__asm__ volatile(
		"adr %0, .\n\tmov %1, sp\n\t"
		"stp x19, x20, [%2]\n\tstp x21, x22, [%2, #16]\n\tstp x23, x24, [%2, #32]\n\t"
		"stp x25, x26, [%2, #48]\n\tstp x27, x28, [%2, #64]\n\tstr x29, [%2, #80]"
		: "=&r"(*ret_pc), "=&r"(*ret_sp)
		: "r"(ret_saved)
		: "memory");
	return true;
}

/*
 * Calls ${function} with ${context} on the stack that ends at ${top}. Vector registers are kept, since who allocates may know that an
 * allocator leaves them alone.
 */
static __attribute__((noinline, unused)) void
hl_saved_call_on_stack(void *top, void (*function)(void *), void *context)
{
	register void *argument __asm__("x0") = context;

#define PAIR(first, second, at) "p q" #first ", q" #second ", [sp, #" #at "]\n\t"
#define VECTORS(how)                                                                      \
	how PAIR(0, 1, 0) how PAIR(2, 3, 32) how PAIR(4, 5, 64) how PAIR(6, 7, 96)        \
		how PAIR(16, 17, 128) how PAIR(18, 19, 160) how PAIR(20, 21, 192)         \
			how PAIR(22, 23, 224) how PAIR(24, 25, 256) how PAIR(26, 27, 288) \
				how PAIR(28, 29, 320) how PAIR(30, 31, 352)
	__asm__ volatile("mov x19, sp\n\tsub sp, %[top], #384\n\t" VECTORS(
				 "st") "blr %[function]\n\t" VECTORS("ld") "mov sp, x19"
			 : "+r"(argument)
			 : [top] "r"(top), [function] "r"(function)
			 : "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11",
			   "x12", "x13", "x14", "x15", "x16", "x17", "x18", "x19", "x30", "cc",
			   "memory");
#undef VECTORS
#undef PAIR
}

/* Clears the registers that functions keep, but the frame pointer. */
#define HL_SAVED_CLEAR()                                                                          \
	__asm__ volatile("mov x19, 0\n\tmov x20, 0\n\tmov x21, 0\n\tmov x22, 0\n\tmov x23, 0\n\t" \
			 "mov x24, 0\n\tmov x25, 0\n\tmov x26, 0\n\tmov x27, 0\n\tmov x28, 0"     \
			 :                                                                        \
			 :                                                                        \
			 : "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28")
