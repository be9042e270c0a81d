/* SPDX-License-Identifier: BSD-2-Clause */
/* The system call that a stop interrupts, on aarch64: the kernel settles how it ends before a tracer sees the thread. */
#pragma once

#include "process/registers.h"

#define HL_SETTLED_CALL_BYTES 4u /* of its instruction; 0: the kernel does not do so */

static inline uint64_t hl_thread_call_number(const struct hl_thread_registers *registers)
{
	return registers->x[8];
}

/* Whether ${instruction}, right before that of the call, may be repeated: mov of a constant, or of another register. */
static inline bool hl_thread_may_repeat(uint32_t instruction)
{
	return (instruction & 0x7f800000) == 0x52800000 ||
	       (instruction & 0x7f800000) == 0x12800000 ||
	       ((instruction & 0x7fe0ffe0) == 0x2a0003e0 &&
		(instruction >> 16 & 31) != (instruction & 31));
}
