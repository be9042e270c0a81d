/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heapline export --format firefox: version 55 of the processed profile of https://profiler.firefox.com, which later ones of it
 * upgrade. One thread stands for all processes: its samples are the value that was chosen, its native allocations what was allocated and freed; a log becomes counters.
 */
#include "base/cleanup.h"
#include "view/emit.h"
#include "view/export/stack_table.h"
#include "view/rows.h"
#include "view/summary.h"

#include <errno.h>
#include <stdlib.h>

#define PROCESSED_VERSION 55
#define GECKO_VERSION	  31
#define NS_PER_MS	  1000000
#define UNKNOWN		  (-1)

struct exporter {
	struct hl_json json;
	const struct hl_profile *profile;
	const struct hl_view_options *options;
	const struct hl_stack_table *table;
	uint32_t
		*text_of; /* by string id: index in stringArray, 0: none; [0] is HL_KEYS_NO_STACK */
	uint32_t *func_of; /* by string id of a name: index of the function; 0 is that of frame 0 */
	uint32_t *funcs;   /* by function: a frame of it */
	uint32_t text_count, func_count;
};

/* ---- columns ---- */

static void constant_column(struct hl_json *json, const char *key, size_t count, int64_t number)
{
	hl_json_open(json, key, '[');
	for (size_t i = 0; i < count; i++)
		hl_json_integer(json, NULL, number);
	hl_json_close(json, ']');
}

static void null_column(struct hl_json *json, const char *key, size_t count)
{
	hl_json_open(json, key, '[');
	for (size_t i = 0; i < count; i++)
		hl_json_null(json, NULL);
	hl_json_close(json, ']');
}

static void empty_table(struct hl_json *json, const char *key, const char *const *columns)
{
	hl_json_open(json, key, '{');
	for (; *columns; columns++)
		null_column(json, *columns, 0);
	hl_json_integer(json, "length", 0);
	hl_json_close(json, '}');
}

/* ---- names ---- */

/* The strings in the order in which frames first have them. */
static void put_texts(struct exporter *exporter)
{
	struct hl_json *json = &exporter->json;

	hl_json_open(json, "stringArray", '[');
	hl_json_text(json, NULL, HL_KEYS_NO_STACK);
	exporter->text_count = 1;
	for (size_t i = 1; i < exporter->table->frame_count; i++) {
		const uint32_t ids[] = {exporter->table->frames[i].name,
					exporter->table->frames[i].file};
		for (size_t k = 0; k < HL_COUNT_OF(ids); k++) {
			if (!ids[k] || exporter->text_of[ids[k]])
				continue;
			exporter->text_of[ids[k]] = exporter->text_count++;
			hl_json_text(json, NULL, hl_profile_text(exporter->profile, ids[k]));
		}
	}
	hl_json_close(json, ']');
}

static void find_funcs(struct exporter *exporter)
{
	exporter->func_count = 1;
	for (uint32_t i = 1; i < exporter->table->frame_count; i++) {
		uint32_t *func = &exporter->func_of[exporter->table->frames[i].name];
		if (*func)
			continue;
		exporter->funcs[exporter->func_count] = i;
		*func = exporter->func_count++;
	}
}

static void put_funcs(struct exporter *exporter)
{
	struct hl_json *json = &exporter->json;
	const struct hl_export_frame *frames = exporter->table->frames;
	size_t count = exporter->func_count;

	hl_json_open(json, "funcTable", '{');
	hl_json_open(json, "name", '[');
	for (size_t i = 0; i < count; i++)
		hl_json_integer(json, NULL, exporter->text_of[frames[exporter->funcs[i]].name]);
	hl_json_close(json, ']');
	hl_json_open(json, "fileName", '[');
	for (size_t i = 0; i < count; i++)
		if (frames[exporter->funcs[i]].file)
			hl_json_integer(json, NULL,
					exporter->text_of[frames[exporter->funcs[i]].file]);
		else
			hl_json_null(json, NULL);
	hl_json_close(json, ']');
	for (int column = 0; column < 2; column++) {
		hl_json_open(json, column ? "relevantForJS" : "isJS", '[');
		for (size_t i = 0; i < count; i++)
			hl_json_boolean(json, NULL, false);
		hl_json_close(json, ']');
	}
	constant_column(json, "resource", count, UNKNOWN);
	null_column(json, "lineNumber", count);
	null_column(json, "columnNumber", count);
	hl_json_integer(json, "length", (int64_t)count);
	hl_json_close(json, '}');
}

