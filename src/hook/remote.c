/* SPDX-License-Identifier: BSD-2-Clause */
/* Stops threads and lets them go; remote_open.c looks first, remote_call.c has them make calls. */
#include "hook/remote.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "process/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_NS	 (HL_NS_PER_SECOND / 2)	 /* with all threads */
#define LATE_PATIENCE_NS 20000000		 /* with all, where one waits in the kernel */
#define ONE_PATIENCE_NS	 (HL_NS_PER_SECOND / 10) /* with one of several that will do */
#define IDLE_PATIENCE_NS (10 * HL_NS_PER_SECOND) /* with one that waits for a processor */
#define FREE_PATIENCE_NS (30 * HL_NS_PER_SECOND) /* at the end, with what has only to run */
#define ROUND_NS	 1000000 /* until a thread in the kernel is looked at again */
#define LOOK_AGAIN_NS	 20000
#define LOOKS_AT_ONCE	 50 /* before the first rest: most threads stop within microseconds */
#define MANY_THREADS	 100
#define TURN_NS		 2000 /* that a thread takes to stop, on one of two processors */
#define LOOKS_PER_STATE	 64   /* whether a thread has ended is looked at more rarely */
#define DESCRIPTORS_LEFT 64   /* for all else, below the limit, where there are more threads */

static uint64_t now_ns(void)
{
	return hl_clock_ns(CLOCK_MONOTONIC);
}

static void rest_ns(long ns)
{
	nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

/* ---- memory ---- */

bool hl_remote_read(const struct hl_remote *remote, uint64_t address, void *bytes, size_t size)
{
	return pread(remote->memory, bytes, size, (off_t)address) == (ssize_t)size;
}

bool hl_remote_write(const struct hl_remote *remote, uint64_t address, const void *bytes,
		     size_t size)
{
	return pwrite(remote->memory, bytes, size, (off_t)address) == (ssize_t)size;
}

/* ---- what threads there are ---- */

struct hl_remote_thread *hl_remote_find(const struct hl_remote *remote, pid_t tid)
{
	for (size_t i = 0; i < remote->thread_count; i++)
		if (remote->threads[i].tid == tid)
			return &remote->threads[i];
	return NULL;
}

/*
 * A thread that has ended stays until its tracer has waited for it, and holds up the end of its
 * process. That of a child of ours is left to whoever started it.
 */
static bool is_reaped(const struct hl_remote *remote, pid_t tid)
{
	siginfo_t info = {0};
	int left = remote->is_child && tid == remote->pid ? WNOWAIT : 0;

	return waitid(P_PID, (id_t)tid, &info, WEXITED | WNOHANG | __WALL | left) < 0 ||
	       info.si_pid;
}

static void drop(struct hl_remote *remote, struct hl_remote_thread *thread, bool is_ending)
{
	if (is_ending && !is_reaped(remote, thread->tid))
		remote->ending[remote->ending_count++] =
			thread->tid; /* hl_remote_add() made room */
	*thread = remote->threads[--remote->thread_count];
}

struct hl_remote_thread *hl_remote_add(struct hl_remote *remote, pid_t tid)
{
	size_t count = remote->thread_count + 1;

	if (HL_ARRAY_RESERVE(remote->threads, remote->thread_capacity, count) < 0 ||
	    HL_ARRAY_RESERVE(remote->ending, remote->ending_capacity,
			     remote->ending_count + count) < 0)
		return NULL;
	remote->threads[count - 1] = (struct hl_remote_thread){.tid = tid};
	remote->thread_count = count;
	return &remote->threads[count - 1];
}

static void close_directory(DIR **directory)
{
	if (*directory)
		closedir(*directory);
}

/*
 * The threads of ${pid}. One that ends while the directory is read may hide another, so the number
 * of links is compared, which the kernel counts by threads; a few times, as it may change at once.
 */
static int list_threads(pid_t pid, pid_t **ret_tids, size_t *ret_count)
{
	HL_FREED pid_t *tids = NULL;
	size_t count = 0, capacity = 0;
	char path[32];
	struct stat file;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	HL_CLEANUP(close_directory) DIR *directory = opendir(path);
	if (!directory)
		return errno == ENOENT ? -ESRCH : -errno;
	for (int tries = 0; tries < 3; tries++) {
		count = 0;
		rewinddir(directory);
		for (struct dirent *entry; (entry = readdir(directory));) {
			pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);
			if (tid > 0 && HL_ARRAY_APPEND(tids, count, capacity, tid) < 0)
				return -ENOMEM;
		}
		if (fstat(dirfd(directory), &file) < 0 || file.st_nlink == count + 2)
			break;
	}
	*ret_count = count;
	*ret_tids = HL_TAKE(tids);
	return count ? 0 : -ESRCH;
}

