/* SPDX-License-Identifier: BSD-2-Clause */
/* What a probe costs on this machine. */
#pragma once

#include "bpf/probe.h"

/*
 * Nanoseconds that a call takes longer when ${program_fd}, loaded for ${way}, runs at its entry:
 * measured in this process, in a few hundredths of a second. Where that is not possible, what it
 * took on a slow machine.
 */
double hl_heap_measure_trap(enum hl_probe_way way, int program_fd);
