/* SPDX-License-Identifier: BSD-2-Clause */
/* Looks whether a process can be entered before anything is done to it, and catches programs where they begin; see remote.h. */
#include "hook/remote.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "process/process.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <linux/audit.h>
#include <linux/auxvec.h>
#include <linux/capability.h>
#include <linux/kcmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static bool is_permitted(const struct sock_filter *filter, size_t filter_count,
			 const struct hl_seccomp_call *call)
{
	struct seccomp_data data = {.nr = call->number, .arch = HL_MACHINE_AUDIT};

	memcpy(data.args, call->args, sizeof(data.args));
	return hl_seccomp_permits(filter, filter_count, &data);
}

/* The first of ${calls} that ${filter} does not let through unchanged, or NULL. */
static const struct hl_seccomp_call *seccomp_find_forbidden(const struct sock_filter *filter,
							    size_t filter_count,
							    const struct hl_seccomp_call *calls,
							    size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!is_permitted(filter, filter_count, &calls[i]))
			return &calls[i];
	return NULL;
}

/* ---- programs that are caught where they begin ---- */

/* Between the start of a program and its first instruction nothing waits for anybody. */
#define PATIENCE_NS (5 * HL_NS_PER_SECOND)

#define CATCH_OPTIONS ((uintptr_t)(PTRACE_O_TRACEEXEC | PTRACE_O_TRACESYSGOOD))

int hl_remote_catch(pid_t child, struct hl_error *err)
{
	if (hl_remote_trace(PTRACE_SEIZE, child, 0, (const void *)CATCH_OPTIONS) == 0)
		return 0;
	return hl_error_set(err, -errno, "cannot stop process '%d' where it begins: %s", child,
			    strerror(errno));
}

/* Until execve() is done; signals on the way are the program's. */
static int await_program(struct hl_remote *remote, uint64_t deadline_ns)
{
	int status;

	for (;;) {
		int r = hl_remote_await(remote, remote->pid, deadline_ns, &status);
		if (r < 0 || status >> 16 == PTRACE_EVENT_EXEC)
			return r;
		uintptr_t signal = status >> 16 ? 0 : (uintptr_t)WSTOPSIG(status);
		hl_remote_trace(PTRACE_CONT, remote->pid, 0, (const void *)signal);
	}
}

/* Waits until the program of a caught process is about to run its first instruction. 0; -ESRCH when
 * the process has ended; -EAGAIN. */
static int remote_await_start(struct hl_remote *remote)
{
	uint64_t deadline = hl_clock_ns(CLOCK_MONOTONIC) + PATIENCE_NS;

	int r = await_program(remote, deadline);
	if (r < 0)
		return r;
	/* From within execve() to before the first instruction. */
	hl_remote_trace(PTRACE_INTERRUPT, remote->pid, 0, NULL);
	hl_remote_trace(PTRACE_CONT, remote->pid, 0, NULL);
	return hl_remote_await_interrupt(remote, remote->pid, deadline);
}

void hl_remote_release(struct hl_remote *remote)
{
	remote->is_held = false;
	hl_remote_continue(remote);
}

/* ---- programs that have only just begun ---- */

/* From execve() to the program's own code it usually is a few milliseconds. */
#define LIBRARIES_WAIT_NS HL_NS_PER_SECOND
#define LIBRARIES_LOOK_NS (HL_NS_PER_SECOND / 1000)

#define HEADERS_MAX 64
#define DYNAMIC_MAX 256

/* Where the dynamic section of a program with a dynamic linker lies; 0: nowhere. */
static uint64_t find_dynamic(const struct hl_remote *remote, uint64_t headers, uint64_t count)
{
	Elf64_Phdr program[HEADERS_MAX];
	uint64_t bias = 0, dynamic = 0;
	bool has_linker = false;

	if (count > HEADERS_MAX ||
	    !hl_remote_read(remote, headers, program, count * sizeof(*program)))
		return 0;
	for (uint64_t i = 0; i < count; i++) {
		has_linker |= program[i].p_type == PT_INTERP;
		if (program[i].p_type == PT_PHDR)
			bias = headers - program[i].p_vaddr;
		if (program[i].p_type == PT_DYNAMIC)
			dynamic = program[i].p_vaddr;
	}
	return has_linker && dynamic ? bias + dynamic : 0;
}

/* Whether execve() has yet to say where the program is, or the linker to map its libraries. A linker
 * that tells debuggers nothing is not waited for. */
