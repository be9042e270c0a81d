/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * prctl() and seccomp(2): filters by which a program forbids itself system calls. They are noted before the kernel knows them, so
 * that the recorder makes no call for which they kill (sys.h), and what the recorder would need later is mapped while it may. A
 * filter that comes by the instruction itself is not seen.
 */
#include "recorder/hooks.h"

#include "base/machine.h"
#include "recorder/event.h"
#include "recorder/libc.h"
#include "recorder/recorder.h"
#include "recorder/start.h"
#include "recorder/sys.h"
#include "recorder/thread.h"
#include "unwind/saved.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define PAGE_BYTES	  UINT64_C(4096)
#define STACK_PAGES_BELOW 64u
#define STACK_PAGES_ABOVE 4096u

/* What the strict mode permits; see mode1_syscalls in kernel/seccomp.c. */
#define PERMIT(call)                                           \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1), \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
static const struct sock_filter strict[] = {
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	PERMIT(read),
	PERMIT(write),
	PERMIT(exit),
	PERMIT(rt_sigreturn),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_THREAD),
};

/* Without these something may not be counted. */
static const struct seccomp_data needed[] = {
	{.nr = SYS_mmap,
	 .args = {0, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS}},
	{.nr = SYS_mmap,
	 .args = {0, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS}},
	{.nr = SYS_mprotect, .args = {0, PAGE_BYTES, PROT_READ | PROT_WRITE}},
	{.nr = SYS_madvise, .args = {0, PAGE_BYTES, MADV_DONTFORK}},
	{.nr = SYS_rt_sigprocmask},
	{.nr = SYS_gettid},
};

static bool permits_all(const struct sock_filter *filter, size_t count)
{
	for (size_t i = 0; i < HL_COUNT_OF(needed); i++) {
		struct seccomp_data call = needed[i];
		call.arch = HL_MACHINE_AUDIT;
		if (!hl_seccomp_permits(filter, count, &call))
			return false;
	}
	return true;
}

/* While the system may still be asked. The stack of the calling thread alone is known: another one proves its own, page by page,
 * as far as it may. */
static void prepare(struct hl_recorder *recorder)
{
	struct hl_thread *thread = hl_thread_enter();
	uint64_t here = (uint64_t)__builtin_frame_address(0);

	hl_private_map_prepare();
	hl_region_map_prepare(&recorder->region);
	if (!thread)
		return;
	/* Not beyond its end: what lies there is another stack, and one at a time is known. */
	for (uint32_t i = 0; i < STACK_PAGES_BELOW; i++)
		if (!hl_memory_prove_readable(&thread->tables->walk, here - i * PAGE_BYTES))
			break;
	for (uint32_t i = 1; i < STACK_PAGES_ABOVE; i++)
		if (!hl_memory_prove_readable(&thread->tables->walk, here + i * PAGE_BYTES))
			break;
	hl_thread_leave(thread);
}

/* In the strict mode and after PR_SET_TSC the time stamp counter kills. */
static void forbid_clock(void)
{
	struct hl_thread *thread = hl_thread_self();

	hl_ring_writer_forbid_clock();
	if (thread)
		thread->ring.stamps = false;
}

/* A call that installs a filter. */
struct installing {
	uint64_t flags;
	bool is_noted;
	struct hl_seccomp_change change; /* if it is */
	bool is_first;			 /* none was seen before */
	bool is_harmless;		 /* what the recorder needs is permitted */
	bool is_of_child;		 /* by vfork() */
};

/* ---- of a child by vfork() ---- */

#ifdef HL_ATTACHED
/* The image does not see its end: what the child forbids itself is forbidden to its parent, too. */
static bool is_child(const struct hl_recorder *recorder)
{
	(void)recorder;
	return false;
}

static void keep_for_child(const struct hl_seccomp_change *change)
{
	(void)change;
}
#else
/*
 * It runs in its parent's memory and on its thread: what it has noted there is taken back when it runs a program or ends. Where
 * neither comes by here, as when it is killed, the next child of that thread does so.
 */
static __thread struct {
	bool is_set;
	struct hl_seccomp_change change;
	bool withholds; /* the way to the collector from its program */
} of_child __attribute__((tls_model("initial-exec")));

static bool is_child(const struct hl_recorder *recorder)
{
	long pid = HL_SYS(SYS_getpid, 0, 0, 0);

	return pid > 0 && pid != recorder->region.header->pid;
}

static void keep_for_child(const struct hl_seccomp_change *change)
{
	bool is_more = of_child.is_set;

	/* Another thread's filter that has come between stays; so does then what is before it. */
	if (!is_more || of_child.change.after != change->before)
		of_child.change.before = change->before;
	of_child.change.after = change->after;
	of_child.withholds = (is_more && of_child.withholds) || !hl_connect_may_start();
	of_child.is_set = true;
}

bool hl_filters_withhold(void)
{
	return of_child.is_set && of_child.withholds;
}

bool hl_filters_leave(void)
{
	bool is_taken_back = of_child.is_set && hl_seccomp_forget(of_child.change);

	of_child.is_set = false;
	return is_taken_back;
}

void hl_filters_return(bool left)
{
	uint32_t before = of_child.change.before;

	if (!left)
		return;
	if (!atomic_compare_exchange_strong(&hl_seccomp_noted, &before, of_child.change.after))
		hl_seccomp_note(NULL, 0);
	of_child.is_set = true;
}
#endif

/* ---- before and after the kernel ---- */

