/* SPDX-License-Identifier: BSD-2-Clause */
/* Loads heap.bpf.c and reads its counters; see heap_trace.h. */
#include "bpf/heap_trace.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "bpf/privilege.h"
#include "heap.skel.h"
#include "heap_session.skel.h"
#include "heap_session_context.skel.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Room for stacks of --all where memory is allocated at the start. */
#define EARLY_STACKS_MAX 16384u

/* Elements in one call; a bucket of the kernel's table may have more, then it asks for room. */
#define BATCH_ELEMENTS 16384u

struct hl_heap_program {
	const struct hl_heap_settings *settings;
	enum hl_probe_way way;
	struct hl_target *target;
	struct hl_walker *walker;
	struct heap *skeleton;
	struct bpf_link *exec_link;
};

/* ---- loading ---- */

enum hl_probe_way hl_heap_program_count_way(enum hl_probe_way way)
{
	return way == HL_PROBE_SESSION ? HL_PROBE_MULTI : way;
}

/* How many arguments the kernel's bpf_session_is_return() takes; negative where it has none. */
static int session_arguments(void)
{
	struct btf *btf = btf__load_vmlinux_btf();

	if (!btf)
		return -errno;
	int id = btf__find_by_name_kind(btf, "bpf_session_is_return", BTF_KIND_FUNC);
	int count = -ENOTSUP;
	if (id > 0)
		count = btf_vlen(btf__type_by_id(btf, btf__type_by_id(btf, (uint32_t)id)->type));
	btf__free(btf);
	return count;
}

/* Opens heap.bpf.c as it was compiled for ${way} on this kernel. The objects differ in code alone,
 * so that all have the skeleton of one. */
static int open_object(enum hl_probe_way way, struct heap **ret_skeleton)
{
	int arguments = way == HL_PROBE_SESSION ? session_arguments() : 0;
	size_t bytes;
	const void *object = way != HL_PROBE_SESSION ? heap__elf_bytes(&bytes)
			     : arguments == 0	     ? heap_session__elf_bytes(&bytes)
			     : arguments == 1	     ? heap_session_context__elf_bytes(&bytes)
						     : NULL;

	if (!object)
		return -ENOTSUP;
	struct heap *skeleton = calloc(1, sizeof(*skeleton));
	if (!skeleton)
		return -ENOMEM;
	int r = heap__create_skeleton(skeleton);
	if (r == 0) {
		skeleton->skeleton->data = (void *)object;
		skeleton->skeleton->data_sz = bytes;
		r = bpf_object__open_skeleton(skeleton->skeleton, NULL);
	}
	if (r < 0)
		heap__destroy(skeleton);
	else
		*ret_skeleton = skeleton;
	return r;
}

/* Has ${program} loaded if it is ${wanted}, for links of ${way}. */
static int choose_program(struct bpf_program *program, bool wanted, enum hl_probe_way way)
{
	bpf_program__set_autoload(program, wanted);
	return bpf_program__set_expected_attach_type(
		program, (enum bpf_attach_type)hl_probe_link_attach_type(way));
}

/*
 * Kernels before 6.1 warn of tables that grow while such programs run, once and loudly; machines
 * may be set to stop at a warning. There all memory is taken at the start.
 */
static int allocate_early(const struct hl_heap_program *program)
{
	struct hl_privileges system;

	hl_privilege_read(&system);
	if (system.kernel_major > 6 || (system.kernel_major == 6 && system.kernel_minor >= 1))
		return 0;
	int r = bpf_map__set_map_flags(program->skeleton->maps.hl_live, 0);
	if (r == 0)
		r = bpf_map__set_map_flags(program->skeleton->maps.hl_totals, 0);
	if (r == 0)
		r = bpf_map__set_max_entries(program->skeleton->maps.hl_totals, EARLY_STACKS_MAX);
	return r;
}

