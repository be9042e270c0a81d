/* SPDX-License-Identifier: BSD-2-Clause */
/* Stopping by PTRACE_SEIZE and PTRACE_INTERRUPT; see memory.h. */
#include "heap/memory.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "process/process.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_NS   (2 * HL_NS_PER_SECOND) /* with a thread that does not stop */
#define LOOK_AGAIN_US 50

struct stopped_thread {
	pid_t tid;
	int signal;	 /* that came first, and is still to be delivered */
	bool is_stopped; /* else it was interrupted, and will stop */
};

struct hl_stop {
	pid_t pid;
	const struct hl_sleeper *sleepers; /* that are left alone */
	size_t sleeper_count;
	struct stopped_thread *threads;
	size_t count, capacity;
};

const struct hl_sleeper *hl_stop_find_sleeper(const struct hl_sleeper *sleepers, size_t count,
					      pid_t tid)
{
	size_t at = HL_LOWER_BOUND(i, count, sleepers[i].tid < tid);

	return at < count && sleepers[at].tid == tid ? &sleepers[at] : NULL;
}

static struct stopped_thread *find_thread(const struct hl_stop *stop, pid_t tid)
{
	for (size_t i = 0; i < stop->count; i++)
		if (stop->threads[i].tid == tid)
			return &stop->threads[i];
	return NULL;
}

bool hl_stop_has(const struct hl_stop *stop, pid_t tid)
{
	return stop && find_thread(stop, tid);
}

uint32_t hl_stop_count(const struct hl_stop *stop)
{
	return stop ? (uint32_t)stop->count : 0;
}

int hl_stop_check(pid_t pid, struct hl_error *err)
{
	struct hl_process_condition condition;

	if (hl_process_condition_read(pid, &condition, NULL) < 0 || !condition.tracer_pid)
		return 0;
	return hl_error_set(err, -EBUSY,
			    "cannot stop process '%d': process %d traces it; end that one, or read "
			    "without stopping",
			    (int)pid, (int)condition.tracer_pid);
}

static int refuse(const struct hl_stop *stop, int code, struct hl_error *err)
{
	if (code == -EPERM && hl_stop_check(stop->pid, err) < 0)
		return -EBUSY;
	if (code == -EPERM)
		return hl_error_set(err, -EACCES,
				    "cannot stop process '%d': the system does not permit it; run "
				    "as root or as its user",
				    (int)stop->pid);
	if (code == -ETIMEDOUT)
		return hl_error_set(err, code, "cannot stop process '%d': %s", (int)stop->pid,
				    hl_process_is_frozen(stop->pid)
					    ? HL_PROCESS_FROZEN
					    : "a thread of it did not stop in time; try again");
	return hl_error_set(err, code, "cannot stop process '%d': %s", (int)stop->pid,
			    strerror(-code));
}

/* Interrupts all threads that are not interrupted yet; returns their number. */
static int interrupt_new(struct hl_stop *stop)
{
	pid_t *tids;
	size_t count;
	int found = 0, r = hl_process_threads(stop->pid, &tids, &count);

	if (r < 0)
		return r;
	for (size_t i = 0; i < count && r == 0; i++) {
		pid_t tid = tids[i];
		if (find_thread(stop, tid) ||
		    hl_stop_find_sleeper(stop->sleepers, stop->sleeper_count, tid))
			continue;
		r = HL_ARRAY_RESERVE(stop->threads, stop->capacity, stop->count + 1);
		if (r < 0)
			break;
		if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) < 0) {
			int code = -errno;
			r = code == -ESRCH || hl_process_has_ended(tid)
				    ? 0
				    : code; /* it has just ended */
			continue;
		}
		stop->threads[stop->count++] = (struct stopped_thread){.tid = tid};
		found++;
		if (ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) < 0 && errno != ESRCH)
			r = -errno;
	}
	free(tids);
	return r < 0 ? r : found;
}

