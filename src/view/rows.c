/* SPDX-License-Identifier: BSD-2-Clause */
/* What frames have in common, and sums by that, without what is nothing, sorted; see rows.h. */
#include "view/rows.h"

#include "base/cleanup.h"
#include "base/names.h"
#include "guests/traits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- keys: what frames have in common ---- */

const char *const hl_keys_by_names[] = {
	[HL_VIEW_BY_FUNCTION] = "function", [HL_VIEW_BY_LINE] = "line",
	[HL_VIEW_BY_ADDRESS] = "address",   [HL_VIEW_BY_MODULE] = "module",
	[HL_VIEW_BY_THREAD] = "thread",	    [HL_VIEW_BY_TYPE] = "type",
	[HL_VIEW_BY_SERVICE] = "service",   [HL_VIEW_BY_STACK] = "stack",
	[HL_VIEW_BY_TOTAL] = "total",
};

/* Frames with equal identities share a key. */
struct identity {
	uint64_t a, b;
};

#define NO_LINE (UINT64_C(1) << 32) /* beside a function instead of a line's number */

#define BY_LINE_OF_FUNCTION HL_VIEW_BY_TOTAL /* instead of what no frame has */

static struct identity identity_of(const struct hl_profile *profile,
				   const struct hl_profile_frame *frame, enum hl_view_key by)
{
	uint64_t function = frame->function;
	uint32_t module = profile->functions[frame->function].module;

	switch (by) {
	case HL_VIEW_BY_LINE:
		return frame->file ? (struct identity){frame->file, frame->line}
				   : (struct identity){function, NO_LINE};
	case HL_VIEW_BY_ADDRESS:
		/* The functions that are inlined at one address share it; names without an address
		 * do not, and without a module a pseudo frame may have the number of one. */
		return frame->address
			       ? (struct identity){module ? module : function << 32, frame->address}
			       : (struct identity){function << 32 | frame->line, 0};
	case HL_VIEW_BY_MODULE:
		return (struct identity){module, 0};
	case BY_LINE_OF_FUNCTION:
		return (struct identity){function, (uint64_t)frame->file << 32 | frame->line};
	default:
		return (struct identity){function, 0};
	}
}

/* Gives each frame the key of its identity. 0 or -ENOMEM. */
static int intern(struct hl_keys *keys, const struct hl_profile *profile, enum hl_view_key by)
{
	const struct hl_profile_frame *frames = profile->frames;
	HL_CLEANUP(hl_index_release) struct hl_index index = {0};

	keys->count = 1;
	keys->of_frame = calloc(profile->frame_count + 1, sizeof(*keys->of_frame));
	keys->frames = calloc(profile->frame_count + 1, sizeof(*keys->frames));
	if (!keys->of_frame || !keys->frames)
		return -ENOMEM;
	for (uint32_t id = 1; id < profile->frame_count; id++) {
		struct identity wanted = identity_of(profile, &frames[id], by), found;
		uint32_t hash = hl_hash_pair(wanted.a, wanted.b), at = hash, key;
		while ((key = hl_index_next(&index, hash, &at))) {
			found = identity_of(profile, &frames[keys->frames[key]], by);
			if (found.a == wanted.a && found.b == wanted.b)
				break;
		}
		if (!key) {
			key = (uint32_t)keys->count++;
			keys->frames[key] = id;
			if (hl_index_add(&index, hash, key) < 0)
				return -ENOMEM;
		} else if (by == HL_VIEW_BY_ADDRESS) {
			/* Inner frames come last: of an address, they say most exactly where. */
			keys->frames[key] = id;
		}
		keys->of_frame[id] = key;
	}
	return 0;
}

/* Gives each function that is not ${decided} the heaviest of its lines by ${counters}, each line the heaviest of the
 * functions on it: by what they allocated themselves, where ${flat} and there is any, else with what they call. */
