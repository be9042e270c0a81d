/* SPDX-License-Identifier: BSD-2-Clause */
/* The memory of a running process, by process_vm_readv, /proc/PID/mem and its page map; and stops of its threads by ptrace. */
#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "heap/memory.h"
#include "process/audit.h"
#include "process/process.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- stops, by PTRACE_SEIZE and PTRACE_INTERRUPT ---- */

#define PATIENCE_NS   (2 * HL_NS_PER_SECOND) /* with a thread that does not stop */
#define LOOK_AGAIN_US 50

struct stopped_thread {
	pid_t tid;
	int signal;	 /* that came first, and is still to be delivered */
	bool is_stopped; /* else it was interrupted, and will stop */
	struct hl_interrupted_call call;
};

struct hl_stop {
	pid_t pid, refused;		/* a thread that cannot be traced; 0: none */
	struct stopped_thread *threads; /* by tid */
	size_t count, capacity;
	uint64_t since_ns; /* when the first one was interrupted; 0: none was */
};

static size_t thread_place(const struct hl_stop *stop, pid_t tid)
{
	return HL_LOWER_BOUND(i, stop->count, stop->threads[i].tid < tid);
}

/* NULL is fine. */
static bool stop_has(const struct hl_stop *stop, pid_t tid)
{
	size_t at = stop ? thread_place(stop, tid) : 0;

	return stop && at < stop->count && stop->threads[at].tid == tid;
}

static uint32_t stop_count(const struct hl_stop *stop)
{
	return stop ? (uint32_t)stop->count : 0;
}

static int check_tracer(pid_t pid, pid_t tid, struct hl_error *err)
{
	struct hl_process_condition condition;

	if (hl_process_condition_read(tid, &condition, NULL) < 0 || !condition.tracer_pid)
		return 0;
	return hl_error_set(err, -EBUSY,
			    "cannot stop process '%d': process %d traces it; end that one, or read "
			    "without stopping",
			    (int)pid, (int)condition.tracer_pid);
}

int hl_stop_check(pid_t pid, struct hl_error *err)
{
	return check_tracer(pid, pid, err);
}

static int refuse(const struct hl_stop *stop, int code, struct hl_error *err)
{
	if (code == -EPERM && check_tracer(stop->pid, stop->refused, err) < 0)
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

static int seize(struct hl_stop *stop, pid_t tid)
{
	int r = HL_ARRAY_RESERVE(stop->threads, stop->capacity, stop->count + 1);
	struct hl_interrupted_call call = {0};

	if (r < 0)
		return r;
	hl_interrupted_call_look(tid, &call);
	if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) < 0) {
		r = -errno;
		if (r == -ESRCH || hl_process_has_ended(tid))
			return 0; /* it has just ended */
		stop->refused = tid;
		return r;
	}
	size_t at = thread_place(stop, tid);
	memmove(&stop->threads[at + 1], &stop->threads[at],
		(stop->count++ - at) * sizeof(*stop->threads));
	stop->threads[at] = (struct stopped_thread){.tid = tid, .call = call};
	return 1;
}

/* Interrupts those of ${tids} that are not interrupted yet; returns their number. To be traced stops no thread,
 * so all are before the first one is interrupted. After a failure, too: only a thread that stands can be let go. */
static int interrupt(struct hl_stop *stop, const pid_t *tids, size_t count)
{
	int found = 0, r = 0;

	for (size_t i = 0; i < count && r >= 0; i++)
		if (!stop_has(stop, tids[i])) {
			r = seize(stop, tids[i]);
			found += r > 0;
		}
	if (found && !stop->since_ns)
		stop->since_ns = hl_clock_ns(CLOCK_MONOTONIC);
	for (size_t i = 0; i < stop->count; i++)
		if (!stop->threads[i].is_stopped &&
		    ptrace(PTRACE_INTERRUPT, stop->threads[i].tid, NULL, NULL) < 0 &&
		    errno != ESRCH && r >= 0)
			r = -errno;
	return r < 0 ? r : found;
}