static int prepare_object(struct hl_heap_program *program, struct hl_error *err)
{
	const struct hl_heap_settings *settings = program->settings;
	struct heap *skeleton = program->skeleton;
	struct heap__rodata *constants = skeleton->rodata;
	enum hl_probe_way way = program->way;

	constants->hl_all = settings->all;
	constants->hl_with_time = settings->older_seconds > 0;
	constants->hl_sample_bytes = settings->sample_bytes;
	constants->hl_throwing_max = hl_heap_probes_request_max();
	for (uint32_t i = 0; i <= HL_LOG2_STEPS; i++)
		((uint32_t *)constants->hl_log2_table)[i] = (uint32_t)lround(
			ldexp(log2(1.0 + (double)i / HL_LOG2_STEPS), HL_LOG2_SHIFT));
	int r = choose_program(skeleton->progs.hl_heap_entry, true, way);
	if (r == 0)
		r = choose_program(skeleton->progs.hl_heap_return, way != HL_PROBE_SESSION, way);
	if (r == 0)
		r = choose_program(skeleton->progs.hl_heap_count, true,
				   hl_heap_program_count_way(way));
	if (r == 0)
		r = bpf_map__set_max_entries(skeleton->maps.hl_live,
					     settings->all ? 1 : (uint32_t)settings->max_blocks);
	if (r == 0)
		r = allocate_early(program);
	if (r < 0)
		return hl_error_set(err, r, "cannot prepare the programs of 'stacks': %s",
				    strerror(-r));
	return 0;
}

/* The first distances to a sample; later ones are drawn in the kernel. */
static int start_samples(const struct hl_heap_program *program)
{
	int processors = libbpf_num_possible_cpus();
	const uint32_t zero = 0;
	unsigned short seed[3];
	uint64_t now = hl_clock_ns(CLOCK_MONOTONIC);

	if (processors < 0)
		return processors;
	struct hl_heap_processor *first = calloc((size_t)processors, sizeof(*first));
	if (!first)
		return -ENOMEM;
	memcpy(seed, &now, sizeof(seed));
	for (int i = 0; i < processors; i++)
		first[i].sample_countdown = (int64_t)(-log(1.0 - erand48(seed)) *
						      (double)program->settings->sample_bytes);
	int r = bpf_map_update_elem(bpf_map__fd(program->skeleton->maps.hl_heap_processors), &zero,
				    first, BPF_ANY);
	free(first);
	return r;
}

static void unload(struct hl_heap_program *program)
{
	hl_walker_free(program->walker);
	program->walker = NULL;
	heap__destroy(program->skeleton);
	program->skeleton = NULL;
}

static int load(struct hl_heap_program *program, struct hl_error *err)
{
	uint32_t number;
	int r = open_object(program->way, &program->skeleton);

	if (r < 0)
		return hl_error_set(err, r,
				    "cannot open the programs of 'stacks' for %s probes: %s",
				    hl_probe_link_way_name(program->way), strerror(-r));
	r = prepare_object(program, err);
	if (r == 0)
		r = hl_walker_new(program->skeleton->obj, 1, NULL, NULL, &program->walker, err);
	if (r == 0)
		r = hl_walker_add(program->walker, program->target, &number, err);
	if (r < 0)
		return r;
	r = heap__load(program->skeleton);
	if (r < 0)
		return hl_privilege_explain("load the programs of 'stacks'", r, err);
	r = hl_walker_start(program->walker, err);
	if (r == 0 && program->settings->sample_bytes && start_samples(program) < 0)
		return hl_error_set(err, -ENOMEM, "cannot start to sample: out of memory");
	return r;
}

/* In the best way in which they can be; the sentence is of the first that could not. */
static int load_best(struct hl_heap_program *program, struct hl_error *err)
{
	const struct hl_heap_settings *settings = program->settings;
	struct hl_error first = {0};

	program->way = settings->choose_way ? settings->way : hl_probe_link_best_way();
	int r = load(program, &first);
	while (r < 0 && !settings->choose_way && program->way != HL_PROBE_PERF) {
		unload(program);
		program->way--;
		r = load(program, &first);
	}
	if (r == 0)
		hl_privilege_log_forget();
	return r < 0 ? hl_error_set(err, r, "%s", first.text) : 0;
}