static bool shares_memory(pid_t pid, pid_t other)
{
	return syscall(SYS_kcmp, pid, other, KCMP_VM, 0, 0) == 0;
}

int hl_remote_list(const struct hl_remote *remote, pid_t **ret_tids, size_t *ret_count)
{
	HL_FREED pid_t *tids = NULL;
	size_t count = 0;

	int r = list_threads(remote->pid, &tids, &count);
	size_t capacity = count;
	for (size_t i = 1; r == 0 && i < remote->process_count; i++) {
		HL_FREED pid_t *others = NULL;
		size_t other_count = 0;
		/* It may have ended, and its number may be that of another. */
		if (!shares_memory(remote->pid, remote->processes[i]) ||
		    list_threads(remote->processes[i], &others, &other_count) < 0)
			continue;
		for (size_t k = 0; r == 0 && k < other_count; k++)
			r = HL_ARRAY_APPEND(tids, count, capacity, others[k]);
	}
	if (r < 0)
		return r;
	*ret_tids = HL_TAKE(tids);
	*ret_count = count;
	return 0;
}

/* Waits for threads that are about to end: the process would else not end before we do. A main thread
 * that has ended before others is told when they have, and the process ends without that. */
static void reap(struct hl_remote *remote)
{
	uint64_t deadline = now_ns() + PATIENCE_NS;

	for (;;) {
		size_t before = remote->ending_count, left = 0;
		bool is_coming = false;
		for (size_t i = 0; i < remote->ending_count; i++) {
			bool was_over = hl_process_has_ended(remote->ending[i]);
			if (is_reaped(remote, remote->ending[i]))
				continue;
			is_coming |= !was_over;
			remote->ending[left++] = remote->ending[i];
		}
		remote->ending_count = left;
		if (left < before) /* on a busy machine, many take long */
			deadline = now_ns() + PATIENCE_NS;
		if (!is_coming || now_ns() > deadline)
			return;
		rest_ns(LOOK_AGAIN_NS);
	}
}

/* ---- waiting ---- */

/* One look: 1 and the status as waitpid(2) has it; 0 when it runs; -ESRCH when it has ended. */
static int look(struct hl_remote *remote, pid_t tid, int *ret_status)
{
	siginfo_t info = {0};
	/* The end of a child of ours is left to whoever started it. */
	bool is_left = remote->is_child && tid == remote->pid;

	if (waitid(P_PID, (id_t)tid, &info, WSTOPPED | WNOHANG | __WALL | (is_left ? 0 : WEXITED)) <
	    0)
		return -ESRCH;
	if (!info.si_pid)
		return 0;
	if (info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED)
		remote->end_signal = info.si_status;
	if (info.si_code != CLD_TRAPPED && info.si_code != CLD_STOPPED)
		return -ESRCH;
	*ret_status = info.si_status << 8 | 0x7f;
	return 1;
}

int hl_remote_await(struct hl_remote *remote, pid_t tid, uint64_t deadline_ns, int *ret_status)
{
	for (unsigned looks = 1;; looks++) {
		int r = look(remote, tid, ret_status);
		if (r)
			return r < 0 ? r : 0;
		if (!deadline_ns)
			return -EAGAIN;
		if (looks < LOOKS_AT_ONCE)
			continue;
		/* That of a main thread is not told before that of all others. */
		if (looks % LOOKS_PER_STATE == 0 && hl_process_has_ended(tid))
			return -ESRCH;
		if (now_ns() > deadline_ns)
			return -EAGAIN;
		rest_ns(LOOK_AGAIN_NS);
	}
}