static void mend_call(struct stopped_thread *thread)
{
	struct hl_thread_registers registers;

	if (hl_thread_registers_read(thread->tid, &registers) == 0 &&
	    hl_interrupted_call_mend(thread->tid, &thread->call, &registers))
		hl_thread_registers_write(thread->tid, &registers);
}

/* Waits until a thread stops or ends. 0; -ETIMEDOUT, with a ${deadline} of 0 after one look. */
static int await(struct hl_stop *stop, pid_t tid, uint64_t deadline)
{
	int status;

	for (;;) {
		pid_t r = waitpid(tid, &status, __WALL | WNOHANG);
		struct stopped_thread *thread = &stop->threads[thread_place(stop, tid)];
		if (r < 0 || (r == tid && !WIFSTOPPED(status))) {
			size_t after = stop->threads + stop->count-- - (thread + 1);
			memmove(thread, thread + 1, after * sizeof(*thread));
			return 0;
		}
		if (r == tid) {
			/* another stop than that for a signal has an event in the upper half */
			thread->signal = status >> 16 ? 0 : WSTOPSIG(status);
			thread->is_stopped = true;
			mend_call(thread);
			return 0;
		}
		if (hl_clock_ns(CLOCK_MONOTONIC) > deadline)
			return -ETIMEDOUT;
		usleep(LOOK_AGAIN_US);
	}
}

/* Stops ${tids}; returns how many of them were not stopped yet. */
static int stop_some(struct hl_stop *stop, const pid_t *tids, size_t count)
{
	int found = interrupt(stop, tids, count);
	uint64_t deadline = hl_clock_ns(CLOCK_MONOTONIC) + PATIENCE_NS;

	for (size_t i = 0; i < stop->count && found != 0;) {
		if (stop->threads[i].is_stopped)
			i++;
		else if (await(stop, stop->threads[i].tid, deadline) < 0)
			return found < 0 ? found : -ETIMEDOUT;
	}
	return found;
}

/* A thread that has not stopped yet may start another, so this looks again until it finds none. */
static int stop_all(struct hl_stop *stop)
{
	int found;

	do {
		HL_FREED pid_t *tids = NULL;
		size_t count;
		found = hl_process_threads(stop->pid, &tids, &count);
		if (found == 0)
			found = stop_some(stop, tids, count);
	} while (found > 0);
	return found < 0 || stop->count ? found : -ESRCH;
}

/* Lets them go on; signals that came meanwhile are delivered, and system calls that the stop
 * interrupted are made again. NULL is fine. */
static void stop_end(struct hl_stop *stop)
{
	if (!stop)
		return;
	for (size_t i = stop->count; i-- > 0;)
		if (!stop->threads[i].is_stopped)
			await(stop, stop->threads[i].tid, 0);
	/* Threads that hang in the kernel cannot be detached: the kernel does it when we end. */
	for (size_t i = 0; i < stop->count; i++) {
		const struct stopped_thread *thread = &stop->threads[i];
		hl_interrupted_call_go_on(thread->tid, &thread->call, thread->signal);
		ptrace(PTRACE_DETACH, thread->tid, NULL, (void *)(intptr_t)thread->signal);
	}
	free(stop->threads);
	free(stop);
}

/* Calls ${visit} with the registers of each thread, until it returns non-zero; returns that. */
static int stop_threads(const struct hl_stop *stop, hl_thread_visit *visit, void *context)
{
	struct hl_thread_registers registers;
	int r = 0;

	for (size_t i = 0; i < stop->count && r == 0; i++)
		if (hl_thread_registers_read(stop->threads[i].tid, &registers) == 0)
			r = visit(context, &registers);
	return r;
}

/* ---- reading ---- */

#define HOLDS_MAX \
	8u /* attempts to leave sleepers alone; each stops those that woke in the one before */
#define HELD_STACKS_MAX \
	64u /* asked whether their mappings are known, which takes less time than reading all again */

