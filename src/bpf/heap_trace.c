/* SPDX-License-Identifier: BSD-2-Clause */
/* Loads heap.bpf.c, sets its probes, and makes a result of what it found; see heap_trace.h. */
#include "bpf/heap_trace.h"

#include "base/clock.h"
#include "bpf/heap_blocks.h"
#include "bpf/heap_cost.h"
#include "bpf/heap_probes.h"
#include "bpf/privilege.h"
#include "bpf/walker.h"
#include "heap.skel.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

#define MEASURE_MS 1000 /* how long the rate of calls is measured */
#define STEP_MS	   50	/* how late Ctrl-C may be noticed meanwhile */

struct heap_trace {
	const struct hl_trace_request *request;
	const struct hl_heap_settings *settings;
	struct hl_target *target;
	struct hl_walker *walker;
	struct heap *skeleton;
	struct bpf_link *exec_link;
	struct hl_heap_probes probes;
	bool is_replaced; /* the target runs another program now */
};

/* ---- loading ---- */

/*
 * Requests that are larger may well fail, in a heap that grows by mmap: the kernel refuses what the
 * machine does not have.
 */
static uint64_t machine_memory(void)
{
	struct sysinfo system;

	if (sysinfo(&system) < 0)
		return 0;
	return ((uint64_t)system.totalram + system.totalswap) * system.mem_unit;
}

/* Whether the system refuses memory to ${pid} before there is none left. */
static bool memory_is_limited(pid_t pid)
{
	struct rlimit space, heap;
	int policy = 0;
	FILE *file = fopen("/proc/sys/vm/overcommit_memory", "re");

	if (file) {
		if (fscanf(file, "%d", &policy) != 1)
			policy = 0;
		fclose(file);
	}
	return policy == 2 || prlimit(pid, RLIMIT_AS, NULL, &space) < 0 ||
	       prlimit(pid, RLIMIT_DATA, NULL, &heap) < 0 || space.rlim_cur != RLIM_INFINITY ||
	       heap.rlim_cur != RLIM_INFINITY;
}

static void fill_log2_table(uint32_t *table)
{
	for (uint32_t i = 0; i <= HL_LOG2_STEPS; i++)
		table[i] = (uint32_t)lround(
			ldexp(log2(1.0 + (double)i / HL_LOG2_STEPS), HL_LOG2_SHIFT));
}

static void set_constants(struct heap_trace *trace)
{
	const struct hl_heap_settings *settings = trace->settings;
	struct heap__rodata *constants = trace->skeleton->rodata;

	constants->hl_all = settings->all;
	constants->hl_with_time = settings->older_seconds > 0;
	constants->hl_may_nest = hl_heap_probes_may_nest(&trace->probes);
	constants->hl_sample_bytes = settings->sample_bytes;
	constants->hl_throwing_max = machine_memory();
	fill_log2_table((uint32_t *)constants->hl_log2_table);
}

/* Has only those programs loaded that the way of linking needs. */
static int choose_programs(struct heap_trace *trace)
{
	enum hl_probe_way way = trace->probes.way;
	struct heap *skeleton = trace->skeleton;
	/* Entries alone need no session; its attach type is refused without its function. */
	enum hl_probe_way simple = way == HL_PROBE_SESSION ? HL_PROBE_MULTI : way;
	enum bpf_attach_type type = (enum bpf_attach_type)hl_probe_attach_type(simple);
	int r = 0;

	bpf_program__set_autoload(skeleton->progs.hl_heap_session, way == HL_PROBE_SESSION);
	bpf_program__set_autoload(skeleton->progs.hl_heap_entry, way != HL_PROBE_SESSION);
	bpf_program__set_autoload(skeleton->progs.hl_heap_return, way != HL_PROBE_SESSION);
	if (way == HL_PROBE_SESSION)
		r = bpf_program__set_expected_attach_type(
			skeleton->progs.hl_heap_session,
			(enum bpf_attach_type)hl_probe_attach_type(way));
	if (r == 0 && way != HL_PROBE_SESSION)
		r = bpf_program__set_expected_attach_type(skeleton->progs.hl_heap_entry, type);
	if (r == 0 && way != HL_PROBE_SESSION)
		r = bpf_program__set_expected_attach_type(skeleton->progs.hl_heap_return, type);
	if (r == 0)
		r = bpf_program__set_expected_attach_type(skeleton->progs.hl_heap_count, type);
	return r;
}