int hl_remote_await_interrupt(struct hl_remote *remote, pid_t tid, uint64_t deadline_ns)
{
	int status;

	for (;;) {
		int r = hl_remote_await(remote, tid, deadline_ns, &status);
		if (r < 0)
			return r;
		if (status >> 16 == PTRACE_EVENT_STOP)
			return 0;
		uintptr_t signal = status >> 16 ? 0 : (uintptr_t)WSTOPSIG(status);
		struct hl_remote_thread *thread = hl_remote_find(remote, tid);
		if (thread && thread->call.switches)
			thread->call.switches++;  /* by this stop */
		if (signal == (SIGTRAP | 0x80)) { /* at a system call, of ours if it is late */
			const uintptr_t options =
				PTRACE_O_TRACESYSGOOD; /* no filter is suspended */
			hl_remote_trace(PTRACE_SETOPTIONS, tid, 0, (const void *)options);
			signal = 0;
		}
		hl_remote_trace(PTRACE_CONT, tid, 0, (const void *)signal);
	}
}

/* ---- stopping ---- */

static bool waits_for_child(pid_t tid)
{
	char text[256];
	long number = -1;
	unsigned long flags = 0;

	if (hl_proc_read(tid, "syscall", text, sizeof(text)) > 0)
		sscanf(text, "%ld %lx", &number, &flags);
#ifdef SYS_vfork /* older machines have it */
	if (number == SYS_vfork)
		return true;
#endif
	return number == SYS_clone3 || (number == SYS_clone && (flags & CLONE_VFORK));
}

/* What makes a thread late, for a sentence. */
static const char *late_reason(pid_t tid)
{
	if (hl_process_state(tid) != 'D')
		return "did not stop in time";
	if (waits_for_child(tid))
		return "waits for a process that it has started by vfork()";
	return "waits in the kernel, where it cannot be interrupted";
}

int hl_remote_refuse_late(const struct hl_remote *remote, pid_t tid, struct hl_error *err)
{
	if (hl_process_is_frozen(remote->pid))
		return hl_error_set(err, -EAGAIN, "cannot stop process '%d': " HL_PROCESS_FROZEN,
				    remote->pid);
	return hl_error_set(err, -EAGAIN, "cannot stop process '%d': its thread %d %s; try again",
			    remote->pid, tid, late_reason(tid));
}

static int refuse_seize(const struct hl_remote *remote, pid_t tid, int code, struct hl_error *err)
{
	struct hl_process_condition condition;

	if (code == -EPERM && hl_process_condition_read(tid, &condition, NULL) == 0 &&
	    condition.tracer_pid)
		return hl_error_set(err, -EBUSY,
				    "cannot stop process '%d': process %d traces it; end that one",
				    remote->pid, condition.tracer_pid);
	if (code == -EPERM)
		return hl_error_set(err, -EACCES, "cannot stop process '%d': %s; %s", remote->pid,
				    strerror(-code), hl_proc_access_remedy(true));
	return hl_error_set(err, code, "cannot stop process '%d': %s", remote->pid,
			    strerror(-code));
}

static int refuse_ended(const struct hl_remote *remote, struct hl_error *err)
{
	return hl_error_set(err, -ESRCH, "process '%d' has ended", remote->pid);
}

/* Makes us the thread's tracer; it runs on. 1; 0 when it has just ended or was ours already. */
static int seize(struct hl_remote *remote, pid_t tid, struct hl_error *err)
{
	const uintptr_t options = PTRACE_O_TRACESYSGOOD;

	if (hl_remote_find(remote, tid))
		return 0;
	struct hl_remote_thread *thread = hl_remote_add(remote, tid);
	if (!thread)
		return hl_error_set(err, -ENOMEM, "out of memory");
	hl_interrupted_call_look(tid, &thread->call);
	if (hl_remote_trace(PTRACE_SEIZE, tid, 0, (const void *)options) < 0) {
		int code = -errno;
		drop(remote, thread, false);
		if (code == -ESRCH || hl_process_has_ended(tid))
			return 0;
		return refuse_seize(remote, tid, code, err);
	}
	return 1;
}