struct live_memory {
	struct hl_memory base;
	int mem; /* /proc/PID/mem; -1: it could not be opened */
	bool reads_swapped;
	pid_t reader; /* hl_proc_thread() */
	struct hl_pagemap *pagemap;
	bool has_huge_pages;			/* of hugetlbfs */
	struct hl_stop *stop;			/* NULL: nothing is stopped */
	const struct hl_sleeper_source *source; /* NULL: nobody tells */
	struct hl_sleeper *sleepers;		/* that are not stopped */
	size_t sleeper_count;
	bool is_listed; /* they are known */
	bool is_ahead;	/* they were listed before anything was stopped */
	bool was_visited;
	pid_t *restless; /* by tid: they were found awake, and do not count as sleepers any more */
	size_t restless_count, restless_capacity;
};

static bool begins(const char *path, const char *const *beginnings)
{
	while (*beginnings && strncmp(path, *beginnings, strlen(*beginnings)) != 0)
		beginnings++;
	return *beginnings;
}

bool hl_memory_is_plain(const struct hl_map *map)
{
	static const char *const memory[] = {
		"/dev/shm/", "/dev/zero", "/memfd:", "/SYSV", "/secretmem", NULL};
	static const char *const others[] = {"[v", "/dev/", "/sys/", "/proc/", NULL};

	if (begins(map->path, memory))
		return true;
	return !begins(map->path, others) &&
	       (!map->inode || (map->path[0] == '/' && !(map->flags & HL_MAP_SHARED)));
}

/* Reads what process_vm_readv() refuses: pages without access. */
static int read_closed(const struct live_memory *live, uint64_t address, char *bytes, size_t length)
{
	for (size_t at = 0, part; at < length; at += part) {
		const struct hl_map *map = hl_maps_find(&live->base.maps, address + at);
		if (!map || !hl_memory_is_plain(map))
			return -EFAULT;
		part = map->end - (address + at);
		part = part < length - at ? part : length - at;
		if (pread(live->mem, bytes + at, part, (off_t)(address + at)) != (ssize_t)part)
			return -EFAULT;
	}
	return 0;
}

static int live_read(struct hl_memory *memory, uint64_t address, void *bytes, size_t length)
{
	struct live_memory *live = (struct live_memory *)memory;
	struct iovec local = {bytes, length};
	struct iovec remote = {(void *)(uintptr_t)address, length};
	ssize_t count = process_vm_readv(live->reader, &local, 1, &remote, 1, 0);

	if (count < 0 && errno == ESRCH) { /* that thread has ended, and perhaps it alone */
		live->reader = hl_proc_thread(live->base.pid);
		count = process_vm_readv(live->reader, &local, 1, &remote, 1, 0);
	}
	if (count < 0 && errno != EFAULT)
		return errno == EPERM ? -EACCES : -errno;
	size_t done = count > 0 ? (size_t)count : 0;
	return done == length
		       ? 0
		       : read_closed(live, address + done, (char *)bytes + done, length - done);
}

/* Marks what lies in mappings of hugetlbfs, of which the page map does not tell. */
static int live_scan(struct hl_memory *memory, uint64_t start, uint64_t end, struct hl_pages *pages)
{
	struct live_memory *live = (struct live_memory *)memory;
	const struct hl_maps *maps = &memory->maps;
	size_t i = live->has_huge_pages
			   ? HL_LOWER_BOUND(at, maps->count, maps->maps[at].end <= start)
			   : maps->count;
	int r = 0;

	for (uint64_t at = start, to; at < end && r == 0; at = to) {
		bool is_huge = i < maps->count && maps->maps[i].start <= at &&
			       maps->maps[i].flags & HL_MAP_HUGE_PAGES;
		size_t first = pages->count;
		to = i == maps->count		? end
		     : maps->maps[i].start > at ? maps->maps[i].start
						: maps->maps[i].end;
		i += i < maps->count && to == maps->maps[i].end;
		to = to < end ? to : end;
		r = live->reads_swapped ? hl_pagemap_scan_with_swapped(live->pagemap, at, to, pages)
					: hl_pagemap_scan(live->pagemap, at, to, pages);
		for (size_t k = first; is_huge && k < pages->count; k++)
			pages->runs[k].kind |= HL_PAGE_BESIDE_RSS;
	}
	return r;
}

static int live_scan_swapped(struct hl_memory *memory, uint64_t start, uint64_t end,
			     struct hl_pages *pages)
{
	struct live_memory *live = (struct live_memory *)memory;

