/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline info: what was recorded, how, what is missing, and how well it can be named. */
#include "base/cleanup.h"
#include "base/encode.h"
#include "base/names.h"
#include "view/format.h"
#include "view/rows.h"
#include "view/summary.h"
#include "view/table.h"

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

static void recording_lines(struct hl_emit *emit, const struct hl_profile *profile)
{
	const char *host = hl_profile_text(profile, profile->host);
	const char *version = hl_profile_text(profile, profile->tool_version);
	size_t count = hl_summary_stack_count(profile);
	char text[HL_FORMAT_MAX], duration[HL_FORMAT_MAX];
	char figures[HL_SUMMARY_FIGURES_MAX], caveat[HL_SUMMARY_CAVEAT_MAX];
	char words[HL_SUMMARY_FIGURE_MAX], value_text[HL_SUMMARY_FIGURE_MAX];
	char stacks[HL_FORMAT_MAX], frames[HL_FORMAT_MAX], functions[HL_FORMAT_MAX];

	fact(emit, profile->imported ? "file" : "recording",
	     hl_profile_text(profile, profile->name));
	fact(emit, "kind", hl_profile_text(profile, profile->source));
	fact(emit, "command", hl_profile_text(profile, profile->command));
	hl_format_duration(profile->duration_ns, duration);
	if (profile->start_realtime_ns)
		hl_emit_line(emit, "started    %s, took %s",
			     hl_format_time(profile->start_realtime_ns, text), duration);
	else if (profile->duration_ns)
		fact(emit, "took", duration);
	if (host[0])
		hl_emit_line(emit, "host       %s, %s", host,
			     hl_profile_text(profile, profile->kernel));
	fact(emit, "mode", hl_profile_text(profile, profile->mode));
	if (profile->sample_bytes)
		hl_emit_line(emit, "sampled    about every %s",
			     hl_format_bytes(profile->sample_bytes, text));
	if (version[0])
		hl_emit_line(emit, "written by heapline %s", version);
	fact(emit, "filter", hl_profile_text(profile, profile->filter));
	for (int i = 0; hl_value_names[i]; i++) {
		enum hl_value value = (enum hl_value)i;
		hl_summary_figures(profile, hl_aggregate_figures_of(&profile->total, value), value,
				   figures);
		if (figures[0])
			hl_emit_line(emit, "%-10s %s%s", hl_value_names[value], figures,
				     hl_summary_caveat(profile, value, caveat));
	}
	for (size_t i = 0; i < profile->figure_count; i++) {
		hl_summary_figure(profile, &profile->figures[i], words, value_text);
		hl_emit_line(emit, "%s: %s", words, value_text);
	}
	if (profile->node_count > 1)
		hl_emit_line(emit, "stacks     %s stack%s, %s function%s, %s call site%s",
			     hl_format_count((int64_t)count, stacks), hl_format_plural(count),
			     hl_format_count((int64_t)profile->function_count - 1, functions),
			     hl_format_plural(profile->function_count - 1),
			     hl_format_count((int64_t)profile->frame_count - 1, frames),
			     hl_format_plural(profile->frame_count - 1));
}

/* ---- processes, marks, modules ---- */

/* The cell of a text of the profile, by its id. */
static void text(struct hl_emit *emit, const void *id, const void *profile)
{
	hl_cell_text(emit, hl_profile_text(profile, *(const uint32_t *)id));
}

static void process_name(struct hl_emit *emit, const void *row, const void *context)
{
	const struct hl_profile_process *process = row;
	char name[HL_FORMAT_MAX];

	(void)context;
	snprintf(name, sizeof(name), "%u/%u", process->pid, process->sequence);
	hl_cell_text(emit, name);
}

static void duration_ms(struct hl_emit *emit, const void *row, const void *context)
{
	(void)context;
	hl_cell_unsigned(emit, ((const struct hl_profile_process *)row)->duration_ns / 1000000);
}

static void inuse(struct hl_emit *emit, const void *row, const void *context)
{
	const struct hl_profile_counters *total = &((const struct hl_profile_process *)row)->total;

	(void)context;
	hl_cell_integer(emit, total->alloc_bytes - total->free_bytes);
}

/* The facts of tables: which figures the profile knows, and which of them when it does not know
 * what was allocated. */