static void interrupt(struct hl_remote *remote, pid_t tid)
{
	hl_guardian_begin(remote->guardian);
	if (!remote->first_stop_ns)
		remote->first_stop_ns = now_ns();
	hl_remote_trace(PTRACE_INTERRUPT, tid, 0, NULL);
}

/* Waits until an interrupted thread has stopped, and reads its registers. 0; -EAGAIN; -ESRCH when
 * it has ended, and is dropped. */
static int await_thread(struct hl_remote *remote, struct hl_remote_thread *thread,
			uint64_t deadline_ns)
{
	int r = hl_remote_await_interrupt(remote, thread->tid, deadline_ns);

	if (r == 0 && hl_thread_registers_read(thread->tid, &thread->registers) < 0)
		r = -ESRCH;
	if (r == -ESRCH) {
		hl_guardian_lower(remote->guardian, thread->tid);
		drop(remote, thread, true);
	}
	if (r < 0)
		return r;
	thread->stopped = true;
	thread->changed = false;
	if (hl_interrupted_call_mend(thread->tid, &thread->call, &thread->registers))
		hl_remote_set_registers(thread);
	return 0;
}

static int stop_thread(struct hl_remote *remote, pid_t tid, uint64_t deadline_ns,
		       struct hl_remote_thread **ret_thread, struct hl_error *err)
{
	int r = seize(remote, tid, err);

	if (r < 0)
		return r;
	struct hl_remote_thread *thread = hl_remote_find(remote, tid);
	if (!thread)
		return -ESRCH;
	if (!thread->stopped) {
		interrupt(remote, tid);
		hl_guardian_lift(remote->guardian, tid);
		r = await_thread(remote, thread, deadline_ns);
		if (r < 0)
			return r;
	}
	*ret_thread = thread;
	return 0;
}

int hl_remote_stop_thread(struct hl_remote *remote, pid_t tid, struct hl_remote_thread **ret_thread)
{
	int r = stop_thread(remote, tid, now_ns() + PATIENCE_NS, ret_thread, NULL);

	if (r < 0)
		hl_remote_continue(remote);
	return r;
}

/* ---- one thread ---- */

/* Tries each thread, the main thread first. 0; -EAGAIN when none has stopped; -ESRCH when all have
 * ended; why the last that stopped cannot make calls. */
static int try_each(struct hl_remote *remote, struct hl_error *err)
{
	HL_FREED pid_t *tids = NULL;
	size_t count = 0;
	int reason = -ESRCH, r = list_threads(remote->pid, &tids, &count);

	if (r < 0)
		return r;
	for (size_t i = 0; i < count; i++) {
		struct hl_remote_thread *thread;
		char state = hl_process_state(tids[i]);
		if (state == 'Z' || state == 'X')
			continue;
		r = state == 'D' ? -EAGAIN
				 : stop_thread(remote, tids[i], now_ns() + ONE_PATIENCE_NS, &thread,
					       err);
		if (r == -ESRCH)
			continue;
		if (r < 0 && r != -EAGAIN)
			return r;
		if (r == 0)
			r = hl_remote_call_begin(remote, thread);
		if (r == 0)
			return 0;
		if (r != -ENOTSUP || reason == -ESRCH) /* another may do at the next try */
			reason = r;
		hl_remote_continue(remote);
	}
	return reason;
}

