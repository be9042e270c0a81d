/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heapline pgfault: which stacks brought in the pages by which a process has grown. Each fault
 * has a page and a stack; two snapshots show which pages came and went in between, so that
 * what goes need not be watched. Order: attach, snapshot, run, snapshot, detach.
 *
 * heapline page-events: how many faults each stack had, whatever became of the pages.
 */
#pragma once

#include "bpf/page_shared.h"
#include "bpf/pages.h"
#include "bpf/trace.h"
#include "bpf/walker.h"
#include "process/maps.h"

/*
 * The kernel reports faults in three ways: by tracepoints to programs that know the kernel's types
 * (needs CAP_BPF and CAP_PERFMON alone), by the same tracepoints as tracefs has them, and by a
 * software event of perf, which every machine and kernel has.
 */
enum hl_page_source {
	HL_PAGE_SOURCE_BEST, /* the first of the others that works */
	HL_PAGE_SOURCE_TYPED_TRACEPOINT,
	HL_PAGE_SOURCE_TRACEPOINT,
	HL_PAGE_SOURCE_PERF_EVENT,
	HL_PAGE_SOURCES_END,
};

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

/* ---- the programs of page.bpf.c from the user's side (page_watch.c) ---- */

/* At work on one process: linked to page faults, and to the calls of the C library that bring pages in
 * otherwise. One thread. */
struct hl_page_watch_settings {
	pid_t pid;
	bool count_only;     /* count the faults of each stack; no records of pages, no calls */
	bool without_calls;  /* of the C library */
	uint32_t ring_bytes; /* for records, a power of two; 0: by the number of processors */
	enum hl_page_source source;
};

struct hl_page_watch;

/*
 * Attaches. ${on_record} receives the records of page_shared.h while polling. 0 or a negative errno
 * with a sentence that names what is missing. That calls cannot be watched is not an error, see
 * hl_page_watch_calls_error().
 */
int hl_page_watch_start(const struct hl_page_watch_settings *settings, hl_record_fn *on_record,
			void *context, struct hl_page_watch **ret_watch, struct hl_error *err);

/* Like hl_walker_poll(). */
int hl_page_watch_poll(struct hl_page_watch *watch, int timeout_ms, struct hl_error *err);

/* Takes all programs away; what they said before is still to be polled. */
void hl_page_watch_detach(struct hl_page_watch *watch);

void hl_page_watch_free(struct hl_page_watch *watch); /* NULL is fine; detaches */

/* What was used. */
const char *hl_page_watch_source_name(const struct hl_page_watch *watch);

/* Why calls are not watched; "" when they are. */
const char *hl_page_watch_calls_error(const struct hl_page_watch *watch);

/* Whether the target has become another program, of which nothing is seen any more. */
bool hl_page_watch_target_replaced(const struct hl_page_watch *watch);

/* Summed over processors. 0 or a negative errno. */
int hl_page_watch_counters(const struct hl_page_watch *watch,
			   struct hl_page_counters *ret_counters);

/* With count_only: calls ${visit} with the faults of each stack until it returns a negative errno,
 * which is then the result. */
int hl_page_watch_each_stack(const struct hl_page_watch *watch,
			     int (*visit)(void *context, uint64_t stack, uint64_t faults),
			     void *context);

const struct hl_walker *hl_page_watch_walker(const struct hl_page_watch *watch);

/* ---- calls of the C library ---- */

/*
 * Where a program's C library has the calls that bring pages in without a fault, move or discard
 * them: mmap, mremap, madvise, mlock and their like.
 */

struct hl_page_call_site {
	enum hl_page_call call;
	/* In the file, of the place for a probe: arguments are where calls put them, and the return
	 * address is on top of the stack. The call itself may be over there. */
	uint64_t offset;
};

#define HL_PAGE_CALL_SITES_MAX 16u

/* In one file. Zero-initialize for an empty set. */
struct hl_page_calls {
	struct hl_page_call_site sites[HL_PAGE_CALL_SITES_MAX];
	size_t count;
};

/*
 * The calls that the ELF file open as ${fd} defines. None (which is not an error) when it is not a C
 * library, nor a program with one linked into it: others that define them pass them on.
 */
void hl_page_calls_read(int fd, struct hl_page_calls *ret_calls);

/* The first code of ${maps} of ${pid} whose file has such calls, or NULL. */
const struct hl_map *hl_page_calls_find(pid_t pid, const struct hl_maps *maps,
					struct hl_page_calls *ret_calls);