/* The first distances to a sample; later ones are drawn in the kernel. */
static int start_samples(const struct heap_trace *trace)
{
	int processors = libbpf_num_possible_cpus();
	const uint32_t zero = 0;

	if (processors < 0)
		return processors;
	struct hl_heap_processor *first = calloc((size_t)processors, sizeof(*first));
	if (!first)
		return -ENOMEM;
	unsigned short seed[3];
	uint64_t now = hl_clock_ns(CLOCK_MONOTONIC);
	memcpy(seed, &now, sizeof(seed));
	for (int i = 0; i < processors; i++)
		first[i].sample_countdown = (int64_t)(-log(1.0 - erand48(seed)) *
						      (double)trace->settings->sample_bytes);
	int r = bpf_map_update_elem(bpf_map__fd(trace->skeleton->maps.hl_heap_processors), &zero,
				    first, BPF_ANY);
	free(first);
	return r;
}

static int prepare_object(struct heap_trace *trace, struct hl_error *err)
{
	int r = choose_programs(trace);

	set_constants(trace);
	if (r == 0)
		r = bpf_map__set_max_entries(
			trace->skeleton->maps.hl_live,
			trace->settings->all ? 1 : (uint32_t)trace->settings->max_blocks);
	if (r < 0)
		return hl_error_set(err, r, "cannot prepare the BPF programs: %s", strerror(-r));
	return 0;
}

static int load_object(struct heap_trace *trace, struct hl_error *err)
{
	int r = hl_target_new(trace->request->facts->pid, &trace->target, err);

	if (r < 0)
		return r;
	trace->skeleton = heap__open();
	if (!trace->skeleton)
		return hl_error_set(err, -errno, "cannot open the BPF programs: %s",
				    strerror(errno));
	r = prepare_object(trace, err);
	if (r == 0)
		r = hl_walker_new(trace->target, trace->skeleton->obj, NULL, NULL, &trace->walker,
				  err);
	if (r < 0)
		return r;
	r = heap__load(trace->skeleton);
	if (r < 0)
		return hl_privilege_explain("load the programs of 'stacks'", r, err);
	r = hl_walker_start(trace->walker, err);
	if (r == 0 && trace->settings->sample_bytes && start_samples(trace) < 0)
		return hl_error_set(err, -ENOMEM, "cannot start to sample: out of memory");
	return r;
}

/* ---- what it will cost ---- */

static int read_counters(const struct heap_trace *trace, struct hl_heap_counters *ret_sum)
{
	int processors = libbpf_num_possible_cpus();
	const uint32_t zero = 0;

	if (processors < 0)
		return processors;
	struct hl_heap_counters *each = calloc((size_t)processors, sizeof(*each));
	if (!each)
		return -ENOMEM;
	int r = bpf_map_lookup_elem(bpf_map__fd(trace->skeleton->maps.hl_heap_counters), &zero,
				    each);
	*ret_sum = (struct hl_heap_counters){0};
	for (int i = 0; r == 0 && i < processors; i++)
		hl_heap_counters_add(ret_sum, &each[i]);
	free(each);
	return r;
}

static void wait_measuring(const struct hl_trace_request *request)
{
	const struct timespec step = {.tv_nsec = STEP_MS * 1000000};

	for (int ms = 0; ms < MEASURE_MS && !request->is_enough(); ms += STEP_MS)
		nanosleep(&step, NULL);
}

/* Counts calls for a second. */
static int measure_rate(struct heap_trace *trace, struct hl_heap_rate *ret_rate,
			struct hl_error *err)
{
	enum hl_probe_way way = trace->probes.way;
	pid_t pid = trace->request->facts->pid;
	struct hl_heap_counters counters;

