/* SPDX-License-Identifier: BSD-2-Clause */
/* Sets probes, waits, and makes a result of what they found; see heap_trace.h. */
#include "bpf/heap_trace.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "bpf/privilege.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct heap_trace {
	const struct hl_trace_request *request;
	const struct hl_heap_settings *settings;
	struct hl_heap_probes probes;
	struct hl_heap_program *program;
	struct hl_heap_limit limit;
	size_t modules_known; /* when allocators were last looked for */
	int late_allocators;  /* that were mapped while the trace went on */
	/* As of the last report, where they are of growth. */
	struct hl_heap_sums reported;
	struct hl_lost reported_lost;
	struct hl_heap_counters reported_counters;
};

/* ---- probes ---- */

static void note_probes(const struct heap_trace *trace)
{
	HL_FREED char *probed = hl_heap_probes_describe(&trace->probes);
	HL_FREED char *slow = hl_heap_probes_slow(&trace->probes);

	if (slow && slow[0])
		trace->request->note("each call of %s costs the target about 10 us: no instruction "
				     "at their beginning is one that the kernel can emulate",
				     slow);
	if (probed)
		trace->request->detail("counting, by %s probes: %s",
				       hl_probe_link_way_name(trace->probes.way), probed);
}

/* Whether the target may be traced, in any way, and what is to be probed. */
static int find_probes(struct heap_trace *trace, struct hl_error *err)
{
	const struct hl_heap_settings *settings = trace->settings;
	const struct hl_process_facts *facts = trace->request->facts;
	int r = hl_privilege_check(facts, HL_NEED_BPF | HL_NEED_TARGET, err);

	if (r == 0 && !settings->all)
		r = hl_heap_probes_check_returns(facts->pid, err);
	if (r < 0)
		return r;
	trace->probes = (struct hl_heap_probes){
		.pid = facts->pid,
		.object = settings->object,
		.entry_alone = settings->all,
	};
	return hl_heap_probes_find(&trace->probes, err);
}

/* Loads the programs, and sets probes in the way in which they could be. */
static int load_programs(struct heap_trace *trace, struct hl_error *err)
{
	const struct hl_heap_settings *settings = trace->settings;
	const struct hl_process_facts *facts = trace->request->facts;
	int r = hl_heap_program_new(facts->pid, settings, &trace->program, err);

	if (r < 0)
		return r;
	trace->probes.way = hl_heap_program_way(trace->program);
	trace->probes.spares_throwing =
		!settings->all && (trace->probes.way != HL_PROBE_SESSION ||
				   hl_heap_probes_memory_is_limited(facts->pid));
	return trace->probes.way == HL_PROBE_PERF
		       ? hl_privilege_check(facts, HL_NEED_PERF_UPROBES, err)
		       : 0;
}

static void free_trace(void *handle)
{
	struct heap_trace *trace = handle;

	if (!trace)
		return;
	hl_heap_probes_release(&trace->probes);
	hl_heap_program_free(trace->program);
	hl_heap_program_release_sums(&trace->reported);
	free(trace);
}

static int start(const struct hl_trace_request *request, void **ret_trace, struct hl_error *err)
{
	struct heap_trace *trace = calloc(1, sizeof(*trace));

	if (!trace)
		return hl_error_set(err, -ENOMEM, "cannot trace: out of memory");
	trace->request = request;
	trace->settings = request->settings;
	int r = find_probes(trace, err);
	if (r == 0)
		r = load_programs(trace, err);
	if (r == 0) {
		trace->limit = (struct hl_heap_limit){
			.request = request,
			.settings = trace->settings,
			.probes = &trace->probes,
			.program = trace->program,
		};
		r = hl_heap_limit_check(&trace->limit, err);
	}
	if (r == 0) {
		struct hl_heap_entries entries = hl_heap_program_entries(trace->program);
		if (hl_heap_probes_may_nest(&trace->probes))
			hl_heap_program_may_nest(trace->program);
		trace->modules_known = hl_heap_program_target(trace->program)->module_count;
		r = hl_heap_probes_link(&trace->probes, entries.entry_fd, entries.return_fd, err);
	}
	if (r == 0)
		r = hl_heap_program_start(trace->program, err);
	/* Not those calls that were counted to see what the trace would cost. */
	if (r == 0 && (r = hl_heap_program_counters(trace->program, &trace->reported_counters)) < 0)
		hl_error_set(err, r, "cannot read the number of calls: %s", strerror(-r));
	if (r != 0) {
		free_trace(trace);
		return r;
	}
	note_probes(trace);
	*ret_trace = trace;
	return 0;
}

