/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline info: what was recorded, how, what is missing, and how well it can be named. */
#include "view/format.h"
#include "view/summary.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- the recording ---- */

static void recording_lines(struct hl_emit *emit, const struct hl_profile *profile)
{
	char text[HL_FORMAT_MAX];

	hl_emit_line(emit, "recording  %s", hl_profile_text(profile, profile->name));
	hl_emit_line(emit, "command    %s", hl_profile_text(profile, profile->command));
	hl_emit_line(emit, "started    %s, took %s",
		     hl_format_time(profile->start_realtime_ns, text),
		     hl_format_duration(profile->duration_ns, (char[HL_FORMAT_MAX]){0}));
	hl_emit_line(emit, "host       %s, %s", hl_profile_text(profile, profile->host),
		     hl_profile_text(profile, profile->kernel));
	hl_emit_line(emit, "mode       %s", hl_profile_text(profile, profile->mode));
	if (profile->sample_bytes)
		hl_emit_line(emit, "sampled    about every %s",
			     hl_format_bytes((int64_t)profile->sample_bytes, text));
	hl_emit_line(emit, "written by heapline %s",
		     hl_profile_text(profile, profile->tool_version));
}

static void recording_members(struct hl_emit *emit, const struct hl_profile *profile)
{
	hl_emit_text(emit, "host", hl_profile_text(profile, profile->host));
	hl_emit_text(emit, "kernel", hl_profile_text(profile, profile->kernel));
	hl_emit_text(emit, "tool_version", hl_profile_text(profile, profile->tool_version));
}

static void total_line(struct hl_emit *emit, const char *name,
		       const struct hl_profile_counters *total, enum hl_value value)
{
	char bytes[HL_FORMAT_MAX] = "", count[HL_FORMAT_MAX] = "";
	bool has_bytes = hl_profile_has_unit(value, HL_UNIT_BYTES);
	bool has_objects = hl_profile_has_unit(value, HL_UNIT_OBJECTS);

	if (has_bytes)
		hl_format_bytes(hl_profile_figure(total, value, HL_UNIT_BYTES), bytes);
	if (has_objects)
		hl_format_count(hl_profile_figure(total, value, HL_UNIT_OBJECTS), count);
	hl_emit_line(emit, "%-10s %s%s%s%s", name, bytes, has_bytes && has_objects ? " in " : "",
		     count, has_objects ? " blocks" : "");
}

static void total_lines(struct hl_emit *emit, const struct hl_profile *profile)
{
	for (int value = 0; hl_value_names[value]; value++)
		total_line(emit, hl_value_names[value], &profile->total, (enum hl_value)value);
}

/* ---- processes ---- */

static void process_rows(struct hl_emit *emit, const struct hl_profile *profile)
{
	static const struct hl_emit_column columns[] = {
		{"pid", "pid", HL_EMIT_COUNT, HL_EMIT_JSON_ONLY},
		{"sequence", "sequence", HL_EMIT_COUNT, HL_EMIT_JSON_ONLY},
		{NULL, "process", HL_EMIT_TEXT, HL_EMIT_TEXT_ONLY},
		{"parent_pid", "parent", HL_EMIT_COUNT, HL_EMIT_JSON_ONLY},
		{"threads", "threads", HL_EMIT_COUNT, 0},
		{"duration_ms", "ms", HL_EMIT_COUNT, 0},
		{"peak_bytes", "peak", HL_EMIT_BYTES, 0},
		{"inuse_bytes", "inuse", HL_EMIT_BYTES, 0},
		{"alloc_bytes", "alloc", HL_EMIT_BYTES, 0},
		{"lost_events", "lost", HL_EMIT_COUNT, 0},
		{"end", "end", HL_EMIT_TEXT, 0},
		{"executable", "executable", HL_EMIT_TEXT, HL_EMIT_JSON_ONLY},
		{"command", "command", HL_EMIT_TEXT, HL_EMIT_SHORTENED},
	};
	if (profile->process_count)
		hl_emit_line(emit, "%s", "");
	hl_emit_rows(emit, "rows", columns, HL_COUNT_OF(columns));
	for (size_t i = 0; i < profile->process_count; i++) {
		const struct hl_profile_process *process = &profile->processes[i];
		const struct hl_profile_counters *total = &process->total;
		char name[HL_FORMAT_MAX];
		snprintf(name, sizeof(name), "%u/%u", process->pid, process->sequence);
		hl_emit_row(emit, false);
		hl_emit_cell_integer(emit, process->pid);
		hl_emit_cell_integer(emit, process->sequence);
		hl_emit_cell_text(emit, name);
		hl_emit_cell_integer(emit, process->parent_pid);
		hl_emit_cell_integer(emit, process->thread_count);
		hl_emit_cell_integer(emit, (int64_t)(process->duration_ns / 1000000));
		hl_emit_cell_integer(emit, total->peak_bytes);
		hl_emit_cell_integer(emit, total->alloc_bytes - total->free_bytes);
		hl_emit_cell_integer(emit, total->alloc_bytes);
		hl_emit_cell_integer(emit, (int64_t)process->lost.events);
		hl_emit_cell_text(emit, hl_profile_text(profile, process->end));
		hl_emit_cell_text(emit, hl_profile_text(profile, process->executable));
		hl_emit_cell_text(emit, hl_profile_text(profile, process->command));
	}
	hl_emit_rows_end(emit);
}

/* ---- modules ---- */

static const char *build_id_text(const struct hl_profile_module *module, char *buffer)
{
	for (uint32_t i = 0; i < module->build_id_bytes; i++)
		sprintf(buffer + 2 * (size_t)i, "%02x", module->build_id[i]);
	buffer[2 * (size_t)module->build_id_bytes] = '\0';
	return buffer;
}