int hl_remote_stop_one(struct hl_remote *remote, struct hl_error *err)
{
	uint64_t deadline = now_ns() + PATIENCE_NS, last = now_ns() + IDLE_PATIENCE_NS;
	int r;

	hl_maps_release(&remote->maps); /* read before anything is stopped */
	hl_maps_read(remote->pid, &remote->maps, NULL);
	while ((r = try_each(remote, err)) == -EAGAIN || r == -EINPROGRESS) {
		/* While a thread waits for a processor, nothing of the process is stopped. */
		bool is_idle = r == -EAGAIN && hl_process_state(remote->pid) == 'R';
		if (now_ns() >= (is_idle ? last : deadline))
			break;
		rest_ns(ROUND_NS);
	}
	if (r == 0)
		return 0;
	hl_remote_continue(remote);
	if (r == -ESRCH || r == -EAGAIN)
		return r == -ESRCH ? refuse_ended(remote, err)
				   : hl_remote_refuse_late(remote, remote->pid, err);
	const char *reason = r == -EINPROGRESS ? "some are in SME's streaming mode; try again"
			     : r == -ENOTSUP   ? "they have shadow stacks; use 'heapline record'"
					       : strerror(-r);
	return hl_error_set(err, r, "cannot enter process '%d': no thread of it can make calls: %s",
			    remote->pid, reason);
}

/* ---- all threads ---- */

/*
 * A thread that stays in the kernel is found before any other is stopped for its sake. It may wait for
 * a lock of the kernel that one of hundreds of others holds, which gets a processor only when it
 * is about to be stopped, so this is tried once, and for a moment.
 */
static int await_kernel(struct hl_remote *remote, struct hl_error *err)
{
	HL_FREED pid_t *tids = NULL;
	size_t count = 0;
	uint64_t deadline_ns = now_ns() + PATIENCE_NS;
	int r = list_threads(remote->pid, &tids, &count);

	remote->patience_ns = PATIENCE_NS;
	for (size_t i = 0; r == 0 && i < count; i++) {
		bool is_late = false;
		while (!is_late && hl_process_state(tids[i]) == 'D') {
			is_late = now_ns() > deadline_ns;
			if (!is_late)
				rest_ns(ROUND_NS);
		}
		if (is_late && (waits_for_child(tids[i]) || hl_process_is_frozen(remote->pid)))
			return hl_remote_refuse_late(remote, tids[i], err);
		if (is_late)
			remote->patience_ns = LATE_PATIENCE_NS;
	}
	return r == -ESRCH ? refuse_ended(remote, err) : r;
}

/* A path takes the kernel longer to follow than all else that a thread's stop takes. */
static int open_children(struct hl_remote *remote, pid_t tid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", tid, tid);
	struct hl_remote_children children = {tid, open(path, O_RDONLY | O_CLOEXEC)};
	if (children.file >= sysconf(_SC_OPEN_MAX) - DESCRIPTORS_LEFT) {
		close(children.file);
		children.file = -1;
	}
	int r = HL_ARRAY_APPEND(remote->children, remote->children_count, remote->children_capacity,
				children);
	if (r < 0 && children.file >= 0)
		close(children.file);
	return r;
}

static void close_children(struct hl_remote *remote)
{
	while (remote->children_count)
		if (remote->children[--remote->children_count].file >= 0)
			close(remote->children[remote->children_count].file);
}

/* Seizes those threads of ${pid} that are not ours yet; their number. */
static int seize_new(struct hl_remote *remote, pid_t pid, struct hl_error *err)
{
	HL_FREED pid_t *tids = NULL;
	size_t count = 0;
	int found = 0, r = list_threads(pid, &tids, &count);

	for (size_t i = 0; r >= 0 && i < count; i++) {
		r = seize(remote, tids[i], err);
		found += r > 0;
		if (r > 0 && open_children(remote, tids[i]) < 0)
			r = hl_error_set(err, -ENOMEM, "out of memory");
	}
	return r < 0 && r != -ESRCH ? r : found;
}

