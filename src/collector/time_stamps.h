/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether the processor's time stamp counter tells what came first, for HL_REGION_STAMPS. */
#pragma once

#include <stdbool.h>

/* True when it runs at one rate on all processors, at all times, and the kernel relies on it,
 * which it does only while no two processors differ. */
bool hl_time_stamps_work(void);

/* The latter, as the file at ${path} says it in place of the kernel's own; for tests. */
bool hl_time_stamps_are_clock(const char *path);
