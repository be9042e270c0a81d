/* SPDX-License-Identifier: BSD-2-Clause */
/* Registers of threads that sleep, by a BPF iterator over tasks: nothing is stopped or interrupted. */
#pragma once

#include "process/process.h"

struct hl_sleepers;

/*
 * Loads the program for ${pid}. 0; a negative errno where it may not be used or the kernel lacks
 * what it takes (bpf_task_pt_regs of 5.15, BTF), or where numbers of threads differ from those of
 * the first PID namespace: threads are then to be stopped. Not while other programs are loaded by
 * another thread.
 */
int hl_sleepers_new(pid_t pid, struct hl_sleepers **ret_sleepers);

/* Who tells; valid until hl_sleepers_free(). */
struct hl_sleeper_source hl_sleepers_source(struct hl_sleepers *sleepers);

void hl_sleepers_free(struct hl_sleepers *sleepers); /* NULL is fine */
