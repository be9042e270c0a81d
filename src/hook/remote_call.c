/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Remote calls. Before the first one a frame is written where the thread's stack is unused: that of a signal, with registers
 * and signal mask as they were. Where calls return by the stack, the address of the sigreturn gadget lies below it.
 *
 * With that, the thread is set to a gadget that makes a system call and returns. Whenever heapline dies, the thread ends the
 * call, returns to the sigreturn gadget, and that to what the thread did before. Each step
 * below keeps this true: what a thread is given last are its own registers.
 */
#include "hook/remote.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/names.h"
#include "process/process.h"

#include <elf.h>
#include <errno.h>
#include <linux/audit.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- gadgets: looked for piece by piece in the process' memory, which is what will run ---- */

#define PIECE_BYTES (256u << 10)
#define OVERLAP	    12u /* more than all but one byte of a gadget */

static bool are_found(const struct hl_gadgets *gadgets)
{
	for (size_t i = 0; i < hl_gadget_code_count; i++)
		if (!gadgets->at[hl_gadget_codes[i].kind])
			return false;
	return true;
}

/* The first place of ${code}, where an instruction may begin; NULL: none. */
static const uint8_t *find_code(const uint8_t *bytes, size_t size,
				const struct hl_gadget_code *code)
{
	const uint8_t *at = bytes, *end = bytes + size;

	while ((at = memmem(at, (size_t)(end - at), code->bytes, code->count)) &&
	       (size_t)(at - bytes) % HL_CODE_ALIGNMENT)
		at++;
	return at;
}

static void search_piece(const uint8_t *bytes, size_t size, uint64_t start,
			 struct hl_gadgets *gadgets)
{
	for (size_t i = 0; i < hl_gadget_code_count; i++) {
		const struct hl_gadget_code *code = &hl_gadget_codes[i];
		uint64_t *address = &gadgets->at[code->kind];
		const uint8_t *found = *address ? NULL : find_code(bytes, size, code);
		if (!found)
			continue;
		*address = start + (uint64_t)(found - bytes);
		if (code->kind == HL_GADGET_EXCHANGE)
			gadgets->exchange_opcode = code->bytes[0];
	}
}

static void search_map(const struct hl_remote *remote, const struct hl_map *map, uint8_t *piece,
		       struct hl_gadgets *gadgets)
{
	for (uint64_t at = map->start; at < map->end && !are_found(gadgets);
	     at += PIECE_BYTES - OVERLAP) {
		uint64_t rest = map->end - at;
		size_t size = rest < PIECE_BYTES ? (size_t)rest : PIECE_BYTES;
		if (!hl_remote_read(remote, at, piece, size))
			return;
		search_piece(piece, size, at, gadgets);
	}
}

static bool is_libc(const struct hl_map *map)
{
	const char *name = hl_path_basename(map->path);

	return strncmp(name, "libc.", 5) == 0 || strncmp(name, "libc-", 5) == 0 ||
	       strncmp(name, "ld-musl", 7) == 0;
}

bool hl_gadgets_find(const struct hl_remote *remote, pid_t pid, const struct hl_maps *maps,
		     struct hl_gadgets *ret_gadgets)
{
	struct hl_gadgets gadgets = {0};
	HL_FREED uint8_t *piece = malloc(PIECE_BYTES);

	if (!piece)
		return false;
	for (int pass = 0; pass < 2; pass++) {
		for (size_t i = 0; i < maps->count && !are_found(&gadgets); i++) {
			const struct hl_map *map = &maps->maps[i];
			bool is_text = (map->inode || !strcmp(map->path, "[vdso]")) &&
				       (map->flags & HL_MAP_EXEC) &&
				       !(map->flags & (HL_MAP_WRITE | HL_MAP_SHARED));
			if (is_text && is_libc(map) == (pass == 0))
				search_map(remote, map, piece, &gadgets);
		}
	}
	if (!are_found(&gadgets)) {
		uint64_t entry = hl_process_auxv(pid, AT_ENTRY);
		if (!entry)
			return false;
		gadgets = (struct hl_gadgets){.entry = entry};
		search_piece(hl_gadgets_planted, sizeof(hl_gadgets_planted), entry, &gadgets);
	}
	*ret_gadgets = gadgets;
	return true;
}

