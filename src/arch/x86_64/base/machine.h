/* SPDX-License-Identifier: BSD-2-Clause */
/* x86-64 as every part sees it: addresses, the order of loads and stores, the clock, the thread pointer. */
#pragma once

#include <cpuid.h>
#include <elf.h>
#include <stdbool.h>
#include <stdint.h>

/* Of its ELF files. */
#define HL_ELF_MACHINE	    EM_X86_64
#define HL_ELF_MACHINE_NAME "x86-64"

/* To a seccomp filter, of linux/audit.h. */
#define HL_MACHINE_AUDIT AUDIT_ARCH_X86_64

/* Of instructions. */
#define HL_CODE_ALIGNMENT 1u
#define HL_CODE_BYTES_MAX 15u

/* Of what a program can map. */
#define HL_ADDRESS_BITS 47
#define HL_USER_END	(UINT64_C(1) << HL_ADDRESS_BITS)
#define HL_MAPPED_END	(HL_USER_END - 4096) /* [vsyscall] lies above */

/* From the thread pointer to the address of the dtv: where glibc keeps the thread's thread-local memory of each module. */
#define HL_MACHINE_DTV 8u

/* Of the largest pages that a kernel may have. */
#define HL_PAGE_BITS_MAX  12
#define HL_PAGE_BYTES_MAX (1u << HL_PAGE_BITS_MAX)

/* A return address as it lies on a stack, as the address that it is. */
static inline uint64_t hl_machine_code_address(uint64_t word)
{
	return word;
}

/* Of the clock's ticks in a stamp, see region/ring.h: 16 cycles. */
#define HL_MACHINE_STAMP_SHIFT 4

/* Ticks of one clock for all processors. Loads before it in the program have been done before it is read. */
static inline uint64_t hl_machine_clock(void)
{
	__asm__ volatile("lfence" ::: "memory");
	return __builtin_ia32_rdtsc();
}

/* The same, once the atomic exchange before it is seen by all, as it is when it has been done. */
static inline uint64_t hl_machine_clock_after_exchange(void)
{
	return hl_machine_clock();
}

/* Loads of one's own that a thread bases its stamp upon come after what the program loaded before: as all loads do. */
static inline void hl_machine_order_stamp(void)
{
}

/* The kernel's clock sources that read the same counter. The latter two are in virtual machines. */
#define HL_MACHINE_CLOCK_SOURCES "tsc\n", "kvm-clock\n", "hyperv_clocksource_tsc_page\n"

/* Whether it runs at one rate at all times. Advanced power management: AMD64 Architecture Programmer's Manual, volume 3, appendix E. */
static inline bool hl_machine_clock_is_steady(void)
{
	const unsigned power_leaf = 0x80000007u, invariant_tsc = 1u << 8;
	unsigned eax, ebx, ecx, edx;

	return __get_cpuid(power_leaf, &eax, &ebx, &ecx, &edx) && edx & invariant_tsc;
}

/* In a loop that waits for another thread. */
static inline void hl_machine_pause(void)
{
	__builtin_ia32_pause();
}

static inline uint64_t hl_machine_thread_pointer(void)
{
	uint64_t pointer;

	__asm__("mov %%fs:0, %0" : "=r"(pointer));
	return pointer;
}
