/* SPDX-License-Identifier: BSD-2-Clause */
/* The system call that a stop interrupts, on aarch64: the kernel settles how it ends before a tracer sees the thread. */
#pragma once

#include "process/registers.h"

#include <sys/syscall.h>

#define HL_SETTLED_CALL_BYTES 4u /* of its instruction; 0: the kernel does not do so */

static inline uint64_t hl_thread_call_number(const struct hl_thread_registers *registers)
{
	return registers->x[8];
}

/* Whether the thread is at the instruction of a call that the kernel may continue by restart_syscall(2), or make again. */
static inline bool hl_thread_may_restart(const struct hl_thread_registers *registers)
{
	const uint64_t number = registers->x[8];

	return registers->in_call && (int64_t)registers->x[0] != -EINTR &&
	       (number == SYS_nanosleep || number == SYS_clock_nanosleep ||
		(number == SYS_futex && registers->x[3]));
}

/*
 * The thread makes its call again, as if for the first time. The kernel continues a call only where the program counter is as it
 * left it; so a bit of it is set that the kernel compares, and that the processor drops when the thread goes on (Arm Architecture
 * Reference Manual, address tagging: TCR_EL1.TBI0, which Linux sets).
 */
static inline void hl_thread_mark(struct hl_thread_registers *registers, bool is_marked)
{
	registers->mark = is_marked ? HL_PC_MARK : 0;
}