/* Whether they are still where they were found: libraries come and go. */
static bool gadgets_hold(const struct hl_remote *remote, const struct hl_gadgets *gadgets)
{
	bool hold[HL_GADGET_COUNT] = {false};
	uint8_t bytes[sizeof(hl_gadget_codes[0].bytes)];

	for (size_t i = 0; i < hl_gadget_code_count && !gadgets->entry; i++) {
		const struct hl_gadget_code *code = &hl_gadget_codes[i];
		hold[code->kind] |=
			hl_remote_read(remote, gadgets->at[code->kind], bytes, code->count) &&
			!memcmp(bytes, code->bytes, code->count) &&
			(code->kind != HL_GADGET_EXCHANGE ||
			 code->bytes[0] == gadgets->exchange_opcode);
	}
	for (size_t i = 0; i < hl_gadget_code_count && !gadgets->entry; i++)
		if (!hold[hl_gadget_codes[i].kind])
			return false;
	return true;
}

/* Writes them where one is missing, and takes them away. False when that is not possible. */
static bool gadgets_plant(const struct hl_remote *remote, struct hl_gadgets *gadgets)
{
	if (!gadgets->entry || gadgets->are_planted)
		return true;
	gadgets->are_planted = hl_remote_read(remote, gadgets->entry, gadgets->displaced,
					      sizeof(gadgets->displaced)) &&
			       hl_remote_write(remote, gadgets->entry, hl_gadgets_planted,
					       sizeof(hl_gadgets_planted));
	return gadgets->are_planted;
}

static void gadgets_unplant(const struct hl_remote *remote, struct hl_gadgets *gadgets)
{
	if (gadgets->are_planted)
		hl_remote_write(remote, gadgets->entry, gadgets->displaced,
				sizeof(gadgets->displaced));
	gadgets->are_planted = false;
}

#define CALL_PATIENCE_NS (10 * HL_NS_PER_SECOND) /* with a system call of the target */
#define STOP_PATIENCE_NS (HL_NS_PER_SECOND / 2)

#define SYSCALL_STOP (SIGTRAP | 0x80) /* by PTRACE_O_TRACESYSGOOD */

/* ---- the frame ---- */

#define XSTATE_BYTES_MAX 32768u

static size_t frame_bytes(const struct hl_remote_caller *caller)
{
	return HL_REMOTE_FRAME_BYTES + caller->xstate_bytes;
}

/* Writes the caller's frame below ${top}; what its stack pointer has to be to return by it, or 0. */
static uint64_t write_frame(const struct hl_remote *remote,
			    const struct hl_thread_registers *registers, uint64_t top)
{
	size_t size = frame_bytes(&remote->caller);
	HL_FREED uint8_t *bytes = calloc(1, size);
	uint64_t start, pointer = 0;

	if (bytes)
		pointer = hl_remote_make_frame(remote, registers, top, bytes, &start);
	return pointer && hl_remote_write(remote, start, bytes, top - start) ? pointer : 0;
}

static bool is_zero(const struct hl_remote *remote, uint64_t address, size_t size)
{
	uint8_t *bytes = malloc(size);
	bool is = bytes && hl_remote_read(remote, address, bytes, size);

	for (size_t i = 0; is && i < size; i++)
		is = bytes[i] == 0;
	free(bytes);
	return is;
}

/*
 * Where a frame may lie: below the red zone of a stack that the system made, which has room there.
 * Where others end, such as those of coroutines, is unknown; then, at the far end of the main
 * thread's stack, if that was never used. 0 when there is no such place.
 */
