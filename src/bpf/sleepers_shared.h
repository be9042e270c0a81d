/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What sleepers.bpf.c writes for each thread. */
#pragma once

#include <stdint.h>

struct hl_sleeper_record {
	uint64_t tid, switches, runs;
	/* in the order of struct user_regs_struct, up to fs_base */
	uint64_t r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs,
		flags, sp, ss, fs_base;
};