static bool is_loading(const struct hl_remote *remote)
{
	uint64_t headers = hl_process_auxv(remote->pid, AT_PHDR);
	uint64_t at =
		headers ? find_dynamic(remote, headers, hl_process_auxv(remote->pid, AT_PHNUM)) : 0;
	struct r_debug debug;
	Elf64_Dyn entry;

	if (!headers)
		return true;
	for (int i = 0; at && i < DYNAMIC_MAX; i++, at += sizeof(entry)) {
		if (!hl_remote_read(remote, at, &entry, sizeof(entry)) || entry.d_tag == DT_NULL)
			return false;
		if (entry.d_tag == DT_DEBUG)
			return !entry.d_un.d_ptr ||
			       !hl_remote_read(remote, entry.d_un.d_ptr, &debug, sizeof(debug)) ||
			       !debug.r_version || debug.r_state != RT_CONSISTENT;
	}
	return false;
}

/* Waits, a second at most, while the program of a process that was not caught is about to start, or its
 * dynamic linker maps libraries: its code is not all there. Whether there was anything to wait for. */
static bool remote_await_libraries(const struct hl_remote *remote)
{
	uint64_t deadline = hl_clock_ns(CLOCK_MONOTONIC) + LIBRARIES_WAIT_NS;
	bool has_waited = false;

	while (is_loading(remote) && !hl_process_has_ended(hl_proc_thread(remote->pid)) &&
	       hl_clock_ns(CLOCK_MONOTONIC) < deadline) {
		nanosleep(&(struct timespec){.tv_nsec = LIBRARIES_LOOK_NS}, NULL);
		has_waited = true;
	}
	return has_waited;
}

#define STAT_FLAGS	   9	       /* its field of /proc/PID/stat */
#define KERNEL_THREAD_FLAG 0x00200000u /* Linux' PF_KTHREAD, there */

/* ---- whose filters can be read ---- */

/* What suspending and reading a filter needs: the capability, and no filter of our own. */
static bool may_see_filters(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3] = {0};
	struct hl_process_condition own;

	return syscall(SYS_capget, &header, caps) == 0 &&
	       (caps[0].effective & 1u << CAP_SYS_ADMIN) &&
	       hl_process_condition_read(getpid(), &own, NULL) == 0 && !own.seccomp_mode;
}

/* The seccomp mode of a thread; 0 when it has ended. */
static int filter_mode(pid_t tid)
{
	struct hl_process_condition condition;

	return hl_process_condition_read(tid, &condition, NULL) < 0 ? 0 : condition.seccomp_mode;
}

/* Each thread may have filters of its own. */
static int check_sandbox(const struct hl_remote *remote, struct hl_error *err)
{
	HL_FREED pid_t *tids = NULL;
	size_t count = 0;
	int r = hl_remote_list(remote, &tids, &count);

	for (size_t i = 0; r == 0 && i < count; i++) {
		int mode = filter_mode(tids[i]);
		if (mode == 1)
			return hl_error_set(err, -ENOTSUP,
					    "cannot enter process '%d': its thread %d has "
					    "forbidden itself all system calls (seccomp, strict)",
					    remote->pid, tids[i]);
		if (mode && !may_see_filters())
			return hl_error_set(err, -ENOTSUP,
					    "cannot enter process '%d': it has a seccomp filter, "
					    "which might kill it; run as root outside any sandbox, "
					    "or with the capability CAP_SYS_ADMIN",
					    remote->pid);
	}
	return r;
}

/* The filter ${index} of a stopped thread. 1; 0 when there is none; a negative errno. */
static int read_filter(pid_t tid, unsigned index, struct sock_filter **ret_filter,
		       size_t *ret_count)
{
	long count = hl_remote_trace(PTRACE_SECCOMP_GET_FILTER, tid, index, NULL);

	if (count < 0)
		return errno == ENOENT ? 0 : -errno;
	struct sock_filter *filter = calloc((size_t)count + 1, sizeof(*filter));
	if (!filter)
		return -ENOMEM;
	if (hl_remote_trace(PTRACE_SECCOMP_GET_FILTER, tid, index, filter) != count) {
		free(filter);
		return -EIO;
	}
	*ret_filter = filter;
	*ret_count = (size_t)count;
	return 1;
}

