/* SPDX-License-Identifier: BSD-2-Clause */
/* Follows the pages of a process from one snapshot to the other; see page_trace.h. */
#include "bpf/page_trace.h"

#include "base/clock.h"
#include "bpf/page_result.h"
#include "bpf/pages.h"
#include "bpf/privilege.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A stack that could not be walked is one all the same: the fault was seen. */
#define STACK_LOST UINT64_MAX

/*
 * A process may end at any time, and its pages with it; then the last of the snapshots that are
 * taken meanwhile has to do. They cost a share of one processor of at most 1 / CHECKPOINT_SHARE.
 */
#define CHECKPOINT_INTERVAL_NS HL_NS_PER_SECOND
#define CHECKPOINT_SHARE       100

struct page_trace {
	const struct hl_trace_request *request;
	struct hl_page_settings settings;
	struct hl_page_watch *watch;
	struct hl_page_table *table;
	struct hl_page_camera *camera;
	struct hl_page_snapshot first, last;
	uint64_t pages_not_kept; /* records for which there was no memory */
};

static pid_t pid_of(const struct page_trace *trace)
{
	return trace->request->facts->pid;
}

/* ---- records ---- */

static int take_touch(struct page_trace *trace, const struct hl_page_touch_record *record)
{
	uint64_t stack = record->stack ? record->stack : STACK_LOST;
	uint32_t touch = 0;

	if (record->page & HL_PAGE_RECORD_WRITE)
		touch |= HL_PAGE_TOUCH_WRITE;
	if (record->page & HL_PAGE_RECORD_PRESENT)
		touch |= HL_PAGE_TOUCH_PRESENT;
	return hl_page_table_touch(trace->table, record->page, stack, touch);
}

static int take_mapped(struct page_trace *trace, const struct hl_page_range_record *record)
{
	hl_page_table_forget(trace->table, record->start, record->start + record->bytes);
	return hl_page_table_populate(trace->table, record->start, record->start + record->bytes,
				      record->stack);
}

static int take_moved(struct page_trace *trace, const struct hl_page_range_record *record)
{
	bool shrinks = record->to_bytes < record->bytes;
	uint64_t kept = shrinks ? record->to_bytes : record->bytes;
	int r = hl_page_table_move(trace->table, record->start, record->to, kept);

	hl_page_table_discard(trace->table, record->start + kept, record->start + record->bytes);
	hl_page_table_forget(trace->table, record->to + kept, record->to + record->to_bytes);
	return r;
}

/* mlockall(2) brings in what is mapped. */
static int take_locked(struct page_trace *trace, uint64_t stack)
{
	struct hl_maps maps;
	int r = hl_maps_read(pid_of(trace), &maps, NULL);

	if (r < 0)
		return r == -ENOMEM ? r : 0;
	for (size_t i = 0; r == 0 && i < maps.count; i++)
		if (maps.maps[i].flags & HL_MAP_READ)
			r = hl_page_table_populate(trace->table, maps.maps[i].start,
						   maps.maps[i].end, stack);
	hl_maps_release(&maps);
	return r;
}

static int take_range(struct page_trace *trace, const struct hl_page_range_record *record)
{
	switch (record->header.kind) {
	case HL_RECORD_PAGES_MAPPED:
		return take_mapped(trace, record);
	case HL_RECORD_PAGES_POPULATED:
		return hl_page_table_populate(trace->table, record->start,
					      record->start + record->bytes, record->stack);
	case HL_RECORD_PAGES_GONE:
		hl_page_table_discard(trace->table, record->start, record->start + record->bytes);
		return 0;
	case HL_RECORD_PAGES_MOVED:
		return take_moved(trace, record);
	case HL_RECORD_PAGES_LOCKED:
		return take_locked(trace, record->stack);
	default:
		return 0;
	}
}

/* What cannot be kept is counted; the trace goes on. */
static int take_record(void *context, const struct hl_record_header *header, size_t bytes)
{
	struct page_trace *trace = context;
	int r = 0;

	if (header->kind == HL_RECORD_PAGE_TOUCHED && bytes >= sizeof(struct hl_page_touch_record))
		r = take_touch(trace, (const struct hl_page_touch_record *)header);
	else if (bytes >= sizeof(struct hl_page_range_record))
		r = take_range(trace, (const struct hl_page_range_record *)header);
	if (r < 0)
		trace->pages_not_kept++;
	return 0;
}

