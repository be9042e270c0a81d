/* SPDX-License-Identifier: BSD-2-Clause */
/* Which system calls a stop changes; see process.h. */
#include "process/process.h"

#include "base/compiler.h"
#include "process/registers.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Results of system calls that only tracers see, see Linux' linux/errno.h. */
#define ERESTARTNOHAND	      514 /* made again, unless a handler runs: then EINTR */
#define ERESTART_RESTARTBLOCK 516 /* goes on by restart_syscall(2), unless a handler runs */

/* Those that may end with EINTR after any stop, even without a signal; not close(), which has closed
 * its file all the same. */
static const short ending_calls[] = {
	SYS_read,	   SYS_write,	       SYS_readv,   SYS_writev,		 SYS_recvfrom,
	SYS_recvmsg,	   SYS_recvmmsg,       SYS_sendto,  SYS_sendmsg,	 SYS_sendmmsg,
	SYS_accept,	   SYS_accept4,	       SYS_connect, SYS_epoll_pwait,	 SYS_semop,
	SYS_semtimedop,	   SYS_msgrcv,	       SYS_msgsnd,  SYS_rt_sigtimedwait, SYS_io_getevents,
	SYS_io_pgetevents, SYS_io_uring_enter,
#ifdef SYS_epoll_wait /* older machines have it */
	SYS_epoll_wait,
#endif
#ifdef SYS_epoll_pwait2
	SYS_epoll_pwait2,
#endif
};

static bool may_end_early(int64_t number)
{
	for (size_t i = 0; i < HL_COUNT_OF(ending_calls); i++)
		if (ending_calls[i] == number)
			return true;
	return false;
}

/*
 * Whether a seccomp filter judges what the stopped thread calls. Who may read filters learns that ten
 * times as fast as from a file, by asking for one beyond the last; a kernel without such reading has
 * no /proc/PID/timers either (CONFIG_CHECKPOINT_RESTORE). Unknown counts as filtered: then a wait
 * begins again, which harms less.
 */
static bool has_filter(pid_t tid)
{
	struct hl_process_condition condition;

	if (ptrace(PTRACE_SECCOMP_GET_FILTER, tid, UINTPTR_MAX, NULL) < 0 && errno == ENOENT)
		return true;
	if (errno == EINVAL && access("/proc/self/timers", F_OK) == 0)
		return false;
	return hl_process_condition_read(tid, &condition, NULL) < 0 || condition.seccomp_mode;
}

/* Where a tracer sees the result, before the kernel settles how the call ends. */
static bool mend_result(pid_t tid, struct hl_thread_registers *registers)
{
	const int64_t number = hl_thread_registers_call(registers),
		      result = (int64_t)*hl_thread_registers_result(registers);

	if (number < 0 || !(result == -EINTR ? may_end_early(number)
					     : result == -ERESTART_RESTARTBLOCK && has_filter(tid)))
		return false;
	*hl_thread_registers_result(registers) = (uint64_t)-ERESTARTNOHAND;
	return true;
}

/* ---- where the kernel settles how a call ends ---- */

#define SWITCHES	   "\nvoluntary_ctxt_switches:"
#define SIGNAL_BIT(number) (UINT64_C(1) << ((number)-1))

/* The number behind ${key} in the thread's status; 0: it has none. */
static uint64_t status_number(pid_t tid, const char *key, int base)
{
	char text[4096];
	const char *found =
		hl_proc_read(tid, "status", text, sizeof(text)) > 0 ? strstr(text, key) : NULL;

	return found ? strtoull(found + strlen(key), NULL, base) : 0;
}

void hl_interrupted_call_look(pid_t tid, struct hl_interrupted_call *ret_call)
{
	unsigned long long number, first, sp, pc;
	char text[256];

	if (!HL_SETTLED_CALL_BYTES || hl_proc_read(tid, "syscall", text, sizeof(text)) <= 0 ||
	    sscanf(text, "%llu %llx %*x %*x %*x %*x %*x %llx %llx", &number, &first, &sp, &pc) != 4)
		return;
	*ret_call = (struct hl_interrupted_call){
		number, first, sp, pc, status_number(tid, SWITCHES, 10), 0};
}

/* Whether the call that the thread slept in before it was interrupted, and no other, has ended with EINTR. */
static bool has_ended_early(pid_t tid, const struct hl_interrupted_call *call,
			    struct hl_thread_registers *registers)
{
	return call->switches && may_end_early((int64_t)call->number) &&
	       (int64_t)*hl_thread_registers_result(registers) == -EINTR &&
	       *hl_thread_registers_pc(registers) == call->pc &&
	       hl_thread_registers_sp(registers) == call->sp &&
	       hl_thread_registers_call(registers) == (int64_t)call->number &&
	       status_number(tid, SWITCHES, 10) == call->switches + 1;
}

bool hl_interrupted_call_mend(pid_t tid, struct hl_interrupted_call *call,
			      struct hl_thread_registers *registers)
{
	uint64_t *result = hl_thread_registers_result(registers),
		 *pc = hl_thread_registers_pc(registers), found = *result;

	if (!HL_SETTLED_CALL_BYTES)
		return mend_result(tid, registers);
	bool has_ended = has_ended_early(tid, call, registers);
	call->pc = *pc;
	if (has_ended) {
		*result = call->first;
		*pc -= HL_SETTLED_CALL_BYTES;
	} else if (hl_thread_may_restart(registers) && has_filter(tid)) {
		hl_thread_mark(registers, true);
	} else {
		return false;
	}
	call->first = found;
	call->mended_pc = *pc;
	return true;
}

/* Whether one of the signals that the stopped thread is about to take, with ${signal} if that is not 0, runs a handler or ends the process.
 * Others have come as well, since a traced thread gets even what it ignores, and the kernel goes on with the call after them. */
static bool ends_call(pid_t tid, int signal)
{
	const uint64_t mild = SIGNAL_BIT(SIGCHLD) | SIGNAL_BIT(SIGCONT) | SIGNAL_BIT(SIGURG) |
			      SIGNAL_BIT(SIGWINCH) | SIGNAL_BIT(SIGSTOP) | SIGNAL_BIT(SIGTSTP) |
			      SIGNAL_BIT(SIGTTIN) | SIGNAL_BIT(SIGTTOU);
	uint64_t waiting =
		status_number(tid, "\nSigPnd:", 16) | status_number(tid, "\nShdPnd:", 16);

	waiting &= ~status_number(tid, "\nSigBlk:", 16);
	waiting |= signal ? SIGNAL_BIT(signal) : 0;
	return waiting & ~status_number(tid, "\nSigIgn:", 16) &
	       (status_number(tid, "\nSigCgt:", 16) | ~mild);
}

void hl_interrupted_call_go_on(pid_t tid, const struct hl_interrupted_call *call, int signal)
{
	struct hl_thread_registers registers;

	if (!call->mended_pc || !ends_call(tid, signal) ||
	    hl_thread_registers_read(tid, &registers) < 0 ||
	    *hl_thread_registers_pc(&registers) != call->mended_pc)
		return;
	*hl_thread_registers_result(&registers) = call->first;
	*hl_thread_registers_pc(&registers) = call->pc;
	hl_thread_mark(&registers, false);
	hl_thread_registers_write(tid, &registers);
}