int hl_heap_program_new(pid_t pid, const struct hl_heap_settings *settings,
			struct hl_heap_program **ret_program, struct hl_error *err)
{
	struct hl_heap_program *program = calloc(1, sizeof(*program));

	if (!program)
		return hl_error_set(err, -ENOMEM, "cannot trace: out of memory");
	program->settings = settings;
	int r = hl_target_new(pid, NULL, &program->target, err);
	if (r == 0)
		r = load_best(program, err);
	if (r == 0)
		*ret_program = program;
	else
		hl_heap_program_free(program);
	return r;
}

int hl_heap_program_try(struct hl_error *err)
{
	const struct hl_heap_settings settings = {.max_blocks = 1};
	struct hl_heap_program *program;
	int r = hl_heap_program_new(getpid(), &settings, &program, err);

	if (r < 0)
		return r;
	enum hl_probe_way way = program->way;
	hl_heap_program_free(program);
	return way;
}

/* ---- running ---- */

enum hl_probe_way hl_heap_program_way(const struct hl_heap_program *program)
{
	return program->way;
}

struct hl_heap_entries hl_heap_program_entries(const struct hl_heap_program *program)
{
	const struct heap *skeleton = program->skeleton;

	bool is_apart = !program->settings->all && program->way != HL_PROBE_SESSION;

	return (struct hl_heap_entries){bpf_program__fd(skeleton->progs.hl_heap_entry),
					is_apart ? bpf_program__fd(skeleton->progs.hl_heap_return)
						 : -1};
}

int hl_heap_program_count_fd(const struct hl_heap_program *program)
{
	return bpf_program__fd(program->skeleton->progs.hl_heap_count);
}

void hl_heap_program_may_nest(struct hl_heap_program *program)
{
	program->skeleton->bss->hl_may_nest = true;
}

int hl_heap_program_start(struct hl_heap_program *program, struct hl_error *err)
{
	program->exec_link = bpf_program__attach(program->skeleton->progs.hl_heap_exec);
	if (!program->exec_link)
		return hl_privilege_explain("watch for another program", -errno, err);
	program->skeleton->bss->hl_counting = true;
	return 0;
}

void hl_heap_program_stop(struct hl_heap_program *program)
{
	program->skeleton->bss->hl_counting = false;
}

bool hl_heap_program_is_replaced(const struct hl_heap_program *program)
{
	return program->skeleton->bss->hl_replaced;
}

/* ---- what it counted ---- */

int hl_heap_program_counters(const struct hl_heap_program *program,
			     struct hl_heap_counters *ret_sum)
{
	return hl_walker_sum_counters(program->skeleton->maps.hl_heap_counters, ret_sum);
}

uint64_t hl_heap_program_table_bytes(const struct hl_heap_program *program)
{
	char path[64], line[256];
	unsigned long long bytes = 0;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d",
		 bpf_map__fd(program->skeleton->maps.hl_live));
	FILE *file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "memlock: %llu", &bytes) == 1)
			break;
	if (file)
		fclose(file);
	return bytes;
}

/* ---- blocks, by stack ---- */

struct map_reading {
	int (*add)(struct hl_heap_sums *sums, uint64_t key, const void *value,
		   const struct map_reading *reading);
	uint64_t sample_bytes, before_ns;
	int processors;
};

static int add_to_stack(struct hl_heap_sums *sums, uint64_t stack, double bytes, double objects)
{
	uint32_t hash = hl_hash_pair(stack, 0), at = hash, id;

	while ((id = hl_index_next(&sums->index, hash, &at)))
		if (sums->sums[id - 1].stack == stack)
			break;
	if (!id) {
		int r = HL_ARRAY_RESERVE(sums->sums, sums->capacity, sums->count + 1);
		if (r == 0)
			r = hl_index_add(&sums->index, hash, (uint32_t)sums->count + 1);
		if (r < 0)
			return r;
		sums->sums[sums->count] = (struct hl_heap_sum){.stack = stack};
		id = (uint32_t)++sums->count;
	}
	sums->sums[id - 1].bytes += bytes;
	sums->sums[id - 1].objects += objects;
	return 0;
}