	trace->probes.way = way == HL_PROBE_SESSION ? HL_PROBE_MULTI : way;
	int r = hl_heap_probes_link(&trace->probes,
				    bpf_program__fd(trace->skeleton->progs.hl_heap_count), -1, err);
	trace->probes.way = way;
	if (r < 0)
		return r;
	uint64_t start_ns = hl_clock_ns(CLOCK_MONOTONIC);
	int64_t cpu_before = hl_process_cpu_ns(pid);
	wait_measuring(trace->request);
	int64_t cpu_after = hl_process_cpu_ns(pid);
	uint64_t elapsed_ns = hl_clock_ns(CLOCK_MONOTONIC) - start_ns;
	hl_heap_probes_unlink(&trace->probes);
	r = read_counters(trace, &counters);
	if (r < 0)
		return hl_error_set(err, r, "cannot read the rate of calls: %s", strerror(-r));
	*ret_rate = hl_heap_rate(
		&counters, elapsed_ns,
		cpu_before >= 0 && cpu_after > cpu_before ? (uint64_t)(cpu_after - cpu_before) : 0);
	return 0;
}

static int check_cost(struct heap_trace *trace, struct hl_error *err)
{
	const struct hl_heap_settings *settings = trace->settings;
	struct hl_heap_rate rate;
	int r = measure_rate(trace, &rate, err);

	if (r < 0)
		return r;
	struct hl_heap_cost cost = hl_heap_cost(&rate, settings);
	trace->request->note("%.0f calls of its allocator a second: expect %.1f %% of a processor "
			     "more than the %.1f %% that it uses",
			     rate.calls_per_second, cost.percent_of_core, rate.percent_of_core);
	if (cost.percent_of_core <= (double)settings->max_overhead || trace->request->force)
		return 0;
	hl_error_set(
		err, HL_TRACE_TOO_COSTLY,
		"tracing process '%d' would cost it %.0f %% of a processor, more than the %llu "
		"%% of --max-overhead: it calls its allocator %.0f times a second; use --sample "
		"BYTES, a higher --max-overhead or --force",
		(int)trace->request->facts->pid, cost.percent_of_core,
		(unsigned long long)settings->max_overhead, rate.calls_per_second);
	return HL_TRACE_TOO_COSTLY;
}

/* ---- probes ---- */

static void note_probes(const struct heap_trace *trace)
{
	char *probed = hl_heap_probes_describe(&trace->probes);
	char *slow = hl_heap_probes_slow(&trace->probes);

	if (slow && slow[0])
		trace->request->note("each call of %s costs the target some 10 us: no instruction "
				     "at their beginning is one that the kernel can emulate",
				     slow);
	if (probed)
		trace->request->note("counting, by %s probes: %s",
				     hl_probe_way_name(trace->probes.way), probed);
	free(probed);
	free(slow);
}

static int start_counting(struct heap_trace *trace, struct hl_error *err)
{
	struct heap *skeleton = trace->skeleton;
	bool by_session = trace->probes.way == HL_PROBE_SESSION;
	struct bpf_program *entry =
		by_session ? skeleton->progs.hl_heap_session : skeleton->progs.hl_heap_entry;
	int return_fd = by_session || trace->settings->all
				? -1
				: bpf_program__fd(skeleton->progs.hl_heap_return);

	trace->exec_link = bpf_program__attach(skeleton->progs.hl_heap_exec);
	if (!trace->exec_link)
		return hl_error_set(err, -errno, "cannot watch for another program: %s",
				    strerror(errno));
	int r = hl_heap_probes_link(&trace->probes, bpf_program__fd(entry), return_fd, err);
	if (r < 0)
		return r;
	skeleton->bss->hl_counting = true;
	note_probes(trace);
	return 0;
}

