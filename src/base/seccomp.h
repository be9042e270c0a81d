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

/* How many there are. What one thread alone has installed counts for all. */
extern HL_HIDDEN _Atomic uint32_t hl_seccomp_noted;
#define HL_SECCOMP_NONE_IS_PERMITTED UINT32_MAX

/*
 * Before the kernel is told of a filter: notes a copy of it. NULL, or one for which there is no room: from here on no call is
 * permitted. Returns what hl_seccomp_forget() takes when the kernel has refused the filter. Thread-safe, async-signal-safe.
 */
uint32_t hl_seccomp_note(const struct sock_filter *filter, size_t count);
void hl_seccomp_forget(uint32_t before);

bool hl_seccomp_ask(long number, long a, long b, long c, long d, long e, long f);

/* Whether this process may make the call. */
static inline bool hl_seccomp_may_call(long number, long a, long b, long c, long d, long e, long f)
{
	return HL_LIKELY(!atomic_load_explicit(&hl_seccomp_noted, memory_order_relaxed)) ||
	       hl_seccomp_ask(number, a, b, c, d, e, f);
}
