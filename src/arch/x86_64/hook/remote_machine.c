/* SPDX-License-Identifier: BSD-2-Clause */
/* What remote calls need of x86-64: instructions, the frame of a signal, registers of calls; see remote.h. */
#include "hook/remote.h"

#include "process/process.h"

#include <cpuid.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <ucontext.h>

#define EFLAGS_TRAP 0x100u
#define EFLAGS_DOWN 0x400u

#define SIGRETURN_LONG 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05 /* mov $15, %rax; syscall */
#define SIGRETURN      0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05

/* The last are xchg %eax with edx, ebx, ebp, esi, edi: a system call keeps them, but not ecx. */
const struct hl_gadget_code hl_gadget_codes[] = {
	{HL_GADGET_SYSCALL, 3, {0x0f, 0x05, 0xc3}}, {HL_GADGET_SIGRETURN, 9, {SIGRETURN_LONG}},
	{HL_GADGET_SIGRETURN, 7, {SIGRETURN}},	    {HL_GADGET_EXCHANGE, 2, {0x92, 0xc3}},
	{HL_GADGET_EXCHANGE, 2, {0x93, 0xc3}},	    {HL_GADGET_EXCHANGE, 2, {0x95, 0xc3}},
	{HL_GADGET_EXCHANGE, 2, {0x96, 0xc3}},	    {HL_GADGET_EXCHANGE, 2, {0x97, 0xc3}},
};
const size_t hl_gadget_code_count = sizeof(hl_gadget_codes) / sizeof(*hl_gadget_codes);

bool hl_remote_is_signal_frame(const struct hl_remote *remote, const uint64_t *words)
{
	static const uint8_t with_rax[] = {SIGRETURN_LONG}, with_eax[] = {SIGRETURN};
	uint8_t code[sizeof(with_rax)];

	return hl_remote_read(remote, words[0], code, sizeof(code)) &&
	       (!memcmp(code, with_rax, sizeof(with_rax)) ||
		!memcmp(code, with_eax, sizeof(with_eax)));
}

/* ---- the frame ---- */

#define XSTATE_BIT_TILES   18 /* of AMX: part of a thread's xstate from its first use */
#define XSTATE_BITS_OFFSET 512u
#define SOFTWARE_OFFSET	   464u /* struct _fpx_sw_bytes, see Linux' asm/sigcontext.h */

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
	const uint32_t magic_2 = FP_XSTATE_MAGIC2;
	uint32_t size = usual_xstate_bytes();
	struct _fpx_sw_bytes software = {.magic1 = FP_XSTATE_MAGIC1};
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
static void put_registers(greg_t *to, struct hl_thread_registers from)
{
	if ((int64_t)from.orig_rax >= 0 && hl_remote_is_restart((long)from.rax)) {
		from.rax = from.orig_rax;
		from.rip -= 2 /* bytes of the instruction */;
	}
	/* By their numbers in DWARF. */
	static const uint8_t places[HL_DWARF_REGISTERS] = {
		REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP, REG_R8,
		REG_R9,	 REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};

	for (unsigned i = 0; i < HL_DWARF_REGISTERS; i++)
		to[places[i]] = ((const greg_t *)&from)[hl_dwarf_word(i)];
	to[REG_EFL] = (greg_t)from.eflags;
	to[REG_CSGSFS] = (greg_t)((from.cs & 0xffff) | (from.gs & 0xffff) << 16 |
				  (from.fs & 0xffff) << 32 | (from.ss & 0xffff) << 48);
}

uint64_t hl_remote_make_frame(const struct hl_remote *remote,
			      const struct hl_thread_registers *registers, uint64_t top,
			      uint8_t *bytes, uint64_t *ret_start)
{
	const struct hl_remote_caller *caller = &remote->caller;
	uint64_t xstate = (top - caller->xstate_bytes - sizeof(uint32_t)) & ~UINT64_C(63);
	/* A function finds its stack as after a call: 8 bytes off a multiple of 16. */
	uint64_t context = ((xstate - sizeof(ucontext_t)) & ~UINT64_C(15)) - 8;
	struct frame frame = {
		.returns = {remote->gadgets.exchange, remote->gadgets.sigreturn},
		.context.uc_flags = 7, /* has xstate, has ss, which is to be restored as it is */
	};

	*ret_start = context - sizeof(frame.returns);
	put_xstate(bytes + (xstate - *ret_start), caller->xstate, caller->xstate_bytes);
	put_registers(frame.context.uc_mcontext.gregs, *registers);
	memcpy(&frame.context.uc_mcontext.fpregs, &xstate, sizeof(xstate));
	memcpy(&frame.context.uc_sigmask, &caller->mask, sizeof(caller->mask));
	memcpy(bytes, &frame, sizeof(frame));
	return context;
}

/* ---- calls ---- */

/* PTRACE_GETREGSET would have Linux 6.6 to 6.12 log a warning for threads without a shadow stack. */
int hl_remote_check_state(pid_t tid)
{
	char status[8192];

	bool is_read = hl_proc_read_status(tid, status, sizeof(status)) > 0;
	return is_read && strstr(status, "\nx86_Thread_features:\tshstk") ? -ENOTSUP : 0;
}

/* Below the frame lie the gadgets that a system call, and a function, return to. */
void hl_remote_begin(struct hl_thread_registers *registers, const struct hl_gadgets *gadgets,
		     uint64_t frame, uint64_t pc)
{
	unsigned below = pc == gadgets->sigreturn ? 0 : pc == gadgets->syscall ? 1 : 2;

	registers->orig_rax = UINT64_MAX; /* not in a system call */
	registers->eflags &= ~(EFLAGS_TRAP | EFLAGS_DOWN);
	registers->rip = pc;
	registers->rsp = frame - below * sizeof(uint64_t);
}

/* What the exchange gadget put there. */
int32_t hl_remote_function_result(const struct hl_thread_registers *registers,
				  const struct hl_gadgets *gadgets)
{
	static const uint8_t dwarf_numbers[8] = {0, 2, 1, 3, 7, 6, 4, 5};

	return (int32_t)((const uint64_t *)registers)[hl_dwarf_word(
		dwarf_numbers[gadgets->exchange_opcode & 7])];
}
