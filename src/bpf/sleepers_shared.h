/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What sleepers.bpf.c writes for each thread. */
#pragma once

#include "bpf/registers.h"

#include <stdint.h>

struct hl_sleeper_record {
	uint64_t tid, switches, runs;
	uint64_t registers[HL_REGS_WORDS + 1]; /* as ptrace gives them; then the thread pointer */
};
