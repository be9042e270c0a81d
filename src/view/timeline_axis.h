/* SPDX-License-Identifier: BSD-2-Clause */
/* Round steps for the axes of timelines, and their words. */
#pragma once

#include "view/format.h"

/* The smallest round number of bytes that ${most} has at most ${tick_max} of; at least 1. */
int64_t hl_timeline_byte_step(int64_t most, int tick_max);

/* The same of milliseconds, at least 100. */
uint64_t hl_timeline_ms_step(uint64_t length_ms, int tick_max);

/* "20 MiB", of a multiple of ${step}, in the unit of ${step}. Returns ${buffer}. */
const char *hl_timeline_byte_label(int64_t bytes, int64_t step, char buffer[HL_FORMAT_MAX]);

/* "0.2 s", "40 s", "15 min", "6 h", "2 d", likewise. */
const char *hl_timeline_ms_label(uint64_t ms, uint64_t step_ms, char buffer[HL_FORMAT_MAX]);
