/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether hl_machine_clock() tells what came first. */
#pragma once

#include <stdbool.h>

/* Of the kernel, which reckon from the same counter. */
#define HL_MACHINE_CLOCK_SOURCES "arch_sys_counter\n"

/* Whether it runs at one rate at all times: the architecture says so. */
static inline bool hl_machine_clock_is_steady(void)
{
	return true;
}