/* ---- the trace ---- */

static void free_trace(void *context)
{
	struct page_trace *trace = context;

	if (!trace)
		return;
	hl_page_watch_free(trace->watch);
	hl_page_table_free(trace->table);
	hl_page_camera_free(trace->camera);
	hl_page_snapshot_release(&trace->first);
	hl_page_snapshot_release(&trace->last);
	free(trace);
}

static int watch_target(struct page_trace *trace, bool count_only, struct hl_error *err)
{
	const struct hl_page_watch_settings settings = {
		.pid = pid_of(trace),
		.count_only = count_only,
		.without_calls = trace->settings.without_calls,
		.ring_bytes = trace->settings.ring_bytes,
		.source = trace->settings.source,
	};

	return hl_page_watch_start(&settings, take_record, trace, &trace->watch, err);
}

static int take_first_snapshot(struct page_trace *trace, struct hl_error *err)
{
	int r = hl_page_camera_new(pid_of(trace), &trace->camera, err);

	if (r < 0)
		return r;
	if (trace->settings.without_scan)
		hl_page_camera_avoid_scan(trace->camera);
	return hl_page_snapshot_take(trace->camera, HL_PAGE_SNAPSHOT_RSS, &trace->first, err);
}

static void say_what_is_watched(const struct page_trace *trace, bool count_only)
{
	const char *error = hl_page_watch_calls_error(trace->watch);

	trace->request->detail(
		"watching page faults by %s%s%s", hl_page_watch_source_name(trace->watch),
		count_only ? "" : ", pages by ",
		count_only ? "" : hl_pagemap_method(hl_page_camera_pagemap(trace->camera)));
	if (*error)
		trace->request->note("calls that bring in pages are not watched: %s", error);
}

static int start_either(const struct hl_trace_request *request, bool count_only, void **ret_trace,
			struct hl_error *err)
{
	struct page_trace *trace = calloc(1, sizeof(*trace));
	int r = trace ? hl_page_table_new(&trace->table) : -ENOMEM;

	if (r < 0) {
		free(trace);
		return hl_error_set(err, r, "cannot watch pages: out of memory");
	}
	trace->request = request;
	if (request->settings)
		trace->settings = *(const struct hl_page_settings *)request->settings;
	r = hl_privilege_check(request->facts, HL_NEED_BPF | HL_NEED_TARGET | HL_NEED_PAGEMAP, err);
	if (r == 0)
		r = watch_target(trace, count_only, err);
	if (r == 0 && !count_only)
		r = take_first_snapshot(trace, err);
	if (r < 0) {
		free_trace(trace);
		return r;
	}
	say_what_is_watched(trace, count_only);
	*ret_trace = trace;
	return 0;
}

static int start_pages(const struct hl_trace_request *request, void **ret_trace,
		       struct hl_error *err)
{
	return start_either(request, false, ret_trace, err);
}

static int start_events(const struct hl_trace_request *request, void **ret_trace,
			struct hl_error *err)
{
	return start_either(request, true, ret_trace, err);
}

static const struct hl_page_snapshot *latest_snapshot(const struct page_trace *trace)
{
	return trace->last.taken_ns ? &trace->last : &trace->first;
}

static bool is_checkpoint_due(const struct page_trace *trace)
{
	const struct hl_page_snapshot *latest = latest_snapshot(trace);
	uint64_t pause_ns = latest->cost_ns * CHECKPOINT_SHARE;

	if (pause_ns < CHECKPOINT_INTERVAL_NS)
		pause_ns = CHECKPOINT_INTERVAL_NS;
	if (trace->settings.checkpoint_pause_ns)
		pause_ns = trace->settings.checkpoint_pause_ns;
	return hl_clock_ns(CLOCK_MONOTONIC) - latest->taken_ns >= pause_ns;
}

