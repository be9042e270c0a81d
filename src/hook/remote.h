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
#include "base/seccomp.h"
#include "hook/machine.h"
#include "process/maps.h"
#include "process/process.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ptrace.h>
#include <sys/types.h>

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
 * For a program from its first instruction on. hl_remote_catch() has ${child}, which
 * is about to execute a program, stop where that program begins; hl_remote_open_caught() waits for
 * that. Its thread then stays stopped, whatever is asked of it, until hl_remote_release(); after an
 * error or hl_remote_free() it has been killed before its first instruction. If heapline ends it
 * goes on. Errors as above; -ESRCH when it has ended instead.
 */
int hl_remote_catch(pid_t child, struct hl_error *err);
int hl_remote_open_caught(pid_t child, struct hl_remote **ret_remote, struct hl_error *err);
void hl_remote_release(struct hl_remote *remote);

/* Like hl_remote_open(), but of a process whose one thread waits for us before its program's entry point, where nothing is planted, and no child of ours is
 * started for it. */
int hl_remote_open_waiting(pid_t pid, struct hl_remote **ret_remote, struct hl_error *err);

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
 * has ended; -EAGAIN when none stopped in time; -EBUSY when another tracer has it; -ENOTSUP: all have shadow stacks. */
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
	struct hl_thread_registers registers; /* as they will go on */
	struct hl_interrupted_call call;      /* that the stop has interrupted */
	bool changed;			      /* registers are to be written back */
	bool stopped;			      /* false: it was asked to, and has not yet */
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
 * 0; -ESRCH when it has ended; -EAGAIN when it did not stop in time. */
int hl_remote_stop_thread(struct hl_remote *remote, pid_t tid,
			  struct hl_remote_thread **ret_thread);

/* -EAGAIN, with a sentence why the thread ${tid} did not stop in time. */
int hl_remote_refuse_late(const struct hl_remote *remote, pid_t tid, struct hl_error *err);

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

/* ---- guardian ---- */

/*
 * Lends threads of another process a real-time priority, so that they stop at once on a busy machine:
 * a thread stops only when it is scheduled. A child process of ours, the guardian, takes every loan
 * back when we end, even by SIGKILL.
 *
 * Only threads of the usual policy and niceness are lifted, and what they start meanwhile is not.
 */

struct hl_guardian;

/* Starts the guardian. 0; -EPERM where priorities may not be changed, which needs CAP_SYS_NICE. */
int hl_guardian_new(struct hl_guardian **ret_guardian);

/* Takes all back, and ends the guardian. NULL is fine, here and below: then nothing is lent. */
void hl_guardian_free(struct hl_guardian *guardian);

/* Puts the calling thread above all that it lifts, until _end(). */
void hl_guardian_begin(struct hl_guardian *guardian);
void hl_guardian_end(struct hl_guardian *guardian);

/* A thread may be lowered that was not lifted, or has ended. */
void hl_guardian_lift(struct hl_guardian *guardian, pid_t tid);
void hl_guardian_lower(struct hl_guardian *guardian, pid_t tid);

/* ---- what the files behind remote.h share ---- */

/* What a process has mapped anyway, by which a thread of it makes calls for us. */
enum hl_gadget {
	HL_GADGET_SYSCALL,   /* a system call, and returns */
	HL_GADGET_SIGRETURN, /* rt_sigreturn(2) */
	HL_GADGET_EXCHANGE, /* where that needs the register of results: keeps the result, and returns */
	HL_GADGET_COUNT,
};

struct hl_gadgets {
	union {
		uint64_t at[HL_GADGET_COUNT]; /* addresses; 0 where none was found */
		struct {
			uint64_t syscall, sigreturn, exchange;
		};
	};
	uint8_t exchange_opcode;

	/* Where one is missing, all are written over the program's entry point, which has run and
	 * does not run again. */
	uint64_t entry; /* 0: none is missing */
	bool are_planted;
	uint8_t displaced[sizeof(hl_gadgets_planted)];
};

/* The thread that makes remote calls, from the first one until threads go on. */
struct hl_remote_caller {
	pid_t tid;	       /* 0: none does */
	uint64_t mask;	       /* of signals, its own */
	uint64_t frame;	       /* returns the thread to what it did, see remote_call.c */
	uint64_t borrowed;     /* start of frame_bytes() that are to be zero again; 0: none */
	uint64_t late_signals; /* 1 << number - 1: came meanwhile, to be sent again */
	uint8_t *xstate;       /* its own vector registers, as PTRACE_GETREGSET gives them */
	size_t xstate_bytes;
	int xstate_set;
	bool has_filter;	/* of system calls */
	bool called_a_function; /* which may have changed the xstate */
};

