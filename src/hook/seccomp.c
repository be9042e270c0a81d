/* SPDX-License-Identifier: BSD-2-Clause */
/* Interprets the part of classic BPF that seccomp(2) takes. A filter only jumps forward, so it ends. */
#include "hook/seccomp.h"

#include <errno.h>
#include <linux/audit.h>
#include <stdbool.h>
#include <string.h>

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

static bool is_permitted(const struct sock_filter *filter, size_t filter_count,
			 const struct hl_seccomp_call *call)
{
	struct seccomp_data data = {.nr = call->number, .arch = AUDIT_ARCH_X86_64};
	uint32_t action;

	memcpy(data.args, call->args, sizeof(data.args));
	if (hl_seccomp_run(filter, filter_count, &data, &action) < 0)
		return false;
	action &= SECCOMP_RET_ACTION_FULL;
	return action == SECCOMP_RET_ALLOW || action == SECCOMP_RET_LOG;
}

const struct hl_seccomp_call *hl_seccomp_find_forbidden(const struct sock_filter *filter,
							size_t filter_count,
							const struct hl_seccomp_call *calls,
							size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!is_permitted(filter, filter_count, &calls[i]))
			return &calls[i];
	return NULL;
}