static int choose_lines_by(struct hl_keys *keys, const struct hl_keys *lines,
			   const struct hl_profile *profile,
			   const struct hl_profile_counters *counters, enum hl_value value,
			   enum hl_unit unit, bool flat, bool *decided)
{
	struct line {
		int64_t flat, cum;
	};
	HL_FREED int64_t *sums = calloc(profile->node_count, sizeof(*sums));
	HL_FREED int64_t *flat_sums = calloc(keys->count, sizeof(*flat_sums));
	HL_FREED int64_t *heaviest = calloc(keys->count, sizeof(*heaviest));
	HL_FREED struct line *of_line = calloc(lines->count, sizeof(*of_line));

	if (!sums || !flat_sums || !heaviest || !of_line)
		return -ENOMEM;
	for (size_t i = profile->node_count; i-- > 1;) {
		uint32_t frame = profile->nodes[i].frame;
		struct line *line = &of_line[lines->of_frame[frame]];
		int64_t own = hl_profile_figure(&counters[i], value, unit);
		sums[i] += own;
		sums[profile->nodes[i].parent] += sums[i];
		line->flat += own;
		line->cum += sums[i];
		flat_sums[keys->of_frame[frame]] += flat ? own : 0;
	}
	/* Of equal ones the last in the profile wins. */
	for (size_t i = profile->node_count; i-- > 1;) {
		uint32_t frame = profile->nodes[i].frame, key = keys->of_frame[frame];
		uint32_t line = lines->of_frame[frame];
		int64_t figure = flat_sums[key] > 0 ? of_line[line].flat : of_line[line].cum;
		if (decided[key] || !figure ||
		    (heaviest[key] && line == lines->of_frame[keys->frames[key]]))
			continue;
		keys->several[key] |= heaviest[key] != 0;
		if (figure > heaviest[key]) {
			heaviest[key] = figure;
			keys->frames[key] = frame;
		}
	}
	for (size_t key = 0; key < keys->count; key++)
		decided[key] |= heaviest[key] != 0;
	return 0;
}

/* When two profiles are compared, the later one decides, except for functions that only the earlier one has. */
static int choose_lines(struct hl_keys *keys, const struct hl_profile *profile, enum hl_value value,
			enum hl_unit unit, bool flat)
{
	HL_CLEANUP(hl_keys_release) struct hl_keys lines = {0};
	HL_FREED bool *decided = calloc(keys->count, sizeof(*decided));

	keys->several = calloc(keys->count, sizeof(*keys->several));
	if (!decided || !keys->several || intern(&lines, profile, BY_LINE_OF_FUNCTION) < 0)
		return -ENOMEM;
	int r = choose_lines_by(keys, &lines, profile, profile->counters, value, unit, flat,
				decided);
	if (r == 0 && profile->base)
		r = choose_lines_by(keys, &lines, profile, profile->base, value, unit, flat,
				    decided);
	return r;
}

int hl_keys_init(struct hl_keys *keys, const struct hl_profile *profile, enum hl_view_key by,
		 enum hl_value value, enum hl_unit unit, bool flat)
{
	*keys = (struct hl_keys){.count = 1, .by = by};
	if (by == HL_VIEW_BY_STACK) {
		int r = hl_calltree_init(&keys->tree, profile, value, unit);
		keys->count = keys->tree.count;
		return r;
	}
	if (by == HL_VIEW_BY_THREAD || by == HL_VIEW_BY_TOTAL)
		return -EINVAL;
	int r = intern(keys, profile, by);
	if (r == 0 && (by == HL_VIEW_BY_FUNCTION || by == HL_VIEW_BY_LINE))
		r = choose_lines(keys, profile, value, unit, flat);
	if (r < 0)
		hl_keys_release(keys);
	return r;
}

void hl_keys_release(struct hl_keys *keys)
{
	free(keys->of_frame);
	free(keys->frames);
	free(keys->several);
	hl_calltree_release(&keys->tree);
	*keys = (struct hl_keys){0};
}

/* ---- words of keys ---- */

