/* SPDX-License-Identifier: BSD-2-Clause */
/* The system call that a stop interrupts, on x86-64: a tracer sees its result before the kernel settles how it ends. */
#pragma once

#include "process/registers.h"

#define HL_SETTLED_CALL_BYTES 0u

static inline uint64_t hl_thread_call_number(const struct hl_thread_registers *registers)
{
	return registers->orig_rax;
}

/* Not needed. */
static inline bool hl_thread_may_restart(const struct hl_thread_registers *registers)
{
	(void)registers;
	return false;
}

static inline void hl_thread_mark(struct hl_thread_registers *registers, bool is_marked)
{
	(void)registers;
	(void)is_marked;
}
