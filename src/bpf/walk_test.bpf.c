// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Walks alone, for tests and measurements: one record for each event with its stack. */
#include "bpf/walk.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#include "bpf/walk_test_shared.h"

static __always_inline int send(uint64_t stack)
{
	struct hl_walk_test_record record = {
		.header = {HL_RECORD_OWN, sizeof(record)},
		.thread = (uint32_t)bpf_get_current_pid_tgid(),
		.stack = stack,
	};
	if (bpf_ringbuf_output(&hl_records, &record, sizeof(record), 0))
		hl_count_loss(HL_LOSS_RING);
	return 0;
}

SEC("uprobe")
int at_entry(struct pt_regs *regs)
{
	return send(hl_stack_of_caller(regs));
}

SEC("uprobe")
int at_entry_quiet(struct pt_regs *regs)
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
	return hl_is_target() ? send(hl_stack_of_fault()) : 0;
}

SEC("tp_btf/page_fault_kernel")
int at_fault_kernel(uint64_t *context)
{
	return hl_is_target() && !hl_walk_caused_this() ? send(hl_stack_of_fault()) : 0;
}
