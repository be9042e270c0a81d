/* SPDX-License-Identifier: BSD-2-Clause */
/* Estimates what tracing costs, measures it, and holds the trace to a limit; see heap_trace.h. */
#include "bpf/heap_trace.h"

#include "base/clock.h"

#include <bpf/libbpf.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/*
 * Has ${program_fd}, loaded for ${way}, run where this process calls its allocator, as it does in
 * the target; ${entry_alone}: not at frees. Where that is not possible, there will be no rounds.
 */
static void heap_cost_begin_calibration(struct hl_heap_calibration *calibration,
					enum hl_probe_way way, int program_fd, bool entry_alone)
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

/* ---- the limit ---- */

#define BASELINE_MS 500 /* how long the target is watched before there is any probe */
#define MEASURE_MS  700 /* how long its calls are counted */
#define STEP_MS	    50	/* how late Ctrl-C may be noticed meanwhile */
#define WINDOW_MS   200 /* while a trace goes on */

/* Fewer calls are not a rate to judge a target by. In a window they cost it a few percent. */
#define CALLS_KNOWN_MIN 1000

#define LIMIT_MARGIN   0.8 /* what is advised takes this part of the limit at most */
#define SAMPLE_ADVISED (UINT64_C(512) * 1024)

#define STAT_THREADS 20 /* their number, of /proc/PID/stat */

#define CALLS_TEXT_MAX	  32
#define SLOWDOWN_TEXT_MAX 64
#define REMEDY_TEXT_MAX	  256

/* ---- windows ---- */

static int open_window(const struct hl_heap_limit *limit, struct hl_heap_window *ret_window,
		       struct hl_error *err)
{
	pid_t pid = limit->request->facts->pid;
	struct hl_heap_window window = {.waited_ns = hl_process_wait_ns(pid),
					.cpu_ns = hl_process_cpu_ns(pid),
					.start_ns = hl_clock_ns(CLOCK_MONOTONIC)};

	(void)hl_process_stat_field(pid, STAT_THREADS, &window.threads);
	int r = hl_heap_program_counters(limit->program, &window.counters);

	if (r < 0)
		return hl_error_set(err, r, "cannot read the rate of calls: %s", strerror(-r));
	*ret_window = window;
	return 0;
}

