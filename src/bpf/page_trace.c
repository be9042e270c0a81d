/* SPDX-License-Identifier: BSD-2-Clause */
/* Follows the pages of a process from one snapshot to the other; see page_trace.h. */
#include "bpf/page_trace.h"

#include "base/clock.h"
#include "base/compiler.h"
#include "bpf/pages.h"
#include "bpf/privilege.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A stack that could not be walked is one all the same: the fault was seen. */
#define STACK_LOST UINT64_MAX

/* Owns pages that were there when the trace began, and have moved since: see settle_moved(). */
#define STACK_BEFORE (UINT64_MAX - 1)

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

/* Pages of the first snapshot in the range that nobody has touched since are those of then. */
static int own_pages_of_before(struct page_trace *trace, uint64_t start, uint64_t end)
{
	const struct hl_pages *pages = &trace->first.pages;
	int r = 0;

	for (size_t i = HL_LOWER_BOUND(at, pages->count, pages->runs[at].end <= start);
	     i < pages->count && pages->runs[i].start < end && r == 0; i++) {
		const struct hl_page_run *run = &pages->runs[i];
		r = hl_page_table_populate(trace->table, run->start > start ? run->start : start,
					   run->end < end ? run->end : end, STACK_BEFORE);
	}
	return r;
}

static int take_moved(struct page_trace *trace, const struct hl_page_range_record *record)
{
	bool shrinks = record->to_bytes < record->bytes;
	uint64_t kept = shrinks ? record->to_bytes : record->bytes;
	int r = record->to == record->start
			? 0
			: own_pages_of_before(trace, record->start, record->start + kept);
	int moved = hl_page_table_move(trace->table, record->start, record->to, kept);

	r = r < 0 ? r : moved;

	hl_page_table_discard(trace->table, record->start + kept, record->start + record->bytes);
	hl_page_table_forget(trace->table, record->to + kept, record->to + record->to_bytes);
	return r;
}

/* mlockall(2) brings in what is mapped. */
static int take_locked(struct page_trace *trace, uint64_t stack)
{
	HL_CLEANUP(hl_maps_release) struct hl_maps maps = {0};
	int r = hl_maps_read(pid_of(trace), &maps, NULL);

	if (r < 0)
		return r == -ENOMEM ? r : 0;
	for (size_t i = 0; r == 0 && i < maps.count; i++)
		if (maps.maps[i].flags & HL_MAP_READ)
			r = hl_page_table_populate(trace->table, maps.maps[i].start,
						   maps.maps[i].end, stack);
	return r;
}

