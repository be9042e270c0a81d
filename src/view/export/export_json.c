/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heapline export --format json: the profile as it is, heapline/export/1; heapline-export(1)
 * describes it. Members that are 0 or empty are left out of the long lists. References are indices
 * of the lists; element 0 of modules, functions and frames stands for "none".
 */
#include "view/summary.h"

#include "base/encode.h"

#include <inttypes.h>
#include <string.h>

static void put_text(struct hl_emit *emit, const struct hl_profile *profile, const char *key,
		     uint32_t text)
{
	if (text)
		hl_emit_text(emit, key, hl_profile_text(profile, text));
}

static void put_number(struct hl_emit *emit, const char *key, int64_t number)
{
	if (number)
		hl_emit_integer(emit, key, number);
}

static void put_counters(struct hl_emit *emit, const struct hl_profile_counters *counters)
{
	put_number(emit, "alloc_bytes", counters->alloc_bytes);
	put_number(emit, "alloc_objects", counters->alloc_objects);
	put_number(emit, "free_bytes", counters->free_bytes);
	put_number(emit, "free_objects", counters->free_objects);
	put_number(emit, "peak_bytes", counters->peak_bytes);
	put_number(emit, "peak_objects", counters->peak_objects);
	put_number(emit, "temporary_objects", counters->temporary_objects);
	put_number(emit, "slack_bytes", counters->slack_bytes);
	put_number(emit, "resident_bytes", counters->resident_bytes);
	put_number(emit, "swapped_bytes", counters->swapped_bytes);
}

static void put_processes(struct hl_emit *emit, const struct hl_profile *profile)
{
	hl_emit_array(emit, "processes");
	for (size_t i = 0; i < profile->process_count; i++) {
		const struct hl_profile_process *process = &profile->processes[i];
		hl_emit_object(emit, NULL);
		hl_emit_integer(emit, "pid", process->pid);
		hl_emit_integer(emit, "sequence", process->sequence);
		hl_emit_integer(emit, "parent_pid", process->parent_pid);
		put_text(emit, profile, "executable", process->executable);
		put_text(emit, profile, "command", process->command);
		put_text(emit, profile, "end", process->end);
		hl_emit_integer(emit, "duration_ns", (int64_t)process->duration_ns);
		hl_emit_boolean(emit, "complete", process->complete);
		put_counters(emit, &process->total);
		hl_emit_object_end(emit);
	}
	hl_emit_array_end(emit);
}

static void put_names(struct hl_emit *emit, const struct hl_profile *profile)
{
	char build_id[2 * sizeof(profile->modules->build_id) + 1], address[32];

	hl_emit_array(emit, "modules");
	for (size_t i = 0; i < profile->module_count; i++) {
		const struct hl_profile_module *module = &profile->modules[i];
		hl_emit_object(emit, NULL);
		put_text(emit, profile, "path", module->path);
		if (module->build_id_bytes)
			hl_emit_text(
				emit, "build_id",
				hl_hex_format(build_id, module->build_id, module->build_id_bytes));
		if (module->used)
			hl_emit_text(emit, "symbols", hl_symbols_source_name(module->symbols));
		hl_emit_object_end(emit);
	}
	hl_emit_array_end(emit);
	hl_emit_array(emit, "functions");
	for (size_t i = 0; i < profile->function_count; i++) {
		const struct hl_profile_function *function = &profile->functions[i];
		hl_emit_object(emit, NULL);
		put_text(emit, profile, "name", function->name);
		if (function->label != function->name) /* as folded has it */
			put_text(emit, profile, "label", function->label);
		put_text(emit, profile, "file", function->file);
		put_number(emit, "line", function->line);
		put_number(emit, "module", function->module);
		hl_emit_object_end(emit);
	}
	hl_emit_array_end(emit);
	hl_emit_array(emit, "frames");
	for (size_t i = 0; i < profile->frame_count; i++) {
		const struct hl_profile_frame *frame = &profile->frames[i];
		hl_emit_object(emit, NULL);
		put_number(emit, "function", frame->function);
		/* As text: many readers of JSON keep 53 bits of a number. */
		snprintf(address, sizeof(address), "0x%" PRIx64, frame->address);
		if (frame->address)
			hl_emit_text(emit, "address", address);
		put_text(emit, profile, "file", frame->file);
		put_number(emit, "line", frame->line);
		if (frame->inlined)
			hl_emit_boolean(emit, "inlined", true);
		hl_emit_object_end(emit);
	}
	hl_emit_array_end(emit);
}

static void put_nodes(struct hl_emit *emit, const struct hl_profile *profile)
{
	hl_emit_array(emit, "nodes");
	for (size_t i = 0; i < profile->node_count; i++) {
		hl_emit_object(emit, NULL);
		if (i) {
			hl_emit_integer(emit, "parent", profile->nodes[i].parent);
			hl_emit_integer(emit, "frame", profile->nodes[i].frame);
		}
		put_counters(emit, &profile->counters[i]);
		if (profile->base && hl_profile_counters_any(&profile->base[i])) {
			hl_emit_object(emit, "base");
			put_counters(emit, &profile->base[i]);
			hl_emit_object_end(emit);
		}
		hl_emit_object_end(emit);
	}
	hl_emit_array_end(emit);
}

int hl_export_json_view(const struct hl_profile *profile, const struct hl_view_options *options,
			struct hl_error *err)
{
	struct hl_emit *emit;

	int r = hl_emit_new(options->out, HL_EMIT_JSON, false, "export/1", &emit);
	if (r < 0)
		return hl_summary_fail(profile, r, err);
	hl_summary_members(emit, profile, NULL);
	hl_summary_origin(emit, profile);
	hl_summary_figure_names(emit, "known", profile);
	put_processes(emit, profile);
	hl_emit_array(emit, "threads");
	for (size_t i = 0; i < profile->thread_count; i++) {
		const struct hl_profile_thread *thread = &profile->threads[i];
		hl_emit_object(emit, NULL);
		hl_emit_integer(emit, "process", thread->process);
		hl_emit_integer(emit, "tid", thread->tid);
		put_text(emit, profile, "name", thread->name);
		put_counters(emit, &thread->total);
		hl_emit_object_end(emit);
	}
	hl_emit_array_end(emit);
	put_names(emit, profile);
	put_nodes(emit, profile);
	hl_emit_array(emit, "by_thread");
	for (size_t i = 0; i < profile->row_count; i++) {
		const struct hl_profile_row *row = &profile->rows[i];
		hl_emit_object(emit, NULL);
		hl_emit_integer(emit, "node", row->node);
		hl_emit_integer(emit, "thread", row->thread);
		put_counters(emit, &row->counters);
		hl_emit_object_end(emit);
	}
	hl_emit_array_end(emit);
	hl_emit_array(emit, "by_size");
	for (size_t i = 0; i < profile->size_count; i++) {
		const struct hl_profile_size *size = &profile->sizes[i];
		hl_emit_object(emit, NULL);
		hl_emit_integer(emit, "node", size->node);
		hl_emit_integer(emit, "size_class", size->size_class);
		put_counters(emit, &size->counters);
		hl_emit_object_end(emit);
	}
	hl_emit_array_end(emit);
	r = hl_emit_finish(emit);
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
