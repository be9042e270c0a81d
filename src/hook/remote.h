/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stops the threads of another process, reads and writes its registers and memory, and has a stopped
 * thread make system calls or call a function: by ptrace(2), PTRACE_SEIZE and PTRACE_INTERRUPT.
 *
 * If heapline is killed at any moment, the target goes on as if nothing had happened: a thread in the
 * middle of a remote call finds its own registers on its stack, in the form of a signal frame, and
 * returns to them; a guardian process takes back scheduling policies. A call such as epoll_wait(2)
 * may then end with EINTR, as after SIGSTOP and SIGCONT.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/user.h>

struct hl_remote;

/* A system call that has not been made yet. */
struct hl_seccomp_call {
	const char *name;
	int number;
	uint64_t args[6]; /* as they will be, as far as filters look at them */
};

/*
 * Looks whether the process can be entered, and for what remote calls need of it. Touches nothing.
 * One thread calls this and all below, since the kernel knows tracers by thread. 0 or a negative
 * errno with a sentence that says what helps: -ESRCH, it has ended; -EACCES, it may not be entered;
 * -EBUSY, another tracer has it; -EAGAIN, it is about to start another program; -ENOTSUP, what it is
 * rules it out: 32-bit, a thread of the kernel, in a sandbox that heapline cannot see through.
 */
int hl_remote_open(pid_t pid, struct hl_remote **ret_remote, struct hl_error *err);

/*
 * For a program from its first instruction on. hl_remote_catch() has ${child}, a child of ours that
 * is about to execute a program, stop where that program begins; hl_remote_open_caught() waits for
 * that. Its thread then stays stopped, whatever is asked of it, until hl_remote_release(); after an
 * error or hl_remote_free() it has been killed before its first instruction. If heapline ends it
 * goes on. Errors as above; -ESRCH when it has ended instead.
 */
int hl_remote_catch(pid_t child, struct hl_error *err);
int hl_remote_open_caught(pid_t child, struct hl_remote **ret_remote, struct hl_error *err);
/* The same at the program's entry, when its libraries are loaded and their constructors have run; until then a
 * breakpoint stands there, so that it ends if heapline does. */
int hl_remote_open_at_entry(pid_t child, struct hl_remote **ret_remote, struct hl_error *err);
void hl_remote_release(struct hl_remote *remote);

/*
 * Lets all threads go that are stopped, and ends the guardian. NULL is fine. A thread that did not
 * stop in time, and has not stopped since, is let go by the kernel when the calling thread ends, and
 * not before: see hl_remote_continue().
 */
void hl_remote_free(struct hl_remote *remote);

/* The file /proc/PID/mem belongs to the program that ran at hl_remote_open(): after an execve() of
 * the target these two fail, and touch nothing. */

/* The target's memory, stopped or not, whatever its protection. False when it is not there. */
bool hl_remote_read(const struct hl_remote *remote, uint64_t address, void *bytes, size_t size);
bool hl_remote_write(const struct hl_remote *remote, uint64_t address, const void *bytes,
		     size_t size);

/* ---- one thread, for remote calls ---- */

/* Stops a thread that can make remote calls, the main thread if possible. 0; -ESRCH when the process
 * has ended; -EAGAIN when none stopped in time; -EBUSY when another tracer has it. */
int hl_remote_stop_one(struct hl_remote *remote, struct hl_error *err);

/*
 * Has the thread make a system call; with all threads stopped, one of them. What the kernel
 * returned, a negative errno on failure. Also -ESRCH when the target has ended, -ENOEXEC when the code
 * for it has been changed, and -EAGAIN when the call takes longer than 10 s: the thread goes on by
 * itself when the call ends. Seccomp filters are not asked.
 */
long hl_remote_syscall(struct hl_remote *remote, long number, long a, long b, long c, long d,
		       long e, long f);

/*
 * Has the thread call ${function} with one argument on the stack below ${stack_top}, signals
 * blocked, under its seccomp filters. Its result is an int. 0; -ESRCH and -EAGAIN as above; -EFAULT when the function did what
 * would have killed the program: it was ended there.
 */
int hl_remote_call(struct hl_remote *remote, uint64_t function, uint64_t argument,
		   uint64_t stack_top, int32_t *ret_result);

/*
 * Whether the seccomp filters of the target's threads let system calls through, which code in the
 * target will make by itself. Threads with filters are stopped for it, one at a time. 0; -EPERM with
 * a sentence that names the call that is forbidden; what hl_remote_stop_thread() says.
 */
int hl_remote_check_calls(struct hl_remote *remote, const struct hl_seccomp_call *calls,
			  size_t count, struct hl_error *err);

/* ---- all threads ---- */

struct hl_remote_thread {
	pid_t tid;
	struct user_regs_struct registers; /* as they will go on */
	bool changed;			   /* registers are to be written back */
	bool stopped;			   /* false: it was asked to, and has not yet */
};

/*
 * Stops all threads, those too that are born meanwhile and those of other processes that share the
 * memory. 0; -ESRCH; -EAGAIN when one did not stop in time (it is uninterruptible, or waits for its
 * vfork() child): then all run again.
 */
int hl_remote_stop_all(struct hl_remote *remote, struct hl_error *err);

/* The stopped threads; valid until hl_remote_continue(). */
struct hl_remote_thread *hl_remote_threads(struct hl_remote *remote, size_t *ret_count);

/* Writes the registers of a stopped thread at once: it goes on with them even if heapline is killed
 * before it lets it go. 0; -ESRCH when it has just been killed. */
int hl_remote_set_registers(struct hl_remote_thread *thread);

/* The tids at this moment, stopped or not, of the process and of those that shared its memory when all
 * threads were stopped last, if they still do; to be freed. */
int hl_remote_list(const struct hl_remote *remote, pid_t **ret_tids, size_t *ret_count);

/* Stops the thread ${tid} alone and reads its registers; ${ret_thread} is valid until the next stop.
 * 0; -ESRCH when it has ended; -EAGAIN. */
int hl_remote_stop_thread(struct hl_remote *remote, pid_t tid,
			  struct hl_remote_thread **ret_thread);

/*
 * Lets whatever is stopped go on where it was: system calls that the stop interrupted are made
 * again, some (epoll_wait(2), recv(2) with a timeout ...) with their whole time limit. A thread that did not stop in time can be let go only once it does: by the next call of
 * this one, of hl_remote_stop_all() or hl_remote_free(), or by the end of the calling thread.
 */
void hl_remote_continue(struct hl_remote *remote);

/* Microseconds from the first stop to the last go, of the last time that threads were stopped. */
uint32_t hl_remote_stopped_us(const struct hl_remote *remote);

/* The signal that has killed the target while a thread of it was stopped or made a call; 0: none, or
 * unknown, as of a child of ours. */
int hl_remote_end_signal(const struct hl_remote *remote);
