/* SPDX-License-Identifier: BSD-2-Clause */
/* Sums up pages and faults by stack; see page_result.h. */
#include "bpf/page_result.h"

#include "base/clock.h"
#include "base/compiler.h"

#include <stdio.h>

/* ---- for both ---- */

/* Frames, losses and what was seen besides. */
static int fill_common(const struct hl_page_findings *findings, struct hl_trace_result *result)
{
	struct hl_page_counters counters;
	int r = hl_page_watch_counters(findings->watch, &counters);

	if (r < 0)
		return r;
	hl_trace_result_lost(result)->events =
		counters.lost + counters.lost_calls + findings->not_kept;
	r = hl_trace_result_walks(result, hl_page_watch_walker(findings->watch));
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

static int warn_of_end(const struct hl_page_findings *findings, struct hl_trace_result *result,
		       const char *figures)
{
	bool replaced = hl_page_watch_target_replaced(findings->watch);

	return hl_trace_result_warn(result, "the process %s before the trace ended: %s",
				    replaced ? "became another program" : "ended", figures);
}

/* ---- faults ---- */

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

	return hl_trace_result_add(visit->result, hl_walker_node(visit->walker, stack), &value);
}

int hl_page_result_fill_faults(const struct hl_page_findings *findings,
			       struct hl_trace_result *result)
{
	struct visit visit = {hl_page_watch_walker(findings->watch), result};
	int r = fill_common(findings, result);

	if (r == 0)
		r = hl_page_watch_each_stack(findings->watch, add_faults, &visit);
	if (r == 0 && findings->has_ended)
		r = warn_of_end(findings, result, "these are the faults until then");
	return r;
}

/* ---- pages ---- */

static uint64_t sum_of_shown(const struct hl_page_findings *findings,
			     const struct hl_page_counts *counts)
{
	uint64_t sum = 0;

	for (int i = 0; i < HL_PAGE_CLASSES; i++)
		if (!findings->classes || findings->classes & (1u << i))
			sum += counts->of[i];
	return sum;
}

static struct hl_trace_value gained(uint64_t pages)
{
	return (struct hl_trace_value){.alloc_bytes = pages * HL_PAGE_BYTES,
				       .alloc_objects = pages};
}

static struct hl_trace_value gone(uint64_t pages)
{
	return (struct hl_trace_value){.free_bytes = pages * HL_PAGE_BYTES, .free_objects = pages};
}

static int add_balance(const struct hl_page_findings *findings,
		       const struct hl_page_balance *balance, struct hl_trace_result *result)
{
	const struct hl_walker *walker = hl_page_watch_walker(findings->watch);
	struct hl_trace_value released = gone(sum_of_shown(findings, &balance->released));
	struct hl_trace_value unattributed = gained(sum_of_shown(findings, &balance->unattributed));
	int r = 0;

	for (uint32_t i = 1; r == 0 && i <= balance->stack_count; i++) {
		struct hl_trace_value value =
			gained(sum_of_shown(findings, &balance->gains[i - 1]));
		uint64_t stack = hl_page_table_stack(findings->table, i);
		if (value.alloc_objects)
			r = hl_trace_result_add(result, hl_walker_node(walker, stack), &value);
	}
	if (r == 0)
		r = hl_trace_result_add_pseudo(result, HL_PSEUDO_RELEASED, &released);
	if (r == 0)
		r = hl_trace_result_add_pseudo(result, HL_PSEUDO_NO_FAULT, &unattributed);
	return r;
}

static int64_t growth(const struct hl_page_balance *balance, enum hl_page_class page_class)
{
	return (int64_t)(balance->after.of[page_class] - balance->before.of[page_class]);
}

static int add_figures(const struct hl_page_findings *findings,
		       const struct hl_page_balance *balance, struct hl_trace_result *result)
{
	int64_t grown[] = {growth(balance, HL_PAGE_CLASS_ANON), growth(balance, HL_PAGE_CLASS_FILE),
			   growth(balance, HL_PAGE_CLASS_SHMEM)};
	const struct {
		const char *name;
		int64_t value;
	} figures[] = {
		{"pages", (int64_t)(sum_of_shown(findings, &balance->after) -
				    sum_of_shown(findings, &balance->before))},
		{"rss_growth_pages",
		 (int64_t)(findings->last->rss.rss_pages - findings->first->rss.rss_pages)},
		{"released_pages", (int64_t)sum_of_shown(findings, &balance->released)},
		{"unattributed_pages", (int64_t)sum_of_shown(findings, &balance->unattributed)},
		{"anon_pages", grown[HL_PAGE_CLASS_ANON]},
		{"file_pages", grown[HL_PAGE_CLASS_FILE]},
		{"shmem_pages", grown[HL_PAGE_CLASS_SHMEM]},
	};
	int r = 0;

	for (size_t i = 0; r == 0 && i < HL_COUNT_OF(figures); i++)
		r = hl_trace_result_figure(result, figures[i].name, figures[i].value);
	return r;
}

static int warn_of_limits(const struct hl_page_findings *findings, struct hl_trace_result *result)
{
	const char *calls_error = hl_page_watch_calls_error(findings->watch);
	double age_s = (double)(hl_clock_ns(CLOCK_MONOTONIC) - findings->last->taken_ns) /
		       (double)HL_NS_PER_SECOND;
	char figures[96];
	int r = 0;

	if (findings->has_ended) {
		snprintf(figures, sizeof(figures),
			 "its pages are those that it had %.1f seconds before this report", age_s);
		r = warn_of_end(findings, result, figures);
	}
	if (r == 0 && *calls_error)
		r = hl_trace_result_warn(result,
					 "calls that bring in pages were not watched: %s; such "
					 "pages are in [no fault seen]",
					 calls_error);
	if (r == 0 && !findings->knows_zero_page)
		r = hl_trace_result_warn(result, "pages that were only read count as gained: this "
						 "kernel does not tell them from others");
	return r;
}

int hl_page_result_fill(const struct hl_page_findings *findings, struct hl_trace_result *result)
{
	struct hl_page_balance balance;
	const struct hl_page_snapshot *last = findings->last;
	int r = hl_page_balance_compare(&findings->first->pages, &last->pages, &last->maps,
					findings->table, &balance);

	if (r < 0)
		return r;
	r = add_balance(findings, &balance, result);
	if (r == 0)
		r = add_figures(findings, &balance, result);
	if (r == 0)
		r = fill_common(findings, result);
	if (r == 0)
		r = warn_of_limits(findings, result);
	hl_page_balance_release(&balance);
	return r;
}
