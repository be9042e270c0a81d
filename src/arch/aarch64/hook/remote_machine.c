/* SPDX-License-Identifier: BSD-2-Clause */
/* What remote calls need of aarch64: instructions, the frame of a signal, registers of calls; see remote.h. */
#include "hook/remote.h"

#include <asm/ptrace.h>
#include <asm/sigcontext.h>
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#define STATE_BRANCH UINT64_C(0xc00) /* the last branch wants a landing pad */

const struct hl_gadget_code hl_gadget_codes[] = {
	{HL_GADGET_SYSCALL, 8, {0x01, 0, 0, 0xd4, 0xc0, 0x03, 0x5f, 0xd6}},
	{HL_GADGET_SIGRETURN, 8, {0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4}},
};
const size_t hl_gadget_code_count = sizeof(hl_gadget_codes) / sizeof(*hl_gadget_codes);

bool hl_remote_is_signal_frame(const struct hl_remote *remote, const uint64_t *words)
{
	const struct _aarch64_ctx head = {FPSIMD_MAGIC, sizeof(struct fpsimd_context)};

	(void)remote;
	return !memcmp(&words[3], &head, sizeof(head));
}

/* ---- the frame ---- */

/* What the kernel makes of struct user_sve_header, or of NT_PRFPREG, as a signal's records, at ${to}. Where those end; NULL
 * where there is no room. */
static uint8_t *put_vectors(uint8_t *to, uint8_t *end, const struct hl_remote_caller *caller)
{
	const uint8_t *state = caller->xstate, *last = state;
	struct user_sve_header sve = {0};
	struct fpsimd_context plain = {.head = {FPSIMD_MAGIC, sizeof(plain)}};
	struct sve_context whole = {.head = {.magic = SVE_MAGIC}};

	if (caller->xstate_set == NT_ARM_SVE)
		memcpy(&sve, state, sizeof(sve));
	bool is_whole = (sve.flags & SVE_PT_REGS_MASK) == SVE_PT_REGS_SVE && sve.vl;
	unsigned quads = is_whole ? sve_vq_from_vl(sve.vl) : 1;
	state += caller->xstate_set == NT_ARM_SVE ? SVE_PT_REGS_OFFSET : 0;
	for (size_t i = 0; i < 32; i++)
		memcpy(&plain.vregs[i], state + i * 16 * quads, sizeof(plain.vregs[i]));
	last = is_whole ? caller->xstate + SVE_PT_SVE_FPSR_OFFSET(quads)
			: state + sizeof(plain.vregs);
	memcpy(&plain.fpsr, last, sizeof(plain.fpsr));
	memcpy(&plain.fpcr, last + sizeof(plain.fpsr), sizeof(plain.fpcr));
	memcpy(to, &plain, sizeof(plain));
	to += sizeof(plain);
	if (!is_whole)
		return to;
	whole.vl = sve.vl;
	whole.head.size = (SVE_SIG_CONTEXT_SIZE(quads) + 15) & ~15u;
	if ((size_t)(end - to) < whole.head.size)
		return NULL;
	memcpy(to, &whole, sizeof(whole));
	memcpy(to + SVE_SIG_REGS_OFFSET, state, SVE_SIG_REGS_SIZE(quads));
	return to + whole.head.size;
}

struct frame {
	uint8_t info[128]; /* siginfo_t */
	ucontext_t context;
};

uint64_t hl_remote_make_frame(const struct hl_remote *remote,
			      const struct hl_thread_registers *registers, uint64_t top,
			      uint8_t *bytes, uint64_t *ret_start)
{
	const struct hl_remote_caller *caller = &remote->caller;
	struct frame frame = {0};
	uint8_t *records = frame.context.uc_mcontext.__reserved;
	uint8_t *end = records + sizeof(frame.context.uc_mcontext.__reserved) -
		       sizeof(struct _aarch64_ctx); /* the last one is empty */

	memcpy(frame.context.uc_mcontext.regs, registers->x, sizeof(registers->x));
	frame.context.uc_mcontext.sp = registers->sp;
	frame.context.uc_mcontext.pc = registers->pc;
	frame.context.uc_mcontext.pstate = registers->state;
	memcpy(&frame.context.uc_sigmask, &caller->mask, sizeof(caller->mask));
	if (!put_vectors(records, end, caller))
		return 0;
	memcpy(bytes, &frame, sizeof(frame));
	return *ret_start = (top - sizeof(frame)) & ~UINT64_C(15);
}

/* ---- calls ---- */

int hl_remote_check_state(pid_t tid)
{
	enum { STREAMING_REGISTERS = 0x40b, GUARDED_STACK = 0x410 }; /* NT_ARM_SSVE, NT_ARM_GCS */
	uint64_t guarded[3] = {0}; /* struct user_gcs: PR_SHADOW_STACK_ENABLE is in the first */
	struct user_sve_header header = {0};
	struct iovec part = {&header, sizeof(header)}, stack = {guarded, sizeof(guarded)};

	hl_remote_trace(PTRACE_GETREGSET, tid, GUARDED_STACK, &stack);
	hl_remote_trace(PTRACE_GETREGSET, tid, STREAMING_REGISTERS, &part);
	bool is_streaming = (header.flags & SVE_PT_REGS_MASK) == SVE_PT_REGS_SVE;
	return guarded[0] & 1 ? -ENOTSUP : is_streaming ? -EINPROGRESS : 0;
}

void hl_remote_begin(struct hl_thread_registers *registers, const struct hl_gadgets *gadgets,
		     uint64_t frame, uint64_t pc)
{
	registers->state &= ~STATE_BRANCH;
	registers->mark = 0;
	registers->pc = pc;
	registers->sp = frame;
	registers->x[30] = gadgets->sigreturn;
}

int32_t hl_remote_function_result(const struct hl_thread_registers *registers,
				  const struct hl_gadgets *gadgets)
{
	(void)gadgets; /* none changes it */
	return (int32_t)registers->x[0];
}
