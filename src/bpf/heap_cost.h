/* SPDX-License-Identifier: BSD-2-Clause */
/* What tracing an allocator will cost a program, by how often it calls it. */
#pragma once

#include "bpf/heap_shared.h"
#include "bpf/heap_trace.h"

struct hl_heap_rate {
	double allocations_per_second, frees_per_second, calls_per_second;
	double percent_of_core; /* that the target used meanwhile */
};

struct hl_heap_cost {
	double percent_of_core; /* processor time that the probes will take, of one processor's */
};

/* Adds what another processor counted. */
void hl_heap_counters_add(struct hl_heap_counters *sum, const struct hl_heap_counters *more);

/* From the calls seen in ${elapsed_ns}, in which the target used ${cpu_ns}. */
struct hl_heap_rate hl_heap_rate(const struct hl_heap_counters *counters, uint64_t elapsed_ns,
				 uint64_t cpu_ns);

/* An estimate on the high side: from measurements on a slow machine. */
struct hl_heap_cost hl_heap_cost(const struct hl_heap_rate *rate,
				 const struct hl_heap_settings *settings);
