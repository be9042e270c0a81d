/* SPDX-License-Identifier: BSD-2-Clause */
/* What the registers of another process' thread are for. */
#pragma once

#include "process/registers.h"

static inline uint64_t hl_thread_registers_sp(const struct hl_thread_registers *registers)
{
	return registers->HL_REGISTER_SP;
}

static inline uint64_t *hl_thread_registers_pc(struct hl_thread_registers *registers)
{
	return (uint64_t *)&registers->HL_REGISTER_PC;
}

static inline uint64_t hl_thread_registers_thread(const struct hl_thread_registers *registers)
{
	return registers->HL_REGISTER_THREAD;
}

/* What a system call returns. */
static inline uint64_t *hl_thread_registers_result(struct hl_thread_registers *registers)
{
	return (uint64_t *)&registers->HL_REGISTER_RESULT;
}

/* The number of the system call that it makes. Where it makes none, negative; on some machines any: see hl_thread_registers_in_call(). */
static inline int64_t hl_thread_registers_call(const struct hl_thread_registers *registers)
{
	return (int64_t)registers->HL_REGISTER_CALL;
}
