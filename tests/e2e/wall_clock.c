/* SPDX-License-Identifier: BSD-2-Clause */
/* Preloaded: the wall clock jumps back and forth by an hour, from one look at it to the next. */
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define HOUR_S 3600

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *now)
{
	static atomic_int looks;
	int r = (int)syscall(SYS_clock_gettime, clock, now);

	if (clock == CLOCK_REALTIME)
		now->tv_sec += (atomic_fetch_add(&looks, 1) % 3 - 1) * HOUR_S;
	return r;
}
