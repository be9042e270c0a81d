/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heapline pgfault: which stacks brought in the pages by which a process has grown. Each fault
 * has a page and a stack; two snapshots show which pages came and went in between, so that
 * what goes need not be watched. Order: attach, snapshot, run, snapshot, detach.
 *
 * heapline page-events: how many faults each stack had, whatever became of the pages.
 */
#pragma once

#include "bpf/page_watch.h"
#include "bpf/pages.h"
#include "bpf/trace.h"

struct hl_page_settings {
	uint32_t classes; /* 1 << enum hl_page_class, of the pages that are shown; 0: all */
	/* What follows is for tests of what other kernels, or much faster programs, would do. */
	enum hl_page_source source;
	bool without_calls;
	bool without_scan;
	uint32_t ring_bytes;
	uint64_t checkpoint_pause_ns; /* 0: as it should be */
};

/* Their settings are a struct hl_page_settings. */
extern const struct hl_trace_backend hl_page_trace;
extern const struct hl_trace_backend hl_page_event_trace;
