/* SPDX-License-Identifier: BSD-2-Clause */
/* The linker has calls of these functions come here; see kill_steps.h. */
#include "kill_steps.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static pid_t tool; /* its guardian, which is forked off, is not to be killed */
static long steps, kill_at;

void kill_at_step(long step)
{
	tool = getpid();
	steps = 0;
	kill_at = step;
}

long steps_gone(void)
{
	return steps;
}

static void step(void)
{
	if (tool == getpid() && ++steps == kill_at)
		kill(tool, SIGKILL);
}

/* pwrite() is called by its name for offsets of 64 bits. */
long __real_ptrace(enum __ptrace_request request, pid_t tid, void *address, void *bytes);
long __wrap_ptrace(enum __ptrace_request request, pid_t tid, void *address, void *bytes);
ssize_t __real_pwrite64(int fd, const void *bytes, size_t size, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t size, off_t offset);
int __real_sched_setscheduler(pid_t tid, int policy, const struct sched_param *param);
int __wrap_sched_setscheduler(pid_t tid, int policy, const struct sched_param *param);

long __wrap_ptrace(enum __ptrace_request request, pid_t tid, void *address, void *bytes)
{
	step();
	long r = __real_ptrace(request, tid, address, bytes);
	int code = errno;
	step();
	errno = code;
	return r;
}

ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t size, off_t offset)
{
	step();
	ssize_t r = __real_pwrite64(fd, bytes, size, offset);
	int code = errno;
	step();
	errno = code;
	return r;
}

int __wrap_sched_setscheduler(pid_t tid, int policy, const struct sched_param *param)
{
	step();
	int r = __real_sched_setscheduler(tid, policy, param);
	int code = errno;
	step();
	errno = code;
	return r;
}

/* Only what takes in a child, in the thread that does all else: others wait by this, too. */
long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

long __wrap_syscall(long number, ...)
{
	bool is_step = number == SYS_pidfd_open || number == SYS_pidfd_getfd;
	va_list arguments;
	long values[6];

	va_start(arguments, number);
	for (int i = 0; i < 6; i++)
		values[i] = va_arg(arguments, long);
	va_end(arguments);
	if (is_step)
		step();
	long r = __real_syscall(number, values[0], values[1], values[2], values[3], values[4],
				values[5]);
	int code = errno;
	if (is_step)
		step();
	errno = code;
	return r;
}
