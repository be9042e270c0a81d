/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs seccomp filters, and keeps those of the process that it runs in; see seccomp.h. */
#include "base/seccomp.h"
#include "base/machine.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string.h>

/* ---- the part of classic BPF that seccomp(2) takes; a filter only jumps forward, so it ends ---- */

struct machine {
	uint32_t a, x;
	uint32_t memory[BPF_MEMWORDS];
	const struct seccomp_data *call;
};

static bool compute(uint32_t *a, uint16_t operation, uint32_t operand)
{
	switch (operation) {
	case BPF_ADD:
		*a += operand;
		return true;
	case BPF_SUB:
		*a -= operand;
		return true;
	case BPF_MUL:
		*a *= operand;
		return true;
	case BPF_DIV:
		*a = operand ? *a / operand : 0;
		return operand != 0;
	case BPF_OR:
		*a |= operand;
		return true;
	case BPF_AND:
		*a &= operand;
		return true;
	case BPF_XOR:
		*a ^= operand;
		return true;
	case BPF_LSH:
		*a <<= operand & 31;
		return true;
	case BPF_RSH:
		*a >>= operand & 31;
		return true;
	case BPF_NEG:
		*a = -*a;
		return true;
	default:
		return false;
	}
}

static bool load(const struct machine *machine, const struct sock_filter *code, uint32_t *to)
{
	switch (BPF_MODE(code->code)) {
	case BPF_IMM:
		*to = code->k;
		return true;
	case BPF_LEN:
		*to = sizeof(*machine->call);
		return true;
	case BPF_MEM:
		if (code->k >= BPF_MEMWORDS)
			return false;
		*to = machine->memory[code->k];
		return true;
	case BPF_ABS:
		if (code->k > sizeof(*machine->call) - sizeof(*to) || code->k % sizeof(*to))
			return false;
		memcpy(to, (const char *)machine->call + code->k, sizeof(*to));
		return true;
	default:
		return false;
	}
}

/* How many instructions are passed over in *${ret_distance}. */
static bool jump(const struct machine *machine, const struct sock_filter *code,
		 uint32_t *ret_distance)
{
	uint32_t operand = BPF_SRC(code->code) == BPF_X ? machine->x : code->k;
	bool is_true;

	switch (BPF_OP(code->code)) {
	case BPF_JA:
		*ret_distance = code->k;
		return true;
	case BPF_JEQ:
		is_true = machine->a == operand;
		break;
	case BPF_JGT:
		is_true = machine->a > operand;
		break;
	case BPF_JGE:
		is_true = machine->a >= operand;
		break;
	case BPF_JSET:
		is_true = machine->a & operand;
		break;
	default:
		return false;
	}
	*ret_distance = is_true ? code->jt : code->jf;
	return true;
}

/* An instruction that neither jumps nor returns. */
static bool step(struct machine *machine, const struct sock_filter *code)
{
	switch (BPF_CLASS(code->code)) {
	case BPF_LD:
		return load(machine, code, &machine->a);
	case BPF_LDX:
		return load(machine, code, &machine->x);
	case BPF_ST:
	case BPF_STX:
		if (code->k >= BPF_MEMWORDS)
			return false;
		machine->memory[code->k] =
			BPF_CLASS(code->code) == BPF_ST ? machine->a : machine->x;
		return true;
	case BPF_ALU:
		return compute(&machine->a, BPF_OP(code->code),
			       BPF_SRC(code->code) == BPF_X ? machine->x : code->k);
	case BPF_MISC:
		if (BPF_MISCOP(code->code) == BPF_TAX)
			machine->x = machine->a;
		else
			machine->a = machine->x;
		return true;
	default:
		return false;
	}
}

int hl_seccomp_run(const struct sock_filter *filter, size_t count, const struct seccomp_data *call,
		   uint32_t *ret_action)
{
	struct machine machine = {.call = call};

	for (size_t at = 0; at < count; at++) {
		const struct sock_filter *code = &filter[at];
		uint32_t distance = 0;
		if (BPF_CLASS(code->code) == BPF_RET) {
			*ret_action = BPF_RVAL(code->code) == BPF_A ? machine.a : code->k;
			return 0;
		}
		if (BPF_CLASS(code->code) == BPF_JMP ? !jump(&machine, code, &distance)
						     : !step(&machine, code))
			return -EINVAL;
		at += distance;
	}
	return -EINVAL;
}

bool hl_seccomp_permits(const struct sock_filter *filter, size_t count,
			const struct seccomp_data *call)
{
	uint32_t action;

	if (hl_seccomp_run(filter, count, call, &action) < 0)
		return false;
	action &= SECCOMP_RET_ACTION_FULL;
	return action == SECCOMP_RET_ALLOW || action == SECCOMP_RET_LOG;
}

/* ---- filters of this process ---- */

_Atomic uint32_t hl_seccomp_noted, hl_seccomp_calling;

/* In ordinary memory, which forked children inherit as they do filters. One after another. */
#define CODE_MAX    8192u
#define FILTERS_MAX 64u
static struct sock_filter code[CODE_MAX];
static uint32_t ends[FILTERS_MAX];
static _Atomic uint32_t noting;

static bool keep(const struct sock_filter *filter, size_t count, uint32_t before)
{
	size_t start = before && before <= FILTERS_MAX ? ends[before - 1] : 0;

	if (!filter || before >= FILTERS_MAX || count > CODE_MAX - start)
		return false;
	memcpy(&code[start], filter, count * sizeof(*filter));
	ends[before] = (uint32_t)(start + count);
	/* Whoever sees the number sees the filter. Another thread may have said meanwhile that none is permitted. */
	return atomic_compare_exchange_strong(&hl_seccomp_noted, &before, before + 1);
}

struct hl_seccomp_change hl_seccomp_note(const struct sock_filter *filter, size_t count)
{
	uint32_t before, after;
	bool is_kept = false;

	/* A thread that notes one now may be interrupted: nobody waits for it. */
	if (!atomic_exchange(&noting, 1)) {
		before = atomic_load(&hl_seccomp_noted);
		is_kept = keep(filter, count, before);
		atomic_store(&noting, 0);
		if (is_kept)
			return (struct hl_seccomp_change){before, before + 1};
	}
	before = atomic_load(&hl_seccomp_noted);
	do
		after = before < HL_SECCOMP_NONE_IS_PERMITTED ? HL_SECCOMP_NONE_IS_PERMITTED
							      : before + 1;
	while (!atomic_compare_exchange_weak(&hl_seccomp_noted, &before, after));
	return (struct hl_seccomp_change){before, after};
}

bool hl_seccomp_forget(struct hl_seccomp_change change)
{
	return atomic_compare_exchange_strong(&hl_seccomp_noted, &change.after, change.before);
}

bool hl_seccomp_ask(long number, long a, long b, long c, long d, long e, long f)
{
	uint32_t count = atomic_load_explicit(&hl_seccomp_noted, memory_order_acquire), start = 0;
	const struct seccomp_data call = {
		.nr = (int)number,
		.arch = HL_MACHINE_AUDIT,
		.args = {(uint64_t)a, (uint64_t)b, (uint64_t)c, (uint64_t)d, (uint64_t)e,
			 (uint64_t)f},
	};

	if (count >= HL_SECCOMP_NONE_IS_PERMITTED)
		return false;
	for (uint32_t i = 0; i < count; start = ends[i++])
		if (!hl_seccomp_permits(&code[start], ends[i] - start, &call))
			return false;
	return true;
}
