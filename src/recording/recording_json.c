/* SPDX-License-Identifier: BSD-2-Clause */
/* The JSON sections of a recording's files, as tables of fields. */
#include "recording/recording_files.h"

#include "base/cleanup.h"
#include "base/encode.h"
#include "recording/fields.h"
#include "recording/recording.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- values of their own ---- */

static const char *const end_names[] = {
	[HL_END_RUNNING] = "running", [HL_END_EXITED] = "exited",   [HL_END_SIGNALED] = "signaled",
	[HL_END_EXEC] = "exec",	      [HL_END_UNKNOWN] = "unknown",
};

static json_t *write_end(const void *end)
{
	return json_string(end_names[*(const enum hl_process_end *)end]);
}

static int read_end(const json_t *json, void *ret_end)
{
	const char *name = json_string_value(json);

	for (size_t i = 0; name && i < HL_COUNT_OF(end_names); i++)
		if (strcmp(name, end_names[i]) == 0) {
			*(enum hl_process_end *)ret_end = (enum hl_process_end)i;
			return 0;
		}
	return -EINVAL;
}

static const struct hl_field_codec end_codec = {write_end, read_end};

#define THREAD_NAME_BYTES sizeof(((struct hl_recording_thread *)0)->name)

static json_t *write_thread_name(const void *name)
{
	char text[THREAD_NAME_BYTES + 1] = "";

	memcpy(text, name, THREAD_NAME_BYTES);
	return hl_text_to_json(text);
}

static int read_thread_name(const json_t *json, void *ret_name)
{
	HL_FREED char *text = NULL;
	int r = hl_text_from_json(json, &text);

	if (r < 0)
		return r;
	size_t size = strlen(text);
	if (size > THREAD_NAME_BYTES)
		return -EINVAL;
	memcpy(ret_name, text, size);
	return 0;
}

static const struct hl_field_codec thread_name_codec = {write_thread_name, read_thread_name};

static json_t *write_build_id(const void *value)
{
	const struct hl_recording_module *module = value;
	char text[2 * sizeof(module->build_id) + 1];
	size_t bytes = module->build_id_bytes;

	if (bytes > sizeof(module->build_id))
		bytes = sizeof(module->build_id);
	return json_string(hl_hex_format(text, module->build_id, bytes));
}

static int read_build_id(const json_t *json, void *value)
{
	struct hl_recording_module *module = value;

	if (!json_is_string(json))
		return -EINVAL;
	int bytes = hl_hex_parse(json_string_value(json), json_string_length(json),
				 module->build_id, sizeof(module->build_id));
	if (bytes < 0)
		return bytes;
	module->build_id_bytes = (uint32_t)bytes;
	return 0;
}

static const struct hl_field_codec build_id_codec = {write_build_id, read_build_id};

/* ---- tables ---- */

static const struct hl_field mark_fields[] = {
	HL_FIELD(hl_recording_mark, U32, pid),
	HL_FIELD(hl_recording_mark, U64, ms),
	HL_FIELD(hl_recording_mark, TEXT, name),
	{0},
};

static const struct hl_field figure_fields[] = {
	HL_FIELD(hl_recording_figure, TEXT, name),
	HL_FIELD(hl_recording_figure, I64, value),
	{0},
};

/* Older recordings lack optional ones. */
static const struct hl_field recording_fields[] = {
	HL_FIELD(hl_recording, TEXT, tool_version),
	HL_FIELD(hl_recording, TEXTS, command),
	HL_FIELD(hl_recording, TEXT, host),
	HL_FIELD(hl_recording, TEXT, kernel),
	HL_FIELD(hl_recording, TEXT, mode),
	HL_FIELD(hl_recording, U64, sample_bytes),
	HL_FIELD(hl_recording, U64, start_realtime_ns),
	HL_FIELD(hl_recording, U64, duration_ns),
	HL_FIELD(hl_recording, BOOL, complete),
	HL_FIELD(hl_recording, TEXTS, warnings),
	HL_FIELD(hl_recording, U32, ended_processes, .optional = true),
	HL_FIELD(hl_recording, BOOL, snapshot, .optional = true),
	HL_FIELD(hl_recording, BOOL, attached, .optional = true),
	HL_FIELD(hl_recording, BOOL, no_scripts, .optional = true),
	HL_FIELD(hl_recording, U32, unrecorded_children, .optional = true),
	HL_FIELD(hl_recording, U32, refused_children, .optional = true),
	HL_FIELD_ITEMS(hl_recording, marks, mark_count, mark_fields, .max = HL_RECORDING_MARKS_MAX,
		       .optional = true),
	HL_FIELD_ITEMS(hl_recording, figures, figure_count, figure_fields,
		       .max = HL_RECORDING_FIGURES_MAX, .optional = true, .unless_empty = true),
	{0},
};