static const struct hl_keys_label no_stack = {.name = HL_KEYS_NO_STACK, .file = "", .module = ""};
static const struct hl_keys_label no_type = {.name = "[no type]", .file = "", .module = ""};
static const struct hl_keys_label no_service = {.name = "[no service]", .file = "", .module = ""};

/* That of a guest with frames in ${profile}, or else of the first that has one. */
const char *hl_keys_types_advice(const struct hl_profile *profile)
{
	const char *advice = NULL;

	for (size_t i = 0; hl_guest_traits[i]; i++) {
		const struct hl_guest_traits *guest = hl_guest_traits[i];
		const char *reason = profile->no_scripts && guest->no_scripts_reason
					     ? guest->no_scripts_reason
					     : guest->no_types_reason;
		if (reason && (!advice || hl_profile_has_runtime(profile, guest->providers[0])))
			advice = reason;
	}
	return advice ? advice : "heapline was built without the runtimes that have types";
}

struct hl_keys_label hl_keys_label(const struct hl_keys *keys, const struct hl_profile *profile,
				   uint32_t key)
{
	if (keys->by == HL_VIEW_BY_STACK)
		return hl_keys_node_label(profile, &keys->tree.nodes[key]);
	if (!key)
		return keys->by == HL_VIEW_BY_TYPE	? no_type
		       : keys->by == HL_VIEW_BY_SERVICE ? no_service
							: no_stack;
	struct hl_keys_label label = hl_keys_frame_label(profile, keys->frames[key]);
	if (keys->by == HL_VIEW_BY_MODULE)
		return (struct hl_keys_label){
			.name = label.module[0] ? label.module : "[no module]",
			.file = "",
			.module = label.module,
		};
	label.several_lines = keys->by == HL_VIEW_BY_FUNCTION && keys->several[key];
	label.address =
		keys->by == HL_VIEW_BY_ADDRESS ? profile->frames[keys->frames[key]].address : 0;
	return label;
}

struct hl_keys_label hl_keys_frame_label(const struct hl_profile *profile, uint32_t id)
{
	const struct hl_profile_frame *frame = &profile->frames[id];
	const struct hl_profile_function *function = &profile->functions[frame->function];

	struct hl_keys_label label = {
		.name = hl_profile_text(profile, function->name),
		.file = hl_profile_text(profile, frame->file),
		.line = frame->line,
		.module = hl_profile_text(profile, profile->modules[function->module].path),
	};
	if (profile->modules[function->module].script)
		label.source = hl_profile_text(profile, function->file);
	if (function->label != function->name && function->file == frame->file)
		/* The label is "NAME (END OF FILE)". */
		label.telling_file = label.file + strlen(label.file) + strlen(label.name) +
				     strlen(" ()") -
				     strlen(hl_profile_text(profile, function->label));
	return label;
}

struct hl_keys_label hl_keys_node_label(const struct hl_profile *profile,
					const struct hl_calltree_node *node)
{
	if (!node->depth)
		return no_stack;
	struct hl_keys_label label = hl_keys_frame_label(profile, node->frame);
	label.several_lines = node->several_lines;
	return label;
}

const char *hl_keys_place(const struct hl_keys_label *label, char *buffer, size_t size)
{
	const char *file =
		label->telling_file ? label->telling_file : hl_path_basename(label->file);

	if (!label->file[0])
		return hl_path_basename(label->module);
	if (!label->line) /* which some files of other tools do not say */
		return file;
	snprintf(buffer, size, "%s:%u%s", file, label->line, label->several_lines ? ",..." : "");
	return buffer;
}

void hl_keys_cell_place(struct hl_emit *emit, const void *label, const void *context)
{
	char text[256];

	(void)context;
	hl_cell_text(emit, hl_keys_place(label, text, sizeof(text)));
}

bool hl_keys_names_module(const struct hl_keys_label *label)
{
	const char *module = hl_path_basename(label->module);
	size_t length = strlen(module);

	return !strncmp(label->name, module, length) && label->name[length] == '+';
}

