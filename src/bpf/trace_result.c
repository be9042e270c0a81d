/* SPDX-License-Identifier: BSD-2-Clause */
/* Builds a recording out of what a trace found; see trace.h. */
#include "bpf/trace.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "process/code_names.h"
#include "recording/recording.h"
#include "recording/recording_files.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/utsname.h>

/* Frames that stand for no code, each with a node of its own after those that were copied. */
static const enum hl_pseudo_frame pseudo_frames[] = {
	HL_PSEUDO_STACK_LOST,
	HL_PSEUDO_RELEASED,
	HL_PSEUDO_NO_FAULT,
};

/* Leaves ids for these. */
#define NODES_MAX (HL_RECORDING_NODES_MAX - (uint32_t)HL_COUNT_OF(pseudo_frames))

struct hl_trace_result {
	struct hl_recording *recording; /* one process is there from the beginning */
	struct hl_trace_value *values;	/* by node */
	size_t value_capacity;
	struct hl_trace_value pseudo_values[HL_COUNT_OF(pseudo_frames)];
	struct hl_trace_value called;
	bool has_called;
	struct hl_code_files code_files;
	uint64_t start_ns; /* of the monotonic clock */
	size_t figure_capacity;
};

/* Values are not kept by thread: one thread stands for all. */
static int describe(struct hl_recording *recording, const struct hl_process_facts *facts,
		    const char *mode)
{
	struct utsname system;

	uname(&system);
	int r = facts->pid ? asprintf(&recording->name, "process %d", facts->pid)
			   : asprintf(&recording->name, "group %s", facts->executable);
	if (r < 0) {
		recording->name = NULL;
		return -ENOMEM;
	}
	recording->tool_version = strdup(HL_VERSION);
	recording->command = hl_recording_copy_words(facts->command);
	recording->host = strdup(system.nodename);
	recording->kernel = strdup(system.release);
	recording->mode = strdup(mode);
	recording->warnings = calloc(1, sizeof(*recording->warnings));
	recording->processes = calloc(1, sizeof(*recording->processes));
	if (!recording->tool_version || !recording->command || !recording->host ||
	    !recording->kernel || !recording->mode || !recording->warnings || !recording->processes)
		return -ENOMEM;
	recording->process_count = 1;
	struct hl_recording_process *process = recording->processes;
	process->pid = (uint32_t)facts->pid;
	process->parent_pid = (uint32_t)facts->parent_pid;
	process->executable = strdup(facts->executable);
	process->command = hl_recording_copy_words(facts->command);
	process->threads = calloc(1, sizeof(*process->threads));
	if (!process->executable || !process->command || !process->threads)
		return -ENOMEM;
	process->thread_count = 1;
	process->threads[0].tid = (uint32_t)facts->pid;
	memcpy(process->threads[0].name, facts->comm, sizeof(facts->comm));
	return 0;
}

int hl_trace_result_new(const struct hl_process_facts *facts, const char *mode,
			struct hl_trace_result **ret_result)
{
	struct hl_trace_result *result = calloc(1, sizeof(*result));

	if (!result)
		return -ENOMEM;
	result->code_files = HL_CODE_FILES_NONE;
	hl_code_files_refresh(&result->code_files, facts->pid);
	result->recording = calloc(1, sizeof(*result->recording));
	int r = result->recording ? describe(result->recording, facts, mode) : -ENOMEM;
	if (r < 0) {
		hl_trace_result_free(result);
		return r;
	}
	hl_trace_result_begin(result);
	*ret_result = result;
	return 0;
}

void hl_trace_result_begin(struct hl_trace_result *result)
{
	result->start_ns = hl_clock_ns(CLOCK_MONOTONIC);
	result->recording->start_realtime_ns = hl_clock_ns(CLOCK_REALTIME);
	result->recording->processes[0].start_realtime_ns = result->recording->start_realtime_ns;
	result->recording->processes[0].recording_start_ns = result->recording->start_realtime_ns;
}

static void add_value(struct hl_trace_value *sum, const struct hl_trace_value *more)
{
	sum->alloc_bytes += more->alloc_bytes;
	sum->alloc_objects += more->alloc_objects;
	sum->free_bytes += more->free_bytes;
	sum->free_objects += more->free_objects;
}

int hl_trace_result_add(struct hl_trace_result *result, uint32_t node,
			const struct hl_trace_value *value)
{
	if (node == 0 || node > NODES_MAX)
		return hl_trace_result_add_pseudo(result, HL_PSEUDO_STACK_LOST, value);
	if (HL_ARRAY_RESERVE_ZEROED(result->values, result->value_capacity, (size_t)node + 1))
		return -ENOMEM;
	add_value(&result->values[node], value);
	return 0;
}

int hl_trace_result_add_pseudo(struct hl_trace_result *result, enum hl_pseudo_frame frame,
			       const struct hl_trace_value *value)
{
	for (size_t i = 0; i < HL_COUNT_OF(pseudo_frames); i++)
		if (pseudo_frames[i] == frame)
			add_value(&result->pseudo_values[i], value);
	return 0;
}