static uint64_t frame_top(struct hl_remote *remote, const struct hl_thread_registers *registers)
{
	uint64_t sp = hl_thread_registers_sp(registers);
	uint64_t own = hl_thread_registers_thread(registers);
	const struct hl_map *map = hl_maps_find(&remote->maps, sp);
	size_t bytes = frame_bytes(&remote->caller);
	uint64_t top = sp - HL_RED_ZONE_BYTES;
	/* Both libcs keep a thread's own data above its stack, in one mapping. */
	bool is_stack = map && (!strcmp(map->path, "[stack]") || (sp < own && own < map->end));

	if (is_stack && top > map->start && top - map->start >= bytes)
		return top;
	for (size_t i = 0; i < remote->maps.count; i++) {
		map = &remote->maps.maps[i];
		if (!strcmp(map->path, "[stack]") && map->end - map->start >= bytes &&
		    is_zero(remote, map->start, bytes)) {
			remote->caller.borrowed = map->start;
			return map->start + bytes;
		}
	}
	return 0;
}

/* Nothing tells the place for a frame from a used one but that it is zero. */
static void return_borrowed(const struct hl_remote *remote)
{
	uint8_t *zeros = remote->caller.borrowed ? calloc(1, frame_bytes(&remote->caller)) : NULL;

	if (zeros)
		hl_remote_write(remote, remote->caller.borrowed, zeros,
				frame_bytes(&remote->caller));
	free(zeros);
}

/* ---- becoming the caller ---- */

/* Linux' struct rseq_cs, see rseq(2). */
struct critical_section {
	uint32_t version, flags;
	uint64_t start, bytes, abort;
};

/* A thread inside a restartable sequence goes on where that is aborted, as after any preemption:
 * once it has run elsewhere, the kernel would not know any more. */
static void abort_sequence(const struct hl_remote *remote, struct hl_remote_thread *thread)
{
	struct __ptrace_rseq_configuration rseq = {0};
	struct critical_section section;
	uint64_t address = 0;

	if (hl_remote_trace(PTRACE_GET_RSEQ_CONFIGURATION, thread->tid, sizeof(rseq), &rseq) !=
		    sizeof(rseq) ||
	    !rseq.rseq_abi_pointer)
		return;
	if (!hl_remote_read(remote, rseq.rseq_abi_pointer + 8, &address, sizeof(address)) ||
	    !address || !hl_remote_read(remote, address, &section, sizeof(section)))
		return;
	uint64_t *pc = hl_thread_registers_pc(&thread->registers);
	if (*pc - section.start < section.bytes)
		*pc = section.abort;
}

/* A filter that the program set for itself would judge our calls, too, and might kill it. */
static int look_for_filter(struct hl_remote *remote, pid_t tid)
{
	struct hl_process_condition condition;

	if (hl_process_condition_read(tid, &condition, NULL) < 0)
		return -ESRCH;
	remote->caller.has_filter = condition.seccomp_mode == 2;
	return condition.seccomp_mode == 1 ? -EPERM : 0;
}

static int suspend_filter(const struct hl_remote *remote, pid_t tid, bool is_suspended)
{
	const uintptr_t options =
		PTRACE_O_TRACESYSGOOD | (is_suspended ? PTRACE_O_SUSPEND_SECCOMP : 0);

	if (!remote->caller.has_filter)
		return 0;
	return hl_remote_trace(PTRACE_SETOPTIONS, tid, 0, (const void *)options) < 0 ? -errno : 0;
}

static void forget_caller(struct hl_remote *remote)
{
	free(remote->caller.xstate);
	remote->caller = (struct hl_remote_caller){0};
	hl_maps_release(&remote->maps);
	remote->maps = (struct hl_maps){0};
}

/* What the thread needs to go on, besides its registers. */
static int save_state(struct hl_remote *remote, pid_t tid)
{
	static const int sets[] = {HL_VECTOR_SETS};
	struct hl_remote_caller *caller = &remote->caller;
	struct iovec part = {.iov_base = malloc(XSTATE_BYTES_MAX), .iov_len = XSTATE_BYTES_MAX};

	if (!part.iov_base)
		return -ENOMEM;
	caller->xstate = part.iov_base;
	if (hl_remote_trace(PTRACE_GETSIGMASK, tid, sizeof(caller->mask), &caller->mask) < 0)
		return -errno;
	for (size_t i = 0; i < HL_COUNT_OF(sets); i++) {
		caller->xstate_set = sets[i];
		if (hl_remote_trace(PTRACE_GETREGSET, tid, (uint64_t)sets[i], &part) < 0)
			continue; /* the processor has none of the kind */
		caller->xstate_bytes = part.iov_len;
		return 0;
	}
	return -errno;
}