/* ---- rows ---- */

#define HEAVY_SHARE 10 /* a row from a tenth of the total on stands out */

static bool compares(const struct hl_view_options *options)
{
	return options->sort == HL_VIEW_SORT_GROWTH || options->sort == HL_VIEW_SORT_SIZE;
}

/* ---- order ---- */

static int heavier_first(int64_t a, int64_t b)
{
	return (a < b) - (a > b);
}

static int compare_figures(struct hl_aggregate_figures a, struct hl_aggregate_figures b,
			   enum hl_unit unit)
{
	int bytes = heavier_first(a.bytes, b.bytes), objects = heavier_first(a.objects, b.objects);

	if (unit == HL_UNIT_BYTES)
		return bytes ? bytes : objects;
	return objects ? objects : bytes;
}

/* The larger of before and after, in each unit. */
static struct hl_aggregate_figures size_of(const struct hl_row *row)
{
	return (struct hl_aggregate_figures){
		row->before.bytes > row->flat.bytes ? row->before.bytes : row->flat.bytes,
		row->before.objects > row->flat.objects ? row->before.objects : row->flat.objects,
	};
}

static int by_weight(const void *left, const void *right, void *context)
{
	const struct hl_row *a = left, *b = right;
	const struct hl_view_options *options = context;
	int flat = compare_figures(a->flat, b->flat, options->unit);
	int cum = compare_figures(a->cum, b->cum, options->unit), order;

	if (options->sort == HL_VIEW_SORT_GROWTH)
		order = compare_figures(a->delta, b->delta, options->unit);
	else if (options->sort == HL_VIEW_SORT_SIZE)
		order = compare_figures(size_of(a), size_of(b), options->unit);
	else if (options->sort == HL_VIEW_SORT_CUM)
		order = cum ? cum : flat;
	else
		order = a->leaf != b->leaf ? (a->leaf ? -1 : 1) : flat ? flat : cum;
	if (!order)
		order = strcmp(a->label.name, b->label.name);
	if (!order)
		order = strcmp(a->label.file, b->label.file);
	if (!order)
		order = (a->label.line > b->label.line) - (a->label.line < b->label.line);
	return order ? order : (a->id > b->id) - (a->id < b->id);
}

/* ---- by frames or stacks ---- */

/* Sums by key what was allocated there and in what it called, and marks where stacks with any of
 * the value end. */
static int sum_flat_and_cum(struct hl_rows *rows, const struct hl_profile *profile,
			    enum hl_value value, bool freed)
{
	struct hl_aggregate sums = {0};

	int r = hl_aggregate_init(&sums, profile, value, rows->keys.of_frame, rows->keys.count);
	if (r < 0)
		return r;
	for (uint32_t key = 1; key < rows->keys.count; key++) {
		rows->rows[key].flat = sums.flat[key];
		rows->rows[key].cum = sums.cum[key];
	}
	rows->total = sums.total;
	hl_aggregate_release(&sums);
	/* What was allocated with no frame at all: the root's own. */
	rows->rows[0].flat = rows->rows[0].cum =
		hl_aggregate_figures_of(&profile->counters[0], value);
	rows->rows[0].leaf = true;
	for (uint32_t i = 1; i < profile->node_count; i++)
		if (hl_aggregate_any(hl_aggregate_figures_of(&profile->counters[i], value)) ||
		    (freed && profile->counters[i].alloc_objects))
			rows->rows[hl_keys_of_node(&rows->keys, profile, i)].leaf = true;
	return 0;
}