	return live->reads_swapped ? 0 : hl_pagemap_scan_swapped(live->pagemap, start, end, pages);
}

static int live_kernel_words(struct hl_memory *memory, hl_kernel_visit *visit, void *context,
			     bool *ret_has_io_uring)
{
	return hl_kernel_words_read(memory->pid, visit, context, ret_has_io_uring);
}

void hl_memory_live_read_swapped(struct hl_memory *memory)
{
	((struct live_memory *)memory)->reads_swapped = true;
}

static int live_open_file(struct hl_memory *memory, const struct hl_map *map)
{
	return hl_maps_open_file(memory->pid, map);
}

static void forget_sleepers(struct live_memory *live)
{
	free(live->sleepers);
	live->sleepers = NULL;
	live->sleeper_count = 0;
	live->is_listed = live->is_ahead = live->was_visited = false;
}

static void live_go_on(struct hl_memory *memory)
{
	struct live_memory *live = (struct live_memory *)memory;

	uint64_t since_ns = live->stop ? live->stop->since_ns : 0;
	bool was_asked = live->stop || live->sleeper_count; /* to stop, though all may sleep */
	stop_end(live->stop);
	live->stop = NULL;
	if (since_ns)
		memory->stopped_ns += hl_clock_ns(CLOCK_MONOTONIC) - since_ns;
	if (was_asked && !live->base.is_audited)
		hl_audit("stop", memory->pid, 0); /* nobody waits for the line */
	live->base.is_audited |= was_asked;
	forget_sleepers(live);
}

static void live_free(struct hl_memory *memory)
{
	struct live_memory *live = (struct live_memory *)memory;

	live_go_on(memory);
	free(live->restless);
	hl_pagemap_free(live->pagemap);
	if (live->mem >= 0)
		close(live->mem);
	hl_maps_release(&memory->maps);
	free(live);
}

/* ---- mappings ---- */

static int read_maps(pid_t pid, struct hl_maps *ret_maps, struct hl_error *err)
{
	int r = hl_maps_read(pid, ret_maps, err);

	if (r == 0)
		hl_maps_mark_recorder(pid, ret_maps);
	return r;
}

#define KEPT_FLAGS (uint32_t)(HL_MAP_RECORDER | HL_MAP_NORESERVE | HL_MAP_HUGE_PAGES)

/* The recorder's own mappings are those that were known before: smaps of a large process would take
 * longer than it may be stopped. */
static int read_maps_again(struct live_memory *live, struct hl_error *err)
{
	struct hl_maps maps;
	int r = hl_maps_read(live->base.pid, &maps, err);

	if (r < 0)
		return r;
	for (size_t i = 0; i < maps.count; i++) {
		const struct hl_map *before = hl_maps_find(&live->base.maps, maps.maps[i].start);
		maps.maps[i].flags |= before ? before->flags & KEPT_FLAGS : 0;
	}
	hl_maps_release(&live->base.maps);
	live->base.maps = maps;
	return 0;
}

/* ---- stopping ---- */

/* Stops ${tids}, or all threads if that is NULL. Returns how many were not stopped yet; after a failure none is. */
static int stop_more(struct live_memory *live, const pid_t *tids, size_t count,
		     struct hl_error *err)
{
	if (!live->stop && !(live->stop = calloc(1, sizeof(*live->stop))))
		return hl_error_set(err, -ENOMEM, "out of memory");
	live->stop->pid = live->base.pid;
	int r = tids ? stop_some(live->stop, tids, count) : stop_all(live->stop);
	if (stop_count(live->stop) > live->base.stopped_threads)
		live->base.stopped_threads = stop_count(live->stop);
	if (r < 0) {
		int why = r;
		r = refuse(live->stop, why, err);
		live->base.is_audited = true;
		live_go_on(&live->base);
		hl_audit("stop", live->base.pid, why);
	}
	return r;
}

static int live_stop(struct hl_memory *memory, struct hl_error *err)
{
	struct live_memory *live = (struct live_memory *)memory;

	forget_sleepers(live);
	int r = stop_more(live, NULL, 0, err);
	if (r == 0 && (r = read_maps_again(live, err)) < 0)
		live_go_on(memory);
	return r;
}