static const struct hl_field lost_fields[] = {
#define FIELD(member, ...)	 HL_FIELD(hl_lost, U64, member),
#define LATER_FIELD(member, ...) HL_FIELD(hl_lost, U64, member, .optional = true),
	HL_LOST_COUNTERS(FIELD, HL_LOST_SKIP) HL_LOST_COUNTERS(HL_LOST_SKIP, LATER_FIELD){0}};

static const struct hl_field module_fields[] = {
	HL_FIELD(hl_recording_module, TEXT, path),
	HL_FIELD(hl_recording_module, U64, start),
	HL_FIELD(hl_recording_module, U64, end),
	HL_FIELD(hl_recording_module, U64, load_bias),
	{.key = "build_id", .type = HL_FIELD_CODED, .codec = &build_id_codec},
	HL_FIELD_NAMED("file_bytes", hl_recording_module, U64, print.bytes, .optional = true),
	HL_FIELD_NAMED("file_mtime_ns", hl_recording_module, U64, print.mtime_ns, .optional = true),
	HL_FIELD_NAMED("file_hash", hl_recording_module, U64, print.hash, .optional = true),
	{0},
};

static const struct hl_field thread_fields[] = {
	HL_FIELD(hl_recording_thread, U32, tid),
	HL_FIELD(hl_recording_thread, CODED, name, .codec = &thread_name_codec),
	HL_FIELD(hl_recording_thread, U32, earlier_threads, .optional = true),
	{0},
};

static const struct hl_field provider_fields[] = {
	HL_FIELD(hl_recording_provider, TEXT, name),
	HL_FIELD(hl_recording_provider, U64, eval_start),
	HL_FIELD(hl_recording_provider, U64, eval_end),
	HL_FIELD(hl_recording_provider, U64, text_start),
	HL_FIELD(hl_recording_provider, U64, text_end),
	HL_FIELD(hl_recording_provider, U64, cold_start, .optional = true),
	HL_FIELD(hl_recording_provider, U64, cold_end, .optional = true),
	HL_FIELD(hl_recording_provider, U64, alloc_start, .optional = true),
	HL_FIELD(hl_recording_provider, U64, alloc_end, .optional = true),
	{0},
};

static const struct hl_field site_name_field = {.key = "name", .type = HL_FIELD_TEXT};

static const struct hl_field site_fields[] = {
	HL_FIELD(hl_recording_site, U32, provider),   HL_FIELD(hl_recording_site, U32, function),
	HL_FIELD(hl_recording_site, U32, source),     HL_FIELD(hl_recording_site, U32, line),
	HL_FIELD(hl_recording_site, U32, first_line), {0},
};

static const struct hl_field code_fields[] = {
	HL_FIELD(hl_recording_code, U64, address), HL_FIELD(hl_recording_code, TEXT, name), {0}};

