/* SPDX-License-Identifier: BSD-2-Clause */
/* Estimates what tracing costs; see heap_cost.h. */
#include "bpf/heap_cost.h"

/* Nanoseconds for each call, stacks of 20 frames: bench/stacks.py in a virtual machine with all
 * mitigations on. */
#define ALLOCATION_NS	      1700.0
#define SAMPLED_ALLOCATION_NS 650.0
#define TOTAL_NS	      1300.0
#define FREE_NS		      700.0

void hl_heap_counters_add(struct hl_heap_counters *sum, const struct hl_heap_counters *more)
{
	for (int call = 0; call < HL_HEAP_CALLS; call++)
		sum->calls[call] += more->calls[call];
	sum->unmatched_frees += more->unmatched_frees;
	sum->lost_events += more->lost_events;
	sum->lost_bytes += more->lost_bytes;
	sum->too_large_events += more->too_large_events;
	sum->too_large_bytes += more->too_large_bytes;
}

struct hl_heap_rate hl_heap_rate(const struct hl_heap_counters *counters, uint64_t elapsed_ns,
				 uint64_t cpu_ns)
{
	double seconds = (double)elapsed_ns / 1e9;
	uint64_t calls = 0;

	if (!elapsed_ns)
		return (struct hl_heap_rate){0};
	for (int call = 0; call < HL_HEAP_CALLS; call++)
		calls += counters->calls[call];
	uint64_t frees = counters->calls[HL_HEAP_FREE];
	return (struct hl_heap_rate){
		.allocations_per_second = (double)(calls - frees) / seconds,
		.frees_per_second = (double)frees / seconds,
		.calls_per_second = (double)calls / seconds,
		.percent_of_core = (double)cpu_ns / (double)elapsed_ns * 100,
	};
}

struct hl_heap_cost hl_heap_cost(const struct hl_heap_rate *rate,
				 const struct hl_heap_settings *settings)
{
	double allocation_ns = settings->sample_bytes ? SAMPLED_ALLOCATION_NS
			       : settings->all	      ? TOTAL_NS
						      : ALLOCATION_NS;
	double ns_per_second = rate->allocations_per_second * allocation_ns;

	if (!settings->all)
		ns_per_second += rate->frees_per_second * FREE_NS;
	return (struct hl_heap_cost){.percent_of_core = ns_per_second / 1e9 * 100};
}