int hl_trace_result_figure(struct hl_trace_result *result, const char *name, int64_t value)
{
	struct hl_recording *recording = result->recording;

	if (!hl_figure_name_is_valid(name))
		return -EINVAL;
	char *copy = strdup(name);
	if (!copy || HL_ARRAY_RESERVE(recording->figures, result->figure_capacity,
				      (size_t)recording->figure_count + 1)) {
		free(copy);
		return -ENOMEM;
	}
	recording->figures[recording->figure_count++] = (struct hl_recording_figure){copy, value};
	return 0;
}

int hl_trace_result_warn(struct hl_trace_result *result, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	int r = hl_error_append(&result->recording->warnings, format, arguments);
	va_end(arguments);
	return r;
}

struct hl_trace_value hl_trace_result_sum(const struct hl_trace_result *result)
{
	struct hl_trace_value sum = {0};

	for (size_t i = 0; i < result->value_capacity; i++)
		add_value(&sum, &result->values[i]);
	for (size_t i = 0; i < HL_COUNT_OF(pseudo_frames); i++)
		add_value(&sum, &result->pseudo_values[i]);
	return sum;
}

void hl_trace_result_set_called(struct hl_trace_result *result, const struct hl_trace_value *called)
{
	result->called = *called;
	result->has_called = true;
}

struct hl_trace_value hl_trace_result_called(const struct hl_trace_result *result)
{
	return result->has_called ? result->called : hl_trace_result_sum(result);
}

struct hl_lost *hl_trace_result_lost(struct hl_trace_result *result)
{
	return &result->recording->processes[0].lost;
}

void hl_trace_result_set_sample(struct hl_trace_result *result, uint64_t sample_bytes)
{
	result->recording->sample_bytes = sample_bytes;
}

void hl_trace_result_set_end(struct hl_trace_result *result, enum hl_process_end end)
{
	result->recording->processes[0].end = end;
}

int hl_trace_result_stacks(struct hl_trace_result *result, const struct hl_recording_node *nodes,
			   uint32_t node_count, const struct hl_recording_module *modules,
			   uint32_t module_count)
{
	struct hl_recording_process *process = &result->recording->processes[0];
	uint32_t kept = node_count < NODES_MAX ? node_count : NODES_MAX;

	/* Room for the frames that stand for no code, too. */
	process->nodes = calloc(kept + HL_COUNT_OF(pseudo_frames), sizeof(*process->nodes));
	if (!process->nodes)
		return -ENOMEM;
	if (kept)
		memcpy(process->nodes, nodes, kept * sizeof(*nodes));
	process->node_count = kept;
	process->modules = calloc((size_t)module_count + 1, sizeof(*process->modules));
	if (!process->modules)
		return -ENOMEM;
	for (uint32_t i = 0; i < module_count; i++) {
		process->modules[i] = modules[i];
		process->modules[i].path = strdup(modules[i].path);
		process->module_count = i + 1;
		if (!process->modules[i].path)
			return -ENOMEM;
	}
	return 0;
}

void hl_trace_result_take_scripts(struct hl_trace_result *result, struct hl_recording_process *from)
{
	struct hl_recording_process *to = &result->recording->processes[0];

	to->providers = HL_TAKE(from->providers);
	to->sites = HL_TAKE(from->sites);
	to->site_names = HL_TAKE(from->site_names);
	to->code = HL_TAKE(from->code);
	to->provider_count = from->provider_count;
	to->site_count = from->site_count;
	to->site_name_count = from->site_name_count;
	to->code_count = from->code_count;
	from->provider_count = from->site_count = from->site_name_count = from->code_count = 0;
}

static int warn_of_new_code(struct hl_trace_result *result, const struct hl_target *target,
			    const struct hl_walker_losses *losses)
{
	const struct hl_recording_module *modules = target->modules, *reloaded = NULL;

	if (losses->stacks_unnamed)
		return hl_trace_result_warn(
			result,
			"%llu stack%s in code that was unloaded before heapline could read it, and "
			"ha%s no name; 'heapline record' names all",
			(unsigned long long)losses->stacks_unnamed,
			losses->stacks_unnamed == 1 ? " ends" : "s end",
			losses->stacks_unnamed == 1 ? "s" : "ve");
	/* The first module whose addresses another one had before. */
	for (size_t i = 1; losses->reloads_unseen && i < target->module_count; i++)
		for (size_t k = 0; !reloaded && k < i; k++)
			if (modules[i].start < modules[k].end && modules[k].start < modules[i].end)
				reloaded = &modules[i];
	if (reloaded)
		return hl_trace_result_warn(
			result,
			"'%s' was loaded where other code had been: calls within a second of that "
			"may have the names of the other; 'heapline record' tells them apart",
			reloaded->path);
	return 0;
}