static int take_range(struct page_trace *trace, const struct hl_page_range_record *record)
{
	uint64_t start = record->start, end = record->start + record->bytes;

	switch (record->header.kind) {
	case HL_RECORD_PAGES_MAPPED:
		hl_page_table_forget(trace->table, start, end);
		return hl_page_table_populate(trace->table, start, end, record->stack);
	case HL_RECORD_PAGES_POPULATED:
		return hl_page_table_populate(trace->table, start, end, record->stack);
	case HL_RECORD_PAGES_GONE:
		hl_page_table_discard(trace->table, start, end);
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

	if (header->kind == HL_RECORD_PAGE_TOUCHED &&
	    bytes >= sizeof(struct hl_page_touch_record)) {
		const struct hl_page_touch_record *record = (const void *)header;
		uint64_t stack = record->stack ? record->stack : STACK_LOST;
		uint32_t touch = 0;
		if (record->page & HL_PAGE_RECORD_WRITE)
			touch |= HL_PAGE_TOUCH_WRITE;
		if (record->page & HL_PAGE_RECORD_PRESENT)
			touch |= HL_PAGE_TOUCH_PRESENT;
		r = hl_page_table_touch(trace->table, record->page, stack, touch);
	} else if (bytes >= sizeof(struct hl_page_range_record)) {
		r = take_range(trace, (const struct hl_page_range_record *)header);
	}
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
	hl_page_snapshot_camera_free(trace->camera);
	hl_page_snapshot_release(&trace->first);
	hl_page_snapshot_release(&trace->last);
	free(trace);
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
	const struct hl_page_watch_settings settings = {
		.pid = pid_of(trace),
		.count_only = count_only,
		.without_calls = trace->settings.without_calls,
		.ring_bytes = trace->settings.ring_bytes,
		.source = trace->settings.source,
	};
	r = hl_privilege_check(request->facts, HL_NEED_BPF | HL_NEED_TARGET | HL_NEED_PAGEMAP, err);
	if (r == 0)
		r = hl_page_watch_start(&settings, take_record, trace, &trace->watch, err);
	if (r == 0 && !count_only) {
		r = hl_page_snapshot_camera_new(pid_of(trace), &trace->camera, err);
		if (r == 0 && trace->settings.without_scan)
			hl_page_snapshot_camera_avoid_scan(trace->camera);
		if (r == 0)
			r = hl_page_snapshot_take(trace->camera, HL_PAGE_SNAPSHOT_RSS,
						  &trace->first, err);
	}
	if (r < 0) {
		free_trace(trace);
		return r;
	}
	request->detail(
		"watching page faults by %s%s%s", hl_page_watch_source_name(trace->watch),
		count_only ? "" : ", pages by ",
		count_only ? ""
			   : hl_pagemap_method(hl_page_snapshot_camera_pagemap(trace->camera)));
	const char *calls_error = hl_page_watch_calls_error(trace->watch);
	if (*calls_error)
		request->note("calls that bring in pages are not watched: %s", calls_error);
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

/* Instead of the last one, which stays when there is nothing to see any more. */
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
	const struct hl_page_snapshot *latest = latest_snapshot(trace);
	uint64_t pause_ns = latest->cost_ns * CHECKPOINT_SHARE;
	int r = poll_events(context, timeout_ms, err);

	if (pause_ns < CHECKPOINT_INTERVAL_NS)
		pause_ns = CHECKPOINT_INTERVAL_NS;
	if (trace->settings.checkpoint_pause_ns)
		pause_ns = trace->settings.checkpoint_pause_ns;
	if (r < 0 || hl_clock_ns(CLOCK_MONOTONIC) - latest->taken_ns < pause_ns)
		return r;
	return take_snapshot(trace, HL_PAGE_SNAPSHOT_PAGES, err);
}

/* ---- results ---- */

static bool target_is_gone(const struct page_trace *trace, bool has_ended)
{
	return has_ended || hl_page_watch_target_replaced(trace->watch);
}

/* Frames, losses and what was seen besides. */
static int fill_common(const struct page_trace *trace, struct hl_trace_result *result)
{
	struct hl_page_counters counters;
	int r = hl_page_watch_counters(trace->watch, &counters);

	if (r < 0)
		return r;
	hl_trace_result_lost(result)->events =
		counters.lost + counters.lost_calls + trace->pages_not_kept;
	r = hl_trace_result_walks(result, hl_page_watch_walker(trace->watch), 1);
	if (r == 0)
		r = hl_trace_result_figure(result, "faults", (int64_t)counters.faults);
	if (r == 0)
		r = hl_trace_result_figure(result, "lost_faults", (int64_t)counters.lost);
	if (r == 0 && counters.forks)
		r = hl_trace_result_warn(
			result, "it started %llu process%s, whose pages are not counted",
			(unsigned long long)counters.forks, counters.forks == 1 ? "" : "es");
	return r;
}

static int warn_of_end(const struct page_trace *trace, struct hl_trace_result *result,
		       const char *figures)
{
	bool replaced = hl_page_watch_target_replaced(trace->watch);

	return hl_trace_result_warn(result, "the process %s before the trace ended: %s",
				    replaced ? "became another program" : "ended", figures);
}

struct visit {
	const struct hl_walker *walker;
	struct hl_trace_result *result;
};

static int add_faults(void *context, uint64_t stack, uint64_t faults)
{
	const struct visit *visit = context;
	const struct hl_trace_value value = {
		.alloc_bytes = faults * HL_PAGE_BYTES,
		.alloc_objects = faults,
	};

	return hl_trace_result_add(visit->result, hl_walker_node(visit->walker, stack, NULL),
				   &value);
}

static int finish_events(void *context, bool has_ended, struct hl_trace_result *result,
			 struct hl_error *err)
{
	struct page_trace *trace = context;
	struct visit visit = {hl_page_watch_walker(trace->watch), result};

	hl_page_watch_detach(trace->watch);
	int r = hl_page_watch_poll(trace->watch, 0, err);
	if (r < 0 && r != -ESRCH)
		return r;
	r = fill_common(trace, result);
	if (r == 0)
		r = hl_page_watch_each_stack(trace->watch, add_faults, &visit);
	if (r == 0 && target_is_gone(trace, has_ended))
		r = warn_of_end(trace, result, "these are the faults until then");
	return r < 0 ? hl_error_set(err, r, "cannot sum up page faults: %s", strerror(-r)) : 0;
}

/* Pages of the classes that are shown. */
static uint64_t sum_of_shown(const struct page_trace *trace, const struct hl_page_counts *counts)
{
	uint32_t classes = trace->settings.classes;
	uint64_t sum = 0;

	for (int i = 0; i < HL_PAGE_CLASSES; i++)
		if (!classes || classes & (1u << i))
			sum += counts->of[i];
	return sum;
}

static struct hl_trace_value gained(uint64_t pages)
{
	return (struct hl_trace_value){.alloc_bytes = pages * HL_PAGE_BYTES,
				       .alloc_objects = pages};
}

/*
 * Pages that were there before and have moved were neither gained nor released. Where fewer were released than have
 * moved, others have come to where they were, whose stacks are unknown.
 */
static void settle_moved(const struct page_trace *trace, struct hl_page_balance *balance)
{
	for (uint32_t i = 1; i <= balance->stack_count; i++) {
		if (hl_page_table_stack(trace->table, i) != STACK_BEFORE)
			continue;
		for (int class = 0; class < HL_PAGE_CLASSES; class ++) {
			uint64_t moved = balance->gains[i - 1].of[class];
			uint64_t released = balance->released.of[class];
			uint64_t both = moved < released ? moved : released;
			balance->released.of[class] -= both;
			balance->unattributed.of[class] += moved - both;
		}
		balance->gains[i - 1] = (struct hl_page_counts){0};
	}
}

static int add_balance(const struct page_trace *trace, const struct hl_page_balance *balance,
		       struct hl_trace_result *result)
{
	const struct hl_walker *walker = hl_page_watch_walker(trace->watch);
	struct hl_trace_value unattributed = gained(sum_of_shown(trace, &balance->unattributed));
	uint64_t gone = sum_of_shown(trace, &balance->released);
	struct hl_trace_value released = {.free_bytes = gone * HL_PAGE_BYTES, .free_objects = gone};

	for (uint32_t i = 1; i <= balance->stack_count; i++) {
		struct hl_trace_value value = gained(sum_of_shown(trace, &balance->gains[i - 1]));
		uint64_t stack = hl_page_table_stack(trace->table, i);
		int r = value.alloc_objects
				? hl_trace_result_add(result, hl_walker_node(walker, stack, NULL),
						      &value)
				: 0;
		if (r < 0)
			return r;
	}
	int r = hl_trace_result_add_pseudo(result, HL_PSEUDO_RELEASED, &released);
	return r < 0 ? r : hl_trace_result_add_pseudo(result, HL_PSEUDO_NO_FAULT, &unattributed);
}

static int64_t growth(const struct hl_page_balance *balance, enum hl_page_class page_class)
{
	return (int64_t)(balance->after.of[page_class] - balance->before.of[page_class]);
}

static int add_figures(const struct page_trace *trace, const struct hl_page_balance *balance,
		       struct hl_trace_result *result)
{
	const struct hl_page_snapshot *last = latest_snapshot(trace);

	const struct {
		const char *name;
		int64_t value;
	} figures[] = {
		{"pages", (int64_t)(sum_of_shown(trace, &balance->after) -
				    sum_of_shown(trace, &balance->before))},
		{"rss_growth_pages", (int64_t)(last->rss.rss_pages - trace->first.rss.rss_pages)},
		{"released_pages", (int64_t)sum_of_shown(trace, &balance->released)},
		{"unattributed_pages", (int64_t)sum_of_shown(trace, &balance->unattributed)},
		{"anon_pages", growth(balance, HL_PAGE_CLASS_ANON)},
		{"file_pages", growth(balance, HL_PAGE_CLASS_FILE)},
		{"shmem_pages", growth(balance, HL_PAGE_CLASS_SHMEM)},
	};

	for (size_t i = 0; i < HL_COUNT_OF(figures); i++) {
		int r = hl_trace_result_figure(result, figures[i].name, figures[i].value);
		if (r < 0)
			return r;
	}
	return 0;
}

static int warn_of_limits(const struct page_trace *trace, bool is_gone,
			  struct hl_trace_result *result)
{
	const char *calls_error = hl_page_watch_calls_error(trace->watch);
	uint64_t age_ns = hl_clock_ns(CLOCK_MONOTONIC) - latest_snapshot(trace)->taken_ns;
	char figures[96];
	int r = 0;

	if (is_gone) {
		snprintf(figures, sizeof(figures),
			 "its pages are those that it had %.1f seconds before this report",
			 (double)age_ns / (double)HL_NS_PER_SECOND);
		r = warn_of_end(trace, result, figures);
	}
	if (r == 0 && *calls_error)
		r = hl_trace_result_warn(result,
					 "calls that bring in pages were not watched: %s; such "
					 "pages are in [no fault seen]",
					 calls_error);
	if (r == 0 && !hl_pagemap_knows_zero_page(hl_page_snapshot_camera_pagemap(trace->camera)))
		r = hl_trace_result_warn(result, "pages that were only read count as gained: this "
						 "kernel does not tell them from others");
	return r;
}

static int finish_pages(void *context, bool has_ended, struct hl_trace_result *result,
			struct hl_error *err)
{
	struct page_trace *trace = context;
	HL_CLEANUP(hl_page_balance_release) struct hl_page_balance balance = {0};
	struct hl_error gone_error = {0};
	int polled = hl_page_watch_poll(trace->watch, 0, err);
	int taken = has_ended ? -ESRCH : take_snapshot(trace, HL_PAGE_SNAPSHOT_RSS, &gone_error);
	const struct hl_page_snapshot *last = latest_snapshot(trace);

	uint64_t detach_ns = hl_clock_ns(CLOCK_MONOTONIC);
	hl_page_watch_detach(trace->watch);
	trace->request->detail("looked at %llu pages in %.1f ms; detached in %.0f ms",
			       (unsigned long long)last->pages.page_count,
			       (double)last->cost_ns / 1e6,
			       (double)(hl_clock_ns(CLOCK_MONOTONIC) - detach_ns) / 1e6);
	if (polled == 0 || polled == -ESRCH)
		polled = hl_page_watch_poll(trace->watch, 0, err);
	if (polled < 0 && polled != -ESRCH)
		return polled;
	if (taken < 0 && taken != -ESRCH)
		return hl_error_set(err, taken, "%s", gone_error.text);
	int r = hl_page_balance_compare(&trace->first.pages, &last->pages, &last->maps,
					trace->table, &balance);
	if (r == 0) {
		settle_moved(trace, &balance);
		r = add_balance(trace, &balance, result);
	}
	if (r == 0)
		r = add_figures(trace, &balance, result);
	if (r == 0)
		r = fill_common(trace, result);
	if (r == 0)
		r = warn_of_limits(trace, target_is_gone(trace, taken < 0), result);
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
