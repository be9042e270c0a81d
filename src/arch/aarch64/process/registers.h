/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The registers of another process' thread, of aarch64: as ptrace gives them, and as core files hold them. All are words
 * that may point at blocks.
 */
#pragma once

#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/user.h>

struct hl_thread_registers {
	uint64_t x[31], sp, pc, state; /* struct user_regs_struct, which core files have alone */
	uint64_t thread;	       /* tpidr_el0 */
	uint64_t
		in_call; /* whether the stop has ended a system call, or the call is made again after it */
	uint64_t mark; /* bits of the program counter, which has none in pc: see hl_thread_mark() */
};

/* Members, see process/thread_registers.h. */
#define HL_REGISTER_SP	   sp
#define HL_REGISTER_PC	   pc
#define HL_REGISTER_THREAD thread
#define HL_REGISTER_RESULT x[0]
#define HL_REGISTER_CALL   x[8]

#define HL_RED_ZONE_BYTES 0u
#define HL_PC_MARK	  (UINT64_C(1) << 56) /* the processor takes bits 0 to 55 */

/* Of a stopped thread. Negative with errno: it has ended. The kernel settles an interrupted call before a tracer sees the
 * thread: it stands at the instruction again, or behind it with the error. */
static inline long hl_thread_registers_read(pid_t tid, struct hl_thread_registers *ret_registers)
{
	enum { SVC = 0xd4000001 };
	struct iovec general = {ret_registers, sizeof(struct user_regs_struct)};
	struct iovec thread = {&ret_registers->thread, sizeof(ret_registers->thread)};
	long r = ptrace(PTRACE_GETREGSET, tid, NT_PRSTATUS, &general);

	if (r < 0)
		return r;
	ret_registers->mark = ret_registers->pc & HL_PC_MARK;
	ret_registers->pc ^= ret_registers->mark;
	uint64_t code = (uint64_t)ptrace(PTRACE_PEEKTEXT, tid, ret_registers->pc - 4, NULL);
	ret_registers->in_call = code >> 32 == SVC ||
				 ((uint32_t)code == SVC && (int64_t)ret_registers->x[0] == -EINTR);
	return ptrace(PTRACE_GETREGSET, tid, NT_ARM_TLS, &thread);
}

/* One that is about to make a system call makes none. */
static inline long hl_thread_registers_write(pid_t tid, const struct hl_thread_registers *registers)
{
	int none = -1;
	struct hl_thread_registers marked = *registers;
	struct iovec general = {&marked, sizeof(struct user_regs_struct)};
	struct iovec call = {&none, sizeof(none)};

	marked.pc |= marked.mark;
	long r = ptrace(PTRACE_SETREGSET, tid, NT_PRSTATUS, &general);

	return r < 0 ? r : ptrace(PTRACE_SETREGSET, tid, NT_ARM_SYSTEM_CALL, &call);
}

static inline bool hl_thread_registers_in_call(const struct hl_thread_registers *registers)
{
	return registers->in_call;
}

/* Whether the word is of a register that calls do not keep: x0 to x18. */
static inline bool hl_thread_registers_is_scratch(size_t word)
{
	return word <= 18;
}

/* ---- the system call that a stop interrupts: the kernel settles how it ends before a tracer sees the thread ---- */

#define HL_SETTLED_CALL_BYTES 4u /* of its instruction; 0: the kernel does not do so */

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

/* ---- numbers ---- */

/* By their numbers in DWARF (DWARF for the Arm 64-bit Architecture, section 4.1), and those that a function leaves as its
 * caller had them. libdw expects the program counter behind them. */
#define HL_DWARF_SP	   31
#define HL_DWARF_REGISTERS 32
#define HL_DWARF_KEPT	   19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29
/* Of a system call: its number, and its arguments. */
#define HL_DWARF_CALL 8, 0, 1, 2, 3, 4, 5

/* Which word of the registers the one with DWARF number ${number} is. */
static inline size_t hl_dwarf_word(unsigned number)
{
	return number;
}
