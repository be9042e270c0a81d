/* SPDX-License-Identifier: BSD-2-Clause */
/* Stacks as names, in one line or several; and the reports of heapline stacks, pgfault and page-events, heaviest first. */
#include "view/rows.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "profile/profile.h"
#include "view/format.h"
#include "view/summary.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the stack of a node ---- */

#define FRAMES_SHOWN 4	 /* of a shortened stack, from its leaf */
#define TABLE_MAX    256 /* each stack is compared with each */

int hl_stack_path_init(struct hl_stack_path *path, const struct hl_profile *profile,
		       const struct hl_calltree *tree)
{
	*path = (struct hl_stack_path){
		.profile = profile,
		.tree = tree,
		.names = calloc((size_t)tree->depth_max + 1, sizeof(*path->names)),
		.labels = calloc((size_t)tree->depth_max + 1, sizeof(*path->labels)),
		.frames = calloc((size_t)tree->depth_max + 1, sizeof(*path->frames)),
	};
	return path->names && path->labels && path->frames ? 0 : -ENOMEM;
}

void hl_stack_path_release(struct hl_stack_path *path)
{
	free(path->names);
	free(path->labels);
	free(path->frames);
	free(path->table);
	*path = (struct hl_stack_path){0};
}

size_t hl_stack_path_fill(const struct hl_stack_path *path, uint32_t node)
{
	const struct hl_profile_node *nodes = path->profile->nodes;
	size_t depth = path->tree->nodes[node].depth;
	uint32_t at = path->tree->heaviest[node];

	for (size_t i = depth; i-- > 0; at = nodes[at].parent) {
		const struct hl_profile_frame *frame = &path->profile->frames[nodes[at].frame];
		const struct hl_keys_label label =
			hl_keys_frame_label(path->profile, nodes[at].frame);
		path->names[i] = hl_profile_text(path->profile,
						 path->profile->functions[frame->function].label);
		path->labels[i] = label;
		path->frames[i] =
			(struct hl_emit_frame){label.name, label.module, label.file, label.line};
	}
	return depth;
}

/* ---- in one line ---- */

void hl_stack_path_begin_table(struct hl_stack_path *path)
{
	path->table_count = 0;
}

int hl_stack_path_add(struct hl_stack_path *path, uint32_t node)
{
	if (path->table_count == TABLE_MAX)
		return 0;
	return HL_ARRAY_APPEND(path->table, path->table_count, path->table_capacity, node);
}

/* The frame that tells the stack from the others of the table; counted from the leaf, which is 0.
 */
static uint32_t telling_frame(const struct hl_stack_path *path, uint32_t node)
{
	const struct hl_calltree_node *nodes = path->tree->nodes;
	uint32_t most = 0;

	for (size_t i = 0; i < path->table_count; i++) {
		uint32_t a = node, b = path->table[i], shared = 0;
		if (a == b)
			continue;
		for (; a && b && nodes[a].name == nodes[b].name; shared++) {
			a = nodes[a].parent;
			b = nodes[b].parent;
		}
		if (shared > most)
			most = shared;
	}
	return most;
}

char *hl_stack_path_line(const struct hl_stack_path *path, uint32_t node)
{
	const struct hl_calltree_node *nodes = path->tree->nodes;
	uint32_t telling = path->full ? 0 : telling_frame(path, node), at = 0, next = 0;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	for (; node; node = nodes[node].parent, at++) {
		if (!path->full && at >= FRAMES_SHOWN && at != telling)
			continue;
		fprintf(out, "%s%s%s", next < at ? " < ..." : "", at ? " < " : "",
			hl_profile_text(path->profile, nodes[node].name));
		next = at + 1;
	}
	if (next < at)
		fputs(" < ...", out);
	if (!at)
		fputs(HL_KEYS_NO_STACK, out);
	if (fclose(out) == 0)
		return text;
	free(text);
	return NULL;
}

/* ---- cells ---- */

void hl_stack_path_cell_line(struct hl_emit *emit, const void *node, const void *path)
{
	char *line = hl_stack_path_line(path, *(const uint32_t *)node);

	if (line)
		hl_cell_text(emit, line);
	else
		hl_emit_fail(emit, -ENOMEM);
	free(line);
}

void hl_stack_path_cell_names(struct hl_emit *emit, const void *node, const void *context)
{
	const struct hl_stack_path *path = context;

	hl_cell_stack(emit, path->names, hl_stack_path_fill(path, *(const uint32_t *)node));
}

void hl_stack_path_cell_frames(struct hl_emit *emit, const void *node, const void *context)
{
	const struct hl_stack_path *path = context;

	hl_cell_frames(emit, path->frames, hl_stack_path_fill(path, *(const uint32_t *)node));
}

/* ---- whole stacks ---- */

#define ROWS_DEFAULT 20 /* stacks take many lines each */
#define FIGURES_MAX  512

struct stack {
	uint32_t node; /* of the call tree */
	struct hl_aggregate_figures figures;
};

struct stacks {
	const struct hl_profile *profile;
	const struct hl_view_options *options;
	struct hl_calltree tree;
	struct hl_stack_path path;
	struct stack *stacks; /* heaviest first */
	size_t count;
};

