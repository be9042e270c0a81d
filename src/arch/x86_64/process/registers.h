/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The registers of another process' thread, of x86-64: as ptrace gives them, and as core files hold them. All are words
 * that may point at blocks.
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

/* Members, see process/thread_registers.h. */
#define HL_REGISTER_SP	   rsp
#define HL_REGISTER_PC	   rip
#define HL_REGISTER_THREAD fs_base
#define HL_REGISTER_RESULT rax
#define HL_REGISTER_CALL   orig_rax

#define HL_RED_ZONE_BYTES 128u /* below the stack pointer, of a function that calls nothing */

/* Of a stopped thread. Negative with errno: it has ended. */
static inline long hl_thread_registers_read(pid_t tid, struct hl_thread_registers *ret_registers)
{
	return ptrace(PTRACE_GETREGS, tid, NULL, ret_registers);
}

static inline long hl_thread_registers_write(pid_t tid, const struct hl_thread_registers *registers)
{
	return ptrace(PTRACE_SETREGS, tid, NULL, registers);
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

/* ---- the system call that a stop interrupts: a tracer sees its result before the kernel settles how it ends ---- */

#define HL_SETTLED_CALL_BYTES 0u
/* Not needed. */
#define hl_thread_may_restart(registers)     ((void)(registers), false)
#define hl_thread_mark(registers, is_marked) ((void)(registers), (void)(is_marked))

/* ---- numbers ---- */

/* By their numbers in DWARF (System V ABI x86-64, figure 3.36), and those that a function leaves as its caller had them. */
#define HL_DWARF_SP	   7
#define HL_DWARF_REGISTERS 17
#define HL_DWARF_KEPT	   3, 6, 12, 13, 14, 15
/* Of a system call: its number, and its arguments. */
#define HL_DWARF_CALL 0, 5, 4, 1, 10, 8, 9

/* Which word of the registers the one with DWARF number ${number} is. */
static inline size_t hl_dwarf_word(unsigned number)
{
#define WORD(name) offsetof(struct user_regs_struct, name) / 8
	static const uint8_t words[HL_DWARF_REGISTERS] = {
		WORD(rax), WORD(rdx), WORD(rcx), WORD(rbx), WORD(rsi), WORD(rdi),
		WORD(rbp), WORD(rsp), WORD(r8),	 WORD(r9),  WORD(r10), WORD(r11),
		WORD(r12), WORD(r13), WORD(r14), WORD(r15), WORD(rip)};
#undef WORD

	return words[number];
}