struct hl_remote {
	pid_t pid;
	bool is_child; /* of ours: whoever started it waits for its end */
	bool is_held;  /* its one thread is not let go before hl_remote_release() */
	int memory;    /* /proc/PID/mem: of the program that it was then, if another follows */
	struct hl_gadgets gadgets;
	struct hl_guardian *guardian; /* NULL: priorities may not be changed */

	/* Stopped, or, where one did not stop in time, about to stop. */
	struct hl_remote_thread *threads;
	size_t thread_count, thread_capacity;
	pid_t *ending; /* threads that were ours, and are to be waited for */
	size_t ending_count, ending_capacity;
	/* What lists the children of each thread that is stopped with all others: opened before. */
	struct hl_remote_children {
		pid_t tid;
		int file; /* -1: descriptors are short */
	} * children;
	size_t children_count, children_capacity;
	pid_t *processes; /* that share the memory, the first is ${pid} */
	size_t process_count, process_capacity;
	uint64_t first_stop_ns; /* 0: nothing is stopped */
	uint64_t patience_ns;	/* from that on, until all have stopped */
	uint32_t stopped_us;
	int end_signal; /* see hl_remote_end_signal() */

	struct hl_maps maps; /* while a thread makes calls */
	struct hl_remote_caller caller;
};

static inline long hl_remote_trace(int request, pid_t tid, uint64_t address, const void *bytes)
{
	return ptrace((enum __ptrace_request)request, tid, address, bytes);
}

/* One more thread that is ours, last of all; NULL when memory is short. */
struct hl_remote_thread *hl_remote_add(struct hl_remote *remote, pid_t tid);

struct hl_remote_thread *hl_remote_find(const struct hl_remote *remote, pid_t tid);

/* Waits for the next stop of a thread. 0; -ESRCH when it has ended; -EAGAIN at the ${deadline}, where that is 0 after
 * one look. */
int hl_remote_await(struct hl_remote *remote, pid_t tid, uint64_t deadline_ns, int *ret_status);

/* The same, until it is in a stop as PTRACE_INTERRUPT makes one: signals are let through. */
int hl_remote_await_interrupt(struct hl_remote *remote, pid_t tid, uint64_t deadline_ns);

/*
 * Looks for gadgets in the text of mapped files, libc's first; nothing is changed. False when one is
 * missing, and the program's entry point is not known either.
 */
bool hl_gadgets_find(const struct hl_remote *remote, pid_t pid, const struct hl_maps *maps,
		     struct hl_gadgets *ret_gadgets);

/* Makes a stopped thread ready for remote calls. 0 or a negative errno. */
int hl_remote_call_begin(struct hl_remote *remote, struct hl_remote_thread *thread);

/* Returns the caller, if there is one, to what it did; it stays stopped. 0; -ESRCH; -EAGAIN when it
 * did not stop in time: it returns by itself. */
int hl_remote_call_end(struct hl_remote *remote);

/* Of a system call, for tracers only: it is to be made again; see Linux' linux/errno.h. */
static inline bool hl_remote_is_restart(long result)
{
	return result <= -512 && result >= -516 && result != -515;
}

/* ---- what they need of the machine: arch/MACHINE/hook/remote_machine.c ---- */

struct hl_gadget_code {
	enum hl_gadget kind;
	uint8_t count;
	uint8_t bytes[9];
};

/* All encodings that are looked for. */
extern const struct hl_gadget_code hl_gadget_codes[];
extern const size_t hl_gadget_code_count;

/*
 * Makes the frame that ends at ${top} for what remote->caller has, and ${registers}: in ${bytes}, of HL_REMOTE_FRAME_BYTES
 * more than the vector registers have, what is to lie from ${ret_start} on. What the stack pointer has to be where the
 * sigreturn gadget begins; 0 where there is no room for all.
 */
uint64_t hl_remote_make_frame(const struct hl_remote *remote,
			      const struct hl_thread_registers *registers, uint64_t top,
			      uint8_t *bytes, uint64_t *ret_start);

/* Whether the stopped thread can make calls. 0; -EINPROGRESS in the streaming mode of SME, which a system call ends; -ENOTSUP with a
 * shadow, or guarded control, stack: what a call returns to is not in it, and heapline's death would end the program. */
int hl_remote_check_state(pid_t tid);

/* Sets ${registers}, those of a thread with that frame, so that it goes on at ${pc}: a function, which returns to the frame, or
 * one of the gadgets. */
void hl_remote_begin(struct hl_thread_registers *registers, const struct hl_gadgets *gadgets,
		     uint64_t frame, uint64_t pc);

/* Of a thread that is about to enter rt_sigreturn(2) by that frame: what the function has returned. */
int32_t hl_remote_function_result(const struct hl_thread_registers *registers,
				  const struct hl_gadgets *gadgets);

/* Whether ${words} of a stack, HL_SIGNAL_FRAME_WORDS, are of a signal's frame: then one is the program counter that it
 * returns to. */
bool hl_remote_is_signal_frame(const struct hl_remote *remote, const uint64_t *words);