static int find_place(struct hl_remote *remote, struct hl_remote_thread *thread)
{
	if (!gadgets_hold(remote, &remote->gadgets) &&
	    !hl_gadgets_find(remote, remote->pid, &remote->maps, &remote->gadgets))
		return -ENOEXEC;
	/* One that is held does not run there before the code is back. */
	if (remote->gadgets.entry && !remote->is_held &&
	    *hl_thread_registers_pc(&thread->registers) - remote->gadgets.entry <
		    sizeof(remote->gadgets.displaced))
		return -EBUSY; /* it has just been started */
	if (!gadgets_plant(remote, &remote->gadgets))
		return -EFAULT;
	uint64_t top = frame_top(remote, &thread->registers);
	remote->caller.frame = top ? write_frame(remote, &thread->registers, top) : 0;
	return remote->caller.frame ? 0 : -ENOSPC;
}

int hl_remote_call_begin(struct hl_remote *remote, struct hl_remote_thread *thread)
{
	int r = hl_remote_check_state(thread->tid) ?: look_for_filter(remote, thread->tid);

	if (r == 0 && !remote->maps.count)
		r = hl_maps_read(remote->pid, &remote->maps, NULL);
	if (r == 0)
		r = save_state(remote, thread->tid);
	if (r == 0) {
		abort_sequence(remote, thread);
		r = find_place(remote, thread);
	}
	if (r < 0) {
		gadgets_unplant(remote, &remote->gadgets);
		forget_caller(remote);
		return r;
	}
	remote->caller.tid = thread->tid;
	thread->changed = true;
	return 0;
}

/* The thread that makes calls: the one chosen by hl_remote_stop_one(), or any that can. */
static struct hl_remote_thread *find_caller(struct hl_remote *remote)
{
	if (remote->caller.tid)
		return hl_remote_find(remote, remote->caller.tid);
	for (size_t i = 0; i < remote->thread_count; i++)
		if (remote->threads[i].stopped &&
		    hl_remote_call_begin(remote, &remote->threads[i]) == 0)
			return &remote->threads[i];
	return NULL;
}

/* ---- calls ---- */

static int set_mask(pid_t tid, uint64_t mask)
{
	return hl_remote_trace(PTRACE_SETSIGMASK, tid, sizeof(mask), &mask) < 0 ? -errno : 0;
}

/* Signals that an instruction causes, and that kill if they are blocked then. */
static uint64_t faults(void)
{
	uint64_t set = 0;
	static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP};

	for (size_t i = 0; i < HL_COUNT_OF(signals); i++)
		set |= 1ull << (signals[i] - 1);
	return set;
}

/*
 * A signal stopped the thread. SIGSTOP passes: the process is then stopped when we let it go. Any
 * other can only be one that is not blocked for the sake of faults: -EFAULT when it is a fault,
 * else somebody sent it, and it has to wait.
 */
static int judge_signal(struct hl_remote *remote, pid_t tid, int number, int *ret_let_through)
{
	siginfo_t info = {0};

	*ret_let_through = 0;
	if (!(faults() & 1ull << (number - 1))) {
		*ret_let_through = number;
		return 0;
	}
	if (hl_remote_trace(PTRACE_GETSIGINFO, tid, 0, &info) == 0 && info.si_code > 0)
		return -EFAULT;
	remote->caller.late_signals |= 1ull << (number - 1);
	return 0;
}

/* Lets the thread run to the next entry into or return from a system call. 0; -EFAULT; -ESRCH;
 * -EAGAIN when it takes too long. */
static int run_to_syscall(struct hl_remote *remote, struct hl_remote_thread *thread)
{
	uint64_t deadline = hl_clock_ns(CLOCK_MONOTONIC) + CALL_PATIENCE_NS;
	int status, r = 0, let_through = 0;

	for (;;) {
		if (hl_remote_trace(PTRACE_SYSCALL, thread->tid, 0,
				    (const void *)(uintptr_t)let_through) < 0)
			return -errno;
		thread->stopped = false;
		r = hl_remote_await(remote, thread->tid, deadline, &status);
		if (r < 0)
			return r;
		thread->stopped = true;
		let_through = 0;
		if (status >> 16)
			continue;
		if (WSTOPSIG(status) == SYSCALL_STOP)
			return 0;
		r = judge_signal(remote, thread->tid, WSTOPSIG(status), &let_through);
		if (r < 0)
			return r;
	}
}