static void mend_call(pid_t tid)
{
	struct user_regs_struct registers;

	if (ptrace(PTRACE_GETREGS, tid, NULL, &registers) == 0 &&
	    hl_interrupted_call_mend(tid, &registers))
		ptrace(PTRACE_SETREGS, tid, NULL, &registers);
}

/* Waits until a thread stops or ends. 0; -ETIMEDOUT, with a ${deadline} of 0 after one look. */
static int await(struct hl_stop *stop, pid_t tid, uint64_t deadline)
{
	int status;

	for (;;) {
		pid_t r = waitpid(tid, &status, __WALL | WNOHANG);
		struct stopped_thread *thread = find_thread(stop, tid);
		if (r < 0 || (r == tid && !WIFSTOPPED(status))) {
			*thread = stop->threads[--stop->count];
			return 0;
		}
		if (r == tid) {
			/* another stop than that for a signal has an event in the upper half */
			thread->signal = status >> 16 ? 0 : WSTOPSIG(status);
			thread->is_stopped = true;
			mend_call(tid);
			return 0;
		}
		if (hl_clock_ns(CLOCK_MONOTONIC) > deadline)
			return -ETIMEDOUT;
		usleep(LOOK_AGAIN_US);
	}
}

/* A thread that has not stopped yet may start another, so this looks again until it finds none. */
static int stop_all(struct hl_stop *stop)
{
	int found;

	do {
		found = interrupt_new(stop);
		if (found < 0)
			return found;
		uint64_t deadline = hl_clock_ns(CLOCK_MONOTONIC) + PATIENCE_NS;
		for (size_t i = 0; i < stop->count;) {
			if (stop->threads[i].is_stopped)
				i++;
			else if (await(stop, stop->threads[i].tid, deadline) < 0)
				return -ETIMEDOUT;
		}
	} while (found > 0);
	return stop->count || stop->sleeper_count ? 0 : -ESRCH;
}

int hl_stop_begin(pid_t pid, const struct hl_sleeper *sleepers, size_t sleeper_count,
		  struct hl_stop **ret_stop, struct hl_error *err)
{
	struct hl_stop *stop = calloc(1, sizeof(*stop));

	if (!stop)
		return hl_error_set(err, -ENOMEM, "out of memory");
	*stop = (struct hl_stop){.pid = pid, .sleepers = sleepers, .sleeper_count = sleeper_count};
	int r = stop_all(stop);
	if (r < 0)
		r = refuse(stop, r, err);
	if (r < 0 || !stop->count) {
		hl_stop_end(stop);
		stop = NULL;
	}
	if (r == 0)
		*ret_stop = stop;
	return r;
}

int hl_stop_extend(struct hl_stop *stop, const struct hl_sleeper *sleepers, size_t sleeper_count,
		   struct hl_error *err)
{
	stop->sleepers = sleepers;
	stop->sleeper_count = sleeper_count;
	int r = stop_all(stop);
	return r < 0 ? refuse(stop, r, err) : 0;
}

int hl_stop_threads(const struct hl_stop *stop, hl_thread_visit *visit, void *context)
{
	struct user_regs_struct registers;
	int r = 0;

	for (size_t i = 0; i < stop->count && r == 0; i++)
		if (ptrace(PTRACE_GETREGS, stop->threads[i].tid, NULL, &registers) == 0)
			r = visit(context, &registers);
	return r;
}

void hl_stop_end(struct hl_stop *stop)
{
	if (!stop)
		return;
	for (size_t i = stop->count; i-- > 0;)
		if (!stop->threads[i].is_stopped)
			await(stop, stop->threads[i].tid, 0);
	/* Threads that hang in the kernel cannot be detached: the kernel does it when we end. */
	for (size_t i = 0; i < stop->count; i++)
		ptrace(PTRACE_DETACH, stop->threads[i].tid, NULL,
		       (void *)(intptr_t)stop->threads[i].signal);
	free(stop->threads);
	free(stop);
}
