// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Lists the threads of a process: those that sleep with the registers that they return to user space with. */
#include <linux/bpf.h>
#include <stdint.h>

#include <bpf/bpf_helpers.h>

#include "bpf/sleepers_shared.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The process, as the first namespace numbers it. */
const volatile int process = 0;

/* Types of the kernel, as far as they are read; libbpf fits them to the one that runs. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct task_struct {
	unsigned int __state; /* 0: it runs, or is about to */
	int on_cpu;
	int exit_state; /* not 0: it has ended */
	int pid, tgid;
	unsigned long nvcsw, nivcsw; /* switches to another thread, by its own will and not */
	struct thread_struct thread;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

/*
 * A thread that wakes meanwhile counts a switch before it sleeps again. The count is read first, so
 * that the reader, who lists them all once more, then finds another one.
 */
SEC("iter/task")
int list_sleepers(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	struct hl_sleeper_record record = {0};

	if (!task || task->tgid != process || task->exit_state)
		return 0;
	record.tid = (uint64_t)task->pid;
	record.switches = task->nvcsw + task->nivcsw;
	asm volatile("" ::: "memory");
	record.runs = !task->__state || task->on_cpu;
	bpf_probe_read_kernel(record.registers, HL_REGS_WORDS * sizeof(uint64_t),
			      (const void *)bpf_task_pt_regs(task));
	record.registers[HL_REGS_WORDS] = HL_THREAD_POINTER(&task->thread);
	bpf_seq_write(context->meta->seq, &record, sizeof(record));
	return 0;
}