/* The registers come first: with them, the thread restores its mask itself. */
static int set_state(pid_t tid, const struct hl_thread_registers *registers, uint64_t mask)
{
	if (hl_thread_registers_write(tid, registers) < 0)
		return -errno;
	return set_mask(tid, mask);
}

/*
 * Lets the thread, which is about to enter a system call, make it, whatever its filters say: they
 * are suspended in the kernel alone, as the code that made the call is in memory of the target.
 */
static int pass_filter(struct hl_remote *remote, struct hl_remote_thread *thread)
{
	int r = suspend_filter(remote, thread->tid, true);

	if (r == 0)
		r = run_to_syscall(remote, thread);
	if (thread->stopped)
		suspend_filter(remote, thread->tid, false);
	return r;
}

/* Has the thread, which is about to enter a system call, leave it without having made it. */
static int skip_syscall(struct hl_remote *remote, struct hl_remote_thread *thread, uint64_t frame)
{
	struct hl_thread_registers registers = thread->registers;

	hl_remote_begin(&registers, &remote->gadgets, frame, remote->gadgets.sigreturn);
	int r = set_state(thread->tid, &registers, UINT64_MAX);
	return r < 0 ? r : pass_filter(remote, thread);
}

/* Whether the thread is about to enter just the system call that it was given. */
static bool is_given(pid_t tid, long number, const long arguments[6])
{
	struct __ptrace_syscall_info info = {0};

	return hl_remote_trace(PTRACE_GET_SYSCALL_INFO, tid, sizeof(info), &info) > 0 &&
	       info.op == PTRACE_SYSCALL_INFO_ENTRY && info.arch == HL_MACHINE_AUDIT &&
	       info.entry.nr == (uint64_t)number &&
	       !memcmp(info.entry.args, arguments, sizeof(info.entry.args));
}

/* What the thread goes on with: a system call, or a function of one argument. */
static void pass(struct hl_thread_registers *registers, long number, const long arguments[6])
{
	static const uint8_t numbers[] = {HL_DWARF_CALL};

	for (size_t i = 0; i < sizeof(numbers); i++)
		memcpy((uint8_t *)registers + 8 * hl_dwarf_word(numbers[i]),
		       i ? &arguments[i - 1] : &number, sizeof(number));
}

/* One system call, not made again. The kernel's answer in ${ret_result}; -ESRCH, -EAGAIN, -ENOEXEC. */
static int make_syscall(struct hl_remote *remote, struct hl_remote_thread *thread, long number,
			const long arguments[6], long *ret_result)
{
	struct hl_thread_registers registers = thread->registers;

	hl_remote_begin(&registers, &remote->gadgets, remote->caller.frame,
			remote->gadgets.syscall);
	pass(&registers, number, arguments);
	int r = set_state(thread->tid, &registers, UINT64_MAX);
	if (r == 0)
		r = run_to_syscall(remote, thread);
	if (r == 0 && !is_given(thread->tid, number, arguments)) {
		r = skip_syscall(remote, thread, remote->caller.frame);
		return r < 0 ? r : -ENOEXEC;
	}
	if (r == 0)
		r = pass_filter(remote, thread);
	if (r == 0 && hl_thread_registers_read(thread->tid, &registers) < 0)
		r = -errno;
	if (r == 0)
		*ret_result = (long)*hl_thread_registers_result(&registers);
	return r;
}

long hl_remote_syscall(struct hl_remote *remote, long number, long a, long b, long c, long d,
		       long e, long f)
{
	struct hl_remote_thread *thread = find_caller(remote);
	long result;

	if (!thread || !thread->stopped)
		return -ESRCH;
	const long arguments[] = {a, b, c, d, e, f};
	do {
		int r = make_syscall(remote, thread, number, arguments, &result);
		if (r < 0)
			return r;
	} while (hl_remote_is_restart(result));
	return result;
}