#define KNOWS(value, unit) (1u << (HL_UNIT_COUNT * HL_VALUE_##value + HL_UNIT_##unit))
#define FIGURES		   (HL_UNIT_COUNT * HL_VALUE_COUNT)
#define ALONE(value, unit) (KNOWS(value, unit) << FIGURES)
#define KNOWS_FREED(unit)  (1u << (2 * FIGURES + HL_UNIT_##unit))
#define TELLS_SIZES	   (1u << (2 * FIGURES + HL_UNIT_COUNT)) /* other tools' files that do */

static unsigned facts_of(const struct hl_profile *profile)
{
	unsigned facts = 0;

	for (unsigned value = 0; value < HL_VALUE_COUNT; value++)
		for (unsigned unit = 0; unit < HL_UNIT_COUNT; unit++)
			if (profile->known[value][unit])
				facts |= 1u << (HL_UNIT_COUNT * value + unit);
	if (!(facts & (KNOWS(ALLOC, BYTES) | KNOWS(ALLOC, OBJECTS))))
		facts |= facts << FIGURES;
	if (facts & KNOWS(ALLOC, BYTES) && facts & KNOWS(INUSE, BYTES))
		facts |= KNOWS_FREED(BYTES);
	if (facts & KNOWS(ALLOC, OBJECTS) && facts & KNOWS(INUSE, OBJECTS))
		facts |= KNOWS_FREED(OBJECTS);
	if (profile->imported && profile->size_count)
		facts |= TELLS_SIZES;
	return facts;
}

#define PROCESS(name)	 HL_MEMBER(struct hl_profile_process, name)
#define PROCESS_TEXT(id) HL_MEMBER_CELL(struct hl_profile_process, id, text)
#define OMITTED		 HL_COLUMN_OMITTED
#define SHORTENED	 HL_COLUMN_SHORTENED
#define KEY		 HL_COLUMN_KEY

static const struct hl_column process_columns[] = {
	{"pid", NULL, HL_COLUMN_COUNT, PROCESS(pid)},
	{"sequence", NULL, HL_COLUMN_COUNT, PROCESS(sequence)},
	{NULL, "process", HL_COLUMN_TEXT, .cell = process_name},
	{"parent_pid", NULL, HL_COLUMN_COUNT, PROCESS(parent_pid)},
	{"threads", "threads", HL_COLUMN_COUNT, PROCESS(thread_count),
	 OMITTED | HL_COLUMN_BLANK_ZERO},
	{"duration_ms", "ms", HL_COLUMN_COUNT, .cell = duration_ms, .flags = OMITTED},
	{"peak_bytes", "peak", HL_COLUMN_BYTES, PROCESS(total.peak_bytes),
	 .shown_if = KNOWS(PEAK, BYTES)},
	{"inuse_bytes", "in use", HL_COLUMN_BYTES, .cell = inuse, .shown_if = KNOWS(INUSE, BYTES)},
	{"alloc_bytes", "alloc", HL_COLUMN_BYTES, PROCESS(total.alloc_bytes),
	 .shown_if = KNOWS(ALLOC, BYTES)},
	{"lost_events", "lost", HL_COLUMN_COUNT, PROCESS(lost.events), OMITTED},
	{"end", "end", HL_COLUMN_TEXT, PROCESS_TEXT(end), .flags = SHORTENED},
	{"executable", NULL, HL_COLUMN_TEXT, PROCESS_TEXT(executable)},
	{"command", "command", HL_COLUMN_TEXT, PROCESS_TEXT(command), .flags = SHORTENED | KEY},
};

static const struct hl_column mark_columns[] = {
	{"pid", "marked", HL_COLUMN_NUMBER, HL_MEMBER(struct hl_profile_mark, pid)},
	{"ms", "at ms", HL_COLUMN_COUNT, HL_MEMBER(struct hl_profile_mark, ms)},
	{"text", "mark", HL_COLUMN_TEXT, HL_MEMBER_CELL(struct hl_profile_mark, name, text)},
};

static void build_id(struct hl_emit *emit, const void *row, const void *context)
{
	const struct hl_profile_module *module = row;
	char hex[2 * sizeof(module->build_id) + 1];

	(void)context;
	hl_cell_text(emit, hl_hex_format(hex, module->build_id, module->build_id_bytes));
}

static void symbols(struct hl_emit *emit, const void *module, const void *profile)
{
	hl_cell_text(emit, hl_summary_symbols(profile, module));
}

