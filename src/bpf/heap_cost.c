/* SPDX-License-Identifier: BSD-2-Clause */
/* Estimates what tracing costs; see heap_trace.h. */
#include "bpf/heap_trace.h"

#include "base/clock.h"
#include "bpf/heap_shared.h"
#include "process/maps.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <unistd.h>

/* What a call costs, in units of a probe that does nothing; stacks of 20 frames, by
 * bench/stacks.py. */
#define ALLOCATION_TRAPS	 2.8
#define SAMPLED_ALLOCATION_TRAPS 1.05 /* and no sample in it */
#define TOTAL_TRAPS		 2.1
#define FREE_TRAPS		 1.05

#define TRAP_NS_DEFAULT 600.0
#define ROUNDS		5 /* the fastest counts: others were interrupted */
#define CALLS		4000

#define BUSY_PERCENT  90   /* a target that uses more is held up by probes */
#define LEAST_CALL_NS 10.0 /* no allocator answers faster on average */

/* ---- what a probe costs on this machine ---- */

/* Begins with an instruction that the kernel emulates, as good places for probes do. */
__asm__(".pushsection .text\n"
	".type hl_heap_calibration_site, @function\n"
	"hl_heap_calibration_site:\n"
	"	nop\n"
	"	ret\n"
	".size hl_heap_calibration_site, . - hl_heap_calibration_site\n"
	".popsection");

__attribute__((visibility("hidden"))) void hl_heap_calibration_site(void);

static int link_site(struct hl_probe_links *links, enum hl_probe_way way, int program_fd)
{
	uint64_t address = (uint64_t)(uintptr_t)hl_heap_calibration_site;
	struct hl_maps maps;
	char path[PATH_MAX];
	int r = hl_maps_read(getpid(), &maps, NULL);

	if (r < 0)
		return r;
	r = -ENOENT;
	for (size_t i = 0; i < maps.count; i++) {
		const struct hl_map *map = &maps.maps[i];
		if (address < map->start || address >= map->end)
			continue;
		const struct hl_probe_site site = {.offset = address - map->start + map->offset,
						   .cookie = HL_HEAP_CALLS};
		const struct hl_probe_target target = {getpid(), path, &site, 1};
		r = hl_maps_file_path(getpid(), map, path, sizeof(path));
		if (r == 0)
			r = hl_probe_links_add(links, way, program_fd, false, &target, NULL);
	}
	hl_maps_release(&maps);
	return r;
}

double hl_heap_cost_measure_trap(enum hl_probe_way way, int program_fd)
{
	struct hl_probe_links links = {0};
	double fastest_ns = TRAP_NS_DEFAULT;

	int rounds = link_site(&links, way, program_fd) == 0 ? ROUNDS : 0;
	for (int round = 0; round < rounds; round++) {
		uint64_t start_ns = hl_clock_ns(CLOCK_THREAD_CPUTIME_ID);
		for (int i = 0; i < CALLS; i++)
			hl_heap_calibration_site();
		double ns = (double)(hl_clock_ns(CLOCK_THREAD_CPUTIME_ID) - start_ns) / CALLS;
		if (!round || ns < fastest_ns)
			fastest_ns = ns;
	}
	hl_probe_links_release(&links);
	return fastest_ns;
}

/* ---- what probes cost a program ---- */

struct hl_heap_rate hl_heap_cost_rate(const struct hl_heap_counting *counting)
{
	const struct hl_heap_counters *counters = &counting->counters;
	double seconds = (double)counting->elapsed_ns / 1e9, times = counting->wanted;
	uint64_t calls = 0;

	for (int call = 0; call < HL_HEAP_CALLS; call++)
		calls += counters->calls[call];
	if (!counting->elapsed_ns || !calls)
		return (struct hl_heap_rate){.percent_of_core = times * counting->percent_before};
	uint64_t frees = counters->calls[HL_HEAP_FREE], allocations = calls - frees;
	double own_percent =
		counting->percent_during - (double)calls / seconds * counting->trap_ns / 1e7;
	/* The difference of two noisy figures; calls take some time of their own. */
	double least_percent = (double)calls / seconds * LEAST_CALL_NS / 1e7;
	if (own_percent < least_percent)
		own_percent = least_percent;
	if (times * counting->percent_during > BUSY_PERCENT &&
	    own_percent < counting->percent_before)
		times *= counting->percent_before / own_percent;
	return (struct hl_heap_rate){
		.allocations_per_second = times * (double)allocations / seconds,
		.frees_per_second = times * (double)frees / seconds,
		.calls_per_second = times * (double)calls / seconds,
		.mean_bytes =
			allocations ? (double)counters->requested_bytes / (double)allocations : 0,
		.percent_of_core = counting->wanted * counting->percent_before,
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
