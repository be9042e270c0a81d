/* SPDX-License-Identifier: BSD-2-Clause */
/* Which system calls a stop ends; see interrupted_call.h. */
#include "process/interrupted_call.h"

#include "base/compiler.h"
#include "process/process.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#define SYSCALL_CODE_BYTES 2

/* Those that may end with EINTR after any stop, even without a signal; not close(), which has closed
 * its file all the same. */
static const short ending_calls[] = {
	SYS_read,	  SYS_write,	     SYS_readv,		 SYS_writev,
	SYS_recvfrom,	  SYS_recvmsg,	     SYS_recvmmsg,	 SYS_sendto,
	SYS_sendmsg,	  SYS_sendmmsg,	     SYS_accept,	 SYS_accept4,
	SYS_connect,	  SYS_epoll_wait,    SYS_epoll_pwait,	 SYS_semop,
	SYS_semtimedop,	  SYS_msgrcv,	     SYS_msgsnd,	 SYS_rt_sigtimedwait,
	SYS_io_getevents, SYS_io_pgetevents, SYS_io_uring_enter,
#ifdef SYS_epoll_pwait2
	SYS_epoll_pwait2,
#endif
};

/* The number after "${key}:" of /proc/PID/status, in hexadecimal. */
static uint64_t read_set(const char *status, const char *key)
{
	const char *at = strstr(status, key);

	return at ? strtoull(at + strlen(key) + 1, NULL, 16) : 0;
}

bool hl_interrupted_call_has_signal(pid_t tid)
{
	char status[8192];

	if (hl_proc_read_status(tid, status, sizeof(status)) < 0)
		return true;
	return (read_set(status, "\nSigPnd") | read_set(status, "\nShdPnd")) &
	       ~read_set(status, "\nSigBlk");
}

bool hl_interrupted_call_ended(pid_t tid, const struct user_regs_struct *registers)
{
	bool does_end = false;

	if ((int64_t)registers->rax != -EINTR || (int64_t)registers->orig_rax < 0)
		return false;
	for (size_t i = 0; i < HL_COUNT_OF(ending_calls); i++)
		does_end |= ending_calls[i] == (int64_t)registers->orig_rax;
	return does_end && !hl_interrupted_call_has_signal(tid);
}

void hl_interrupted_call_repeat(struct user_regs_struct *registers)
{
	registers->rax = registers->orig_rax;
	registers->orig_rax = UINT64_MAX; /* not in a system call */
	registers->rip -= SYSCALL_CODE_BYTES;
}

void hl_interrupted_call_end(struct user_regs_struct *registers)
{
	registers->rax = (uint64_t)-EINTR;
	registers->rip += SYSCALL_CODE_BYTES;
}