/* How probes are to be set, and whether that is permitted. */
static int choose_way(struct heap_trace *trace, struct hl_error *err)
{
	const struct hl_heap_settings *settings = trace->settings;
	const struct hl_process_facts *facts = trace->request->facts;
	int r = hl_privilege_check(facts, HL_NEED_BPF | HL_NEED_TARGET, err);

	if (r < 0)
		return r;
	enum hl_probe_way way = settings->choose_way ? settings->way : hl_probe_best_way();
	trace->probes = (struct hl_heap_probes){
		.pid = facts->pid,
		.way = way,
		.object = settings->object,
		.entry_alone = settings->all,
		.spares_throwing = !settings->all &&
				   (way != HL_PROBE_SESSION || memory_is_limited(facts->pid)),
	};
	return way == HL_PROBE_PERF ? hl_privilege_check(facts, HL_NEED_PERF_UPROBES, err) : 0;
}

static void free_trace(void *handle)
{
	struct heap_trace *trace = handle;

	if (!trace)
		return;
	bpf_link__destroy(trace->exec_link);
	hl_heap_probes_release(&trace->probes);
	hl_walker_free(trace->walker);
	heap__destroy(trace->skeleton);
	hl_target_free(trace->target);
	free(trace);
}

static int start(const struct hl_trace_request *request, void **ret_trace, struct hl_error *err)
{
	struct heap_trace *trace = calloc(1, sizeof(*trace));

	if (!trace)
		return hl_error_set(err, -ENOMEM, "cannot trace: out of memory");
	trace->request = request;
	trace->settings = request->settings;
	int r = choose_way(trace, err);
	if (r == 0)
		r = hl_heap_probes_find(&trace->probes, err);
	if (r == 0)
		r = load_object(trace, err);
	if (r == 0)
		r = check_cost(trace, err);
	if (r == 0)
		r = start_counting(trace, err);
	if (r == 0)
		*ret_trace = trace;
	else
		free_trace(trace);
	return r;
}

/* ---- until it is enough ---- */

static int poll_trace(void *handle, int timeout_ms, struct hl_error *err)
{
	struct heap_trace *trace = handle;

	trace->is_replaced |= trace->skeleton->bss->hl_replaced;
	if (trace->is_replaced)
		return -ESRCH;
	return hl_walker_poll(trace->walker, timeout_ms, err);
}

/* ---- the result ---- */

static int sum_up(const struct heap_trace *trace, uint64_t end_ns, struct hl_heap_sums *sums)
{
	const struct hl_heap_settings *settings = trace->settings;
	uint64_t age_ns = (uint64_t)(settings->older_seconds * (double)HL_NS_PER_SECOND);
	struct hl_heap_selection selection = {
		.sample_bytes = settings->sample_bytes,
		.before_ns = age_ns < end_ns ? end_ns - age_ns : 0,
	};

	if (settings->all)
		return hl_heap_sums_add_totals(sums, bpf_map__fd(trace->skeleton->maps.hl_totals),
					       settings->sample_bytes);
	return hl_heap_sums_add_live(sums, bpf_map__fd(trace->skeleton->maps.hl_live), &selection);
}

static int add_sums(const struct heap_trace *trace, const struct hl_heap_sums *sums,
		    struct hl_trace_result *result)
{
	for (size_t i = 0; i < sums->count; i++) {
		const struct hl_heap_sum *sum = &sums->sums[i];
		struct hl_trace_value value = {.alloc_bytes = (uint64_t)llround(sum->bytes),
					       .alloc_objects = (uint64_t)llround(sum->objects)};
		int r = hl_trace_result_add(result, hl_walker_node(trace->walker, sum->stack),
					    &value);
		if (r < 0)
			return r;
	}
	return 0;
}

static int add_stacks(const struct heap_trace *trace, struct hl_trace_result *result)
{
	uint32_t count;
	const struct hl_recording_node *nodes = hl_walker_nodes(trace->walker, &count);

	return hl_trace_result_stacks(result, nodes, count, trace->target->modules,
				      (uint32_t)trace->target->module_count);
}

/* Memory of the kernel's that a map takes, as it says itself; 0 when it does not. */
static uint64_t map_memory(const struct bpf_map *map)
{
	char path[64], line[256];
	unsigned long long bytes = 0;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", bpf_map__fd(map));
	FILE *file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "memlock: %llu", &bytes) == 1)
			break;
	if (file)
		fclose(file);
	return bytes;
}

