/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline tree: the call tree, heaviest branches first, light ones folded into one line. */
#include "base/array.h"
#include "base/cleanup.h"
#include "profile/calltree.h"
#include "view/format.h"
#include "view/rows.h"
#include "view/summary.h"
#include "view/table.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DRAWN_DEPTH_MAX	 500 /* deeper branches are folded where they would be drawn */
#define FIGURES_WIDTH	 45  /* columns of a terminal that the figures take at most */
#define NARROW		 72  /* a terminal that has room for the first two figures alone */
#define NARROW_FIGURES	 20
#define NARROW_WORDS_MIN 12
#define BRANCH_WIDTH	 2  /* of each level of the tree */
#define WORDS_MIN	 24 /* that names get in any case, though the line is then too long */

/* A row to come: one node, or several siblings that are folded into one line. */
struct item {
	uint32_t node;	 /* if not folded */
	uint32_t folded; /* how many nodes; 0: one node, not folded */
	uint32_t depth, parent_row;
	int64_t sum, other;
};

struct drawing {
	const struct hl_profile *profile;
	const struct hl_view_options *options;
	struct hl_calltree tree;
	double least;	    /* of a node that is drawn on its own */
	struct item *items; /* the next one last */
	size_t item_count, item_capacity;
	uint32_t row_count;
};

/* ---- what comes next ---- */

static int heavier_last(const void *left, const void *right)
{
	const struct item *a = left, *b = right;

	if (a->sum != b->sum)
		return a->sum < b->sum ? -1 : 1;
	return (a->node < b->node) - (a->node > b->node); /* equal ones by name */
}

static int add_item(struct drawing *drawing, struct item item)
{
	return HL_ARRAY_APPEND(drawing->items, drawing->item_count, drawing->item_capacity, item);
}

/* The children of ${node}, so that the heaviest comes next and what is folded comes last. */
static int add_children(struct drawing *drawing, uint32_t node, uint32_t row)
{
	const struct hl_view_options *options = drawing->options;
	const struct hl_calltree_node *nodes = drawing->tree.nodes;
	uint32_t depth = nodes[node].depth + 1;
	struct item folded = {.depth = depth, .parent_row = row};
	size_t first = drawing->item_count;
	bool is_depth_drawn = (!options->tree.depth_limit || depth <= options->tree.depth_limit) &&
			      (options->json || depth <= DRAWN_DEPTH_MAX);

	int r = add_item(drawing, folded);
	for (uint32_t i = node + 1; r == 0 && i < nodes[node].end; i = nodes[i].end) {
		const struct hl_calltree_node *child = &nodes[i];
		if (is_depth_drawn && fabs((double)child->sum) >= drawing->least) {
			r = add_item(drawing,
				     (struct item){i, 0, depth, row, child->sum, child->other});
		} else if (child->sum || child->other) {
			folded.folded++;
			folded.sum += child->sum;
			folded.other += child->other;
		}
	}
	if (r < 0)
		return r;
	drawing->items[first] = folded;
	size_t drawn = drawing->item_count - first - 1;
	qsort(drawing->items + first + 1, drawn, sizeof(*drawing->items), heavier_last);
	return 0;
}

/* ---- rows ---- */

struct row {
	uint32_t id, parent, depth, folded;
	struct hl_keys_label label;
	const char *branch; /* in tables: "name (file.c:12)" or "... 12 more" */
	struct hl_aggregate_figures cum, flat;
};

/* Facts of the table: which figures it has beside the first one. Reversed, a node's own figure
 * would be that of the outermost callers: nothing that one asks. */
enum {
	HAS_FLAT = 1,
	HAS_OTHER = 2,
};

#define MEMBER(name) HL_MEMBER(struct row, name)

