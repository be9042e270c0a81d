/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline info: what was recorded, how, what is missing, and how well it can be named. */
#include "base/hex.h"
#include "base/path.h"
#include "view/format.h"
#include "view/keys.h"
#include "view/summary.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- the recording ---- */

/* "NAME       TEXT", unless the text is empty. */
static void fact(struct hl_emit *emit, const char *name, const char *text)
{
	if (text[0])
		hl_emit_line(emit, "%-10s %s", name, text);
}

static void time_line(struct hl_emit *emit, const struct hl_profile *profile)
{
	char start[HL_FORMAT_MAX], duration[HL_FORMAT_MAX];

	hl_format_duration(profile->duration_ns, duration);
	if (profile->start_realtime_ns)
		hl_emit_line(emit, "started    %s, took %s",
			     hl_format_time(profile->start_realtime_ns, start), duration);
	else if (profile->duration_ns)
		fact(emit, "took", duration);
}

static void recording_lines(struct hl_emit *emit, const struct hl_profile *profile)
{
	const char *host = hl_profile_text(profile, profile->host);
	const char *version = hl_profile_text(profile, profile->tool_version);
	char text[HL_FORMAT_MAX];

	fact(emit, profile->imported ? "file" : "recording",
	     hl_profile_text(profile, profile->name));
	fact(emit, "kind", hl_profile_text(profile, profile->source));
	fact(emit, "command", hl_profile_text(profile, profile->command));
	time_line(emit, profile);
	if (host[0])
		hl_emit_line(emit, "host       %s, %s", host,
			     hl_profile_text(profile, profile->kernel));
	fact(emit, "mode", hl_profile_text(profile, profile->mode));
	if (profile->sample_bytes)
		hl_emit_line(emit, "sampled    about every %s",
			     hl_format_bytes((int64_t)profile->sample_bytes, text));
	if (version[0])
		hl_emit_line(emit, "written by heapline %s", version);
	fact(emit, "filter", hl_profile_text(profile, profile->filter));
}

static void recording_members(struct hl_emit *emit, const struct hl_profile *profile)
{
	hl_summary_origin(emit, profile);
	hl_emit_object(emit, "counts");
	hl_emit_integer(emit, "functions", (int64_t)profile->function_count - 1);
	hl_emit_integer(emit, "frames", (int64_t)profile->frame_count - 1);
	hl_emit_integer(emit, "nodes", (int64_t)profile->node_count - 1);
	hl_emit_integer(emit, "stacks", (int64_t)hl_summary_stack_count(profile));
	hl_emit_object_end(emit);
}

static void total_lines(struct hl_emit *emit, const struct hl_profile *profile)
{
	char figures[HL_SUMMARY_FIGURES_MAX], caveat[HL_SUMMARY_CAVEAT_MAX];

	for (int i = 0; hl_value_names[i]; i++) {
		enum hl_value value = (enum hl_value)i;
		hl_summary_figures(profile, &profile->total, value, figures);
		if (figures[0])
			hl_emit_line(emit, "%-10s %s%s", hl_value_names[value], figures,
				     hl_summary_caveat(profile, value, caveat));
	}
}

static void figure_lines(struct hl_emit *emit, const struct hl_profile *profile)
{
	char words[HL_SUMMARY_FIGURE_MAX], value[HL_SUMMARY_FIGURE_MAX];

	for (size_t i = 0; i < profile->figure_count; i++) {
		hl_summary_figure(profile, &profile->figures[i], words, value);
		hl_emit_line(emit, "%s: %s", words, value);
	}
}

static void count_line(struct hl_emit *emit, const struct hl_profile *profile)
{
	size_t count = hl_summary_stack_count(profile);
	char stacks[HL_FORMAT_MAX], frames[HL_FORMAT_MAX], functions[HL_FORMAT_MAX];

	if (profile->node_count == 1)
		return;
	hl_emit_line(emit, "stacks     %s stack%s, %s function%s, %s call site%s",
		     hl_format_count((int64_t)count, stacks), hl_format_plural(count),
		     hl_format_count((int64_t)profile->function_count - 1, functions),
		     hl_format_plural(profile->function_count - 1),
		     hl_format_count((int64_t)profile->frame_count - 1, frames),
		     hl_format_plural(profile->frame_count - 1));
}

