/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `stacks` of a process that is being recorded: read from its recorder, by snapshots, because
 * probes would put the kernel's trampoline onto the stacks that the recorder walks.
 */
#pragma once

#include "bpf/trace.h"

/* Whether a collector that can be asked records ${pid}. */
bool hl_trace_is_recorded(pid_t pid);

/* Results are what each stack has gained between two snapshots. It has no settings. */
extern const struct hl_trace_backend hl_recorded_trace;
