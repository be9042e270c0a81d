/* SPDX-License-Identifier: BSD-2-Clause */
/* aarch64 as every part sees it: addresses, the order of loads and stores, the clock, the thread pointer. */
#pragma once

#include <elf.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Of its ELF files. */
#define HL_ELF_MACHINE	    EM_AARCH64
#define HL_ELF_MACHINE_NAME "aarch64"

/* To a seccomp filter, of linux/audit.h. */
#define HL_MACHINE_AUDIT AUDIT_ARCH_AARCH64

/* Of instructions. */
#define HL_CODE_ALIGNMENT 4u
#define HL_CODE_BYTES_MAX 4u

/* Of what a program can map. Larger addresses, of 52 bits, a program gets only where it asks for them by a hint. */
#define HL_ADDRESS_BITS 48
#define HL_USER_END	(UINT64_C(1) << HL_ADDRESS_BITS)
#define HL_MAPPED_END	HL_USER_END

/* From the thread pointer to the address of the dtv: where glibc keeps the thread's thread-local memory of each module. */
#define HL_MACHINE_DTV 0u

/* Of the largest pages that a kernel may have. Whatever has pages for itself begins and ends at multiples of these. */
#define HL_PAGE_BITS_MAX  16
#define HL_PAGE_BYTES_MAX (1u << HL_PAGE_BITS_MAX)

/* A return address as it lies on a stack, as the address that it is: pointer authentication uses the bits above, which are 0 in
 * all addresses of user space. */
static inline uint64_t hl_machine_code_address(uint64_t word)
{
	return word & (HL_USER_END - 1);
}

/* Loads of one's own that a thread bases its stamp upon come after what the program loaded before: see region/ring.h. */
static inline void hl_machine_order_stamp(void)
{
	atomic_thread_fence(memory_order_acquire);
}

/* Of the clock's ticks in a stamp, see region/ring.h: one. It takes 40 ns at the 25 MHz of common servers, and 1 ns from Armv8.6 on. */
#define HL_MACHINE_STAMP_SHIFT 0

/* Ticks of one clock for all processors. Loads before it in the program have been done before it is read. A DMB orders accesses of
 * memory alone, which the counter is not; nor does an ISB wait for them. */
static inline uint64_t hl_machine_clock(void)
{
	uint64_t ticks;

	__asm__ volatile("dsb ishld\n\tisb\n\tmrs %0, cntvct_el0" : "=r"(ticks)::"memory");
	return ticks;
}

/* The same, once the atomic exchange before it is seen by all. */
static inline uint64_t hl_machine_clock_after_exchange(void)
{
	__asm__ volatile("dsb ish" ::: "memory");
	return hl_machine_clock();
}

/* The kernel's clock source that reads the same counter, which runs at one rate at all times: the architecture says so. */
#define HL_MACHINE_CLOCK_SOURCES     "arch_sys_counter\n"
#define hl_machine_clock_is_steady() true

/* In a loop that waits for another thread. */
static inline void hl_machine_pause(void)
{
	__asm__ volatile("isb" ::: "memory");
}

static inline uint64_t hl_machine_thread_pointer(void)
{
	uint64_t pointer;

	__asm__("mrs %0, tpidr_el0" : "=r"(pointer));
	return pointer;
}
