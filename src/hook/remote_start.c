/* SPDX-License-Identifier: BSD-2-Clause */
/* Catches a program where it begins: see remote.h. */
#include "hook/remote_parts.h"

#include "base/clock.h"
#include "process/process.h"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <linux/auxvec.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Between the start of a program and its first instruction nothing waits for anybody. */
#define PATIENCE_NS (5 * HL_NS_PER_SECOND)

/* The dynamic linker may wait for a disk, and a constructor for anything. */
#define LOADING_PATIENCE_NS (UINT64_C(86400) * HL_NS_PER_SECOND)

#define CATCH_OPTIONS ((uintptr_t)(PTRACE_O_TRACEEXEC | PTRACE_O_TRACESYSGOOD))

#define TRAP_OPCODE UINT64_C(0xcc) /* int3 */

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

int hl_remote_await_start(struct hl_remote *remote)
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

/* Where a program begins, with a breakpoint on it. */
struct entry {
	uint64_t address, code;
};

static int set_breakpoint(const struct hl_remote *remote, struct entry *ret_entry)
{
	uint64_t address = hl_process_auxv(remote->pid, AT_ENTRY);

	errno = 0;
	uint64_t code = (uint64_t)hl_remote_trace(PTRACE_PEEKTEXT, remote->pid, address, NULL);
	uint64_t with_trap = (code & ~UINT64_C(0xff)) | TRAP_OPCODE;
	if (errno ||
	    hl_remote_trace(PTRACE_POKETEXT, remote->pid, address, (const void *)with_trap) < 0)
		return -errno;
	*ret_entry = (struct entry){address, code};
	return 0;
}

/* A child that a constructor forks has the breakpoint, too, and nobody there who waits for it. */
static void free_child(struct hl_remote *remote, const struct entry *entry)
{
	uint64_t deadline = hl_clock_ns(CLOCK_MONOTONIC) + PATIENCE_NS;
	unsigned long child = 0;
	int status;

	if (hl_remote_trace(PTRACE_GETEVENTMSG, remote->pid, 0, &child) < 0 ||
	    hl_remote_await(remote, (pid_t)child, deadline, &status) < 0)
		return;
	hl_remote_trace(PTRACE_POKETEXT, (pid_t)child, entry->address, (const void *)entry->code);
	hl_remote_trace(PTRACE_DETACH, (pid_t)child, 0, NULL);
}

/* Signals on the way are the program's. It may have become another program, which has another entry. */
static int await_breakpoint(struct hl_remote *remote, struct entry *entry,
			    struct user_regs_struct *ret_registers)
{
	uint64_t deadline = hl_clock_ns(CLOCK_MONOTONIC) + LOADING_PATIENCE_NS;
	uintptr_t signal = 0;
	int status;

	for (;;) {
		hl_remote_trace(PTRACE_CONT, remote->pid, 0, (const void *)signal);
		int r = hl_remote_await(remote, remote->pid, deadline, &status);
		if (r == 0 && status >> 16 == PTRACE_EVENT_EXEC)
			r = set_breakpoint(remote, entry);
		else if (r == 0 && status >> 16 == PTRACE_EVENT_FORK)
			free_child(remote, entry);
		if (r == 0 && hl_remote_trace(PTRACE_GETREGS, remote->pid, 0, ret_registers) < 0)
			r = -ESRCH;
		if (r < 0 || (!(status >> 16) && WSTOPSIG(status) == SIGTRAP &&
			      ret_registers->rip == entry->address + 1))
			return r;
		signal = status >> 16 ? 0 : (uintptr_t)WSTOPSIG(status);
	}
}

int hl_remote_run_to_entry(struct hl_remote *remote)
{
	const uintptr_t with_forks = CATCH_OPTIONS | PTRACE_O_TRACEFORK;
	struct user_regs_struct registers;
	struct entry entry = {0};

	int r = set_breakpoint(remote, &entry);
	if (r < 0)
		return r;
	hl_remote_trace(PTRACE_SETOPTIONS, remote->pid, 0, (const void *)with_forks);
	r = await_breakpoint(remote, &entry, &registers);
	if (r < 0)
		return r;
	hl_remote_trace(PTRACE_SETOPTIONS, remote->pid, 0, (const void *)CATCH_OPTIONS);
	registers.rip = entry.address;
	if (hl_remote_trace(PTRACE_POKETEXT, remote->pid, entry.address, (const void *)entry.code) <
		    0 ||
	    hl_remote_trace(PTRACE_SETREGS, remote->pid, 0, &registers) < 0)
		return -errno;
	hl_remote_trace(PTRACE_INTERRUPT, remote->pid, 0, NULL);
	hl_remote_trace(PTRACE_CONT, remote->pid, 0, NULL);
	return hl_remote_await_interrupt(remote, remote->pid,
					 hl_clock_ns(CLOCK_MONOTONIC) + PATIENCE_NS);
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

bool hl_remote_await_libraries(const struct hl_remote *remote)
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