/* ---- what there is ---- */

static int heavier_first(const void *left, const void *right, void *context)
{
	const struct stack *a = left, *b = right;
	const enum hl_unit *unit = context;

	int64_t a_figure = hl_aggregate_figure(a->figures, *unit);
	int64_t b_figure = hl_aggregate_figure(b->figures, *unit);

	if (a_figure != b_figure)
		return a_figure < b_figure ? 1 : -1;
	return (a->node > b->node) - (a->node < b->node);
}

static int collect(struct stacks *stacks)
{
	const struct hl_profile *profile = stacks->profile;
	enum hl_unit unit = stacks->options->unit;

	stacks->stacks = calloc(stacks->tree.count + 1, sizeof(*stacks->stacks));
	if (!stacks->stacks)
		return -ENOMEM;
	/* Different addresses of the same lines, or functions, are one stack. */
	for (size_t i = 0; i < profile->node_count; i++)
		hl_aggregate_add(
			&stacks->stacks[stacks->tree.node_of[i]].figures,
			hl_aggregate_figures_of(&profile->counters[i], stacks->options->value));
	for (uint32_t node = 0; node < stacks->tree.count; node++) {
		struct stack stack = stacks->stacks[node];
		stack.node = node;
		if (stack.figures.bytes || stack.figures.objects)
			stacks->stacks[stacks->count++] = stack;
	}
	qsort_r(stacks->stacks, stacks->count, sizeof(*stacks->stacks), heavier_first, &unit);
	return 0;
}

/* ---- JSON ---- */

enum {
	KNOWS_BYTES = 1,
	KNOWS_OBJECTS = 2,
};

#define MEMBER(name) HL_MEMBER(struct stack, name)
#define STACK(what)  HL_MEMBER_CELL(struct stack, node, hl_stack_path_cell_##what)

static const struct hl_column columns[] = {
	{"bytes", NULL, HL_COLUMN_BYTES, MEMBER(figures.bytes), .shown_if = KNOWS_BYTES},
	{"objects", NULL, HL_COLUMN_COUNT, MEMBER(figures.objects), .shown_if = KNOWS_OBJECTS},
	{"stack", NULL, HL_COLUMN_STACK, STACK(names)},
	{"frames", NULL, HL_COLUMN_FRAMES, STACK(frames)},
};

/* ---- text ---- */

static void stack_lines(struct hl_emit *emit, struct stacks *stacks, const struct stack *stack)
{
	const struct hl_profile *profile = stacks->profile;
	enum hl_value value = stacks->options->value;
	enum hl_unit unit = stacks->options->unit;
	int64_t whole = hl_profile_figure(&profile->total, value, unit);
	size_t depth = hl_stack_path_fill(&stacks->path, stack->node);
	char figures[HL_SUMMARY_FIGURES_MAX], share[HL_FORMAT_MAX], buffer[256];

	hl_emit_blank(emit);
	hl_summary_figures(profile, stack->figures, value, figures);
	hl_format_percent(hl_aggregate_figure(stack->figures, unit), whole, share);
	hl_emit_line(emit, "%s%s%s", figures, whole > 0 ? ", " : "", whole > 0 ? share : "");
	if (!depth)
		hl_emit_line(emit, "    %s", HL_KEYS_NO_STACK);
	/* Each function, and where it calls on, as far as that is known. */
	while (depth-- > 0) {
		struct hl_keys_label label = stacks->path.labels[depth];
		HL_FREED char *name = strdup(label.name);
		if (name) {
			hl_format_templates(name);
			label.name = name;
		}
		const char *place = hl_keys_place(&label, buffer, sizeof(buffer));
		if (!*place || (!label.file[0] && hl_keys_names_module(&label)))
			hl_emit_line(emit, "    %s", label.name);
		else
			hl_emit_line(emit, "    %s (%s)", label.name, place);
	}
}

#define EXPLAINED_MAX 128

/* ", of which blocks that were not freed are 95.0%"; "" where that cannot be said. */
static const char *explained(const struct hl_profile *profile, int64_t growth,
			     char text[EXPLAINED_MAX])
{
	const struct hl_trace_kind *kind = hl_trace_kind_of_profile(profile);
	int64_t kept = hl_profile_figure(&profile->total, HL_VALUE_INUSE, HL_UNIT_BYTES);
	char share[HL_FORMAT_MAX];

	text[0] = '\0';
	if (!kind || kind->value != HL_VALUE_INUSE || growth <= 0 || kept <= 0 || profile->filter)
		return text;
	if (kept <= growth)
		snprintf(text, EXPLAINED_MAX, ", of which blocks that were not freed are %s",
			 hl_format_percent(kept, growth, share));
	else
		snprintf(text, EXPLAINED_MAX,
			 ", less than the blocks that were not freed: some lie in memory that was "
			 "resident before");
	return text;
}

