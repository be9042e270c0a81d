/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What BPF programs need to know of the kernel, and no more: the fields they touch, found at load
 * time by name and not by place (CO-RE).
 */
#pragma once

/* bpf_tracing.h then takes the kernel's own names of registers. */
#define __VMLINUX_H__

#include <linux/bpf.h>
#include <stdbool.h>
#include <stdint.h>

#include <bpf/bpf_helpers.h>

#include <bpf/bpf_core_read.h>

#define HL_PAGE_BYTES UINT64_C(4096)

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* Registers of x86-64 as they were in user space. */
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
	unsigned long orig_ax; /* number of the system call; -1 outside of one */
	unsigned long ip, cs, flags, sp, ss;
};

struct ns_common {
	unsigned int inum;
};

struct pid_namespace {
	struct ns_common ns;
};

struct upid {
	int nr;
	struct pid_namespace *ns;
};

struct pid {
	unsigned int level;
	struct upid numbers[1]; /* ${level} + 1 of them */
};

#define HL_PIDTYPE_TGID 1

struct signal_struct {
	struct pid *pids[4]; /* by enum pid_type of the kernel */
};

struct task_struct {
	struct signal_struct *signal;
};

struct vm_unmapped_area_info {
	unsigned long length;
};

#pragma clang attribute pop
