// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Walks stacks and counts them, for tests and measurements of the walker alone. */
#include "bpf/walk.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Events by stack id; 0: without a stack. */
HL_MAP(stack_counts, HASH, 0, uint64_t, uint64_t, 1 << 18);

static __always_inline bool add_to(uint64_t stack)
{
	uint64_t *number = bpf_map_lookup_elem(&stack_counts, &stack);

	if (number)
		__sync_fetch_and_add(number, 1);
	return number;
}

/* Two processors may reach a new stack at once: one of them adds it. */
static __always_inline int count(uint64_t stack)
{
	uint64_t one = 1;

	if (!add_to(stack) && bpf_map_update_elem(&stack_counts, &stack, &one, BPF_NOEXIST) &&
	    !add_to(stack))
		hl_count_loss(HL_LOSS_RING);
	return 0;
}

SEC("uprobe")
int at_entry(struct pt_regs *regs)
{
	return count(hl_stack_of_caller(regs));
}

SEC("uprobe")
int at_entry_uncounted(struct pt_regs *regs)
{
	hl_stack_of_caller(regs);
	return 0;
}

SEC("uprobe")
int at_entry_empty(struct pt_regs *regs)
{
	return 0;
}

SEC("tp_btf/page_fault_user")
int at_fault_user(uint64_t *context)
{
	return hl_is_target() ? count(hl_stack_of_fault()) : 0;
}

SEC("tp_btf/page_fault_kernel")
int at_fault_kernel(uint64_t *context)
{
	return hl_is_target() && !hl_walk_caused_this() ? count(hl_stack_of_fault()) : 0;
}
