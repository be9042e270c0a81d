/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Filters of system calls (seccomp(2)): what they answer, and those that the process which this code runs in has installed. Code
 * inside a target asks these before each system call, since a filter may kill for one.
 */
#pragma once

#include "base/compiler.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sock_filter;
struct seccomp_data;

/* Runs a filter for one call, as the kernel does. 0 with what the filter returned, SECCOMP_RET_*; or
 * -EINVAL when it makes no sense. */
int hl_seccomp_run(const struct sock_filter *filter, size_t count, const struct seccomp_data *call,
		   uint32_t *ret_action);

/* Whether the kernel makes the call as if there were no such filter. */
bool hl_seccomp_permits(const struct sock_filter *filter, size_t count,
			const struct seccomp_data *call);

/* ---- filters of this process ---- */

/* How many there are. What one thread alone has installed counts for all. From HL_SECCOMP_NONE_IS_PERMITTED on: no call is permitted. */
extern HL_HIDDEN _Atomic uint32_t hl_seccomp_noted;
#define HL_SECCOMP_NONE_IS_PERMITTED UINT32_C(0x80000000)

/* Of hl_seccomp_noted. */
struct hl_seccomp_change {
	uint32_t before, after;
};

/*
 * Before the kernel is told of a filter: notes a copy of it. NULL, or one for which there is no room: from here on no call is
 * permitted. Thread-safe, async-signal-safe.
 */
struct hl_seccomp_change hl_seccomp_note(const struct sock_filter *filter, size_t count);

/* The kernel has refused the filter. False: another one has come since, and this one is asked as well. */
bool hl_seccomp_forget(struct hl_seccomp_change change);

bool hl_seccomp_ask(long number, long a, long b, long c, long d, long e, long f);

/* Whether this process may make the call. */
static inline bool hl_seccomp_may_call(long number, long a, long b, long c, long d, long e, long f)
{
	return HL_LIKELY(!atomic_load(&hl_seccomp_noted)) ||
	       hl_seccomp_ask(number, a, b, c, d, e, f);
}

/*
 * Calls that are being made. Sequentially consistent, as is the number of filters: a thread that has not seen a filter, and may be
 * preempted before its call, is seen here by whoever has noted that filter. A call that a signal handler has left by longjmp() is counted
 * for good, as is, in a child that a handler forked out of a hook, one of another thread.
 */
extern HL_HIDDEN _Atomic uint32_t hl_seccomp_calling;

/* Whether this process may make the call; then hl_seccomp_leave() is to follow it. */
static inline bool hl_seccomp_enter(long number, long a, long b, long c, long d, long e, long f)
{
	atomic_fetch_add(&hl_seccomp_calling, 1);
	if (hl_seccomp_may_call(number, a, b, c, d, e, f))
		return true;
	atomic_fetch_sub(&hl_seccomp_calling, 1);
	return false;
}

static inline void hl_seccomp_leave(void)
{
	atomic_fetch_sub(&hl_seccomp_calling, 1);
}