/* The thread ${tid} among the sleepers; NULL: it is not there. */
static const struct hl_sleeper *find_sleeper(const struct live_memory *live, pid_t tid)
{
	size_t at = HL_LOWER_BOUND(i, live->sleeper_count, live->sleepers[i].tid < tid);

	return at < live->sleeper_count && live->sleepers[at].tid == tid ? &live->sleepers[at]
									 : NULL;
}

static size_t restless_place(const struct live_memory *live, pid_t tid)
{
	return HL_LOWER_BOUND(i, live->restless_count, live->restless[i] < tid);
}

static bool is_restless(const struct live_memory *live, pid_t tid)
{
	size_t at = restless_place(live, tid);

	return at < live->restless_count && live->restless[at] == tid;
}

/* Without memory it is found to have run the next time, too. */
static void add_restless(struct live_memory *live, pid_t tid)
{
	size_t at = restless_place(live, tid);

	if (is_restless(live, tid) ||
	    HL_ARRAY_APPEND(live->restless, live->restless_count, live->restless_capacity, tid) < 0)
		return;
	memmove(&live->restless[at + 1], &live->restless[at],
		(live->restless_count - 1 - at) * sizeof(tid));
	live->restless[at] = tid;
}

/*
 * Lists all threads. Sleepers are from now on those that sleep and have done so since they were listed before, if they
 * were; ${ret_others}, to be freed, is what is neither that nor stopped.
 */
static int list_threads(struct live_memory *live, pid_t **ret_others, size_t *ret_count)
{
	struct hl_sleeper *now;
	size_t count, kept = 0, other_count = 0;
	int r = live->source->read(live->source->context, &now, &count);

	if (r < 0)
		return r;
	pid_t *others = malloc((count + 1) * sizeof(*others));
	for (size_t i = 0; i < count && others; i++) {
		const struct hl_sleeper *before = find_sleeper(live, now[i].tid);
		bool has_run = live->is_listed && (!before || before->switches != now[i].switches);
		if (stop_has(live->stop, now[i].tid))
			continue;
		if (now[i].runs || has_run || is_restless(live, now[i].tid)) {
			others[other_count++] = now[i].tid;
			add_restless(live, now[i].tid);
		} else {
			now[kept++] = now[i];
		}
	}
	free(live->sleepers);
	live->sleepers = now;
	live->sleeper_count = others ? kept : 0;
	live->is_listed = true;
	*ret_others = others;
	*ret_count = other_count;
	return others ? 0 : -ENOMEM;
}

static bool live_has_moved(struct hl_memory *memory)
{
	struct live_memory *live = (struct live_memory *)memory;
	HL_FREED pid_t *others = NULL;
	size_t count;

	return live->sleeper_count && (list_threads(live, &others, &count) < 0 || count);
}

static bool live_list_sleepers(struct hl_memory *memory)
{
	struct live_memory *live = (struct live_memory *)memory;
	HL_FREED pid_t *others = NULL;
	size_t count;

	if (!live->source || live->stop)
		return false;
	forget_sleepers(live);
	if (list_threads(live, &others, &count) < 0 || read_maps_again(live, NULL) < 0)
		forget_sleepers(live);
	return live->is_ahead = live->is_listed;
}

/* Whether the stack of a stopped thread is where maps say, which are older than the stop. */
static int check_stack(void *context, const struct hl_thread_registers *registers)
{
	const struct live_memory *live = context;
	const struct hl_map *map =
		hl_maps_find(&live->base.maps, hl_thread_registers_sp(registers));

	return map && map->flags & HL_MAP_WRITE ? 0 : 1;
}

static bool knows_stacks(struct live_memory *live)
{
	return live->is_ahead && (!live->stop || (live->stop->count <= HELD_STACKS_MAX &&
						  !stop_threads(live->stop, check_stack, live)));
}