int hl_trace_result_walks(struct hl_trace_result *result, const struct hl_walker *walker,
			  uint32_t number)
{
	const struct hl_target *target = hl_walker_target(walker, number);
	struct hl_lost *lost = hl_trace_result_lost(result);
	struct hl_walker_losses losses;
	uint32_t count;
	const struct hl_recording_node *nodes = hl_walker_nodes(walker, number, &count);

	int r = hl_walker_losses(walker, &losses);
	if (r == 0)
		r = hl_trace_result_stacks(result, nodes, count, target->modules,
					   (uint32_t)target->module_count);
	if (r < 0)
		return r;
	lost->truncated_stacks = losses.walk.count[HL_LOSS_TRUNCATED];
	lost->incomplete_stacks = losses.walk.count[HL_LOSS_INCOMPLETE];
	lost->modules =
		losses.modules_lost + losses.files_lost + losses.rows_full + losses.mappings_full;
	return warn_of_new_code(result, target, &losses);
}

static bool is_any(const struct hl_trace_value *value)
{
	return value->alloc_bytes || value->alloc_objects || value->free_bytes ||
	       value->free_objects;
}

static void put_value(struct hl_recording_process *process, uint32_t node,
		      const struct hl_trace_value *value)
{
	if (!is_any(value))
		return;
	process->values[process->value_count++] = (struct hl_recording_value){
		.node = node,
		.alloc_bytes = value->alloc_bytes,
		.alloc_objects = value->alloc_objects,
		.free_bytes = value->free_bytes,
		.free_objects = value->free_objects,
	};
}

static int fill_process(struct hl_trace_result *result)
{
	struct hl_recording_process *process = &result->recording->processes[0];
	size_t known = (size_t)process->node_count + 1;

	for (size_t i = known; i < result->value_capacity; i++)
		add_value(&result->pseudo_values[0], &result->values[i]); /* [stack lost] */
	if (result->value_capacity > known)
		result->value_capacity = known;
	process->values = calloc(result->value_capacity + HL_COUNT_OF(pseudo_frames),
				 sizeof(*process->values));
	if (!process->values)
		return -ENOMEM;
	for (size_t node = 1; node < result->value_capacity; node++)
		put_value(process, (uint32_t)node, &result->values[node]);
	for (size_t i = 0; i < HL_COUNT_OF(pseudo_frames); i++) {
		if (!is_any(&result->pseudo_values[i]))
			continue;
		process->nodes[process->node_count++].frame = hl_pseudo_frame_key(pseudo_frames[i]);
		put_value(process, process->node_count, &result->pseudo_values[i]);
	}
	return 0;
}

int hl_trace_result_recording(struct hl_trace_result *result, enum hl_process_end end,
			      struct hl_recording **ret_recording)
{
	struct hl_recording *recording = result->recording;
	struct hl_recording_process *process = &recording->processes[0];
	char refused[HL_CODE_FILE_NAME_MAX] = "";
	size_t nameless;

	int r = process->nodes ? 0 : hl_trace_result_stacks(result, NULL, 0, NULL, 0);
	if (r == 0)
		r = fill_process(result);
	if (r == 0)
		r = hl_code_files_name(&result->code_files, hl_clock_ns(CLOCK_MONOTONIC), process,
				       refused, &nameless);
	if (r == 0 && refused[0])
		r = hl_trace_result_warn(result, HL_CODE_FILE_REFUSED, refused, (int)process->pid);
	if (r < 0)
		return r;
	recording->duration_ns = hl_clock_ns(CLOCK_MONOTONIC) - result->start_ns;
	recording->complete = true;
	recording->ended_processes = recording->process_count;
	process->complete = true;
	for (uint32_t i = 0; i < recording->process_count; i++)
		recording->processes[i].duration_ns = recording->duration_ns;
	if (process->end == HL_END_RUNNING)
		process->end = end;
	result->recording = NULL;
	*ret_recording = recording;
	return 0;
}

int hl_trace_result_join(struct hl_trace_result *result, struct hl_trace_result *from)
{
	struct hl_recording *whole = result->recording, *part = NULL;

	int r = hl_trace_result_recording(from, HL_END_RUNNING, &part);
	if (r < 0)
		return r;
	struct hl_recording_process process = part->processes[0];
	process.sequence = whole->process_count;
	process.start_realtime_ns = process.recording_start_ns = whole->start_realtime_ns;
	struct hl_recording_process *processes = reallocarray(
		whole->processes, (size_t)whole->process_count + 1, sizeof(*processes));
	if (processes) {
		whole->processes = processes;
		processes[whole->process_count++] = process;
		part->process_count = 0; /* moved */
	}
	hl_recording_free(part);
	return processes ? 0 : -ENOMEM;
}

void hl_trace_result_free(struct hl_trace_result *result)
{
	if (!result)
		return;
	hl_recording_free(result->recording);
	hl_code_files_release(&result->code_files);
	free(result->values);
	free(result);
}