/* ---- until it is enough ---- */

static int poll_trace(void *handle, int timeout_ms, struct hl_error *err)
{
	struct heap_trace *trace = handle;
	struct hl_heap_entries entries = hl_heap_program_entries(trace->program);
	const struct hl_target *target = hl_heap_program_target(trace->program);

	if (hl_heap_program_is_replaced(trace->program))
		return -ESRCH;
	int r = hl_walker_poll(hl_heap_program_walker(trace->program), timeout_ms, err);
	if (r == 0)
		r = hl_heap_limit_watch(&trace->limit, err);
	if (r || target->module_count == trace->modules_known)
		return r;
	/* Code that was mapped meanwhile may have an allocator, too. */
	for (; trace->modules_known < target->module_count; trace->modules_known++)
		trace->request->detail("'%s' was loaded",
				       target->modules[trace->modules_known].path);
	r = hl_heap_probes_extend(&trace->probes, entries.entry_fd, entries.return_fd, err);
	if (r <= 0)
		return r;
	trace->late_allocators += r;
	hl_heap_program_may_nest(trace->program);
	note_probes(trace);
	return 0;
}

/* ---- the result ---- */

static int add_sums(const struct heap_trace *trace, const struct hl_heap_sums *sums,
		    struct hl_trace_result *result)
{
	const struct hl_walker *walker = hl_heap_program_walker(trace->program);

	for (size_t i = 0; i < sums->count; i++) {
		const struct hl_heap_sum *sum = &sums->sums[i];
		int64_t bytes = llround(sum->bytes), objects = llround(sum->objects);
		struct hl_trace_value value = {
			.alloc_bytes = bytes > 0 ? (uint64_t)bytes : 0,
			.free_bytes = bytes < 0 ? (uint64_t)-bytes : 0,
			.alloc_objects = objects > 0 ? (uint64_t)objects : 0,
			.free_objects = objects < 0 ? (uint64_t)-objects : 0,
		};
		int r = hl_trace_result_add(result, hl_walker_node(walker, sum->stack, NULL),
					    &value);
		if (r < 0)
			return r;
	}
	return 0;
}

static int warn_of_spared(const struct heap_trace *trace, struct hl_trace_result *result)
{
	HL_FREED char *spared = hl_heap_probes_spared(&trace->probes);
	const char *remedy =
		"a kernel from 6.13 on can watch them in programs without a limit of memory";

	if (!spared)
		return -ENOMEM;
	if (!spared[0])
		return 0;
	if (trace->probes.way == HL_PROBE_SESSION)
		remedy = "the process has a limit of memory, or the system does not overcommit, so "
			 "that they may throw";
	else if (hl_probe_link_best_way() == HL_PROBE_SESSION)
		remedy = "leave out --probes to have them watched";
	return hl_trace_result_warn(result,
				    "not watched, because an exception would end the program: %s; "
				    "%s",
				    spared, remedy);
}

static int add_warnings(const struct heap_trace *trace, const struct hl_heap_counters *counters,
			struct hl_trace_result *result)
{
	int r = warn_of_spared(trace, result);

	if (r == 0 && counters->too_large_events)
		r = hl_trace_result_warn(result,
					 "%llu calls for %llu bytes in all were not watched: each "
					 "asked for more than the machine has, and may have failed "
					 "by an exception",
					 (unsigned long long)counters->too_large_events,
					 (unsigned long long)counters->too_large_bytes);
	if (r == 0 && trace->late_allocators)
		r = hl_trace_result_warn(result,
					 "%d allocators were mapped during the trace; what they "
					 "handed out at first is not shown",
					 trace->late_allocators);
	if (r == 0 && trace->probes.missed)
		r = hl_trace_result_warn(result,
					 "%d of them could not be watched: what they handed out is "
					 "not shown",
					 trace->probes.missed);
	if (r == 0 && hl_heap_program_is_replaced(trace->program))
		r = hl_trace_result_warn(result, "the process replaced itself by another program; "
						 "what is shown is from before that");
	if (r == 0 && counters->lost_events && trace->settings->all)
		r = hl_trace_result_warn(result,
					 "%llu allocations found no room in the table of stacks; "
					 "use --sample",
					 (unsigned long long)counters->lost_events);
	else if (r == 0 && counters->lost_events)
		r = hl_trace_result_warn(result,
					 "%llu blocks found no room in the table of %llu; raise "
					 "--max-blocks or use --sample",
					 (unsigned long long)counters->lost_events,
					 (unsigned long long)trace->settings->max_blocks);
	return r;
}