#define MODULE_TEXT(id) HL_MEMBER_CELL(struct hl_profile_module, id, text)

static const struct hl_column module_columns[] = {
	{"path", "module", HL_COLUMN_TEXT, MODULE_TEXT(path),
	 .flags = SHORTENED | HL_COLUMN_PATH | KEY},
	{"build_id", "build id", HL_COLUMN_TEXT, .cell = build_id, .flags = OMITTED},
	{"symbols", "symbols", HL_COLUMN_TEXT, .cell = symbols},
	{"reason", "remark", HL_COLUMN_TEXT, MODULE_TEXT(symbols_reason), .flags = SHORTENED},
};

/* ---- stacks ---- */

/* Room for a stack, from the root. */
struct path {
	const struct hl_profile *profile;
	char **frame_texts; /* by frame */
	const char **texts;
	struct hl_emit_frame *frames;
};

static void path_release(struct path *path)
{
	for (size_t i = 0; path->frame_texts && i < path->profile->frame_count; i++)
		free(path->frame_texts[i]);
	free(path->frame_texts);
	free(path->texts);
	free(path->frames);
}

/* The frames from the root to ${node} into ${path}; returns how many. */
static size_t path_to(const struct path *path, uint32_t node)
{
	const struct hl_profile_node *nodes = path->profile->nodes;
	size_t count = 0;

	for (uint32_t at = node; at; at = nodes[at].parent)
		count++;
	for (size_t i = count; i-- > 0; node = nodes[node].parent) {
		uint32_t frame = nodes[node].frame;
		const struct hl_keys_label label = hl_keys_frame_label(path->profile, frame);
		path->texts[i] = path->frame_texts[frame];
		path->frames[i] =
			(struct hl_emit_frame){label.name, label.module, label.file, label.line};
	}
	return count;
}

/* Instructions and the functions that they lie in, the innermost inlined one last. */
struct function_row {
	struct hl_keys_label label;
	uint64_t address;
	uint32_t inlined;
};

#define FUNCTION(name) HL_MEMBER(struct function_row, name)

static void function_place(struct hl_emit *emit, const void *at, const void *context)
{
	const struct hl_keys_label *label = at;

	if (label->file[0])
		hl_keys_cell_place(emit, label, context);
	else
		hl_cell_text(emit, "");
}

static const struct hl_column function_columns[] = {
	{"module", "module", HL_COLUMN_TEXT, FUNCTION(label.module)},
	{"address", "address", HL_COLUMN_ADDRESS, FUNCTION(address)},
	{NULL, "where", HL_COLUMN_TEXT, HL_MEMBER_CELL(struct function_row, label, function_place)},
	{"file", NULL, HL_COLUMN_TEXT, FUNCTION(label.file)},
	{"line", NULL, HL_COLUMN_COUNT, FUNCTION(label.line)},
	{"inlined", "inlined", HL_COLUMN_COUNT, FUNCTION(inlined), HL_COLUMN_BLANK_ZERO},
	{"name", "function", HL_COLUMN_TEXT, FUNCTION(label.name)},
};

struct stack_row {
	struct hl_profile_counters counters;
	int64_t inuse_bytes, inuse_objects;
	int64_t block_bytes; /* of each block, TELLS_SIZES */
	uint32_t node;
};

/* By the first figures that rows show: those of what was allocated, else in use, else the peak. */
static int heaviest_first(const void *left, const void *right)
{
	const struct stack_row *a = left, *b = right;
	const struct hl_profile_counters *x = &a->counters, *y = &b->counters;

	if (x->alloc_bytes != y->alloc_bytes)
		return x->alloc_bytes < y->alloc_bytes ? 1 : -1;
	if (x->alloc_objects != y->alloc_objects)
		return x->alloc_objects < y->alloc_objects ? 1 : -1;
	if (x->peak_bytes != y->peak_bytes)
		return x->peak_bytes < y->peak_bytes ? 1 : -1;
	return (a->node > b->node) - (a->node < b->node);
}

static void add_row(struct stack_row *rows, size_t *count, uint32_t node,
		    const struct hl_profile_counters *counters)
{
	if (!hl_profile_counters_any(counters))
		return;
	rows[(*count)++] = (struct stack_row){
		.counters = *counters,
		.inuse_bytes = counters->alloc_bytes - counters->free_bytes,
		.inuse_objects = counters->alloc_objects - counters->free_objects,
		.block_bytes = counters->alloc_objects > 0
				       ? counters->alloc_bytes / counters->alloc_objects
				       : 0,
		.node = node,
	};
}