static unsigned processors(void)
{
	return (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
}

/* What happened from ${from} to ${to}; 0 percent when that cannot be told. */
static struct hl_heap_use used_between(const struct hl_heap_window *from,
				       const struct hl_heap_window *to)
{
	uint64_t elapsed_ns = to->start_ns - from->start_ns;

	if (from->cpu_ns < 0 || to->cpu_ns < from->cpu_ns || !elapsed_ns)
		return (struct hl_heap_use){0};
	double percent = (double)(to->cpu_ns - from->cpu_ns) / (double)elapsed_ns * 100;
	uint64_t threads = from->threads > to->threads ? from->threads : to->threads;
	return (struct hl_heap_use){
		percent,
		hl_heap_cost_wanted(percent, to->waited_ns - from->waited_ns, elapsed_ns,
				    threads < processors() ? (unsigned)threads : processors())};
}

/* How many calls there were. */
static uint64_t count_between(const struct hl_heap_window *from, const struct hl_heap_window *to,
			      struct hl_heap_counting *counting)
{
	uint64_t calls = 0;

	for (int call = 0; call < HL_HEAP_CALLS; call++) {
		counting->counters.calls[call] =
			to->counters.calls[call] - from->counters.calls[call];
		calls += counting->counters.calls[call];
	}
	counting->counters.requested_bytes =
		to->counters.requested_bytes - from->counters.requested_bytes;
	counting->elapsed_ns = to->start_ns - from->start_ns;
	counting->during = used_between(from, to);
	return calls;
}

/* ${calibration} goes on meanwhile; NULL if there is none. */
static int wait_window(const struct hl_heap_limit *limit, int for_ms,
		       struct hl_heap_calibration *calibration, struct hl_heap_window *ret_from,
		       struct hl_heap_window *ret_to, struct hl_error *err)
{
	const struct timespec step = {.tv_nsec = STEP_MS * 1000000};
	pid_t pid = limit->request->facts->pid;
	bool was_runnable = true;
	int r = open_window(limit, ret_from, err);

	for (int ms = 0; r == 0 && ms < for_ms && !limit->request->is_enough(limit->request);
	     ms += STEP_MS) {
		nanosleep(&step, NULL);
		was_runnable &= hl_process_state(pid) == 'R';
		if (calibration)
			hl_heap_cost_calibrate(calibration);
	}
	if (r == 0)
		r = open_window(limit, ret_to, err);
	ret_to->was_runnable = r == 0 && was_runnable;
	return r;
}

/* ---- what is said ---- */

/* "412 thousand", "more than 3 million". */
static const char *format_calls(const struct hl_heap_rate *rate, char text[CALLS_TEXT_MAX])
{
	double calls = rate->calls_per_second;

	if (rate->doubt > 1) {
		double digit = pow(10, floor(log10(calls)));
		calls = floor(calls / digit) * digit;
	}
	bool millions = calls >= 1e6, thousands = calls >= 1e4;
	snprintf(text, CALLS_TEXT_MAX, "%s%.*f%s", rate->doubt > 1 ? "more than " : "",
		 millions && rate->doubt <= 1 ? 1 : 0,
		 millions    ? calls / 1e6
		 : thousands ? calls / 1e3
			     : calls,
		 millions    ? " million"
		 : thousands ? " thousand"
			     : "");
	return text;
}

/* A limit that will hold, though the rate is another one then: of all processors at most, which permits
 * anything. */
static unsigned limit_for(const struct hl_heap_rate *rate, double percent)
{
	unsigned all = 100 * (unsigned)libbpf_num_possible_cpus();
	double limit = ceil(percent / LIMIT_MARGIN / 10) * 10;

	return rate->doubt > 1 || limit > all ? all : (unsigned)limit;
}

/* What would work: with some room, so that it does. */
static void format_remedy(const struct hl_heap_limit *limit, const struct hl_heap_rate *rate,
			  double percent, char text[REMEDY_TEXT_MAX])
{
	struct hl_heap_settings sampled = *limit->settings;
	int pid = (int)limit->request->facts->pid;
	double allowed = (double)sampled.max_overhead * LIMIT_MARGIN / rate->doubt;
	uint64_t fitting =
		hl_heap_cost_fitting_sample(rate, limit->settings, limit->prices.trap_ns, allowed);

	sampled.sample_bytes = fitting ? fitting : SAMPLE_ADVISED;
	double sampled_percent = hl_heap_cost(rate, &sampled, limit->prices.trap_ns);
	if (fitting)
		snprintf(text, REMEDY_TEXT_MAX,
			 "use --sample %lluK (%s %.0f %%), --max-overhead %u, or 'heapline "
			 "pgfault -p %d', which costs next to nothing",
			 (unsigned long long)fitting / 1024, rate->doubt > 1 ? "at least" : "about",
			 sampled_percent, limit_for(rate, percent), pid);
	else if (sampled.sample_bytes > limit->settings->sample_bytes)
		snprintf(text, REMEDY_TEXT_MAX,
			 "use --sample %lluK --max-overhead %u (%s %.0f %%), --max-overhead %u, "
			 "or 'heapline pgfault -p %d', which costs next to nothing",
			 (unsigned long long)SAMPLE_ADVISED / 1024,
			 limit_for(rate, sampled_percent), rate->doubt > 1 ? "at least" : "about",
			 sampled_percent, limit_for(rate, percent), pid);
	else
		snprintf(text, REMEDY_TEXT_MAX,
			 "use --max-overhead %u, or 'heapline pgfault -p %d', which costs next to "
			 "nothing",
			 limit_for(rate, percent), pid);
}

/* "" when it is not worth a word. */
static void format_slowdown(const struct hl_heap_rate *rate, double percent,
			    char text[SLOWDOWN_TEXT_MAX])
{
	double times = hl_heap_cost_slowdown(rate, percent);

	text[0] = '\0';
	if (rate->doubt > 1)
		snprintf(text, SLOWDOWN_TEXT_MAX, "each request takes %.0f to %.0f times as long",
			 times, 1 + (times - 1) * rate->doubt);
	else if (times >= 1.05)
		snprintf(text, SLOWDOWN_TEXT_MAX, "each request takes about %.1f times as long",
			 times);
}

/* Says what ${counting} means for the target, and whether that is too much. */
static int judge(struct hl_heap_limit *limit, const struct hl_heap_counting *counting,
		 struct hl_error *err)
{
	const struct hl_heap_settings *settings = limit->settings;
	char calls[CALLS_TEXT_MAX], slowdown[SLOWDOWN_TEXT_MAX], remedy[REMEDY_TEXT_MAX];
	struct hl_heap_rate rate = hl_heap_cost_rate(counting);
	double trap_ns = limit->prices.trap_ns, percent = hl_heap_cost(&rate, settings, trap_ns);
	const char *least = rate.doubt > 1 ? "at least " : "";

	format_calls(&rate, calls);
	format_slowdown(&rate, percent, slowdown);
	limit->request->note("%s allocator calls a second, %.0f ns for a probe: expect %s%.1f %% "
			     "of a core more than the %.1f %% that the process uses%s%s",
			     calls, trap_ns, least, percent, rate.percent_of_core,
			     slowdown[0] ? "; " : "", slowdown);
	if (percent * rate.doubt <= (double)settings->max_overhead)
		return 0;
	format_remedy(limit, &rate, percent, remedy);
	hl_error_set(err, HL_TRACE_TOO_COSTLY,
		     "%s process '%d' %s it %s%.0f %% of a core, %s the %llu %% of "
		     "--max-overhead: at %s allocator calls a second, %s; %s",
		     counting->traced_with ? "ended: tracing" : "tracing",
		     (int)limit->request->facts->pid,
		     counting->traced_with ? "costs" : "would cost", least, percent,
		     percent <= (double)settings->max_overhead ? "perhaps more than" : "more than",
		     (unsigned long long)settings->max_overhead, calls,
		     slowdown[0] ? slowdown : "that is a lot", remedy);
	return HL_TRACE_TOO_COSTLY;
}

/* ---- before the trace ---- */

/* Looks at what the target uses, and only then counts its calls, which takes probes. */
static int measure(struct hl_heap_limit *limit, struct hl_heap_counting *counting,
		   uint64_t *ret_calls, struct hl_error *err)
{
	int count_fd = hl_heap_program_count_fd(limit->program);
	enum hl_probe_way way = limit->probes->way;
	struct hl_heap_calibration calibration = {0};
	struct hl_heap_window from, to;

	int r = wait_window(limit, BASELINE_MS, NULL, &from, &to, err);
	if (r < 0)
		return r;
	counting->before = used_between(&from, &to);
	limit->probes->way = hl_heap_program_count_way(way);
	heap_cost_begin_calibration(&calibration, limit->probes->way, count_fd,
				    limit->probes->entry_alone);
	r = hl_heap_probes_link(limit->probes, count_fd, -1, err);
	if (r == 0)
		r = wait_window(limit, MEASURE_MS, &calibration, &from, &to, err);
	hl_heap_probes_unlink(limit->probes);
	limit->probes->way = way;
	limit->prices = hl_heap_cost_end_calibration(&calibration);
	if (r < 0)
		return r;
	*ret_calls = count_between(&from, &to, counting);
	counting->prices = limit->prices;
	return 0;
}

int hl_heap_limit_check(struct hl_heap_limit *limit, struct hl_error *err)
{
	struct hl_heap_counting counting = {0};
	uint64_t calls = 0;

	/* It cannot take more than all processors. */
	if (limit->settings->max_overhead >= 100 * (uint64_t)libbpf_num_possible_cpus())
		return 0;
	int r = measure(limit, &counting, &calls, err);
	if (r < 0)
		return r;
	r = judge(limit, &counting, err);
	limit->is_watching = r == 0 && calls < CALLS_KNOWN_MIN;
	if (limit->is_watching)
		limit->request->note("too few calls to judge by: the cost is measured again when "
				     "the process calls its allocator more often");
	return r;
}

/* ---- while it goes on ---- */

int hl_heap_limit_watch(struct hl_heap_limit *limit, struct hl_error *err)
{
	struct hl_heap_counting counting = {.prices = limit->prices,
					    .traced_with = limit->settings};
	struct hl_heap_window from = limit->window;

	if (!limit->is_watching ||
	    hl_clock_ns(CLOCK_MONOTONIC) - from.start_ns < WINDOW_MS * UINT64_C(1000000))
		return 0;
	int r = open_window(limit, &limit->window, err);
	if (r < 0 || !from.start_ns)
		return r;
	bool was_awake = limit->is_awake;
	limit->is_awake = count_between(&from, &limit->window, &counting) >= CALLS_KNOWN_MIN;
	if (!was_awake || !limit->is_awake) /* it may have begun in the midst of this window */
		return 0;
	limit->is_watching = false;
	return judge(limit, &counting, err);
}