/* Blocks that were freed again are not in the sums. */
static void add_calls(struct heap_trace *trace, const struct hl_heap_counters *counters,
		      struct hl_trace_result *result)
{
	struct hl_trace_value called = {.alloc_bytes = counters->requested_bytes -
						       trace->reported_counters.requested_bytes};

	for (int call = 0; call < HL_HEAP_CALLS; call++)
		if (call != HL_HEAP_FREE)
			called.alloc_objects +=
				counters->calls[call] - trace->reported_counters.calls[call];
	hl_trace_result_set_called(result, &called);
	trace->reported_counters = *counters;
}

static int add_losses(struct heap_trace *trace, struct hl_trace_result *result)
{
	struct hl_lost *lost = hl_trace_result_lost(result);
	struct hl_heap_counters counters;
	int r = hl_heap_program_counters(trace->program, &counters);

	if (r < 0)
		return r;
	add_calls(trace, &counters, result);
	lost->events = counters.lost_events;
	lost->bytes = counters.lost_bytes;
	if (!trace->settings->all && !trace->settings->sample_bytes)
		lost->unmatched_frees = counters.unmatched_frees;
	r = add_warnings(trace, &counters, result);
	if (r == 0 && !trace->settings->all)
		r = hl_trace_result_figure(result, "table_memory_bytes",
					   (int64_t)hl_heap_program_table_bytes(trace->program));
	return r;
}

/* By how much each stack has grown since the last report. */
static int add_growth(struct heap_trace *trace, struct hl_heap_sums *sums,
		      struct hl_trace_result *result)
{
	struct hl_heap_sums growth = {0}, before = trace->reported;
	int r = hl_heap_program_add_sums(&growth, sums, 1);

	if (r == 0)
		r = hl_heap_program_add_sums(&growth, &before, -1);
	if (r == 0)
		r = add_sums(trace, &growth, result);
	trace->reported = *sums;
	*sums = before;
	hl_heap_program_release_sums(&growth);
	return r;
}

/* Blocks are read first, and then the stacks that they name. */
static int fill_result(struct heap_trace *trace, uint64_t end_ns, struct hl_trace_result *result,
		       struct hl_error *err)
{
	struct hl_heap_sums sums = {0};
	uint64_t age_ns = (uint64_t)(trace->settings->older_seconds * (double)HL_NS_PER_SECOND);
	int r = hl_heap_program_sum(trace->program, age_ns < end_ns ? end_ns - age_ns : 0, &sums);

	if (r == 0)
		r = hl_walker_poll(hl_heap_program_walker(trace->program), 0, NULL);
	if (r == 0 || r == -ESRCH)
		r = trace->settings->growth ? add_growth(trace, &sums, result)
					    : add_sums(trace, &sums, result);
	if (r == 0)
		r = hl_trace_result_walks(result, hl_heap_program_walker(trace->program), 1);
	if (r == 0)
		r = add_losses(trace, result);
	if (r == 0 && trace->settings->growth) { /* what was lost since the last report */
		struct hl_lost *lost = hl_trace_result_lost(result), all = *lost;
		*lost = hl_lost_since(&all, &trace->reported_lost);
		lost->modules = all.modules; /* still without names */
		trace->reported_lost = all;
	}
	hl_trace_result_set_sample(result, trace->settings->sample_bytes);
	hl_heap_program_release_sums(&sums);
	return r < 0 ? hl_error_set(err, r, "cannot read the blocks: %s", strerror(-r)) : 0;
}

static int report(void *handle, struct hl_trace_result *result, struct hl_error *err)
{
	return fill_result(handle, hl_clock_ns(CLOCK_MONOTONIC), result, err);
}

static int finish(void *handle, bool has_ended, struct hl_trace_result *result,
		  struct hl_error *err)
{
	struct heap_trace *trace = handle;

	(void)has_ended;
	hl_heap_program_stop(trace->program);
	uint64_t end_ns = hl_clock_ns(CLOCK_MONOTONIC);
	hl_heap_probes_unlink(&trace->probes);
	trace->request->detail("detached in %.0f ms",
			       (double)(hl_clock_ns(CLOCK_MONOTONIC) - end_ns) / 1e6);
	return fill_result(trace, end_ns, result, err);
}

const struct hl_trace_backend hl_heap_trace = {
	.mode = "stacks",
	.start = start,
	.poll = poll_trace,
	.report = report,
	.finish = finish,
	.free = free_trace,
};
