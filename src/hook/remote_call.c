/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Remote calls. Before the first one a frame is written where the thread's stack is unused:
 *
 *	rsp ->	address of the sigreturn gadget
 *		struct ucontext: registers and signal mask, as they were
 *		xstate
 *
 * With that, rip is set to the gadget "syscall; ret". Whenever heapline dies, the thread ends the
 * system call, returns to the sigreturn gadget, and that to what the thread did before. Each step
 * below keeps this true: what a thread is given last are its own registers.
 */
#include "hook/remote.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/names.h"
#include "process/process.h"

#include <cpuid.h>
#include <elf.h>
#include <errno.h>
#include <linux/audit.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

/* ---- gadgets: looked for piece by piece in the process' memory, which is what will run ---- */

#define PIECE_BYTES (256u << 10)
#define LONGEST	    9u /* of the gadgets */

static const uint8_t syscall_code[] = {0x0f, 0x05, 0xc3};

/* Both encodings of `mov $15, %rax`. */
static const uint8_t sigreturn_long[LONGEST] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
static const uint8_t sigreturn_short[] = {0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05};

/* xchg with edx, ebx, ebp, esi, edi: a system call keeps them, but not ecx. */
static const uint8_t exchange_opcodes[] = {0x92, 0x93, 0x95, 0x96, 0x97};

/* syscall; ret; xchg %eax, %edx; ret; mov $15, %eax; syscall */
#define PLANTED_EXCHANGE  3u
#define PLANTED_SIGRETURN 5u
static const uint8_t planted[] = {0x0f, 0x05, 0xc3, 0x92, 0xc3, 0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05};
_Static_assert(sizeof(planted) == sizeof(((struct hl_gadgets *)0)->displaced), "they take turns");

static bool are_found(const struct hl_gadgets *gadgets)
{
	return gadgets->syscall && gadgets->sigreturn && gadgets->exchange;
}

/* Sets *${address} if it is not known yet. */
static void find_code(const uint8_t *bytes, size_t size, uint64_t start, const uint8_t *code,
		      size_t code_bytes, uint64_t *address)
{
	const uint8_t *found = *address ? NULL : memmem(bytes, size, code, code_bytes);

	if (found)
		*address = start + (uint64_t)(found - bytes);
}

static void search_piece(const uint8_t *bytes, size_t size, uint64_t start,
			 struct hl_gadgets *gadgets)
{
	find_code(bytes, size, start, syscall_code, sizeof(syscall_code), &gadgets->syscall);
	find_code(bytes, size, start, sigreturn_long, sizeof(sigreturn_long), &gadgets->sigreturn);
	find_code(bytes, size, start, sigreturn_short, sizeof(sigreturn_short),
		  &gadgets->sigreturn);
	for (size_t i = 0; i < sizeof(exchange_opcodes) && !gadgets->exchange; i++) {
		const uint8_t code[] = {exchange_opcodes[i], 0xc3};
		find_code(bytes, size, start, code, sizeof(code), &gadgets->exchange);
		gadgets->exchange_opcode = exchange_opcodes[i];
	}
}

static void search_map(const struct hl_remote *remote, const struct hl_map *map, uint8_t *piece,
		       struct hl_gadgets *gadgets)
{
	for (uint64_t at = map->start; at < map->end && !are_found(gadgets);
	     at += PIECE_BYTES - LONGEST) {
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
			bool is_text = map->inode && (map->flags & HL_MAP_EXEC) &&
				       !(map->flags & (HL_MAP_WRITE | HL_MAP_SHARED));
			if (is_text && is_libc(map) == (pass == 0))
				search_map(remote, map, piece, &gadgets);
		}
	}
	if (!are_found(&gadgets)) {
		uint64_t entry = hl_process_auxv(pid, AT_ENTRY);
		if (!entry)
			return false;
		gadgets = (struct hl_gadgets){
			.syscall = entry,
			.exchange = entry + PLANTED_EXCHANGE,
			.exchange_opcode = planted[PLANTED_EXCHANGE],
			.sigreturn = entry + PLANTED_SIGRETURN,
			.entry = entry,
		};
	}
	*ret_gadgets = gadgets;
	return true;
}

