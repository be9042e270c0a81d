/* SPDX-License-Identifier: BSD-2-Clause */
/* Estimates what tracing costs; see heap_cost.h. */
#include "bpf/heap_cost.h"

#include <math.h>

/* Of each call, in times that a probe takes which does nothing, stacks of 20 frames:
 * bench/stacks.py. */
#define ALLOCATION_TRAPS	 2.8
#define SAMPLED_ALLOCATION_TRAPS 1.05 /* and no sample in it */
#define TOTAL_TRAPS		 2.1
#define FREE_TRAPS		 1.05

#define BUSY_PERCENT  90   /* a target that uses more is held up by probes */
#define LEAST_CALL_NS 10.0 /* no allocator answers faster on average */

void hl_heap_counters_add(struct hl_heap_counters *sum, const struct hl_heap_counters *more)
{
	for (int call = 0; call < HL_HEAP_CALLS; call++)
		sum->calls[call] += more->calls[call];
	sum->requested_bytes += more->requested_bytes;
	sum->unmatched_frees += more->unmatched_frees;
	sum->lost_events += more->lost_events;
	sum->lost_bytes += more->lost_bytes;
	sum->too_large_events += more->too_large_events;
	sum->too_large_bytes += more->too_large_bytes;
}

struct hl_heap_rate hl_heap_rate(const struct hl_heap_counting *counting)
{
	const struct hl_heap_counters *counters = &counting->counters;
	double seconds = (double)counting->elapsed_ns / 1e9, times = 1;
	uint64_t calls = 0;

	for (int call = 0; call < HL_HEAP_CALLS; call++)
		calls += counters->calls[call];
	if (!counting->elapsed_ns || !calls)
		return (struct hl_heap_rate){.percent_of_core = counting->percent_before};
	uint64_t frees = counters->calls[HL_HEAP_FREE], allocations = calls - frees;
	double own_percent =
		counting->percent_during - (double)calls / seconds * counting->trap_ns / 1e7;
	/* The difference of two noisy figures; calls take some time of their own. */
	double least_percent = (double)calls / seconds * LEAST_CALL_NS / 1e7;
	if (own_percent < least_percent)
		own_percent = least_percent;
	if (counting->percent_during > BUSY_PERCENT && own_percent < counting->percent_before)
		times = counting->percent_before / own_percent;
	return (struct hl_heap_rate){
		.allocations_per_second = times * (double)allocations / seconds,
		.frees_per_second = times * (double)frees / seconds,
		.calls_per_second = times * (double)calls / seconds,
		.mean_bytes =
			allocations ? (double)counters->requested_bytes / (double)allocations : 0,
		.percent_of_core = counting->percent_before,
	};
}

double hl_heap_cost(const struct hl_heap_rate *rate, const struct hl_heap_settings *settings,
		    double trap_ns)
{
	double whole = settings->all ? TOTAL_TRAPS : ALLOCATION_TRAPS, traps = whole;

	if (settings->sample_bytes) {
		double sampled = -expm1(-rate->mean_bytes / (double)settings->sample_bytes);
		traps = SAMPLED_ALLOCATION_TRAPS + sampled * (whole - SAMPLED_ALLOCATION_TRAPS);
	}
	double traps_per_second = rate->allocations_per_second * traps;
	if (!settings->all)
		traps_per_second += rate->frees_per_second * FREE_TRAPS;
	return traps_per_second * trap_ns / 1e7;
}

double hl_heap_slowdown(const struct hl_heap_rate *rate, double cost_percent)
{
	return rate->percent_of_core > 0 ? 1 + cost_percent / rate->percent_of_core : 1;
}

uint64_t hl_heap_fitting_sample(const struct hl_heap_rate *rate,
				const struct hl_heap_settings *settings, double trap_ns,
				double percent)
{
	struct hl_heap_settings tried = *settings;

	for (tried.sample_bytes = HL_HEAP_SAMPLE_MIN; tried.sample_bytes <= HL_HEAP_SAMPLE_MAX;
	     tried.sample_bytes *= 2)
		if (tried.sample_bytes > settings->sample_bytes &&
		    hl_heap_cost(rate, &tried, trap_ns) <= percent)
			return tried.sample_bytes;
	return 0;
}
