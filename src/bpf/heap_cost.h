/* SPDX-License-Identifier: BSD-2-Clause */
/* What tracing an allocator will cost a program, by how often it calls it. */
#pragma once

#include "bpf/heap_shared.h"
#include "bpf/heap_trace.h"

struct hl_heap_rate {
	double allocations_per_second, frees_per_second, calls_per_second;
	double mean_bytes;	/* of an allocation */
	double percent_of_core; /* that the target used before there was any probe */
};

/* How calls were counted. */
struct hl_heap_counting {
	struct hl_heap_counters counters;
	uint64_t elapsed_ns;
	double percent_before; /* of a core, that the target used before */
	double percent_during; /* and while it was probed */
	double trap_ns;	       /* of one probe, as hl_heap_cost_measure_trap() has it */
};

/*
 * Nanoseconds that a call takes longer when ${program_fd}, loaded for ${way}, runs at its entry:
 * measured in this process, in a few hundredths of a second. Where that is not possible, what it
 * took on a slow machine.
 */
double hl_heap_cost_measure_trap(enum hl_probe_way way, int program_fd);

/* The rate of calls without probes: of a target that wants a whole core it is higher than what was
 * counted, because the probes that counted took time from it. */
struct hl_heap_rate hl_heap_cost_rate(const struct hl_heap_counting *counting);

/*
 * Processor time that tracing with ${settings} takes, in percent of a core. Samples are taken into
 * account by the mean size of allocations, which gives more of them than there are.
 */
double hl_heap_cost(const struct hl_heap_rate *rate, const struct hl_heap_settings *settings,
		    double trap_ns);

/* How many times as long a request takes: 2.5; 1 when that cannot be told. */
double hl_heap_cost_slowdown(const struct hl_heap_rate *rate, double cost_percent);

/*
 * The smallest power of two for settings->sample_bytes with which tracing costs ${percent} of a
 * core at most, from HL_HEAP_SAMPLE_MIN to HL_HEAP_SAMPLE_MAX; 0: there is none.
 */
uint64_t hl_heap_cost_fitting_sample(const struct hl_heap_rate *rate,
				     const struct hl_heap_settings *settings, double trap_ns,
				     double percent);

#define HL_HEAP_SAMPLE_MIN UINT64_C(4096)
#define HL_HEAP_SAMPLE_MAX (UINT64_C(1) << 20)