/* ---- marks ---- */

static void mark_rows(struct hl_emit *emit, const struct hl_profile *profile)
{
	static const struct hl_emit_column columns[] = {
		{"pid", "marked", HL_EMIT_NUMBER, 0},
		{"ms", "at ms", HL_EMIT_COUNT, 0},
		{"text", "mark", HL_EMIT_TEXT, 0},
	};
	if (profile->mark_count)
		hl_emit_line(emit, "%s", "");
	hl_emit_rows(emit, "marks", columns, HL_COUNT_OF(columns));
	for (size_t i = 0; i < profile->mark_count; i++) {
		const struct hl_profile_mark *mark = &profile->marks[i];
		hl_emit_row(emit, 0);
		hl_emit_cell_integer(emit, mark->pid);
		hl_emit_cell_integer(emit, (int64_t)mark->ms);
		hl_emit_cell_text(emit, hl_profile_text(profile, mark->name));
	}
	hl_emit_rows_end(emit);
}

/* ---- processes ---- */

static void process_rows(struct hl_emit *emit, const struct hl_profile *profile)
{
	bool knows_peak = hl_profile_knows(profile, HL_VALUE_PEAK, HL_UNIT_BYTES);
	bool knows_inuse = hl_profile_knows(profile, HL_VALUE_INUSE, HL_UNIT_BYTES);
	bool knows_alloc = hl_profile_knows(profile, HL_VALUE_ALLOC, HL_UNIT_BYTES);
	const struct hl_emit_column columns[] = {
		{"pid", "pid", HL_EMIT_COUNT, HL_EMIT_JSON_ONLY},
		{"sequence", "sequence", HL_EMIT_COUNT, HL_EMIT_JSON_ONLY},
		{NULL, "process", HL_EMIT_TEXT, HL_EMIT_TEXT_ONLY},
		{"parent_pid", "parent", HL_EMIT_COUNT, HL_EMIT_JSON_ONLY},
		{"threads", "threads", HL_EMIT_COUNT, HL_EMIT_OMITTED},
		{"duration_ms", "ms", HL_EMIT_COUNT, HL_EMIT_OMITTED},
		{"peak_bytes", "peak", HL_EMIT_BYTES, knows_peak ? 0 : HL_EMIT_HIDDEN},
		{"inuse_bytes", "in use", HL_EMIT_BYTES, knows_inuse ? 0 : HL_EMIT_HIDDEN},
		{"alloc_bytes", "alloc", HL_EMIT_BYTES, knows_alloc ? 0 : HL_EMIT_HIDDEN},
		{"lost_events", "lost", HL_EMIT_COUNT, HL_EMIT_OMITTED},
		{"end", "end", HL_EMIT_TEXT, HL_EMIT_SHORTENED},
		{"executable", "executable", HL_EMIT_TEXT, HL_EMIT_JSON_ONLY},
		{"command", "command", HL_EMIT_TEXT, HL_EMIT_SHORTENED | HL_EMIT_KEY},
	};
	if (profile->process_count)
		hl_emit_line(emit, "%s", "");
	hl_emit_rows(emit, "rows", columns, HL_COUNT_OF(columns));
	for (size_t i = 0; i < profile->process_count; i++) {
		const struct hl_profile_process *process = &profile->processes[i];
		const struct hl_profile_counters *total = &process->total;
		char name[HL_FORMAT_MAX];
		snprintf(name, sizeof(name), "%u/%u", process->pid, process->sequence);
		hl_emit_row(emit, 0);
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

/* Modules that no stack passes through were not looked at; foreign files bring names along. */
static const char *symbols_text(const struct hl_profile *profile,
				const struct hl_profile_module *module)
{
	if (profile->imported)
		return "imported";
	return module->used ? hl_symbols_source_name(module->symbols) : "unused";
}

static void module_rows(struct hl_emit *emit, const struct hl_profile *profile)
{
	static const struct hl_emit_column columns[] = {
		{"path", "module", HL_EMIT_TEXT, HL_EMIT_SHORTENED | HL_EMIT_PATH | HL_EMIT_KEY},
		{"build_id", "build id", HL_EMIT_TEXT, HL_EMIT_OMITTED},
		{"symbols", "symbols", HL_EMIT_TEXT, 0},
		{"reason", "remark", HL_EMIT_TEXT, HL_EMIT_SHORTENED},
	};
	if (profile->module_count > 1)
		hl_emit_line(emit, "%s", "");
	hl_emit_rows(emit, "modules", columns, HL_COUNT_OF(columns));
	for (size_t i = 1; i < profile->module_count; i++) {
		const struct hl_profile_module *module = &profile->modules[i];
		char build_id[2 * sizeof(module->build_id) + 1];
		hl_emit_row(emit, 0);
		hl_emit_cell_text(emit, hl_profile_text(profile, module->path));
		hl_emit_cell_text(
			emit, hl_hex_format(build_id, module->build_id, module->build_id_bytes));
		hl_emit_cell_text(emit, symbols_text(profile, module));
		hl_emit_cell_text(emit, hl_profile_text(profile, module->symbols_reason));
	}
	hl_emit_rows_end(emit);
}

/* ---- stacks ---- */

/* "function (module+0xoffset)", as addresses lie in the module's file: enough to find the
 * instruction again. Where there is no module, the address in the process. */
static char *frame_text(const struct hl_profile *profile, uint32_t id)
{
	const struct hl_profile_frame *frame = &profile->frames[id];
	const struct hl_profile_function *function = &profile->functions[frame->function];
	const char *path = hl_profile_text(profile, profile->modules[function->module].path);
	char *text;

	if (asprintf(&text, "%s (%s%s0x%" PRIx64 "%s)", hl_profile_text(profile, function->name),
		     hl_path_basename(path), path[0] ? "+" : "", frame->address,
		     frame->inlined ? " inlined" : "") < 0)
		return NULL;
	return text;
}

/* Room for a stack, from the root, and for those that have figures. */
struct path {
	uint32_t *nodes;
	const char **texts;
	struct hl_emit_frame *frames;
};

/* The frames from the root to ${node} into ${path}; returns how many. */
static size_t path_to(const struct hl_profile *profile, uint32_t node, const char *const *texts,
		      struct path *path)
{
	size_t count = 0;

	for (uint32_t at = node; at; at = profile->nodes[at].parent)
		count++;
	for (size_t i = count; i-- > 0; node = profile->nodes[node].parent) {
		uint32_t frame = profile->nodes[node].frame;
		const struct hl_keys_label label = hl_keys_frame_label(profile, frame);
		path->texts[i] = texts[frame];
		path->frames[i] =
			(struct hl_emit_frame){label.name, label.module, label.file, label.line};
	}
	return count;
}

/* Instructions and the functions that they lie in, the innermost inlined one last. */
static void function_rows(struct hl_emit *emit, const struct hl_profile *profile)
{
	static const struct hl_emit_column columns[] = {
		{"module", "module", HL_EMIT_TEXT, 0},
		{"address", "address", HL_EMIT_TEXT, 0},
		{NULL, "where", HL_EMIT_TEXT, HL_EMIT_TEXT_ONLY},
		{"file", NULL, HL_EMIT_TEXT, HL_EMIT_JSON_ONLY},
		{"line", NULL, HL_EMIT_COUNT, HL_EMIT_JSON_ONLY},
		{"inlined", "inlined", HL_EMIT_COUNT, HL_EMIT_BLANK_ZERO},
		{"name", "function", HL_EMIT_TEXT, 0},
	};
	hl_emit_line(emit, "%s", "");
	hl_emit_rows(emit, "functions", columns, HL_COUNT_OF(columns));
	for (uint32_t i = 1; i < profile->frame_count; i++) {
		const struct hl_profile_frame *frame = &profile->frames[i];
		const struct hl_profile_function *function = &profile->functions[frame->function];
		const char *file = hl_profile_text(profile, frame->file);
		uint32_t module = profile->modules[function->module].path;
		char address[2 + 16 + 1], place[256] = "";
		snprintf(address, sizeof(address), "0x%" PRIx64, frame->address);
		if (file[0] && frame->line)
			snprintf(place, sizeof(place), "%s:%u", hl_path_basename(file),
				 frame->line);
		else if (file[0])
			snprintf(place, sizeof(place), "%s", hl_path_basename(file));
		hl_emit_row(emit, 0);
		hl_emit_cell_text(emit, hl_profile_text(profile, module));
		hl_emit_cell_text(emit, address);
		hl_emit_cell_text(emit, place);
		hl_emit_cell_text(emit, file);
		hl_emit_cell_integer(emit, frame->line);
		hl_emit_cell_integer(emit, frame->inlined);
		hl_emit_cell_text(emit, hl_profile_text(profile, function->name));
	}
	hl_emit_rows_end(emit);
}

/* The figures of a stack: their columns, and what must be known for them to be shown. */
static const struct {
	struct hl_emit_column column;
	enum hl_value needed, needed_too;
} stack_figures[] = {
	{{"alloc_bytes", "alloc", HL_EMIT_BYTES, 0}, HL_VALUE_ALLOC, HL_VALUE_ALLOC},
	{{"free_bytes", "free", HL_EMIT_BYTES, 0}, HL_VALUE_ALLOC, HL_VALUE_INUSE},
	{{"alloc_objects", "allocs", HL_EMIT_COUNT, 0}, HL_VALUE_ALLOC, HL_VALUE_ALLOC},
	{{"free_objects", "frees", HL_EMIT_COUNT, 0}, HL_VALUE_ALLOC, HL_VALUE_INUSE},
	{{"inuse_bytes", "in use", HL_EMIT_BYTES, 0}, HL_VALUE_INUSE, HL_VALUE_INUSE},
	{{"inuse_objects", "objects", HL_EMIT_COUNT, 0}, HL_VALUE_INUSE, HL_VALUE_INUSE},
	{{"peak_bytes", "peak", HL_EMIT_BYTES, 0}, HL_VALUE_PEAK, HL_VALUE_PEAK},
	{{"peak_objects", "objects", HL_EMIT_COUNT, 0}, HL_VALUE_PEAK, HL_VALUE_PEAK},
	{{"temporary_objects", "temporary", HL_EMIT_COUNT, 0},
	 HL_VALUE_TEMPORARY,
	 HL_VALUE_TEMPORARY},
	{{"slack_bytes", "slack", HL_EMIT_BYTES, 0}, HL_VALUE_SLACK, HL_VALUE_SLACK},
};

#define STACK_FIGURES HL_COUNT_OF(stack_figures)

/* Text has what was allocated and freed; where that is not known, whatever is. */
static void begin_stacks(struct hl_emit *emit, const struct hl_profile *profile)
{
	struct hl_emit_column columns[STACK_FIGURES + 2];
	bool has_alloc = hl_profile_knows(profile, HL_VALUE_ALLOC, HL_UNIT_BYTES) ||
			 hl_profile_knows(profile, HL_VALUE_ALLOC, HL_UNIT_OBJECTS);

	for (size_t i = 0; i < STACK_FIGURES; i++) {
		enum hl_value needed = stack_figures[i].needed;
		columns[i] = stack_figures[i].column;
		enum hl_unit unit =
			columns[i].type == HL_EMIT_BYTES ? HL_UNIT_BYTES : HL_UNIT_OBJECTS;
		if (has_alloc && needed != HL_VALUE_ALLOC)
			columns[i].flags |= HL_EMIT_JSON_ONLY;
		if (!hl_profile_knows(profile, needed, unit) ||
		    !hl_profile_knows(profile, stack_figures[i].needed_too, unit))
			columns[i].flags |= HL_EMIT_HIDDEN;
	}
	columns[STACK_FIGURES] = (struct hl_emit_column){"stack", "stack", HL_EMIT_STACK, 0};
	columns[STACK_FIGURES + 1] =
		(struct hl_emit_column){"frames", NULL, HL_EMIT_FRAMES, HL_EMIT_JSON_ONLY};
	hl_emit_line(emit, "%s", "");
	hl_emit_rows_streamed(emit, "stacks", columns, STACK_FIGURES + 2);
}

/* By the first figures that rows show: those of what was allocated, else in use, else the peak. */
static int heaviest_first(const void *left, const void *right, void *context)
{
	const uint32_t *a = left, *b = right;
	const struct hl_profile_counters *counters = context;
	const struct hl_profile_counters *x = &counters[*a], *y = &counters[*b];

	if (x->alloc_bytes != y->alloc_bytes)
		return x->alloc_bytes < y->alloc_bytes ? 1 : -1;
	if (x->alloc_objects != y->alloc_objects)
		return x->alloc_objects < y->alloc_objects ? 1 : -1;
	if (x->peak_bytes != y->peak_bytes)
		return x->peak_bytes < y->peak_bytes ? 1 : -1;
	return (*a > *b) - (*a < *b);
}

static void stack_rows(struct hl_emit *emit, const struct hl_profile *profile,
		       const char *const *texts, struct path *path)
{
	size_t count = 0;

	for (uint32_t i = 0; i < profile->node_count; i++)
		if (hl_profile_counters_any(&profile->counters[i]))
			path->nodes[count++] = i;
	if (count)
		qsort_r(path->nodes, count, sizeof(*path->nodes), heaviest_first,
			profile->counters);
	begin_stacks(emit, profile);
	for (size_t row = 0; row < count; row++) {
		uint32_t i = path->nodes[row];
		const struct hl_profile_counters *counters = &profile->counters[i];
		hl_emit_row(emit, 0);
		hl_emit_cell_integer(emit, counters->alloc_bytes);
		hl_emit_cell_integer(emit, counters->free_bytes);
		hl_emit_cell_integer(emit, counters->alloc_objects);
		hl_emit_cell_integer(emit, counters->free_objects);
		hl_emit_cell_integer(emit, counters->alloc_bytes - counters->free_bytes);
		hl_emit_cell_integer(emit, counters->alloc_objects - counters->free_objects);
		hl_emit_cell_integer(emit, counters->peak_bytes);
		hl_emit_cell_integer(emit, counters->peak_objects);
		hl_emit_cell_integer(emit, counters->temporary_objects);
		hl_emit_cell_integer(emit, counters->slack_bytes);
		size_t depth = path_to(profile, i, texts, path);
		hl_emit_cell_stack(emit, path->texts, depth);
		hl_emit_cell_frames(emit, path->frames, depth);
	}
	hl_emit_rows_end(emit);
}

static int emit_stacks(struct hl_emit *emit, const struct hl_profile *profile)
{
	char **texts = calloc(profile->frame_count, sizeof(*texts));
	struct path path = {
		.nodes = calloc(profile->node_count, sizeof(*path.nodes)),
		.texts = calloc(profile->node_count, sizeof(*path.texts)),
		.frames = calloc(profile->node_count, sizeof(*path.frames)),
	};
	int r = texts && path.nodes && path.texts && path.frames ? 0 : -ENOMEM;

	for (uint32_t i = 1; r == 0 && i < profile->frame_count; i++) {
		texts[i] = frame_text(profile, i);
		if (!texts[i])
			r = -ENOMEM;
	}
	if (r == 0)
		stack_rows(emit, profile, (const char *const *)texts, &path);
	for (size_t i = 0; texts && i < profile->frame_count; i++)
		free(texts[i]);
	free(texts);
	free(path.nodes);
	free(path.texts);
	free(path.frames);
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
	figure_lines(emit, profile);
	count_line(emit, profile);
	hl_summary_warnings(emit, profile);
	process_rows(emit, profile);
	mark_rows(emit, profile);
	module_rows(emit, profile);
	if (options->stacks) {
		function_rows(emit, profile);
		r = emit_stacks(emit, profile);
	}
	int finished = hl_emit_finish(emit);
	if (r == 0)
		r = finished;
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
