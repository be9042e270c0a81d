/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heapline stacks: which blocks of a running process stay, by the stack that allocated them.
 * Probes in its allocators enter each block into a table in the kernel when it is handed out and
 * take it out when it is freed; what is left at the end is the result.
 */
#pragma once

#include "bpf/probe.h"
#include "bpf/trace.h"

#include <stdbool.h>
#include <stdint.h>

#define HL_HEAP_MAX_BLOCKS_DEFAULT   (UINT64_C(2) << 20)
#define HL_HEAP_MAX_BLOCKS_MAX	     (UINT64_C(1) << 28)
#define HL_HEAP_MAX_OVERHEAD_DEFAULT 30u

struct hl_heap_settings {
	bool all;	       /* every allocation, frees ignored */
	const char *object;    /* only probe files whose path contains it; NULL: all */
	uint64_t sample_bytes; /* mean bytes between samples; 0: every block */
	double older_seconds;  /* only blocks at least this old at the end */
	uint64_t max_overhead; /* percent of one processor that the target may pay */
	uint64_t max_blocks;   /* that the table can hold */
	bool growth;	       /* results are what changed since the last one */
	bool choose_way;       /* else the best that the kernel has */
	enum hl_probe_way way;
};

/* Its settings are a struct hl_heap_settings. */
extern const struct hl_trace_backend hl_heap_trace;