static const struct hl_column columns[] = {
	{"cum", "cum", HL_COLUMN_FIGURE, MEMBER(cum)},
	{NULL, "cum%", HL_COLUMN_SHARE, MEMBER(cum)},
	{"flat", "self", HL_COLUMN_FIGURE, MEMBER(flat), HL_COLUMN_BLANK_ZERO, HAS_FLAT},
	{NULL, "other", HL_COLUMN_OTHER, MEMBER(cum), .shown_if = HAS_OTHER},
	{NULL, "function", HL_COLUMN_TEXT, MEMBER(branch), HL_COLUMN_TREE},
	{"id", NULL, HL_COLUMN_COUNT, MEMBER(id)},
	{"parent", NULL, HL_COLUMN_COUNT, MEMBER(parent)},
	{"depth", NULL, HL_COLUMN_COUNT, MEMBER(depth)},
	{"name", NULL, HL_COLUMN_TEXT, MEMBER(label.name)},
	{"file", NULL, HL_COLUMN_TEXT, MEMBER(label.file)},
	{"line", NULL, HL_COLUMN_COUNT, MEMBER(label.line)},
	{"module", NULL, HL_COLUMN_TEXT, MEMBER(label.module)},
	{"folded", NULL, HL_COLUMN_COUNT, MEMBER(folded)},
};

/* ${chosen} in ${unit}, ${other} in the other one. */
static struct hl_aggregate_figures in_units(enum hl_unit unit, int64_t chosen, int64_t other)
{
	return unit == HL_UNIT_BYTES ? (struct hl_aggregate_figures){chosen, other}
				     : (struct hl_aggregate_figures){other, chosen};
}

/* The node's own figures; in the other unit, what its children do not have. */
static struct hl_aggregate_figures own_figures(const struct drawing *drawing, uint32_t node)
{
	const struct hl_calltree_node *nodes = drawing->tree.nodes;
	int64_t other = nodes[node].other;

	for (uint32_t i = node + 1; i < nodes[node].end; i = nodes[i].end)
		other -= nodes[i].other;
	return in_units(drawing->options->unit, nodes[node].self, other);
}

/* "name (file.c:12)" or "... 12 more", shortened to what is left of ${width} columns (0: no limit)
 * at the row's depth; to be freed. NULL: no memory. */
static char *branch_text(const struct row *row, size_t width)
{
	const struct hl_keys_label *label = &row->label;
	char buffer[256], more[HL_FORMAT_MAX], *text;
	const char *place = hl_keys_place(label, buffer, sizeof(buffer));
	bool is_narrow = width < NARROW;
	size_t least = is_narrow ? NARROW_WORDS_MIN : WORDS_MIN;
	size_t taken =
		(is_narrow ? NARROW_FIGURES : FIGURES_WIDTH) + BRANCH_WIDTH * (row->depth - 1);
	int r;

	if (row->folded)
		r = asprintf(&text, "... %s more", hl_format_count(row->folded, more));
	else if (!*place || (!label->file[0] && hl_keys_names_module(label)))
		r = asprintf(&text, "%s", label->name);
	else
		r = asprintf(&text, "%s (%s)", label->name, place);
	if (r < 0)
		return NULL;
	hl_format_templates(text);
	if (!width)
		return text;
	char *shortened = malloc(strlen(text) + 1);
	if (shortened)
		hl_format_shortened(text, width > taken + least ? width - taken : least, shortened,
				    strlen(text) + 1);
	free(text);
	return shortened;
}

/* Without recursion: profiles of other programs may have stacks of any depth. */
static void write_rows(struct hl_emit *emit, struct drawing *drawing)
{
	const struct hl_calltree_node *nodes = drawing->tree.nodes;
	char percent[HL_FORMAT_MAX];
	int r = add_children(drawing, 0, 0);

	while (r == 0 && drawing->item_count) {
		struct item item = drawing->items[--drawing->item_count];
		if (!item.folded && !item.node)
			continue; /* nothing was folded */
		if (item.folded && !hl_emit_is_json(emit) &&
		    !strcmp(hl_format_percent(item.sum, nodes[0].sum, percent), "0.0%"))
			continue; /* would be a row without figures */
		struct row row = {
			.id = ++drawing->row_count,
			.parent = item.parent_row,
			.depth = item.depth,
			.folded = item.folded,
			.label = {.name = "", .file = "", .module = ""},
			.cum = in_units(drawing->options->unit, item.sum, item.other),
		};
		unsigned emphasis = 0;
		if (!item.folded) {
			row.label = hl_keys_node_label(drawing->profile, &nodes[item.node]);
			row.flat = own_figures(drawing, item.node);
			emphasis = hl_rows_emphasis(SIZE_MAX, nodes[item.node].self, nodes[0].sum);
		}
		HL_FREED char *branch = branch_text(&row, hl_emit_width(emit));
		row.branch = branch;
		if (branch)
			hl_table_row_below(emit, item.depth, &row, emphasis);
		else
			r = -ENOMEM;
		if (r == 0 && !item.folded)
			r = add_children(drawing, item.node, drawing->row_count);
	}
	if (r < 0)
		hl_emit_fail(emit, r);
}