static void put_frames(struct exporter *exporter)
{
	struct hl_json *json = &exporter->json;
	const struct hl_stack_table *table = exporter->table;
	size_t count = table->frame_count;

	hl_json_open(json, "frameTable", '{');
	hl_json_open(json, "func", '[');
	for (size_t i = 0; i < count; i++)
		hl_json_integer(json, NULL, exporter->func_of[table->frames[i].name]);
	hl_json_close(json, ']');
	hl_json_open(json, "line", '[');
	for (size_t i = 0; i < count; i++)
		if (table->frames[i].line)
			hl_json_integer(json, NULL, table->frames[i].line);
		else
			hl_json_null(json, NULL);
	hl_json_close(json, ']');
	constant_column(json, "address", count, UNKNOWN);
	constant_column(json, "inlineDepth", count, 0);
	constant_column(json, "category", count, 0);
	constant_column(json, "subcategory", count, 0);
	null_column(json, "nativeSymbol", count);
	constant_column(json, "innerWindowID", count, 0);
	null_column(json, "column", count);
	hl_json_integer(json, "length", (int64_t)count);
	hl_json_close(json, '}');
}

/* A stack for each node of the tree, under its number. */
static void put_stacks(struct exporter *exporter)
{
	struct hl_json *json = &exporter->json;
	const struct hl_calltree *tree = &exporter->table->tree;

	hl_json_open(json, "stackTable", '{');
	hl_json_open(json, "frame", '[');
	for (size_t i = 0; i < tree->count; i++)
		hl_json_integer(json, NULL, exporter->table->frame_of[i]);
	hl_json_close(json, ']');
	hl_json_open(json, "prefix", '[');
	for (size_t i = 0; i < tree->count; i++)
		if (tree->nodes[i].parent)
			hl_json_integer(json, NULL, tree->nodes[i].parent);
		else
			hl_json_null(json, NULL);
	hl_json_close(json, ']');
	hl_json_integer(json, "length", (int64_t)tree->count);
	hl_json_close(json, '}');
}

/* ---- figures ---- */

enum part { PART_CHOSEN, PART_ALLOCATED, PART_FREED };

static int64_t weight_of(const struct exporter *exporter, enum part part, size_t node)
{
	const struct hl_stack_table *table = exporter->table;
	const struct hl_profile *profile = exporter->profile;

	if (part == PART_CHOSEN)
		return hl_stack_table_figure(table, profile, node, exporter->options->value,
					     exporter->options->unit);
	int64_t allocated = hl_stack_table_allocated(table, profile, node, HL_UNIT_BYTES);
	return part == PART_ALLOCATED ? allocated
				      : hl_stack_table_figure(table, profile, node, HL_VALUE_INUSE,
							      HL_UNIT_BYTES) -
						allocated;
}

static size_t put_weights(struct exporter *exporter, const char *key, const enum part *parts,
			  size_t part_count, bool is_stack)
{
	size_t count = 0;

	hl_json_open(&exporter->json, key, '[');
	for (size_t k = 0; k < part_count; k++)
		for (size_t i = 0; i < exporter->table->tree.count; i++) {
			int64_t weight = weight_of(exporter, parts[k], i);
			if (!weight)
				continue;
			hl_json_integer(&exporter->json, NULL, is_stack ? (int64_t)i : weight);
			count++;
		}
	hl_json_close(&exporter->json, ']');
	return count;
}