/* A row for each stack, or, where the file tells sizes, for each size of its blocks: the heaviest first. */
static size_t make_rows(const struct hl_profile *profile, unsigned facts, struct stack_row *rows)
{
	size_t count = 0;

	if (facts & TELLS_SIZES)
		for (size_t i = 0; i < profile->size_count; i++)
			add_row(rows, &count, profile->sizes[i].node, &profile->sizes[i].counters);
	else
		for (uint32_t i = 0; i < profile->node_count; i++)
			add_row(rows, &count, i, &profile->counters[i]);
	if (count)
		qsort(rows, count, sizeof(*rows), heaviest_first);
	return count;
}

static void stack(struct hl_emit *emit, const void *node, const void *context)
{
	const struct path *path = context;

	hl_cell_stack(emit, path->texts, path_to(path, *(const uint32_t *)node));
}

static void frames(struct hl_emit *emit, const void *node, const void *context)
{
	const struct path *path = context;

	hl_cell_frames(emit, path->frames, path_to(path, *(const uint32_t *)node));
}

#define BYTES(name)   HL_COLUMN_BYTES, HL_MEMBER(struct stack_row, name)
#define OBJECTS(name) HL_COLUMN_COUNT, HL_MEMBER(struct stack_row, name)
#define NODE(cell)    HL_MEMBER_CELL(struct stack_row, node, cell)

/* Text has what was allocated and freed; where that is not known, whatever is. */
static const struct hl_column stack_columns[] = {
	{"alloc_bytes", "alloc", BYTES(counters.alloc_bytes), .shown_if = KNOWS(ALLOC, BYTES)},
	{"free_bytes", "free", BYTES(counters.free_bytes), .shown_if = KNOWS_FREED(BYTES)},
	{"alloc_objects", "allocs", OBJECTS(counters.alloc_objects),
	 .shown_if = KNOWS(ALLOC, OBJECTS)},
	{"free_objects", "frees", OBJECTS(counters.free_objects), .shown_if = KNOWS_FREED(OBJECTS)},
	{"inuse_bytes", NULL, BYTES(inuse_bytes), .shown_if = KNOWS(INUSE, BYTES)},
	{NULL, "in use", BYTES(inuse_bytes), .shown_if = ALONE(INUSE, BYTES)},
	{"inuse_objects", NULL, OBJECTS(inuse_objects), .shown_if = KNOWS(INUSE, OBJECTS)},
	{NULL, "objects", OBJECTS(inuse_objects), .shown_if = ALONE(INUSE, OBJECTS)},
	{"peak_bytes", NULL, BYTES(counters.peak_bytes), .shown_if = KNOWS(PEAK, BYTES)},
	{NULL, "peak", BYTES(counters.peak_bytes), .shown_if = ALONE(PEAK, BYTES)},
	{"peak_objects", NULL, OBJECTS(counters.peak_objects), .shown_if = KNOWS(PEAK, OBJECTS)},
	{NULL, "objects", OBJECTS(counters.peak_objects), .shown_if = ALONE(PEAK, OBJECTS)},
	{"temporary_objects", NULL, OBJECTS(counters.temporary_objects),
	 .shown_if = KNOWS(TEMPORARY, OBJECTS)},
	{NULL, "temporary", OBJECTS(counters.temporary_objects),
	 .shown_if = ALONE(TEMPORARY, OBJECTS)},
	{"slack_bytes", NULL, BYTES(counters.slack_bytes), .shown_if = KNOWS(SLACK, BYTES)},
	{NULL, "slack", BYTES(counters.slack_bytes), .shown_if = ALONE(SLACK, BYTES)},
	{"resident_bytes", NULL, BYTES(counters.resident_bytes),
	 .shown_if = KNOWS(RESIDENT, BYTES)},
	{"swapped_bytes", NULL, BYTES(counters.swapped_bytes), .shown_if = KNOWS(SWAPPED, BYTES)},
	{"block_bytes", "each", BYTES(block_bytes), .shown_if = TELLS_SIZES},
	{"stack", "stack", HL_COLUMN_STACK, NODE(stack)},
	{"frames", NULL, HL_COLUMN_FRAMES, NODE(frames)},
};