/* Takes in what has stopped, and lifts the others if ${lifts}; how many threads have not. */
static size_t take_stopped(struct hl_remote *remote, bool lifts)
{
	size_t left = 0;

	for (size_t i = 0; i < remote->thread_count;) {
		struct hl_remote_thread *thread = &remote->threads[i];
		int r = thread->stopped ? 0 : await_thread(remote, thread, 0);
		left += r == -EAGAIN;
		if (r == -EAGAIN && lifts)
			hl_guardian_lift(remote->guardian, thread->tid);
		i += r != -ESRCH; /* then another one is there */
	}
	return left;
}

/*
 * To lift a thread and to lower it takes as long as all else that stops it. Each of many runs for a few
 * microseconds, if only at its next turn, and where nobody else has work for the processors these turns come
 * at once. So they have some time, as long as half of them use it; the others are lifted.
 */
static void lift_late(struct hl_remote *remote)
{
	size_t left = remote->thread_count, before = 2 * left;

	while (left >= MANY_THREADS && left <= before / 2) {
		rest_ns((long)left * TURN_NS);
		before = left;
		left = take_stopped(remote, false);
	}
	take_stopped(remote, true);
}

static int await_all(struct hl_remote *remote, uint64_t deadline_ns, struct hl_error *err)
{
	for (size_t i = 0; i < remote->thread_count;) {
		struct hl_remote_thread *thread = &remote->threads[i];
		int r = thread->stopped ? 0 : await_thread(remote, thread, deadline_ns);
		if (r == -EAGAIN)
			return hl_remote_refuse_late(remote, thread->tid, err);
		if (r == 0)
			hl_guardian_lower(remote->guardian, remote->threads[i++].tid);
	}
	return 0;
}

/* Whether all threads of the first process are ours, and none of another: the kernel counts them by links. */
static bool has_all_threads(const struct hl_remote *remote)
{
	char path[32];
	struct stat file;

	snprintf(path, sizeof(path), "/proc/%d/task", remote->pid);
	return remote->process_count == 1 && stat(path, &file) == 0 &&
	       file.st_nlink == remote->thread_count + 2;
}

/* A thread that runs may start another, so this looks again until it finds none. */
static int stop_process(struct hl_remote *remote, pid_t pid, struct hl_error *err)
{
	for (;;) {
		int found = seize_new(remote, pid, err);
		if (found < 0)
			return found;
		for (size_t i = 0; i < remote->thread_count; i++)
			if (!remote->threads[i].stopped)
				interrupt(remote, remote->threads[i].tid);
		lift_late(remote);
		/* Before the first stop, nobody waits for us. */
		uint64_t deadline = remote->first_stop_ns + remote->patience_ns;
		int r = await_all(remote, deadline, err);
		if (r < 0)
			return r;
		if (!found || has_all_threads(remote))
			return 0;
		if (now_ns() > deadline)
			return hl_error_set(err, -EAGAIN,
					    "cannot stop process '%d': it starts threads faster "
					    "than they can be stopped; try again",
					    pid);
	}
}

/* Adds the children of a thread that share its memory: vfork() and clone(CLONE_VM). */
static int add_sharers(struct hl_remote *remote, const struct hl_remote_children *of)
{
	HL_FREED char *children = NULL;
	size_t length = 0;
	char name[48];

	snprintf(name, sizeof(name), "task/%d/children", of->tid);
	int r = of->file >= 0 ? hl_proc_read_open(of->file, &children, &length)
			      : hl_proc_read_all(of->tid, name, &children, &length);
	if (r < 0)
		return r == -ENOMEM ? r : 0;
	char *rest = children;
	for (char *word; (word = strsep(&rest, " "));) {
		pid_t child = (pid_t)strtol(word, NULL, 10);
		if (child > 0 && shares_memory(remote->pid, child) &&
		    HL_ARRAY_APPEND(remote->processes, remote->process_count,
				    remote->process_capacity, child) < 0)
			return -ENOMEM;
	}
	return 0;
}

/* The processes that share the memory are looked for once the target is stopped, and starts no
 * more; by then, it has no child by vfork() that it would have to wait for. */
