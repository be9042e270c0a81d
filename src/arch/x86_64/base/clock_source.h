/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether hl_machine_clock() tells what came first. */
#pragma once

#include <cpuid.h>
#include <stdbool.h>

/* Of the kernel, which reckon from the same counter. The latter two in virtual machines. */
#define HL_MACHINE_CLOCK_SOURCES "tsc\n", "kvm-clock\n", "hyperv_clocksource_tsc_page\n"

/* Whether it runs at one rate at all times. Advanced power management: AMD64 Architecture Programmer's Manual, volume 3, appendix E. */
static inline bool hl_machine_clock_is_steady(void)
{
	const unsigned power_leaf = 0x80000007u, invariant_tsc = 1u << 8;
	unsigned eax, ebx, ecx, edx;

	return __get_cpuid(power_leaf, &eax, &ebx, &ecx, &edx) && edx & invariant_tsc;
}