/* ---- all of it ---- */

static int write_report(struct drawing *drawing)
{
	const struct hl_profile *profile = drawing->profile;
	const struct hl_view_options *options = drawing->options;
	const struct hl_calltree_node *root = &drawing->tree.nodes[0];
	/* What was allocated with no frame at all stands in no row. */
	struct hl_aggregate_figures stackless = own_figures(drawing, 0);
	bool is_empty = hl_summary_is_empty(profile);
	char figures[HL_SUMMARY_FIGURES_MAX];
	struct hl_emit *emit;

	int r = hl_summary_begin(profile, options, "tree/1", &emit);
	if (r < 0)
		return r;
	hl_emit_boolean(emit, "reversed", options->reversed);
	if (!is_empty || hl_value_is_of_pages(options->value))
		hl_summary_value_line(emit, profile, options);
	hl_emit_object(emit, "stackless");
	if (hl_profile_knows(profile, options->value, HL_UNIT_BYTES))
		hl_emit_integer(emit, "bytes", stackless.bytes);
	if (hl_profile_knows(profile, options->value, HL_UNIT_OBJECTS))
		hl_emit_integer(emit, "objects", stackless.objects);
	hl_emit_object_end(emit);
	if (hl_aggregate_any(stackless))
		hl_emit_line(emit, "without a stack: %s",
			     hl_summary_figures(profile, stackless, options->value, figures));
	if (!is_empty)
		hl_emit_blank(emit);
	bool is_narrow = !options->json && hl_emit_width(emit) && hl_emit_width(emit) < NARROW;
	hl_table_begin(
		emit, &(struct hl_table){HL_TABLE("rows", columns),
					 .facts = (options->reversed || is_narrow ? 0 : HAS_FLAT) |
						  (is_narrow ? 0 : HAS_OTHER),
					 .whole = in_units(options->unit, root->sum, root->other)});
	write_rows(emit, drawing);
	hl_table_end(emit);
	return hl_summary_end(emit, profile);
}

static int heavier_first(const void *left, const void *right)
{
	double x = *(const double *)left, y = *(const double *)right;

	return (x < y) - (x > y);
}

/* What node ${limit} has, when the heaviest come first; 0: there are not more than that. No caller is lighter than whom it calls. */
static int find_least(const struct hl_calltree *tree, uint64_t limit, double *ret_least)
{
	size_t count = tree->nodes[0].end - 1;

	*ret_least = 0;
	if (!limit || limit >= count)
		return 0;
	HL_FREED double *sums = calloc(count, sizeof(*sums));
	if (!sums)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		sums[i] = fabs((double)tree->nodes[i + 1].sum);
	qsort(sums, count, sizeof(*sums), heavier_first);
	*ret_least = sums[limit - 1];
	return 0;
}

int hl_tree_view(const struct hl_profile *profile, const struct hl_view_options *options,
		 struct hl_error *err)
{
	struct drawing drawing = {.profile = profile, .options = options};
	int (*init)(struct hl_calltree *, const struct hl_profile *, enum hl_value, enum hl_unit) =
		options->reversed ? hl_calltree_init_reversed : hl_calltree_init;

	int r = init(&drawing.tree, profile, options->value, options->unit);
	if (r == 0)
		r = find_least(&drawing.tree, options->row_limit, &drawing.least);
	if (r == 0) {
		double threshold =
			fabs((double)drawing.tree.nodes[0].sum) * options->tree.threshold / 100;
		drawing.least = fmax(drawing.least, threshold);
		r = write_report(&drawing);
	}
	free(drawing.items);
	hl_calltree_release(&drawing.tree);
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