static int add_warnings(const struct heap_trace *trace, const struct hl_heap_counters *counters,
			struct hl_trace_result *result)
{
	int r = 0;
	char *spared = hl_heap_probes_spared(&trace->probes);

	if (!spared)
		return -ENOMEM;
	if (spared[0])
		r = hl_trace_result_warn(
			result,
			"not watched, because an exception would end the program: "
			"%s; a kernel from 6.13 on, and a program without a limit of "
			"memory, can be watched",
			spared);
	free(spared);
	if (r == 0 && counters->too_large_events)
		r = hl_trace_result_warn(
			result,
			"%llu calls for %llu bytes in all were not watched: each asked for "
			"more than the machine has, and may have failed by an exception",
			(unsigned long long)counters->too_large_events,
			(unsigned long long)counters->too_large_bytes);
	if (r == 0 && trace->is_replaced)
		r = hl_trace_result_warn(result, "the process replaced itself by another program; "
						 "what is shown is from before that");
	if (r == 0 && counters->lost_events)
		r = hl_trace_result_warn(
			result,
			"%llu blocks found no room in the table of %llu; raise --max-blocks or "
			"use --sample",
			(unsigned long long)counters->lost_events,
			(unsigned long long)trace->settings->max_blocks);
	return r;
}

static int add_losses(const struct heap_trace *trace, struct hl_trace_result *result)
{
	struct hl_recording_lost *lost = hl_trace_result_lost(result);
	struct hl_walker_losses walker;
	struct hl_heap_counters counters;
	int r = hl_walker_losses(trace->walker, &walker);

	if (r == 0)
		r = read_counters(trace, &counters);
	if (r < 0)
		return r;
	lost->events = counters.lost_events;
	lost->bytes = counters.lost_bytes;
	lost->truncated_stacks = walker.walk.count[HL_LOSS_TRUNCATED];
	lost->incomplete_stacks = walker.walk.count[HL_LOSS_INCOMPLETE];
	lost->modules =
		walker.modules_lost + walker.files_lost + walker.rows_full + walker.mappings_full;
	if (!trace->settings->all && !trace->settings->sample_bytes)
		lost->unmatched_frees = counters.unmatched_frees;
	r = add_warnings(trace, &counters, result);
	if (r == 0 && !trace->settings->all)
		r = hl_trace_result_figure(result, "table_memory_bytes",
					   (int64_t)map_memory(trace->skeleton->maps.hl_live));
	return r;
}

static int fill_result(struct heap_trace *trace, uint64_t end_ns, struct hl_trace_result *result)
{
	struct hl_heap_sums sums = {0};
	int r = sum_up(trace, end_ns, &sums);

	if (r == 0)
		r = add_sums(trace, &sums, result);
	if (r == 0)
		r = add_stacks(trace, result);
	if (r == 0)
		r = add_losses(trace, result);
	hl_trace_result_set_sample(result, trace->settings->sample_bytes);
	hl_heap_sums_release(&sums);
	return r;
}

static int finish(void *handle, bool has_ended, struct hl_trace_result *result,
		  struct hl_error *err)
{
	struct heap_trace *trace = handle;

	(void)has_ended;
	trace->is_replaced |= trace->skeleton->bss->hl_replaced;
	trace->skeleton->bss->hl_counting = false;
	uint64_t end_ns = hl_clock_ns(CLOCK_MONOTONIC);
	hl_heap_probes_unlink(&trace->probes);
	trace->request->note("detached in %.0f ms",
			     (double)(hl_clock_ns(CLOCK_MONOTONIC) - end_ns) / 1e6);
	int r = trace->is_replaced ? 0 : hl_walker_poll(trace->walker, 0, err);
	if (r < 0 && r != -ESRCH)
		return r;
	r = fill_result(trace, end_ns, result);
	return r < 0 ? hl_error_set(err, r, "cannot read the blocks: %s", strerror(-r)) : 0;
}

const struct hl_trace_backend hl_heap_trace = {
	.mode = "stacks",
	.start = start,
	.poll = poll_trace,
	.finish = finish,
	.free = free_trace,
};