static int stop_processes(struct hl_remote *remote, struct hl_error *err)
{
	size_t looked_at = 0;

	remote->process_count = 0;
	int r = HL_ARRAY_APPEND(remote->processes, remote->process_count, remote->process_capacity,
				remote->pid);
	for (size_t i = 0; r == 0 && i < remote->thread_count; i++)
		r = open_children(remote, remote->threads[i].tid); /* seized already */
	for (size_t i = 0; r == 0 && i < remote->process_count; i++) {
		r = stop_process(remote, remote->processes[i], err);
		for (; r == 0 && looked_at < remote->children_count; looked_at++)
			r = add_sharers(remote, &remote->children[looked_at]);
	}
	if (r == 0 && !remote->thread_count)
		return refuse_ended(remote, err);
	return r == -ENOMEM ? hl_error_set(err, r, "out of memory") : r;
}

int hl_remote_stop_all(struct hl_remote *remote, struct hl_error *err)
{
	int r = await_kernel(remote, err);

	if (r < 0)
		return r;
	r = stop_processes(remote, err);
	if (r < 0)
		hl_remote_continue(remote);
	return r;
}

struct hl_remote_thread *hl_remote_threads(struct hl_remote *remote, size_t *ret_count)
{
	*ret_count = remote->thread_count;
	return remote->threads;
}

int hl_remote_set_registers(struct hl_remote_thread *thread)
{
	return hl_thread_registers_write(thread->tid, &thread->registers) < 0 ? -errno : 0;
}

/* ---- going on ---- */

/* A thread that is being killed has left its stop, and is about to end. */
static void let_go(struct hl_remote *remote, struct hl_remote_thread *thread)
{
	if (thread->changed)
		hl_thread_registers_write(thread->tid, &thread->registers);
	hl_interrupted_call_go_on(thread->tid, &thread->call, 0);
	hl_guardian_lower(remote->guardian, thread->tid);
	drop(remote, thread, hl_remote_trace(PTRACE_DETACH, thread->tid, 0, NULL) < 0);
}

void hl_remote_continue(struct hl_remote *remote)
{
	hl_remote_call_end(remote);
	for (size_t i = remote->thread_count; i-- > 0 && !remote->is_held;) {
		struct hl_remote_thread *thread = &remote->threads[i];
		if (thread->stopped || await_thread(remote, thread, 0) == 0)
			let_go(remote, thread);
	}
	if (remote->first_stop_ns)
		remote->stopped_us = (uint32_t)((now_ns() - remote->first_stop_ns) / 1000);
	remote->first_stop_ns = 0;
	hl_guardian_end(remote->guardian); /* others run now */
	close_children(remote);
	reap(remote);
}

uint32_t hl_remote_stopped_us(const struct hl_remote *remote)
{
	return remote->stopped_us;
}

int hl_remote_end_signal(const struct hl_remote *remote)
{
	return remote->end_signal;
}

/* Whether a thread is about to stop that waits for no more than a processor, or a lock of the kernel. */
static bool is_short_of_time(const struct hl_remote *remote)
{
	for (size_t i = 0; i < remote->thread_count; i++) {
		char state = hl_process_state(remote->threads[i].tid);
		if (state == 'R' || (state == 'D' && !waits_for_child(remote->threads[i].tid)))
			return true;
	}
	return false;
}

void hl_remote_free(struct hl_remote *remote)
{
	if (!remote)
		return;
	uint64_t deadline = now_ns() + PATIENCE_NS, last = deadline + FREE_PATIENCE_NS;
	if (remote->is_held) /* as if it had never been started */
		kill(remote->pid, SIGKILL);
	hl_remote_release(remote);
	/* One that stopped later would stay so until we end. */
	while ((remote->thread_count || remote->ending_count) &&
	       (now_ns() < deadline || (is_short_of_time(remote) && now_ns() < last))) {
		rest_ns(ROUND_NS);
		hl_remote_continue(remote);
	}
	hl_guardian_free(remote->guardian);
	if (remote->memory >= 0)
		close(remote->memory);
	hl_maps_release(&remote->maps);
	free(remote->threads);
	free(remote->ending);
	free(remote->processes);
	free(remote->children);
	free(remote);
}