/* "rss growth 16,384 pages; released 0 pages" */
static void whole_line(struct hl_emit *emit, const struct hl_profile *profile)
{
	char part[EXPLAINED_MAX];
	char line[FIGURES_MAX], words[HL_SUMMARY_FIGURE_MAX], value[HL_SUMMARY_FIGURE_MAX];
	size_t used = 0;

	for (size_t i = 0; i < profile->figure_count && used < sizeof(line); i++) {
		hl_summary_figure(profile, &profile->figures[i], words, value);
		if (!strcmp(words, "table memory"))
			used += (size_t)snprintf(
				line + used, sizeof(line) - used,
				"%sheapline's own table in the kernel: %s (not the "
				"target's)",
				i ? "; " : "", value);
		else if (!strcmp(hl_profile_text(profile, profile->figures[i].name),
				 "rss_growth_bytes"))
			used += (size_t)snprintf(
				line + used, sizeof(line) - used, "%sRSS growth %s%s",
				i ? "; " : "", value,
				explained(profile, profile->figures[i].value, part));
		else
			used += (size_t)snprintf(line + used, sizeof(line) - used, "%s%s %s",
						 i ? "; " : "", words, value);
	}
	if (used)
		hl_emit_line(emit, "%s", line);
}

/* ---- all of it ---- */

static void emit_report(struct hl_emit *emit, struct stacks *stacks)
{
	size_t shown = hl_emit_shown(emit, stacks->options->row_limit, ROWS_DEFAULT, stacks->count);
	struct hl_notices notices = {0};
	const struct hl_trace_kind *kind = hl_trace_kind_of_profile(stacks->profile);
	bool is_bytes = stacks->options->unit == HL_UNIT_BYTES;
	char sample[HL_FORMAT_MAX], count[HL_FORMAT_MAX], rest_text[HL_FORMAT_MAX];
	unsigned facts = 0;
	int64_t rest = 0;

	if (hl_profile_knows(stacks->profile, stacks->options->value, HL_UNIT_BYTES))
		facts |= KNOWS_BYTES;
	if (hl_profile_knows(stacks->profile, stacks->options->value, HL_UNIT_OBJECTS))
		facts |= KNOWS_OBJECTS;
	hl_summary_members(emit, stacks->profile, stacks->options);
	if (stacks->options->stacks.brief) {
		hl_summary_totals_line(emit, stacks->profile, "", &stacks->profile->total);
		if (stacks->profile->sample_bytes)
			hl_emit_line(emit, "sampled about every %s: figures are estimates",
				     hl_format_bytes(stacks->profile->sample_bytes, sample));
		hl_notices_of_profile(&notices, stacks->profile);
		hl_notices_emit(&notices, emit);
	} else {
		hl_summary_lines(emit, stacks->profile);
		whole_line(emit, stacks->profile);
		hl_summary_value_line(emit, stacks->profile, stacks->options);
	}
	if (stacks->options->json)
		hl_table_write(emit,
			       &(struct hl_table){HL_TABLE("rows", columns),
						  .context = &stacks->path, .facts = facts},
			       stacks->stacks, shown, sizeof(*stacks->stacks));
	for (size_t i = 0; !stacks->options->json && i < shown; i++)
		stack_lines(emit, stacks, &stacks->stacks[i]);
	for (size_t i = shown; i < stacks->count; i++)
		rest += hl_aggregate_figure(stacks->stacks[i].figures, stacks->options->unit);
	if (shown < stacks->count) {
		hl_emit_blank(emit);
		hl_emit_line(emit, "... and %s more stack%s with %s%s%s%s; -n 0 shows all",
			     hl_format_count((int64_t)(stacks->count - shown), count),
			     hl_format_plural(stacks->count - shown),
			     hl_format_figure(rest, is_bytes, rest_text), is_bytes ? "" : " ",
			     is_bytes ? ""
			     : kind   ? kind->noun
				      : "block",
			     is_bytes ? "" : hl_format_plural((uint64_t)rest));
	}
	if (!stacks->options->stacks.brief)
		hl_summary_names(emit, stacks->profile);
}

int hl_stacks_view(const struct hl_profile *profile, const struct hl_view_options *options,
		   struct hl_error *err)
{
	const struct hl_trace_kind *kind = hl_trace_kind_of_profile(profile);
	struct stacks stacks = {.profile = profile, .options = options};
	struct hl_emit *emit;
	char schema[64];

	int r = (options->by == HL_VIEW_BY_LINE ? hl_calltree_init_by_line : hl_calltree_init)(
		&stacks.tree, profile, options->value, options->unit);
	if (r == 0)
		r = hl_stack_path_init(&stacks.path, profile, &stacks.tree);
	if (r == 0)
		r = collect(&stacks);
	/* In version 1, `frames` were the names that `stack` has now. */
	snprintf(schema, sizeof(schema), "%s/2", kind ? kind->verb : "stacks");
	if (r == 0)
		r = hl_emit_new(options->out, options->json ? HL_EMIT_JSON : HL_EMIT_TABLE,
				options->color, schema, &emit);
	if (r == 0) {
		emit_report(emit, &stacks);
		r = hl_emit_finish(emit);
	}
	free(stacks.stacks);
	hl_stack_path_release(&stacks.path);
	hl_calltree_release(&stacks.tree);
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