/* Modules that no stack passes through were not looked at: their symbols are "unused". */
static void module_rows(struct hl_emit *emit, const struct hl_profile *profile)
{
	static const struct hl_emit_column columns[] = {
		{"path", "module", HL_EMIT_TEXT, 0},
		{"build_id", "build id", HL_EMIT_TEXT, 0},
		{"symbols", "symbols", HL_EMIT_TEXT, 0},
		{"reason", "remark", HL_EMIT_TEXT, 0},
	};
	if (profile->module_count > 1)
		hl_emit_line(emit, "%s", "");
	hl_emit_rows(emit, "modules", columns, HL_COUNT_OF(columns));
	for (size_t i = 1; i < profile->module_count; i++) {
		const struct hl_profile_module *module = &profile->modules[i];
		char build_id[2 * sizeof(module->build_id) + 1];
		hl_emit_row(emit, false);
		hl_emit_cell_text(emit, hl_profile_text(profile, module->path));
		hl_emit_cell_text(emit, build_id_text(module, build_id));
		hl_emit_cell_text(emit, module->used ? hl_symbols_source_name(module->symbols)
						     : "unused");
		hl_emit_cell_text(emit, hl_profile_text(profile, module->symbols_reason));
	}
	hl_emit_rows_end(emit);
}

/* ---- stacks ---- */

static bool has_counters(const struct hl_profile_counters *counters)
{
	static const struct hl_profile_counters none;
	return memcmp(counters, &none, sizeof(none)) != 0;
}

/* "function (module+0xaddress)": enough to find the instruction again. */
static char *frame_text(const struct hl_profile *profile, uint32_t id)
{
	const struct hl_profile_frame *frame = &profile->frames[id];
	const struct hl_profile_function *function = &profile->functions[frame->function];
	const char *path = hl_profile_text(profile, profile->modules[function->module].path);
	const char *slash = strrchr(path, '/');
	char *text;

	if (asprintf(&text, "%s (%s+0x%" PRIx64 "%s)", hl_profile_text(profile, function->name),
		     slash ? slash + 1 : path, frame->address,
		     frame->inlined ? " inlined" : "") < 0)
		return NULL;
	return text;
}

/* The frames from the root to ${node} into ${path}, which has room for all; returns how many. */
static size_t path_to(const struct hl_profile *profile, uint32_t node, const char *const *texts,
		      const char **path)
{
	size_t count = 0;

	for (uint32_t at = node; at; at = profile->nodes[at].parent)
		count++;
	for (size_t i = count; i-- > 0; node = profile->nodes[node].parent)
		path[i] = texts[profile->nodes[node].frame];
	return count;
}

static void stack_rows(struct hl_emit *emit, const struct hl_profile *profile,
		       const char *const *texts, const char **path)
{
	static const struct hl_emit_column columns[] = {
		{"alloc_bytes", "alloc", HL_EMIT_BYTES, 0},
		{"free_bytes", "free", HL_EMIT_BYTES, 0},
		{"alloc_objects", "allocs", HL_EMIT_COUNT, 0},
		{"free_objects", "frees", HL_EMIT_COUNT, 0},
		{"stack", "stack", HL_EMIT_STACK, 0},
	};
	hl_emit_line(emit, "%s", "");
	hl_emit_rows(emit, "stacks", columns, HL_COUNT_OF(columns));
	for (uint32_t i = 0; i < profile->node_count; i++) {
		const struct hl_profile_counters *counters = &profile->counters[i];
		if (!has_counters(counters))
			continue;
		hl_emit_row(emit, false);
		hl_emit_cell_integer(emit, counters->alloc_bytes);
		hl_emit_cell_integer(emit, counters->free_bytes);
		hl_emit_cell_integer(emit, counters->alloc_objects);
		hl_emit_cell_integer(emit, counters->free_objects);
		hl_emit_cell_stack(emit, path, path_to(profile, i, texts, path));
	}
	hl_emit_rows_end(emit);
}

static int emit_stacks(struct hl_emit *emit, const struct hl_profile *profile)
{
	char **texts = calloc(profile->frame_count, sizeof(*texts));
	const char **path = calloc(profile->node_count, sizeof(*path));
	int r = texts && path ? 0 : -ENOMEM;

	for (uint32_t i = 1; r == 0 && i < profile->frame_count; i++) {
		texts[i] = frame_text(profile, i);
		if (!texts[i])
			r = -ENOMEM;
	}
	if (r == 0)
		stack_rows(emit, profile, (const char *const *)texts, path);
	for (size_t i = 0; texts && i < profile->frame_count; i++)
		free(texts[i]);
	free(texts);
	free(path);
	return r;
}

/* ---- all of it ---- */

int hl_view_info(const struct hl_profile *profile, const struct hl_view_options *options,
		 struct hl_error *err)
{
	struct hl_emit *emit;

	int r = hl_emit_new(options->out, options->json ? HL_EMIT_JSON : HL_EMIT_TABLE,
			    options->color, &emit);
	if (r < 0)
		return hl_summary_fail(profile, r, err);
	hl_emit_begin(emit, "info");
	hl_summary_members(emit, profile, NULL);
	recording_members(emit, profile);
	recording_lines(emit, profile);
	total_lines(emit, profile);
	hl_summary_warnings(emit, profile);
	process_rows(emit, profile);
	module_rows(emit, profile);
	if (options->stacks)
		r = emit_stacks(emit, profile);
	int finished = hl_emit_finish(emit);
	if (r == 0)
		r = finished;
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