static void note(struct installing *installing, const struct sock_filter *filter, size_t count)
{
	struct hl_recorder *recorder = hl_recorder;
	bool is_running = hl_recorder_is_running(recorder);

	installing->is_harmless = filter && permits_all(filter, count);
	installing->is_of_child = is_running && is_child(recorder);
	if (is_running && !installing->is_of_child) {
		/* Before heapline can see that there is one. */
		installing->is_first =
			!(atomic_fetch_or(&recorder->region.header->flags, HL_REGION_FILTER_SEEN) &
			  HL_REGION_FILTER_SEEN);
		if (!installing->is_harmless)
			prepare(recorder);
	}
	installing->change = hl_seccomp_note(filter, count);
	installing->is_noted = true;
}

/* Programs pass an invalid address to learn whether the kernel knows filters. */
static void note_program(struct installing *installing, uint64_t address)
{
	struct sock_fprog program;

	if (!hl_seccomp_may_call(SYS_rt_sigprocmask, -1, 0, 0, HL_SYS_SIGSET_BYTES, 0, 0)) {
		note(installing, NULL, 0);
	} else if (hl_memory_range_is_readable(address, address + sizeof(program) - 1)) {
		memcpy(&program, (const void *)address, sizeof(program));
		if (hl_memory_range_is_readable((uint64_t)program.filter,
						(uint64_t)(program.filter + program.len) - 1))
			note(installing, program.filter, program.len);
	}
}

#define WAITS_MAX 100u

/* Other threads that have looked whether a call is permitted make it before the kernel takes the filter, which itself may forbid to
 * sleep. Those that wait in the kernel are safe there, and cannot be told apart: nobody waits for long. */
static void wait_for_others(void)
{
	static const struct timespec a_little = {.tv_nsec = 1000000};

	for (unsigned i = 0; i < WAITS_MAX && atomic_load(&hl_seccomp_calling); i++)
		hl_machine_call(SYS_nanosleep, (long)&a_little, 0, 0, 0, 0, 0);
}

/* The arguments of seccomp(2). */
static struct installing begin(uint64_t operation, uint64_t flags, uint64_t program)
{
	struct installing installing = {.flags = flags};

	if (operation == SECCOMP_SET_MODE_STRICT) {
		note(&installing, strict, HL_COUNT_OF(strict));
		forbid_clock();
	} else if (operation == SECCOMP_SET_MODE_FILTER) {
		bool may_sleep = hl_seccomp_may_call(SYS_nanosleep, 0, 0, 0, 0, 0, 0);
		note_program(&installing, program);
		if (flags & SECCOMP_FILTER_FLAG_TSYNC && installing.is_noted && may_sleep)
			wait_for_others();
	}
	return installing;
}

/* What programs that this one starts do before they know its filters. */
static void keep_from_programs(void)
{
#ifndef HL_ATTACHED
	if (!hl_connect_may_start())
		hl_environment_forget_token(environ);
#endif
}

/* With SECCOMP_FILTER_FLAG_TSYNC the kernel returns the thread that it could not do it to. */
static void end(const struct installing *installing, long result)
{
	struct hl_recorder *recorder = hl_recorder;
	bool is_number_of_thread = installing->flags & SECCOMP_FILTER_FLAG_TSYNC &&
				   !(installing->flags & SECCOMP_FILTER_FLAG_NEW_LISTENER);

	if (!installing->is_noted)
		return;
	if (result < 0 || (result > 0 && is_number_of_thread)) {
		bool is_forgotten = hl_seccomp_forget(installing->change);
		if (is_forgotten && installing->is_first && hl_recorder_is_running(recorder))
			atomic_fetch_and(&recorder->region.header->flags, ~HL_REGION_FILTER_SEEN);
		return;
	}
	if (installing->is_of_child) {
		keep_for_child(&installing->change);
		return;
	}
	keep_from_programs();
	/* Another one that was refused meanwhile may have taken the first flag away. */
	if (hl_recorder_is_running(recorder))
		atomic_fetch_or(&recorder->region.header->flags,
				HL_REGION_FILTER_SEEN |
					(installing->is_harmless ? 0u : HL_REGION_FILTERED));
}

static struct installing begin_prctl(uint64_t option, uint64_t a, uint64_t b)
{
	if (option == PR_SET_TSC && a == PR_TSC_SIGSEGV)
		forbid_clock();
	if (option != PR_SET_SECCOMP)
		return (struct installing){0};
	return begin(a == SECCOMP_MODE_STRICT	? SECCOMP_SET_MODE_STRICT
		     : a == SECCOMP_MODE_FILTER ? SECCOMP_SET_MODE_FILTER
						: UINT64_MAX,
		     0, b);
}

HL_EXPORT int HL_HOOK(prctl)(int option, ...)
{
	unsigned long arguments[4];
	va_list list;

	va_start(list, option);
	for (size_t i = 0; i < HL_COUNT_OF(arguments); i++)
		arguments[i] = va_arg(list, unsigned long);
	va_end(list);
	struct installing installing = begin_prctl((uint64_t)option, arguments[0], arguments[1]);
	hl_libc_resolve();
	int result = hl_libc.prctl(option, arguments[0], arguments[1], arguments[2], arguments[3]);
	end(&installing, result);
	return result;
}

#ifdef HL_ATTACHED
#define FILTER_BY_NUMBER HL_HOOK(syscall)
#else
#define FILTER_BY_NUMBER hl_hooks_filter_by_number
#endif

/* syscall() of prctl(2) and seccomp(2). */
__attribute__((used)) HL_HIDDEN long FILTER_BY_NUMBER(long number, long a, long b, long c, long d,
						      long e)
{
	struct installing installing = number == SYS_prctl
					       ? begin_prctl((uint64_t)a, (uint64_t)b, (uint64_t)c)
					       : begin((uint64_t)a, (uint64_t)b, (uint64_t)c);
	long result = hl_libc_syscall(number, a, b, c, d, e, 0);

	end(&installing, result);
	return result;
}