/* A sleeper may wake, and start threads, before the others are stopped. */
static int live_hold(struct hl_memory *memory, struct hl_error *err)
{
	struct live_memory *live = (struct live_memory *)memory;
	bool is_quiet = false;
	int r = 0;

	for (unsigned tries = 0; live->source && !is_quiet && tries < HOLDS_MAX; tries++) {
		HL_FREED pid_t *others = NULL;
		size_t count;
		if (list_threads(live, &others, &count) < 0)
			return live_stop(memory, err);
		r = count ? stop_more(live, others, count, err) : 0;
		if (r < 0)
			return r;
		is_quiet = r == 0;
	}
	/* Who sees sleepers ahead bears that one wakes once more. Without any thread the process has ended, which a stop says. */
	if ((!is_quiet && !live->is_ahead) || (!live->sleeper_count && !stop_count(live->stop)))
		return live_stop(memory, err);
	if (!knows_stacks(live) && (r = read_maps_again(live, err)) < 0)
		live_go_on(memory);
	return r < 0 ? r : 0;
}

static int live_threads(struct hl_memory *memory, hl_thread_visit *visit, void *context)
{
	struct live_memory *live = (struct live_memory *)memory;
	int r = live->stop ? stop_threads(live->stop, visit, context) : 0;

	for (size_t i = 0; i < live->sleeper_count && r == 0 && !live->was_visited; i++)
		r = visit(context, &live->sleepers[i].registers);
	live->was_visited = live->is_ahead;
	return r;
}

static const struct hl_memory_kind live_kind = {
	live_read,	live_scan,	   live_open_file,    live_stop,
	live_go_on,	live_free,	   live_threads,      live_hold,
	live_has_moved, live_scan_swapped, live_kernel_words, live_list_sleepers};

void hl_memory_live_set_sleepers(struct hl_memory *memory, const struct hl_sleeper_source *source)
{
	((struct live_memory *)memory)->source = source;
}

/* Whether memory may be read at all: maps and page map need less than reading does. */
static int check_access(struct hl_memory *memory, pid_t pid, struct hl_error *err)
{
	char byte;

	if (!memory->maps.count)
		return hl_error_set(err, -ESRCH,
				    "process '%d' has no memory; it is a kernel "
				    "thread, or has ended",
				    (int)pid);
	int r = hl_memory_read(memory, memory->maps.maps[0].start, &byte, 1);
	if (r == -EACCES)
		return hl_error_set(err, r,
				    "cannot read the memory of process '%d': the system "
				    "does not permit it; %s",
				    (int)pid, hl_proc_access_remedy(false));
	if (r == 0 && hl_maps_are_32_bit(&memory->maps))
		return hl_error_set(
			err, -ENOTSUP,
			"process '%d' is a 32-bit program, whose heap cannot be read; "
			"'heapline pgfault -p %d 60' counts the pages that it brings in",
			(int)pid, (int)pid);
	return r == -ESRCH ? hl_error_set(err, r, "there is no process '%d'", (int)pid) : 0;
}

int hl_memory_live_open(pid_t pid, struct hl_memory **ret_memory, struct hl_error *err)
{
	struct live_memory *live = calloc(1, sizeof(*live));

	if (!live)
		return hl_error_set(err, -ENOMEM, "out of memory");
	live->base.kind = &live_kind;
	live->base.page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	live->base.pid = pid;
	live->reader = hl_proc_thread(pid);
	live->base.program_headers = hl_process_auxv(pid, AT_PHDR);
	live->mem = hl_proc_open_memory(pid, O_RDONLY);
	int r = read_maps(pid, &live->base.maps, err);
	for (size_t i = 0; i < live->base.maps.count; i++)
		live->has_huge_pages =
			live->has_huge_pages || live->base.maps.maps[i].flags & HL_MAP_HUGE_PAGES;
	if (r == 0)
		r = hl_pagemap_open(pid, &live->pagemap, err);
	/* Pages that the kernel is moving look like pages on swap, which there may be none of. */
	live->reads_swapped = !hl_process_status_read(pid).swap_bytes;
	live->base.is_slow_on_holes = r == 0 && !hl_pagemap_passes_over_holes(live->pagemap);
	if (r == 0)
		r = check_access(&live->base, pid, err);
	if (r < 0) {
		live_free(&live->base);
		return r;
	}
	*ret_memory = &live->base;
	return 0;
}