static int collect_keys(struct hl_rows *rows, const struct hl_profile *profile,
			const struct hl_view_options *options)
{
	if (options->by == HL_VIEW_BY_STACK && !compares(options))
		return -EINVAL; /* a whole stack has no flat and cum */
	int r = hl_keys_init(&rows->keys, profile, options->by, options->value, options->unit,
			     options->sort != HL_VIEW_SORT_CUM);
	if (r < 0)
		return r;
	rows->rows = calloc(rows->keys.count, sizeof(*rows->rows));
	if (!rows->rows)
		return -ENOMEM;
	if (!compares(options))
		r = sum_flat_and_cum(rows, profile, options->value, options->lines.freed);
	for (uint32_t i = 0; compares(options) && i < profile->node_count; i++) {
		struct hl_row *row = &rows->rows[hl_keys_of_node(&rows->keys, profile, i)];
		struct hl_aggregate_figures before =
			hl_aggregate_figures_of(&profile->base[i], options->value);
		struct hl_aggregate_figures after =
			hl_aggregate_figures_of(&profile->counters[i], options->value);
		hl_aggregate_add(&row->before, before);
		hl_aggregate_add(&row->flat, after);
		hl_aggregate_add(&rows->before, before);
		hl_aggregate_add(&rows->total, after);
	}
	for (uint32_t key = 0; r == 0 && key < rows->keys.count; key++) {
		struct hl_row row = rows->rows[key];
		row.delta = hl_aggregate_difference(row.before, row.flat);
		if (compares(options) ? !hl_aggregate_any(row.delta)
				      : !hl_aggregate_any(row.flat) && !hl_aggregate_any(row.cum) &&
						!(options->lines.freed && row.leaf))
			continue;
		row.id = key;
		row.label = hl_keys_label(&rows->keys, profile, key);
		rows->rows[rows->count++] = row;
	}
	return r;
}

/* ---- by threads ---- */

static int collect_threads(struct hl_rows *rows, const struct hl_profile *profile,
			   enum hl_value value)
{
	rows->rows = calloc(profile->thread_count + 1, sizeof(*rows->rows));
	if (!rows->rows)
		return -ENOMEM;
	for (uint32_t i = 0; i < profile->thread_count; i++) {
		const struct hl_profile_thread *thread = &profile->threads[i];
		struct hl_aggregate_figures own = hl_aggregate_figures_of(&thread->total, value);
		if (hl_aggregate_any(own))
			rows->rows[rows->count++] = (struct hl_row){
				.label = {.name = hl_profile_text(profile, thread->name),
					  .file = "",
					  .module = ""},
				.id = i,
				.flat = own,
				.cum = own,
				.leaf = true};
	}
	rows->total = hl_aggregate_figures_of(&profile->total, value);
	return 0;
}

/* ---- all of it ---- */

int hl_rows_init(struct hl_rows *rows, const struct hl_profile *profile,
		 const struct hl_view_options *options)
{
	struct hl_view_options order = *options; /* qsort_r() wants what it may change */

	*rows = (struct hl_rows){0};
	int r = options->by == HL_VIEW_BY_THREAD ? collect_threads(rows, profile, options->value)
						 : collect_keys(rows, profile, options);
	if (r < 0) {
		hl_rows_release(rows);
		return r;
	}
	qsort_r(rows->rows, rows->count, sizeof(*rows->rows), by_weight, &order);
	rows->shrunk_from = rows->count;
	while (options->sort == HL_VIEW_SORT_GROWTH && rows->shrunk_from &&
	       hl_aggregate_figure(rows->rows[rows->shrunk_from - 1].delta, options->unit) < 0)
		rows->shrunk_from--;
	return 0;
}

void hl_rows_release(struct hl_rows *rows)
{
	hl_keys_release(&rows->keys);
	free(rows->rows);
	*rows = (struct hl_rows){0};
}

unsigned hl_rows_emphasis(size_t rank, int64_t figure, int64_t whole)
{
	unsigned emphasis = 0;

	if (rank < HL_ROWS_HEAVIEST && figure > 0)
		emphasis |= HL_EMIT_HEAVIEST;
	if (whole > 0 && figure > (whole - 1) / HEAVY_SHARE)
		emphasis |= HL_EMIT_HEAVY;
	return emphasis;
}