/*
 * If samples are a Poisson process, one per R bytes on average, a block of S bytes has at
 * least one with probability 1 - exp(-S / R); so a sampled block stands for 1 / that.
 */
static int add_block(struct hl_heap_sums *sums, uint64_t key, const void *value,
		     const struct map_reading *reading)
{
	const struct hl_live_block *block = value;
	double intervals = (double)block->size / (double)reading->sample_bytes;
	double weight = reading->sample_bytes ? -1.0 / expm1(-intervals) : 1.0;

	(void)key;
	if (block->time > reading->before_ns)
		return 0;
	return add_to_stack(sums, block->stack, weight * (double)block->size, weight);
}

static int add_totals(struct hl_heap_sums *sums, uint64_t stack, const void *value,
		      const struct map_reading *reading)
{
	const struct hl_stack_total *totals = value;
	double unit = reading->sample_bytes ? ldexp(1.0, -(int)HL_TOTAL_SHIFT) : 1.0;
	double bytes = 0, objects = 0;

	for (int i = 0; i < reading->processors; i++) {
		bytes += (double)totals[i].bytes;
		objects += (double)totals[i].objects * unit;
	}
	return add_to_stack(sums, stack, bytes, objects);
}

/* Calls ${reading->add} with each value of a hash map. */
static int read_map(int fd, size_t value_bytes, const struct map_reading *reading,
		    struct hl_heap_sums *sums)
{
	uint32_t at = 0;
	HL_FREED uint64_t *keys = calloc(BATCH_ELEMENTS, sizeof(*keys));
	HL_FREED char *values = calloc(BATCH_ELEMENTS, value_bytes);
	bool is_first = true, is_last = false;

	if (!keys || !values)
		return -ENOMEM;
	while (!is_last) {
		uint32_t count = BATCH_ELEMENTS;
		int r = bpf_map_lookup_batch(fd, is_first ? NULL : &at, &at, keys, values, &count,
					     NULL);
		is_last = r == -ENOENT; /* ${count} elements came all the same */
		if (r < 0 && !is_last)
			return r;
		for (uint32_t i = 0; i < count; i++) {
			r = reading->add(sums, keys[i], values + i * value_bytes, reading);
			if (r < 0)
				return r;
		}
		is_first = false;
	}
	return 0;
}

int hl_heap_program_sum(const struct hl_heap_program *program, uint64_t before_ns,
			struct hl_heap_sums *sums)
{
	const struct heap *skeleton = program->skeleton;
	struct map_reading reading = {
		.add = program->settings->all ? add_totals : add_block,
		.sample_bytes = program->settings->sample_bytes,
		.before_ns = before_ns,
		.processors = libbpf_num_possible_cpus(),
	};

	if (reading.processors < 0)
		return reading.processors;
	if (program->settings->all)
		return read_map(bpf_map__fd(skeleton->maps.hl_totals),
				sizeof(struct hl_stack_total) * (size_t)reading.processors,
				&reading, sums);
	return read_map(bpf_map__fd(skeleton->maps.hl_live), sizeof(struct hl_live_block), &reading,
			sums);
}

int hl_heap_program_add_sums(struct hl_heap_sums *sums, const struct hl_heap_sums *more,
			     double times)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < more->count; i++)
		r = add_to_stack(sums, more->sums[i].stack, times * more->sums[i].bytes,
				 times * more->sums[i].objects);
	return r;
}

void hl_heap_program_release_sums(struct hl_heap_sums *sums)
{
	free(sums->sums);
	hl_index_release(&sums->index);
	*sums = (struct hl_heap_sums){0};
}

/* ---- the rest ---- */

struct hl_walker *hl_heap_program_walker(const struct hl_heap_program *program)
{
	return program->walker;
}

const struct hl_target *hl_heap_program_target(const struct hl_heap_program *program)
{
	return program->target;
}

void hl_heap_program_free(struct hl_heap_program *program)
{
	if (!program)
		return;
	bpf_link__destroy(program->exec_link);
	unload(program);
	hl_target_free(program->target);
	free(program);
}