/* Figures have no time of their own; the viewer wants some: from the beginning to the end. */
static void put_times(struct exporter *exporter, size_t count)
{
	uint64_t length_ms = exporter->profile->duration_ns / NS_PER_MS;

	if (length_ms < count)
		length_ms = count;
	hl_json_open(&exporter->json, "time", '[');
	for (size_t i = 0; i < count; i++)
		hl_json_integer(&exporter->json, NULL, (int64_t)(length_ms * i / count));
	hl_json_close(&exporter->json, ']');
}

static void put_samples(struct exporter *exporter, const char *key, const char *type,
			const enum part *parts, size_t part_count)
{
	struct hl_json *json = &exporter->json;

	hl_json_open(json, key, '{');
	put_weights(exporter, "stack", parts, part_count, true);
	size_t count = put_weights(exporter, "weight", parts, part_count, false);
	put_times(exporter, count);
	hl_json_text(json, "weightType", type);
	hl_json_integer(json, "length", (int64_t)count);
	hl_json_close(json, '}');
}

static int64_t point_figure(const struct hl_log_point *point, bool is_rss)
{
	return is_rss ? (int64_t)point->rss_bytes : point->max_bytes;
}

/* The viewer adds changes up. */
static void put_counter(struct exporter *exporter, const char *pid, const char *name, bool is_rss)
{
	const struct hl_history *history = exporter->options->report.history;
	struct hl_json *json = &exporter->json;
	int64_t before = 0;

	hl_json_open(json, NULL, '{');
	hl_json_text(json, "name", name);
	hl_json_text(json, "category", "Memory");
	hl_json_text(json, "description", is_rss ? "resident set" : "allocated and not freed");
	hl_json_text(json, "pid", pid);
	hl_json_integer(json, "mainThreadIndex", 0);
	hl_json_open(json, "samples", '{');
	hl_json_open(json, "time", '[');
	for (size_t i = 0; i < history->point_count; i++)
		hl_json_integer(json, NULL, (int64_t)hl_history_head_ms(&history->points[i]));
	hl_json_close(json, ']');
	hl_json_open(json, "count", '[');
	for (size_t i = 0; i < history->point_count; i++) {
		int64_t figure = point_figure(&history->points[i], is_rss);
		hl_json_integer(json, NULL, figure - before);
		before = figure;
	}
	hl_json_close(json, ']');
	hl_json_integer(json, "length", (int64_t)history->point_count);
	hl_json_close(json, '}');
	hl_json_close(json, '}');
}

/* ---- the file ---- */

static void put_meta(struct exporter *exporter)
{
	const struct hl_profile *profile = exporter->profile;
	struct hl_json *json = &exporter->json;

	hl_json_open(json, "meta", '{');
	hl_json_integer(json, "interval", 1);
	hl_json_integer(json, "startTime", (int64_t)(profile->start_realtime_ns / NS_PER_MS));
	hl_json_integer(json, "processType", 0);
	hl_json_text(json, "product", hl_profile_text(profile, profile->command));
	hl_json_text(json, "importedFrom", "heapline " HL_VERSION);
	hl_json_integer(json, "stackwalk", 1);
	hl_json_integer(json, "version", GECKO_VERSION);
	hl_json_integer(json, "preprocessedProfileVersion", PROCESSED_VERSION);
	hl_json_boolean(json, "symbolicated", true);
	hl_json_boolean(json, "usesOnlyOneStackType", true);
	hl_json_boolean(json, "sourceCodeIsNotOnSearchfox", true);
	hl_json_open(json, "markerSchema", '[');
	hl_json_close(json, ']');
	hl_json_open(json, "categories", '[');
	hl_json_open(json, NULL, '{');
	hl_json_text(json, "name", "Other");
	hl_json_text(json, "color", "grey");
	hl_json_open(json, "subcategories", '[');
	hl_json_text(json, NULL, "Other");
	hl_json_close(json, ']');
	hl_json_close(json, '}');
	hl_json_close(json, ']');
	hl_json_close(json, '}');
}

