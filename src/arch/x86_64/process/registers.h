/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The registers of another process' thread, of x86-64: as ptrace gives them, and as core files hold them. All are words
 * that may point at blocks. src/arch/aarch64 has the same names.
 */
#pragma once

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/user.h>

#define hl_thread_registers user_regs_struct

#define HL_RED_ZONE_BYTES 128u /* below the stack pointer, of a function that calls nothing */

static inline uint64_t hl_thread_registers_sp(const struct hl_thread_registers *registers)
{
	return registers->rsp;
}

static inline uint64_t *hl_thread_registers_pc(struct hl_thread_registers *registers)
{
	return (uint64_t *)&registers->rip;
}

static inline uint64_t hl_thread_registers_thread(const struct hl_thread_registers *registers)
{
	return registers->fs_base;
}

/* Of a stopped thread. Negative with errno: it has ended. */
static inline long hl_thread_registers_read(pid_t tid, struct hl_thread_registers *ret_registers)
{
	return ptrace(PTRACE_GETREGS, tid, NULL, ret_registers);
}

static inline long hl_thread_registers_write(pid_t tid, const struct hl_thread_registers *registers)
{
	return ptrace(PTRACE_SETREGS, tid, NULL, registers);
}

/* The system call whose end a tracer may still change, or -1; and what it returns. */
static inline int64_t hl_thread_registers_call(const struct hl_thread_registers *registers)
{
	return (int64_t)registers->orig_rax;
}

static inline uint64_t *hl_thread_registers_result(struct hl_thread_registers *registers)
{
	return (uint64_t *)&registers->rax;
}

/* Also where a call that our stop has ended will be made again (process/process.h): then rcx still
 * has the address behind the instruction. */
static inline bool hl_thread_registers_in_call(const struct hl_thread_registers *registers)
{
	return (int64_t)registers->orig_rax >= 0 || registers->rcx == registers->rip + 2;
}

/* Whether the word is of a register that calls do not keep: r11 to r8, rax, the arguments and number of a system call. */
static inline bool hl_thread_registers_is_scratch(size_t word)
{
	return word >= offsetof(struct user_regs_struct, r11) / 8 &&
	       word <= offsetof(struct user_regs_struct, orig_rax) / 8;
}

/* By their numbers in DWARF (System V ABI x86-64, figure 3.36), and those that a function leaves as its caller had them. */
#define HL_DWARF_SP	   7
#define HL_DWARF_REGISTERS 17
#define HL_DWARF_KEPT                \
	{                            \
		3, 6, 12, 13, 14, 15 \
	}

static inline void hl_thread_registers_by_dwarf(const struct hl_thread_registers *from,
						uint64_t ret_registers[HL_DWARF_REGISTERS])
{
	const uint64_t registers[HL_DWARF_REGISTERS] = {
		from->rax, from->rdx, from->rcx, from->rbx, from->rsi, from->rdi,
		from->rbp, from->rsp, from->r8,	 from->r9,  from->r10, from->r11,
		from->r12, from->r13, from->r14, from->r15, from->rip};

	__builtin_memcpy(ret_registers, registers, sizeof(registers));
}

/* The words of those that are kept, in the order above. */
#define HL_KEPT_WORDS                                               \
	{                                                           \
		offsetof(struct user_regs_struct, rbx) / 8,         \
			offsetof(struct user_regs_struct, rbp) / 8, \
			offsetof(struct user_regs_struct, r12) / 8, \
			offsetof(struct user_regs_struct, r13) / 8, \
			offsetof(struct user_regs_struct, r14) / 8, \
			offsetof(struct user_regs_struct, r15) / 8  \
	}
