/* SPDX-License-Identifier: BSD-2-Clause */
/* Estimates what tracing costs; see heap_trace.h. */
#include "bpf/heap_trace.h"

#include "base/clock.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

/* What a call costs, in units of a probe that counts; stacks of 20 frames, by bench/stacks.py. */
#define ALLOCATION_TRAPS	 3.2
#define SAMPLED_ALLOCATION_TRAPS 1.15 /* and no sample in it */
#define TOTAL_TRAPS		 2.3
#define FREE_TRAPS		 1.2

#define TRAP_NS_DEFAULT 600.0
#define TRAP_NS_MIN	50.0 /* less is not a breakpoint: malloc is another one here */
#define LEAST_PAIR_NS	2.0

#define WARMING_PAIRS 50
#define PAIRS	      250 /* of a round, which takes a third of a millisecond */
#define PLAIN_ROUNDS  10  /* the fastest counts */

#define BUSY_PERCENT 90 /* a target that wants more is held up by probes */

/* Of what a probe takes: as much as it takes more or less from one function and moment to the next. */
#define NOISE_SHARE 0.12

/* A rate is known if noise makes it no more uncertain than by this factor, from least to most. */
#define KNOWN_FACTOR 2.0

/* ---- what a probe costs on this machine ---- */

/* A pair's processor time. */
static double time_pairs(int pairs)
{
	uint64_t start_ns = hl_clock_ns(CLOCK_THREAD_CPUTIME_ID);

	for (int i = 0; i < pairs; i++) {
		void *volatile block = malloc(64);
		free(block);
	}
	return (double)(hl_clock_ns(CLOCK_THREAD_CPUTIME_ID) - start_ns) / pairs;
}

void hl_heap_cost_begin_calibration(struct hl_heap_calibration *calibration, enum hl_probe_way way,
				    int program_fd, bool entry_alone)
{
	calibration->plain_ns = time_pairs(PAIRS);
	for (int round = 1; round < PLAIN_ROUNDS; round++)
		calibration->plain_ns = fmin(calibration->plain_ns, time_pairs(PAIRS));
	calibration->probes = (struct hl_heap_probes){
		.pid = getpid(),
		.way = way,
		.object = "libc.so",
		.entry_alone = entry_alone,
		.calibrates = true,
	};
	if (hl_heap_probes_find(&calibration->probes, NULL) == 0)
		hl_heap_probes_link(&calibration->probes, program_fd, -1, NULL);
}

void hl_heap_cost_calibrate(struct hl_heap_calibration *calibration)
{
	if (!calibration->probes.links.count || calibration->count == HL_HEAP_ROUNDS)
		return;
	time_pairs(WARMING_PAIRS);
	calibration->probed_ns[calibration->count++] = time_pairs(PAIRS);
}

/* The mean of pairs per second, not of seconds per pair: so the target's are counted, too. */
struct hl_heap_prices hl_heap_cost_end_calibration(struct hl_heap_calibration *calibration)
{
	double sum = 0, pair_ns = 0;

	for (unsigned i = 0; i < calibration->count; i++)
		sum += 1 / fmax(calibration->probed_ns[i], 1);
	if (sum > 0)
		pair_ns = calibration->count / sum;
	double trap_ns =
		(pair_ns - calibration->plain_ns) / (calibration->probes.entry_alone ? 1 : 2);
	hl_heap_probes_release(&calibration->probes);
	return (struct hl_heap_prices){
		.trap_ns = trap_ns > TRAP_NS_MIN ? trap_ns : TRAP_NS_DEFAULT,
		.least_pair_ns = fmax(calibration->plain_ns, LEAST_PAIR_NS),
	};
}

/* ---- what probes cost a program ---- */

/* Of an allocation, and of a free. */
static void price_calls(const struct hl_heap_settings *settings, double mean_bytes, double trap_ns,
			double *ret_allocation_ns, double *ret_free_ns)
{
	double whole = settings->all ? TOTAL_TRAPS : ALLOCATION_TRAPS, traps = whole;

	if (settings->sample_bytes) {
		double sampled = -expm1(-mean_bytes / (double)settings->sample_bytes);
		traps = SAMPLED_ALLOCATION_TRAPS + sampled * (whole - SAMPLED_ALLOCATION_TRAPS);
	}
	*ret_allocation_ns = traps * trap_ns;
	*ret_free_ns = settings->all ? 0 : FREE_TRAPS * trap_ns;
}