static void put_thread(struct exporter *exporter, const char *pid)
{
	static const char *const resources[] = {"lib", "name", "host", "type", NULL};
	static const char *const symbols[] = {"libIndex", "address", "name", "functionSize", NULL};
	static const char *const markers[] = {"data",  "name",	   "startTime", "endTime",
					      "phase", "category", NULL};
	static const enum part chosen[] = {PART_CHOSEN}, both[] = {PART_ALLOCATED, PART_FREED};
	const struct hl_profile *profile = exporter->profile;
	struct hl_json *json = &exporter->json;
	char name[64];

	snprintf(name, sizeof(name), "%s %s", hl_value_words[exporter->options->value],
		 hl_unit_names[exporter->options->unit]);
	hl_json_open(json, NULL, '{');
	hl_json_text(json, "processType", "default");
	hl_json_integer(json, "processStartupTime", 0);
	hl_json_integer(json, "processShutdownTime", (int64_t)(profile->duration_ns / NS_PER_MS));
	hl_json_integer(json, "registerTime", 0);
	hl_json_null(json, "unregisterTime");
	null_column(json, "pausedRanges", 0);
	hl_json_text(json, "name", name);
	hl_json_boolean(json, "isMainThread", true);
	hl_json_text(json, "processName", hl_profile_text(profile, profile->command));
	hl_json_text(json, "pid", pid);
	hl_json_text(json, "tid", pid);
	bool is_bytes = exporter->options->unit == HL_UNIT_BYTES;
	put_samples(exporter, "samples", is_bytes ? "bytes" : "samples", chosen, 1);
	put_samples(exporter, "nativeAllocations", "bytes", both, HL_COUNT_OF(both));
	empty_table(json, "markers", markers);
	put_texts(exporter);
	find_funcs(exporter);
	put_stacks(exporter);
	put_frames(exporter);
	put_funcs(exporter);
	empty_table(json, "resourceTable", resources);
	empty_table(json, "nativeSymbols", symbols);
	hl_json_close(json, '}');
}

static int put_file(struct exporter *exporter)
{
	const struct hl_profile *profile = exporter->profile;
	struct hl_json *json = &exporter->json;
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", profile->process_count ? profile->processes[0].pid : 0);
	hl_json_open(json, NULL, '{');
	put_meta(exporter);
	null_column(json, "libs", 0);
	null_column(json, "pages", 0);
	hl_json_open(json, "threads", '[');
	put_thread(exporter, pid);
	hl_json_close(json, ']');
	hl_json_open(json, "counters", '[');
	if (exporter->options->report.history) {
		put_counter(exporter, pid, "in use", false);
		put_counter(exporter, pid, "Rss", true);
	}
	hl_json_close(json, ']');
	hl_json_close(json, '}');
	return ferror(exporter->options->out) ? -EIO : 0;
}

int hl_firefox_view(const struct hl_profile *profile, const struct hl_view_options *options,
		    struct hl_error *err)
{
	HL_CLEANUP(hl_stack_table_release) struct hl_stack_table table = {0};

	int r = hl_stack_table_init(&table, profile, options);
	HL_FREED uint32_t *text_of = calloc(profile->strings.count + 1, sizeof(*text_of));
	HL_FREED uint32_t *func_of = calloc(profile->strings.count + 1, sizeof(*func_of));
	HL_FREED uint32_t *funcs = calloc(table.frame_count + 1, sizeof(*funcs));
	if (r == 0 && !(text_of && func_of && funcs))
		r = -ENOMEM;
	if (r == 0)
		r = put_file(&(struct exporter){.json = {.out = options->out},
						.profile = profile,
						.options = options,
						.table = &table,
						.text_of = text_of,
						.func_of = func_of,
						.funcs = funcs});
	if (r == 0)
		r = hl_summary_note(profile, options);
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
