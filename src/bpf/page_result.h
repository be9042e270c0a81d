/* SPDX-License-Identifier: BSD-2-Clause */
/* What a trace of pages or of page faults found, as the result of a trace. */
#pragma once

#include "bpf/page_watch.h"
#include "bpf/pages.h"
#include "bpf/trace.h"

struct hl_page_findings {
	const struct hl_page_watch *watch; /* detached */
	uint64_t not_kept;		   /* records for which there was no memory */
	bool has_ended;			   /* the target, or what it was is another program now */
	/* What follows is of pages alone. */
	const struct hl_page_table *table;
	const struct hl_page_snapshot *first, *last;
	uint32_t classes; /* 1 << enum hl_page_class, of those that count; 0: all */
	bool knows_zero_page;
};

/* Pages that came, by stack, and that went. 0 or a negative errno. */
int hl_page_result_fill(const struct hl_page_findings *findings, struct hl_trace_result *result);

/* Page faults by stack. 0 or a negative errno. */
int hl_page_result_fill_faults(const struct hl_page_findings *findings,
			       struct hl_trace_result *result);
