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

struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
	unsigned long orig_ax, ip, cs, flags, sp, ss;
};

struct thread_struct {
	unsigned long fsbase;
};

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
	const struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	record.r15 = regs->r15;
	record.r14 = regs->r14;
	record.r13 = regs->r13;
	record.r12 = regs->r12;
	record.bp = regs->bp;
	record.bx = regs->bx;
	record.r11 = regs->r11;
	record.r10 = regs->r10;
	record.r9 = regs->r9;
	record.r8 = regs->r8;
	record.ax = regs->ax;
	record.cx = regs->cx;
	record.dx = regs->dx;
	record.si = regs->si;
	record.di = regs->di;
	record.orig_ax = regs->orig_ax;
	record.ip = regs->ip;
	record.cs = regs->cs;
	record.flags = regs->flags;
	record.sp = regs->sp;
	record.ss = regs->ss;
	record.fs_base = task->thread.fsbase;
	bpf_seq_write(context->meta->seq, &record, sizeof(record));
	return 0;
}