/* In place of the last one, which stays when there is nothing to see any more. */
static int take_snapshot(struct page_trace *trace, enum hl_page_snapshot_depth depth,
			 struct hl_error *err)
{
	struct hl_page_snapshot snapshot;
	int r = hl_page_snapshot_take(trace->camera, depth, &snapshot, err);

	if (r < 0)
		return r;
	hl_page_snapshot_release(&trace->last);
	trace->last = snapshot;
	return 0;
}

static int poll_events(void *context, int timeout_ms, struct hl_error *err)
{
	struct page_trace *trace = context;
	int r = hl_page_watch_poll(trace->watch, timeout_ms, err);

	return r == 0 && hl_page_watch_target_replaced(trace->watch) ? -ESRCH : r;
}

static int poll_pages(void *context, int timeout_ms, struct hl_error *err)
{
	struct page_trace *trace = context;
	int r = poll_events(context, timeout_ms, err);

	return r == 0 && is_checkpoint_due(trace)
		       ? take_snapshot(trace, HL_PAGE_SNAPSHOT_PAGES, err)
		       : r;
}

/* ---- the end ---- */

static struct hl_page_findings findings_of(const struct page_trace *trace, bool has_ended)
{
	return (struct hl_page_findings){
		.watch = trace->watch,
		.not_kept = trace->pages_not_kept,
		.has_ended = has_ended || hl_page_watch_target_replaced(trace->watch),
		.table = trace->table,
		.first = &trace->first,
		.last = latest_snapshot(trace),
		.classes = trace->settings.classes,
	};
}

static int finish_events(void *context, bool has_ended, struct hl_trace_result *result,
			 struct hl_error *err)
{
	struct page_trace *trace = context;

	hl_page_watch_detach(trace->watch);
	int r = hl_page_watch_poll(trace->watch, 0, err);
	if (r < 0 && r != -ESRCH)
		return r;
	struct hl_page_findings findings = findings_of(trace, has_ended);
	r = hl_page_result_fill_faults(&findings, result);
	return r < 0 ? hl_error_set(err, r, "cannot sum up page faults: %s", strerror(-r)) : 0;
}

static void say_what_it_took(const struct page_trace *trace, uint64_t detach_ns)
{
	const struct hl_page_snapshot *last = latest_snapshot(trace);

	trace->request->detail("looked at %llu pages in %.1f ms; detached in %.0f ms",
			       (unsigned long long)last->pages.page_count,
			       (double)last->cost_ns / 1e6, (double)detach_ns / 1e6);
}

static int finish_pages(void *context, bool has_ended, struct hl_trace_result *result,
			struct hl_error *err)
{
	struct page_trace *trace = context;
	struct hl_error gone_error = {0};
	int polled = hl_page_watch_poll(trace->watch, 0, err);
	int taken = has_ended ? -ESRCH : take_snapshot(trace, HL_PAGE_SNAPSHOT_RSS, &gone_error);

	uint64_t detach_ns = hl_clock_ns(CLOCK_MONOTONIC);
	hl_page_watch_detach(trace->watch);
	say_what_it_took(trace, hl_clock_ns(CLOCK_MONOTONIC) - detach_ns);
	if (polled == 0 || polled == -ESRCH)
		polled = hl_page_watch_poll(trace->watch, 0, err);
	if (polled < 0 && polled != -ESRCH)
		return polled;
	if (taken < 0 && taken != -ESRCH)
		return hl_error_set(err, taken, "%s", gone_error.text);
	struct hl_page_findings findings = findings_of(trace, taken < 0);
	findings.knows_zero_page =
		hl_pagemap_knows_zero_page(hl_page_camera_pagemap(trace->camera));
	int r = hl_page_result_fill(&findings, result);
	return r < 0 ? hl_error_set(err, r, "cannot sum up pages: %s", strerror(-r)) : 0;
}

const struct hl_trace_backend hl_page_trace = {
	.mode = "pgfault",
	.start = start_pages,
	.poll = poll_pages,
	.finish = finish_pages,
	.free = free_trace,
};

const struct hl_trace_backend hl_page_event_trace = {
	.mode = "page-events",
	.start = start_events,
	.poll = poll_events,
	.finish = finish_events,
	.free = free_trace,
};
