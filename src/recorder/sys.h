/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * System calls without libc: errno is never touched, no symbol can be interposed, usable in a
 * signal handler. Each returns the kernel's result: negative errno on failure. A call that a filter of the program forbids
 * is not made, and fails with -EPERM.
 */
#pragma once

#include "base/seccomp.h"
#include "base/system_call.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

static inline long hl_sys6(long number, long a, long b, long c, long d, long e, long f)
{
	if (!hl_seccomp_enter(number, a, b, c, d, e, f))
		return -EPERM;
	long result = hl_machine_call(number, a, b, c, d, e, f);
	hl_seccomp_leave();
	return result;
}

/* For hl_clock_ns(), where some milliseconds do not matter. libc reads it without a system call and without the
 * time stamp counter: a program may forbid either to itself at any time. */
#define HL_SYS_CLOCK CLOCK_MONOTONIC_COARSE

#define HL_SYS(number, a, b, c) hl_sys6(number, (long)(a), (long)(b), (long)(c), 0, 0, 0)

/* Not inline: tests put other definitions in their place, which refuse memory. */

/* Maps ${bytes} anywhere. NULL on failure. */
void *hl_sys_mmap(size_t bytes, int protection, int flags, int fd);
long hl_sys_munmap(void *address, size_t bytes);
long hl_sys_madvise(void *address, size_t bytes, int advice);

/* What the kernel maps at once. */
#define HL_SYS_PAGE_BYTES ((uint64_t)getauxval(AT_PAGESZ))

/* RLIMIT_AS in bytes; UINT64_MAX when there is none. */
uint64_t hl_sys_address_space_limit(void);

/* Writes ${number} at ${at}, with a NUL; at most 21 bytes, of 32 bits 11. Returns where the NUL is. */
static inline char *hl_sys_put_decimal(char *at, uint64_t number)
{
	char digits[20];
	int count = 0;

	do {
		digits[count++] = (char)('0' + number % 10);
		number /= 10;
	} while (number);
	while (count > 0)
		*at++ = digits[--count];
	*at = '\0';
	return at;
}

#define HL_SYS_SIGSET_BYTES 8 /* the kernel's, of which libc's is a longer form */

/* Keeps all signals from the thread; ${ret_before} is for hl_sys_restore_signals(). */
static inline void hl_sys_block_signals(uint64_t *ret_before)
{
	uint64_t all = UINT64_MAX;

	hl_sys6(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, (long)ret_before, HL_SYS_SIGSET_BYTES,
		0, 0);
}

static inline void hl_sys_restore_signals(const uint64_t *before)
{
	hl_sys6(SYS_rt_sigprocmask, SIG_SETMASK, (long)before, 0, HL_SYS_SIGSET_BYTES, 0, 0);
}

static inline long hl_sys_close(int fd)
{
	return HL_SYS(SYS_close, fd, 0, 0);
}

static inline uint32_t hl_sys_getpid(void)
{
	return (uint32_t)HL_SYS(SYS_getpid, 0, 0, 0);
}

/* 0: a filter forbids it. */
static inline uint32_t hl_sys_gettid(void)
{
	long tid = HL_SYS(SYS_gettid, 0, 0, 0);

	return tid > 0 ? (uint32_t)tid : 0;
}

static inline void hl_sys_yield(void)
{
	HL_SYS(SYS_sched_yield, 0, 0, 0);
}