/* Lets the function run until the frame above it is about to be returned to. */
static int run_function(struct hl_remote *remote, struct hl_remote_thread *thread, uint64_t frame,
			int32_t *ret_result)
{
	struct hl_thread_registers registers;

	for (;;) {
		int r = run_to_syscall(remote, thread);
		if (r < 0)
			return r;
		if (hl_thread_registers_read(thread->tid, &registers) < 0)
			return -errno;
		if (hl_thread_registers_call(&registers) == SYS_rt_sigreturn &&
		    hl_thread_registers_sp(&registers) == frame)
			break;
	}
	*ret_result = hl_remote_function_result(&registers, &remote->gadgets);
	return 0;
}

int hl_remote_call(struct hl_remote *remote, uint64_t function, uint64_t argument,
		   uint64_t stack_top, int32_t *ret_result)
{
	struct hl_remote_thread *thread = find_caller(remote);
	int32_t result = 0;

	if (!thread || !thread->stopped)
		return -ESRCH;
	uint64_t frame = write_frame(remote, &thread->registers, stack_top);
	if (!frame)
		return -EFAULT;
	struct hl_thread_registers registers = thread->registers;
	hl_remote_begin(&registers, &remote->gadgets, frame, function);
	pass(&registers, 0, (const long[6]){(long)argument});
	remote->caller.called_a_function = true;
	int r = set_state(thread->tid, &registers, ~faults());
	if (r == 0)
		r = run_function(remote, thread, frame, &result);
	if (r < 0 && r != -EFAULT)
		return r;
	/* It entered rt_sigreturn(), or failed in the middle. Neither goes on: it returns to before
	 * the gadget, without having made that call. */
	if (r == 0) {
		r = skip_syscall(remote, thread, frame);
		if (r == 0)
			*ret_result = result;
		return r;
	}
	registers = thread->registers;
	hl_remote_begin(&registers, &remote->gadgets, frame, remote->gadgets.sigreturn);
	int set = set_state(thread->tid, &registers, UINT64_MAX);
	return set < 0 ? set : r;
}

/* ---- going back ---- */

/* Signals that could not wait on their own. */
static void send_late(const struct hl_remote *remote)
{
	for (int number = 1; number <= 64; number++)
		if (remote->caller.late_signals & 1ull << (number - 1))
			syscall(SYS_tgkill, remote->pid, remote->caller.tid, number);
}

static int go_back(struct hl_remote *remote, struct hl_remote_thread *thread)
{
	const struct hl_remote_caller *caller = &remote->caller;
	const struct iovec part = {.iov_base = caller->xstate, .iov_len = caller->xstate_bytes};

	/* Only in such a stop does the kernel see to an interrupted system call. */
	if (hl_remote_trace(PTRACE_INTERRUPT, thread->tid, 0, NULL) < 0 ||
	    hl_remote_trace(PTRACE_CONT, thread->tid, 0, NULL) < 0)
		return -errno;
	thread->stopped = false;
	int r = hl_remote_await_interrupt(remote, thread->tid,
					  hl_clock_ns(CLOCK_MONOTONIC) + STOP_PATIENCE_NS);
	if (r < 0)
		return r;
	thread->stopped = true;
	if (caller->called_a_function || !HL_CALLS_KEEP_VECTORS)
		hl_remote_trace(PTRACE_SETREGSET, thread->tid, (uint64_t)caller->xstate_set, &part);
	set_mask(thread->tid, caller->mask);
	if (hl_thread_registers_write(thread->tid, &thread->registers) < 0)
		return -errno;
	thread->changed = false;
	send_late(remote);
	return 0;
}

int hl_remote_call_end(struct hl_remote *remote)
{
	if (!remote->caller.tid)
		return 0;
	struct hl_remote_thread *thread = hl_remote_find(remote, remote->caller.tid);
	int r = thread && thread->stopped ? go_back(remote, thread) : -ESRCH;
	if (r != -EAGAIN) {
		gadgets_unplant(remote, &remote->gadgets);
		return_borrowed(remote);
	}
	forget_caller(remote);
	return r;
}
