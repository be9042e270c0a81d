/* SPDX-License-Identifier: BSD-2-Clause */
/* Which system calls a stop changes; see process.h. */
#include "process/process.h"

#include "base/compiler.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
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

bool hl_interrupted_call_mend(pid_t tid, struct hl_thread_registers *registers)
{
	const int64_t number = hl_thread_registers_call(registers),
		      result = (int64_t)*hl_thread_registers_result(registers);

	if (number < 0 || !(result == -EINTR ? may_end_early(number)
					     : result == -ERESTART_RESTARTBLOCK && has_filter(tid)))
		return false;
	*hl_thread_registers_result(registers) = (uint64_t)-ERESTARTNOHAND;
	return true;
}