static const struct hl_field process_fields[] = {
	HL_FIELD(hl_recording_process, U32, pid),
	HL_FIELD(hl_recording_process, U32, parent_pid),
	HL_FIELD(hl_recording_process, U32, sequence),
	HL_FIELD(hl_recording_process, TEXT, executable),
	HL_FIELD(hl_recording_process, TEXTS, command),
	HL_FIELD(hl_recording_process, U64, recording_start_ns, .optional = true),
	HL_FIELD(hl_recording_process, U64, start_realtime_ns),
	HL_FIELD(hl_recording_process, U64, duration_ns),
	HL_FIELD(hl_recording_process, U64, reset_ns, .optional = true),
	HL_FIELD(hl_recording_process, BOOL, complete),
	HL_FIELD(hl_recording_process, BOOL, own_malloc),
	HL_FIELD(hl_recording_process, CODED, end, .codec = &end_codec),
	HL_FIELD(hl_recording_process, I32, end_status),
	HL_FIELD(hl_recording_process, TEXT, successor, .optional = true),
	HL_FIELD(hl_recording_process, TEXT, name, .optional = true),
	HL_FIELD(hl_recording_process, U64, peak_mark_ns),
	HL_FIELD(hl_recording_process, U32, node_count, .max = HL_RECORDING_NODES_MAX),
	HL_FIELD(hl_recording_process, U32, value_count, .max = HL_RECORDING_VALUES_MAX),
	HL_FIELD(hl_recording_process, BOOL, knows_resident, .optional = true),
	HL_FIELD(hl_recording_process, BOOL, resident_is_mean, .optional = true),
	HL_FIELD(hl_recording_process, U64, resident_unknown_bytes, .optional = true),
	HL_FIELD(hl_recording_process, U32, resident_count, .max = HL_RECORDING_NODES_MAX,
		 .optional = true),
	HL_FIELD(hl_recording_process, OBJECT, lost, .fields = lost_fields),
	HL_FIELD_ITEMS(hl_recording_process, modules, module_count, module_fields,
		       .max = HL_RECORDING_MODULES_MAX),
	HL_FIELD_ITEMS(hl_recording_process, threads, thread_count, thread_fields,
		       .max = HL_RECORDING_THREADS_MAX),
	HL_FIELD_ITEMS(hl_recording_process, providers, provider_count, provider_fields,
		       .max = HL_RECORDING_PROVIDERS_MAX, .optional = true, .unless_empty = true),
	HL_FIELD_ITEMS(hl_recording_process, site_names, site_name_count, &site_name_field,
		       .items = HL_ITEMS_VALUES, .max = HL_RECORDING_SITES_MAX, .optional = true,
		       .unless_empty = true),
	HL_FIELD_ITEMS(hl_recording_process, sites, site_count, site_fields,
		       .items = HL_ITEMS_TUPLES, .max = HL_RECORDING_SITES_MAX, .optional = true,
		       .unless_empty = true),
	HL_FIELD_ITEMS(hl_recording_process, code, code_count, code_fields,
		       .items = HL_ITEMS_TUPLES, .max = HL_RECORDING_NODES_MAX, .optional = true,
		       .unless_empty = true),
	{0},
};

/* ---- sections ---- */

char *hl_recording_json_write(const struct hl_recording *recording)
{
	return hl_fields_print(hl_fields_write(recording_fields, recording, NULL));
}

char *hl_recording_json_write_process(const struct hl_recording_process *process)
{
	return hl_fields_print(hl_fields_write(process_fields, process, NULL));
}

static int check_figures(const struct hl_field_source *source, const struct hl_recording *recording)
{
	const struct hl_recording_figure *figures = recording->figures;

	for (uint32_t i = 0; i < recording->figure_count; i++) {
		if (!hl_figure_name_is_valid(figures[i].name))
			return hl_fields_blame(source, "name");
		for (uint32_t earlier = 0; earlier < i; earlier++)
			if (!strcmp(figures[i].name, figures[earlier].name))
				return hl_fields_blame(source, "figures");
	}
	return 0;
}

int hl_recording_json_read(const char *text, size_t size, const char *path,
			   struct hl_recording *recording, struct hl_error *err)
{
	const struct hl_field_source source = {.path = path, .err = err};
	json_auto_t *root = NULL;

	int r = hl_fields_parse(&source, text, size, &root);
	if (r == 0)
		r = hl_fields_read(&source, recording_fields, root, recording);
	return r < 0 ? r : check_figures(&source, recording);
}

static int check_sites(const struct hl_field_source *source,
		       const struct hl_recording_process *process)
{
	for (uint32_t i = 0; i < process->site_count; i++) {
		const struct hl_recording_site *site = &process->sites[i];
		if (site->provider >= process->provider_count ||
		    site->function >= process->site_name_count ||
		    site->source >= process->site_name_count)
			return hl_fields_blame(source, "sites");
	}
	return 0;
}

static int check_code(const struct hl_field_source *source,
		      const struct hl_recording_process *process)
{
	for (uint32_t i = 1; i < process->code_count; i++)
		if (process->code[i].address <= process->code[i - 1].address)
			return hl_fields_blame(source, "code");
	return 0;
}

int hl_recording_json_read_process(const char *text, size_t size, const char *path,
				   struct hl_recording_process *process, struct hl_error *err)
{
	const struct hl_field_source source = {.path = path, .err = err};
	json_auto_t *root = NULL;

	int r = hl_fields_parse(&source, text, size, &root);
	if (r == 0)
		r = hl_fields_read(&source, process_fields, root, process);
	if (r == 0)
		r = check_sites(&source, process);
	return r < 0 ? r : check_code(&source, process);
}
