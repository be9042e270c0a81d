/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files behind remote.h share. */
#pragma once

#include "hook/guardian.h"
#include "hook/remote.h"
#include "process/maps.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ptrace.h>

/* Instructions that a process has mapped anyway, by which a thread of it makes calls for us: addresses; 0 where none was found. */
struct hl_gadgets {
	uint64_t syscall;   /* syscall; ret */
	uint64_t sigreturn; /* mov $__NR_rt_sigreturn, %eax; syscall */
	uint64_t exchange;  /* xchg %eax, %REGISTER; ret */
	uint8_t exchange_opcode;

	/* Where one is missing, all are written over the program's entry point, which has run and
	 * does not run again. */
	uint64_t entry; /* 0: none is missing */
	bool are_planted;
	uint8_t displaced[12];
};

/* The thread that makes remote calls, from the first one until threads go on. */
struct hl_remote_caller {
	pid_t tid;	       /* 0: none does */
	uint64_t mask;	       /* of signals, its own */
	uint64_t frame;	       /* returns the thread to what it did, see remote_call.c */
	uint64_t borrowed;     /* start of frame_bytes() that are to be zero again; 0: none */
	uint64_t late_signals; /* 1 << number - 1: came meanwhile, to be sent again */
	uint8_t *xstate;       /* its own, as PTRACE_GETREGSET gives it */
	size_t xstate_bytes;
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

/* Runs a filter for one call, as the kernel does. 0 with what the filter returned, SECCOMP_RET_*; or
 * -EINVAL when it makes no sense. */
int hl_seccomp_run(const struct sock_filter *filter, size_t count, const struct seccomp_data *call,
		   uint32_t *ret_action);