static int emit_stacks(struct hl_emit *emit, const struct hl_profile *profile, unsigned facts)
{
	size_t most = facts & TELLS_SIZES ? profile->size_count : profile->node_count;
	HL_FREED struct stack_row *rows = calloc(most, sizeof(*rows));

	HL_CLEANUP(path_release)
	struct path path = {
		.profile = profile,
		.frame_texts = calloc(profile->frame_count, sizeof(*path.frame_texts)),
		.texts = calloc(profile->node_count, sizeof(*path.texts)),
		.frames = calloc(profile->node_count, sizeof(*path.frames)),
	};

	if (!rows || !path.frame_texts || !path.texts || !path.frames)
		return -ENOMEM;
	/* "function (module+0xoffset)", as addresses lie in the module's file: enough to find the
	 * instruction again. Where there is no module, the address in the process. */
	for (uint32_t i = 1; i < profile->frame_count; i++) {
		const struct hl_profile_frame *frame = &profile->frames[i];
		const struct hl_profile_function *function = &profile->functions[frame->function];
		const char *module =
			hl_profile_text(profile, profile->modules[function->module].path);
		if (asprintf(&path.frame_texts[i], "%s (%s%s0x%" PRIx64 "%s)",
			     hl_profile_text(profile, function->name), hl_path_basename(module),
			     module[0] ? "+" : "", frame->address,
			     frame->inlined ? " inlined" : "") < 0) {
			path.frame_texts[i] = NULL;
			return -ENOMEM;
		}
	}
	hl_emit_blank(emit);
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("functions", function_columns)});
	for (uint32_t i = 1; i < profile->frame_count; i++)
		hl_table_row(emit,
			     &(struct function_row){hl_keys_frame_label(profile, i),
						    profile->frames[i].address,
						    profile->frames[i].inlined},
			     0);
	hl_table_end(emit);
	hl_emit_blank(emit);
	hl_table_begin_streamed(emit, &(struct hl_table){HL_TABLE("stacks", stack_columns),
							 .context = &path, .facts = facts});
	size_t count = make_rows(profile, facts, rows);
	for (size_t i = 0; i < count; i++)
		hl_table_row(emit, &rows[i], 0);
	hl_table_end(emit);
	return 0;
}

/* ---- all of it ---- */

int hl_info_view(const struct hl_profile *profile, const struct hl_view_options *options,
		 struct hl_error *err)
{
	const struct hl_emit_options how = {
		.out = options->out, .json = options->json, .color = options->color};
	struct hl_notices notices = {0};
	unsigned facts = facts_of(profile);
	struct hl_emit *emit;

	int r = hl_emit_open(&how, "info/1", &emit);
	if (r < 0)
		return hl_summary_fail(profile, r, err);
	hl_summary_members(emit, profile, NULL);
	hl_summary_origin(emit, profile);
	hl_emit_object(emit, "counts");
	hl_emit_integer(emit, "functions", (int64_t)profile->function_count - 1);
	hl_emit_integer(emit, "frames", (int64_t)profile->frame_count - 1);
	hl_emit_integer(emit, "nodes", (int64_t)profile->node_count - 1);
	hl_emit_integer(emit, "stacks", (int64_t)hl_summary_stack_count(profile));
	hl_emit_object_end(emit);
	recording_lines(emit, profile);
	hl_notices_of_profile(&notices, profile);
	hl_notices_emit(&notices, emit);
	if (profile->process_count)
		hl_emit_blank(emit);
	hl_table_write(emit,
		       &(struct hl_table){HL_TABLE("rows", process_columns), .context = profile,
					  .facts = facts},
		       profile->processes, profile->process_count, sizeof(*profile->processes));
	if (profile->mark_count)
		hl_emit_blank(emit);
	hl_table_write(emit,
		       &(struct hl_table){HL_TABLE("marks", mark_columns), .context = profile},
		       profile->marks, profile->mark_count, sizeof(*profile->marks));
	if (profile->module_count > 1)
		hl_emit_blank(emit);
	hl_table_write(emit,
		       &(struct hl_table){HL_TABLE("modules", module_columns), .context = profile},
		       &profile->modules[1], profile->module_count - 1, sizeof(*profile->modules));
	if (options->info.stacks && emit_stacks(emit, profile, facts) < 0)
		hl_emit_fail(emit, -ENOMEM);
	r = hl_emit_finish(emit);
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