/* Whether they are still where they were found: libraries come and go. */
static bool gadgets_hold(const struct hl_remote *remote, const struct hl_gadgets *gadgets)
{
	uint8_t call[sizeof(syscall_code)], back[sizeof(sigreturn_long)], keep[2];
	const uint8_t exchange[] = {gadgets->exchange_opcode, 0xc3};

	if (gadgets->entry)
		return true;
	return hl_remote_read(remote, gadgets->syscall, call, sizeof(call)) &&
	       hl_remote_read(remote, gadgets->sigreturn, back, sizeof(back)) &&
	       hl_remote_read(remote, gadgets->exchange, keep, sizeof(keep)) &&
	       memcmp(call, syscall_code, sizeof(call)) == 0 &&
	       memcmp(keep, exchange, sizeof(keep)) == 0 &&
	       (memcmp(back, sigreturn_long, sizeof(sigreturn_long)) == 0 ||
		memcmp(back, sigreturn_short, sizeof(sigreturn_short)) == 0);
}

/* Writes them where one is missing, and takes them away. False when that is not possible. */
static bool gadgets_plant(const struct hl_remote *remote, struct hl_gadgets *gadgets)
{
	if (!gadgets->entry || gadgets->are_planted)
		return true;
	gadgets->are_planted = hl_remote_read(remote, gadgets->entry, gadgets->displaced,
					      sizeof(gadgets->displaced)) &&
			       hl_remote_write(remote, gadgets->entry, planted, sizeof(planted));
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

#define RED_ZONE_BYTES	   128u
#define EFLAGS_TRAP	   0x100u
#define EFLAGS_DOWN	   0x400u
#define SYSCALL_STOP	   (SIGTRAP | 0x80) /* by PTRACE_O_TRACESYSGOOD */
#define SYSCALL_CODE_BYTES 2u		    /* of the instruction */
#define IS_RESTART(result) ((result) <= -512 && (result) >= -516 && (result) != -515)

/* ---- the frame ---- */

#define XSTATE_BYTES_MAX   32768u
#define XSTATE_BIT_TILES   18 /* of AMX: part of a thread's xstate from its first use */
#define XSTATE_BITS_OFFSET 512u
#define SOFTWARE_OFFSET	   464u /* struct _fpx_sw_bytes, see Linux' asm/sigcontext.h */
#define XSTATE_MAGIC_1	   0x46505853u
#define XSTATE_MAGIC_2	   0x46505845u

/* What follows the red zone, lowest address first. */
struct frame {
	uint64_t returns[2]; /* the exchange gadget, for functions; the sigreturn gadget */
	ucontext_t context;
};

/* Bytes of a thread's xstate that has not used AMX tiles. */
static uint32_t usual_xstate_bytes(void)
{
	uint32_t low, high, bytes = 576; /* legacy area and header */

	__asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	uint64_t enabled = (uint64_t)high << 32 | low;
	for (uint32_t bit = 2; bit < 63; bit++) {
		uint32_t size, offset, flags, unused;
		if (!(enabled & 1ull << bit) || bit == XSTATE_BIT_TILES)
			continue;
		__cpuid_count(0xd, bit, size, offset, flags, unused);
		if (offset + size > bytes)
			bytes = offset + size;
	}
	return bytes;
}

/*
 * Turns what PTRACE_GETREGSET gave, ${bytes}, into what rt_sigreturn(2) takes. The kernel wants the
 * second magic number where the xstate of the thread ends, which depends on whether it ever used
 * tiles: they are in use, or else both ends may be marked, as nothing of it is read.
 */
static void put_xstate(uint8_t *to, const uint8_t *xstate, size_t bytes)
{
	const uint32_t magic_2 = XSTATE_MAGIC_2;
	uint32_t size = usual_xstate_bytes();
	struct _fpx_sw_bytes software = {.magic1 = XSTATE_MAGIC_1};
	uint64_t in_use;

	memcpy(to, xstate, bytes);
	memcpy(&in_use, xstate + XSTATE_BITS_OFFSET, sizeof(in_use));
	memcpy(&software.xstate_bv, xstate + SOFTWARE_OFFSET, sizeof(software.xstate_bv));
	if (in_use & 1ull << XSTATE_BIT_TILES || size > bytes)
		size = (uint32_t)bytes;
	software.xstate_size = size;
	software.extended_size = size + (uint32_t)sizeof(magic_2);
	memcpy(to + SOFTWARE_OFFSET, &software, sizeof(software));
	memcpy(to + size, &magic_2, sizeof(magic_2));
	memcpy(to + bytes, &magic_2, sizeof(magic_2));
}

/* As the thread goes on by rt_sigreturn(2), which forgets an interrupted system call: it is made
 * again. */
static void put_registers(greg_t *to, struct user_regs_struct from)
{
	if ((int64_t)from.orig_rax >= 0 && IS_RESTART((int64_t)from.rax)) {
		from.rax = from.orig_rax;
		from.rip -= SYSCALL_CODE_BYTES;
	}
	to[REG_R8] = (greg_t)from.r8;
	to[REG_R9] = (greg_t)from.r9;
	to[REG_R10] = (greg_t)from.r10;
	to[REG_R11] = (greg_t)from.r11;
	to[REG_R12] = (greg_t)from.r12;
	to[REG_R13] = (greg_t)from.r13;
	to[REG_R14] = (greg_t)from.r14;
	to[REG_R15] = (greg_t)from.r15;
	to[REG_RDI] = (greg_t)from.rdi;
	to[REG_RSI] = (greg_t)from.rsi;
	to[REG_RBP] = (greg_t)from.rbp;
	to[REG_RBX] = (greg_t)from.rbx;
	to[REG_RDX] = (greg_t)from.rdx;
	to[REG_RAX] = (greg_t)from.rax;
	to[REG_RCX] = (greg_t)from.rcx;
	to[REG_RSP] = (greg_t)from.rsp;
	to[REG_RIP] = (greg_t)from.rip;
	to[REG_EFL] = (greg_t)from.eflags;
	to[REG_CSGSFS] = (greg_t)((from.cs & 0xffff) | (from.gs & 0xffff) << 16 |
				  (from.fs & 0xffff) << 32 | (from.ss & 0xffff) << 48);
}

/* With room to align both parts. */
static size_t frame_bytes(const struct hl_remote_caller *caller)
{
	return sizeof(struct frame) + caller->xstate_bytes + 128;
}

/* Writes the caller's frame below ${top}; the address of its context, or 0. */
static uint64_t write_frame(const struct hl_remote *remote,
			    const struct user_regs_struct *registers, uint64_t top)
{
	const struct hl_remote_caller *caller = &remote->caller;
	size_t xstate_bytes = caller->xstate_bytes + sizeof(uint32_t);
	uint64_t xstate = (top - xstate_bytes) & ~UINT64_C(63);
	/* A function finds its stack as after a call: 8 bytes off a multiple of 16. */
	uint64_t context = ((xstate - sizeof(ucontext_t)) & ~UINT64_C(15)) - 8;
	struct frame frame = {
		.returns = {remote->gadgets.exchange, remote->gadgets.sigreturn},
		.context.uc_flags = 7, /* has xstate, has ss, which is to be restored as it is */
	};
	uint8_t *bytes = malloc(xstate_bytes);

	if (!bytes)
		return 0;
	put_xstate(bytes, caller->xstate, caller->xstate_bytes);
	put_registers(frame.context.uc_mcontext.gregs, *registers);
	memcpy(&frame.context.uc_mcontext.fpregs, &xstate, sizeof(xstate));
	memcpy(&frame.context.uc_sigmask, &caller->mask, sizeof(caller->mask));
	bool is_written =
		hl_remote_write(remote, xstate, bytes, xstate_bytes) &&
		hl_remote_write(remote, context - sizeof(frame.returns), &frame, sizeof(frame));
	free(bytes);
	return is_written ? context : 0;
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
static uint64_t frame_top(struct hl_remote *remote, const struct user_regs_struct *registers)
{
	const struct hl_map *map = hl_maps_find(&remote->maps, registers->rsp);
	size_t bytes = frame_bytes(&remote->caller);
	uint64_t top = registers->rsp - RED_ZONE_BYTES;
	/* Both libcs keep a thread's own data above its stack, in one mapping. */
	bool is_stack =
		map && (!strcmp(map->path, "[stack]") ||
			(registers->rsp < registers->fs_base && registers->fs_base < map->end));

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
	if (thread->registers.rip - section.start < section.bytes)
		thread->registers.rip = section.abort;
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
	struct hl_remote_caller *caller = &remote->caller;
	struct iovec part = {.iov_base = malloc(XSTATE_BYTES_MAX), .iov_len = XSTATE_BYTES_MAX};

	if (!part.iov_base)
		return -ENOMEM;
	caller->xstate = part.iov_base;
	if (hl_remote_trace(PTRACE_GETSIGMASK, tid, sizeof(caller->mask), &caller->mask) < 0 ||
	    hl_remote_trace(PTRACE_GETREGSET, tid, NT_X86_XSTATE, &part) < 0)
		return -errno;
	caller->xstate_bytes = part.iov_len;
	return 0;
}

static int find_place(struct hl_remote *remote, struct hl_remote_thread *thread)
{
	if (!gadgets_hold(remote, &remote->gadgets) &&
	    !hl_gadgets_find(remote, remote->pid, &remote->maps, &remote->gadgets))
		return -ENOEXEC;
	/* One that is held does not run there before the code is back. */
	if (remote->gadgets.entry && !remote->is_held &&
	    thread->registers.rip - remote->gadgets.entry < sizeof(remote->gadgets.displaced))
		return -EBUSY; /* it has just been started */
	if (!gadgets_plant(remote, &remote->gadgets))
		return -EFAULT;
	uint64_t top = frame_top(remote, &thread->registers);
	remote->caller.frame = top ? write_frame(remote, &thread->registers, top) : 0;
	return remote->caller.frame ? 0 : -ENOSPC;
}

int hl_remote_call_begin(struct hl_remote *remote, struct hl_remote_thread *thread)
{
	int r = look_for_filter(remote, thread->tid);

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

/* Registers of the caller that begin something new, at ${rip} and with the stack ${rsp}. */
static struct user_regs_struct begin_registers(const struct hl_remote_thread *thread, uint64_t rip,
					       uint64_t rsp)
{
	struct user_regs_struct registers = thread->registers;

	registers.orig_rax = UINT64_MAX; /* not in a system call */
	registers.eflags &= ~(EFLAGS_TRAP | EFLAGS_DOWN);
	registers.rip = rip;
	registers.rsp = rsp;
	return registers;
}

/* The registers come first: with them, the thread restores its mask itself. */
static int set_state(pid_t tid, const struct user_regs_struct *registers, uint64_t mask)
{
	if (hl_remote_trace(PTRACE_SETREGS, tid, 0, registers) < 0)
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
	const struct user_regs_struct registers =
		begin_registers(thread, remote->gadgets.sigreturn, frame);
	int r = set_state(thread->tid, &registers, UINT64_MAX);

	return r < 0 ? r : pass_filter(remote, thread);
}

/* Whether the thread is about to enter just the system call that it was given. */
static bool is_given(pid_t tid, const struct user_regs_struct *given)
{
	const uint64_t args[] = {given->rdi, given->rsi, given->rdx,
				 given->r10, given->r8,	 given->r9};
	struct __ptrace_syscall_info info = {0};

	return hl_remote_trace(PTRACE_GET_SYSCALL_INFO, tid, sizeof(info), &info) > 0 &&
	       info.op == PTRACE_SYSCALL_INFO_ENTRY && info.arch == AUDIT_ARCH_X86_64 &&
	       info.entry.nr == given->rax && !memcmp(info.entry.args, args, sizeof(args));
}

/* One system call, not made again. The kernel's answer in ${ret_result}; -ESRCH, -EAGAIN, -ENOEXEC. */
static int make_syscall(struct hl_remote *remote, struct hl_remote_thread *thread,
			struct user_regs_struct registers, long *ret_result)
{
	int r = set_state(thread->tid, &registers, UINT64_MAX);

	if (r == 0)
		r = run_to_syscall(remote, thread);
	if (r == 0 && !is_given(thread->tid, &registers)) {
		r = skip_syscall(remote, thread, remote->caller.frame);
		return r < 0 ? r : -ENOEXEC;
	}
	if (r == 0)
		r = pass_filter(remote, thread);
	if (r == 0 && hl_remote_trace(PTRACE_GETREGS, thread->tid, 0, &registers) < 0)
		r = -errno;
	if (r == 0)
		*ret_result = (long)registers.rax;
	return r;
}

long hl_remote_syscall(struct hl_remote *remote, long number, long a, long b, long c, long d,
		       long e, long f)
{
	struct hl_remote_thread *thread = find_caller(remote);
	long result;

	if (!thread || !thread->stopped)
		return -ESRCH;
	struct user_regs_struct registers = begin_registers(
		thread, remote->gadgets.syscall, remote->caller.frame - sizeof(uint64_t));
	registers.rax = (uint64_t)number;
	registers.rdi = (uint64_t)a;
	registers.rsi = (uint64_t)b;
	registers.rdx = (uint64_t)c;
	registers.r10 = (uint64_t)d;
	registers.r8 = (uint64_t)e;
	registers.r9 = (uint64_t)f;
	do {
		int r = make_syscall(remote, thread, registers, &result);
		if (r < 0)
			return r;
	} while (IS_RESTART(result));
	return result;
}

/* What the exchange gadget put there. */
static int32_t exchanged(const struct hl_remote *remote, const struct user_regs_struct *registers)
{
	switch (remote->gadgets.exchange_opcode & 7) {
	case 2:
		return (int32_t)registers->rdx;
	case 3:
		return (int32_t)registers->rbx;
	case 5:
		return (int32_t)registers->rbp;
	case 6:
		return (int32_t)registers->rsi;
	default:
		return (int32_t)registers->rdi;
	}
}

/* Lets the function run until the frame above it is about to be returned to. */
static int run_function(struct hl_remote *remote, struct hl_remote_thread *thread, uint64_t frame,
			int32_t *ret_result)
{
	struct user_regs_struct registers;

	for (;;) {
		int r = run_to_syscall(remote, thread);
		if (r < 0)
			return r;
		if (hl_remote_trace(PTRACE_GETREGS, thread->tid, 0, &registers) < 0)
			return -errno;
		if (registers.orig_rax == SYS_rt_sigreturn && registers.rsp == frame)
			break;
	}
	*ret_result = exchanged(remote, &registers);
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
	struct user_regs_struct registers =
		begin_registers(thread, function, frame - 2 * sizeof(uint64_t));
	registers.rdi = argument;
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
	registers = begin_registers(thread, remote->gadgets.sigreturn, frame);
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
	if (caller->called_a_function)
		hl_remote_trace(PTRACE_SETREGSET, thread->tid, NT_X86_XSTATE, &part);
	set_mask(thread->tid, caller->mask);
	if (hl_remote_trace(PTRACE_SETREGS, thread->tid, 0, &thread->registers) < 0)
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