/* All filters of a stopped thread. They must permit its way back, too, if heapline dies. */
static int check_filters(const struct hl_remote *remote, pid_t tid,
			 const struct hl_seccomp_call *calls, size_t count, struct hl_error *err)
{
	static const struct hl_seccomp_call way_back = {.name = "rt_sigreturn",
							.number = SYS_rt_sigreturn};

	for (unsigned index = 0;; index++) {
		HL_FREED struct sock_filter *filter = NULL;
		size_t length = 0;
		int r = read_filter(tid, index, &filter, &length);
		if (r == 0)
			return 0;
		if (r < 0)
			return hl_error_set(err, r,
					    "cannot enter process '%d': its seccomp filter cannot "
					    "be read: %s",
					    remote->pid, strerror(-r));
		const struct hl_seccomp_call *forbidden =
			seccomp_find_forbidden(filter, length, &way_back, 1);
		if (!forbidden)
			forbidden = seccomp_find_forbidden(filter, length, calls, count);
		if (forbidden)
			return hl_error_set(err, -EPERM,
					    "cannot enter process '%d': its seccomp filter does "
					    "not permit the system call %s(), which the recorder "
					    "needs; permit it there",
					    remote->pid, forbidden->name);
	}
}

int hl_remote_check_calls(struct hl_remote *remote, const struct hl_seccomp_call *calls,
			  size_t count, struct hl_error *err)
{
	HL_FREED pid_t *tids = NULL;
	size_t tid_count = 0;
	int r = hl_remote_list(remote, &tids, &tid_count);

	for (size_t i = 0; r == 0 && i < tid_count; i++) {
		struct hl_remote_thread *thread;
		if (!filter_mode(tids[i]))
			continue;
		r = hl_remote_stop_thread(remote, tids[i], &thread);
		if (r == -EAGAIN)
			return hl_remote_refuse_late(remote, tids[i], err);
		if (r == 0) {
			r = check_filters(remote, tids[i], calls, count, err);
			hl_remote_continue(remote);
		}
		r = r == -ESRCH ? 0 : r; /* it has just ended */
	}
	return r < 0 ? hl_error_set(err, r, "cannot stop process '%d': %s", remote->pid,
				    strerror(-r))
		     : 0;
}

/* ---- the process ---- */

/* What Yama says of tracing: 3 forbids it even to root. */
static char yama_scope(void)
{
	char scope = '0';
	HL_CLOSED int fd = open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC);

	return fd >= 0 && read(fd, &scope, 1) == 1 ? scope : '0';
}

static int refuse_access(pid_t pid, int code, struct hl_error *err)
{
	const char *remedy = hl_proc_access_remedy(true);

	if (yama_scope() == '3')
		remedy = "kernel.yama.ptrace_scope is 3, which lasts until the next boot";
	else if (geteuid() != 0 && yama_scope() != '0')
		remedy = "run as root, or with the capabilities CAP_SYS_PTRACE and "
			 "CAP_DAC_OVERRIDE; for your own "
			 "processes 'sysctl kernel.yama.ptrace_scope=0' permits it, too";
	return hl_error_set(err, -EACCES, "cannot enter process '%d': %s; %s", pid, strerror(-code),
			    remedy);
}

static int open_memory(struct hl_remote *remote, struct hl_error *err)
{
	remote->memory = hl_proc_open_memory(remote->pid, O_RDWR);
	if (remote->memory >= 0)
		return 0;
	if (remote->memory == -EACCES || remote->memory == -EPERM)
		return refuse_access(remote->pid, remote->memory, err);
	return hl_proc_error(remote->pid, remote->memory, "the memory", err);
}

static bool is_kernel_thread(pid_t pid)
{
	uint64_t flags;

	return hl_process_stat_field(pid, STAT_FLAGS, &flags) == 0 && (flags & KERNEL_THREAD_FLAG);
}

/* Who it is, before anything of it is opened. */
static int check_process(struct hl_remote *remote, struct hl_error *err)
{
	struct hl_process_facts facts;
	struct hl_process_condition condition;

	if (remote->pid == getpid())
		return hl_error_set(err, -EINVAL, "heapline cannot enter itself");
	int r = hl_process_facts_read(remote->pid, &facts, err);
	if (r < 0)
		return r;
	pid_t parent = facts.parent_pid;
	hl_process_facts_release(&facts);
	if (is_kernel_thread(remote->pid))
		return hl_error_set(err, -ENOTSUP,
				    "cannot enter process '%d': it is a thread of the kernel",
				    remote->pid);
	remote->is_child = parent == getpid();
	r = hl_process_condition_read(remote->pid, &condition, err);
	if (r < 0)
		return r;
	if (condition.tracer_pid && !remote->is_held)
		return hl_error_set(err, -EBUSY,
				    "cannot enter process '%d': process %d traces it; end that one",
				    remote->pid, condition.tracer_pid);
	if (parent > 0 && syscall(SYS_kcmp, remote->pid, parent, KCMP_VM, 0, 0) == 0)
		return hl_error_set(err, -EAGAIN,
				    "cannot enter process '%d': it shares the memory of process "
				    "%d, and is about to start another program; try again",
				    remote->pid, parent);
	return 0;
}