double hl_heap_cost_wanted(double percent, uint64_t waited_ns, uint64_t elapsed_ns, unsigned most)
{
	double all = 100.0 * most;
	/* Threads that have ended took their waits along. */
	double waited = fmax(0, 100.0 * (double)(int64_t)waited_ns / (double)elapsed_ns);

	if (percent <= 0 || percent + waited < BUSY_PERCENT)
		return percent;
	return fmax(percent, fmin(percent + waited, all));
}

/* What probes took from each call that was counted. */
static double probe_ns(const struct hl_heap_counting *counting, uint64_t allocations,
		       uint64_t frees, double mean_bytes)
{
	double allocation_ns, free_ns;

	if (!counting->traced_with)
		return counting->prices.trap_ns;
	price_calls(counting->traced_with, mean_bytes, counting->prices.trap_ns, &allocation_ns,
		    &free_ns);
	return ((double)allocations * allocation_ns + (double)frees * free_ns) /
	       (double)(allocations + frees);
}

/* What the target itself takes for a call, by subtraction. Where too little is left, the most that it can
 * be, and how many times less it may be. */
static double own_ns(double used_ns, double probed_ns, double least_ns, double *ret_doubt)
{
	double own = used_ns - probed_ns, noise = probed_ns * NOISE_SHARE;
	double most = fmax(own, 0) + noise, least = fmax(own - noise, least_ns);

	*ret_doubt = fmax(1, most / least);
	if (*ret_doubt > KNOWN_FACTOR)
		return most;
	*ret_doubt = 1;
	return fmax(own, least_ns);
}

struct hl_heap_rate hl_heap_cost_rate(const struct hl_heap_counting *counting)
{
	const struct hl_heap_counters *counters = &counting->counters;
	const struct hl_heap_use *before = &counting->before, *during = &counting->during;
	double seconds = (double)counting->elapsed_ns / 1e9, doubt;
	uint64_t calls = 0;

	for (int call = 0; call < HL_HEAP_CALLS; call++)
		calls += counters->calls[call];
	if (!counting->elapsed_ns || !calls)
		return (struct hl_heap_rate){.percent_of_core = before->percent, .doubt = 1};
	uint64_t frees = counters->calls[HL_HEAP_FREE], allocations = calls - frees;
	double mean_bytes =
		allocations ? (double)counters->requested_bytes / (double)allocations : 0;
	double calls_per_second = (double)calls / seconds;
	/* Frees may not have been counted. */
	double least_ns = counting->prices.least_pair_ns *
			  fmax((double)allocations, (double)frees) / (double)calls;
	double own = own_ns(during->percent * 1e7 / calls_per_second,
			    probe_ns(counting, allocations, frees, mean_bytes), least_ns, &doubt);
	/* Of one that has time left all calls were counted. What one would use without other load is not known: by what it
	 * waits for a processor, a server that wakes up often seems to want all of it. */
	bool is_held_up = before->wanted >= BUSY_PERCENT || during->wanted >= BUSY_PERCENT;
	double percent = before->percent;
	if (percent <= 0)
		percent = is_held_up ? during->percent : own * calls_per_second / 1e7;
	double times = is_held_up ? percent * 1e7 / own / calls_per_second : 1;
	return (struct hl_heap_rate){
		.allocations_per_second = fmax(1, times) * (double)allocations / seconds,
		.frees_per_second = fmax(1, times) * (double)frees / seconds,
		.calls_per_second = fmax(1, times) * calls_per_second,
		.mean_bytes = mean_bytes,
		.percent_of_core = percent,
		.doubt = is_held_up ? fmax(1, fmin(1, times) * doubt) : 1,
	};
}

double hl_heap_cost(const struct hl_heap_rate *rate, const struct hl_heap_settings *settings,
		    double trap_ns)
{
	double allocation_ns, free_ns;

	price_calls(settings, rate->mean_bytes, trap_ns, &allocation_ns, &free_ns);
	return (rate->allocations_per_second * allocation_ns + rate->frees_per_second * free_ns) /
	       1e7;
}

double hl_heap_cost_slowdown(const struct hl_heap_rate *rate, double cost_percent)
{
	return rate->percent_of_core > 0 ? 1 + cost_percent / rate->percent_of_core : 1;
}

uint64_t hl_heap_cost_fitting_sample(const struct hl_heap_rate *rate,
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
