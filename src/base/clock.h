/* SPDX-License-Identifier: BSD-2-Clause */
/* Clocks in nanoseconds. */
#pragma once

#include <stdint.h>
#include <time.h>

#define HL_NS_PER_SECOND UINT64_C(1000000000)

static inline uint64_t hl_clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * HL_NS_PER_SECOND + (uint64_t)now.tv_nsec;
}