/* Returns are checked against a second stack, so that no gadget can be returned to. */
static bool has_shadow_stack(pid_t pid)
{
	char status[8192];

	if (hl_proc_read_status(pid, status, sizeof(status)) < 0)
		return false;
	const char *features = strstr(status, "\nx86_Thread_features:");
	const char *found = features ? strstr(features, "shstk") : NULL;
	return found && found < strchrnul(features + 1, '\n');
}

static int check_program(struct hl_remote *remote, struct hl_error *err)
{
	HL_CLEANUP(hl_maps_release) struct hl_maps maps = {0};
	const char *reason = NULL;
	int r = hl_maps_read(remote->pid, &maps, err);

	if (r == 0 && !remote->is_held && !hl_maps_are_32_bit(&maps) &&
	    remote_await_libraries(remote)) {
		hl_maps_release(&maps);
		maps = (struct hl_maps){0};
		r = hl_maps_read(remote->pid, &maps, err);
	}
	if (r < 0)
		return r;
	if (hl_maps_are_32_bit(&maps))
		reason = "it is a 32-bit program";
	else if (has_shadow_stack(remote->pid))
		reason = "it has a shadow stack";
	else if (!hl_gadgets_find(remote, remote->pid, &maps, &remote->gadgets))
		reason = "its code has no system call that it could be asked to make";
	return reason ? hl_error_set(err, -ENOTSUP, "cannot enter process '%d': %s", remote->pid,
				     reason)
		      : 0;
}

enum beginning { RUNS_ALREADY, WAITS_FOR_US, AT_START };

/* Its one thread is ours already, and stopped. */
static int take_caught(struct hl_remote *remote, struct hl_error *err)
{
	remote->is_child = true;
	int r = remote_await_start(remote);
	struct hl_remote_thread *thread = r == 0 ? hl_remote_add(remote, remote->pid) : NULL;
	if (r == 0 && !thread)
		r = -ENOMEM;
	if (r == 0 && hl_thread_registers_read(remote->pid, &thread->registers) < 0)
		r = -ESRCH;
	if (thread)
		thread->stopped = true;
	return r < 0 ? hl_error_set(err, r, "cannot enter process '%d' where it begins: %s",
				    remote->pid, strerror(-r))
		     : 0;
}

static int open_remote(pid_t pid, enum beginning beginning, struct hl_remote **ret_remote,
		       struct hl_error *err)
{
	struct hl_remote *remote = calloc(1, sizeof(*remote));

	if (!remote)
		return hl_error_set(err, -ENOMEM, "out of memory");
	remote->pid = pid;
	remote->memory = -1;
	remote->is_held = beginning == AT_START;
	int r = remote->is_held ? take_caught(remote, err) : 0;
	if (r == 0)
		r = check_process(remote, err);
	if (r == 0)
		r = open_memory(remote, err);
	if (r == 0)
		r = check_program(remote, err);
	if (r == 0)
		r = check_sandbox(remote, err);
	/* Code at the entry point would be run if we ended before it is back. */
	if (r == 0 && beginning == WAITS_FOR_US && remote->gadgets.entry)
		r = hl_error_set(err, -ENOTSUP,
				 "cannot enter process '%d': its code has no system call that it "
				 "could be asked to make",
				 pid);
	/* A thread that is stopped already, or waits, needs none; and whoever waits for all children of ours
	 * would wait for the guardian, too. */
	if (r == 0 && beginning == RUNS_ALREADY && hl_guardian_new(&remote->guardian) == -ENOMEM)
		r = hl_error_set(err, -ENOMEM, "out of memory");
	if (r < 0) {
		hl_remote_free(remote);
		return r;
	}
	*ret_remote = remote;
	return 0;
}

int hl_remote_open(pid_t pid, struct hl_remote **ret_remote, struct hl_error *err)
{
	return open_remote(pid, RUNS_ALREADY, ret_remote, err);
}

int hl_remote_open_caught(pid_t child, struct hl_remote **ret_remote, struct hl_error *err)
{
	return open_remote(child, AT_START, ret_remote, err);
}

int hl_remote_open_waiting(pid_t pid, struct hl_remote **ret_remote, struct hl_error *err)
{
	return open_remote(pid, WAITS_FOR_US, ret_remote, err);
}
