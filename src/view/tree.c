/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline tree: the call tree, heaviest branches first, light ones folded into one line. */
#include "base/array.h"
#include "profile/calltree.h"
#include "view/format.h"
#include "view/keys.h"
#include "view/rows.h"
#include "view/summary.h"

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

static bool is_depth_drawn(const struct drawing *drawing, uint32_t depth)
{
	const struct hl_view_options *options = drawing->options;

	if (options->depth_limit && depth > options->depth_limit)
		return false;
	return options->json || depth <= DRAWN_DEPTH_MAX;
}

static bool is_drawn(const struct drawing *drawing, const struct hl_calltree_node *node)
{
	return fabs((double)node->sum) >= drawing->least && is_depth_drawn(drawing, node->depth);
}

/* The children of ${node}, so that the heaviest comes next and what is folded comes last. */
static int add_children(struct drawing *drawing, uint32_t node, uint32_t row)
{
	const struct hl_calltree_node *nodes = drawing->tree.nodes;
	struct item folded = {.depth = nodes[node].depth + 1, .parent_row = row};
	size_t first = drawing->item_count;

	int r = add_item(drawing, folded);
	for (uint32_t i = node + 1; r == 0 && i < nodes[node].end; i = nodes[i].end) {
		const struct hl_calltree_node *child = &nodes[i];
		if (is_drawn(drawing, child)) {
			r = add_item(drawing, (struct item){i, 0, child->depth, row, child->sum,
							    child->other});
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

enum {
	COLUMN_CUM,
	COLUMN_CUM_PERCENT,
	COLUMN_FLAT,
	COLUMN_OTHER, /* cum in the other unit */
	COLUMN_WORDS, /* in tables: the branch, name and place */
	COLUMN_ID,
	COLUMN_PARENT,
	COLUMN_DEPTH,
	COLUMN_NAME,
	COLUMN_FILE,
	COLUMN_LINE,
	COLUMN_MODULE,
	COLUMN_FOLDED,
	COLUMN_CUM_BYTES,
	COLUMN_CUM_OBJECTS,
	COLUMN_FLAT_BYTES,
	COLUMN_FLAT_OBJECTS,
	COLUMN_COUNT,
};

/* Reversed, a node's own figure would be that of the outermost callers: nothing that one asks. */
static void begin_rows(struct hl_emit *emit, const struct drawing *drawing)
{
	static const enum hl_emit_type types[] = {HL_EMIT_BYTES, HL_EMIT_COUNT};
	const struct hl_view_options *options = drawing->options;
	enum hl_unit other = hl_unit_other(options->unit);
	enum hl_emit_type type = types[options->unit];
	bool knows_bytes = hl_profile_knows(drawing->profile, options->value, HL_UNIT_BYTES);
	bool knows_objects = hl_profile_knows(drawing->profile, options->value, HL_UNIT_OBJECTS);
	unsigned bytes = knows_bytes ? HL_EMIT_JSON_ONLY : HL_EMIT_HIDDEN;
	unsigned objects = knows_objects ? HL_EMIT_JSON_ONLY : HL_EMIT_HIDDEN;
	bool is_narrow = hl_emit_width(emit) && hl_emit_width(emit) < NARROW;
	unsigned of_other =
		knows_bytes && knows_objects && !is_narrow ? HL_EMIT_TEXT_ONLY : HL_EMIT_HIDDEN;
	unsigned of_flat = options->reversed ? HL_EMIT_HIDDEN : 0;
	const struct hl_emit_column columns[COLUMN_COUNT] = {
		[COLUMN_CUM] = {NULL, "cum", type, HL_EMIT_TEXT_ONLY},
		[COLUMN_CUM_PERCENT] = {NULL, "cum%", HL_EMIT_PERCENT, HL_EMIT_TEXT_ONLY},
		[COLUMN_FLAT] = {NULL, "self", type,
				 HL_EMIT_TEXT_ONLY | HL_EMIT_BLANK_ZERO | of_flat |
					 (is_narrow ? HL_EMIT_HIDDEN : 0)},
		[COLUMN_OTHER] = {NULL, hl_unit_names[other], types[other], of_other},
		[COLUMN_WORDS] = {NULL, "function", HL_EMIT_TEXT, HL_EMIT_TEXT_ONLY | HL_EMIT_TREE},
		[COLUMN_ID] = {"id", NULL, HL_EMIT_COUNT, HL_EMIT_JSON_ONLY},
		[COLUMN_PARENT] = {"parent", NULL, HL_EMIT_COUNT, HL_EMIT_JSON_ONLY},
		[COLUMN_DEPTH] = {"depth", NULL, HL_EMIT_COUNT, HL_EMIT_JSON_ONLY},
		[COLUMN_NAME] = {"name", NULL, HL_EMIT_TEXT, HL_EMIT_JSON_ONLY},
		[COLUMN_FILE] = {"file", NULL, HL_EMIT_TEXT, HL_EMIT_JSON_ONLY},
		[COLUMN_LINE] = {"line", NULL, HL_EMIT_COUNT, HL_EMIT_JSON_ONLY},
		[COLUMN_MODULE] = {"module", NULL, HL_EMIT_TEXT, HL_EMIT_JSON_ONLY},
		[COLUMN_FOLDED] = {"folded", NULL, HL_EMIT_COUNT, HL_EMIT_JSON_ONLY},
		[COLUMN_CUM_BYTES] = {"cum_bytes", NULL, HL_EMIT_BYTES, bytes},
		[COLUMN_CUM_OBJECTS] = {"cum_objects", NULL, HL_EMIT_COUNT, objects},
		[COLUMN_FLAT_BYTES] = {"flat_bytes", NULL, HL_EMIT_BYTES, bytes | of_flat},
		[COLUMN_FLAT_OBJECTS] = {"flat_objects", NULL, HL_EMIT_COUNT, objects | of_flat},
	};
	hl_emit_rows(emit, "rows", columns, COLUMN_COUNT);
}

/* What a row says beside its figures. */
struct words {
	struct hl_keys_label label;
	char *branch; /* "name (file.c:12)" or "... 12 more"; to be freed */
};

static int describe_node(const struct hl_profile *profile, const struct hl_calltree_node *node,
			 struct words *ret_words)
{
	struct words words = {.label = hl_keys_node_label(profile, node)};
	char buffer[256];
	const char *place = hl_keys_place(&words.label, buffer, sizeof(buffer));
	bool plain = !*place || (!words.label.file[0] && hl_keys_names_module(&words.label));

	if (asprintf(&words.branch, plain ? "%s" : "%s (%s)", words.label.name, place) < 0)
		return -ENOMEM;
	hl_format_templates(words.branch);
	*ret_words = words;
	return 0;
}

static int describe_folded(uint32_t count, struct words *ret_words)
{
	char *branch, more[HL_FORMAT_MAX];

	if (asprintf(&branch, "... %s more", hl_format_count(count, more)) < 0)
		return -ENOMEM;
	*ret_words =
		(struct words){.label = {.name = "", .file = "", .module = ""}, .branch = branch};
	return 0;
}

/* Shortens the words of a branch to what a narrow terminal has left for them at ${depth}. */
static int fit(struct words *words, size_t width, size_t depth)
{
	bool is_narrow = width < NARROW;
	size_t taken = (is_narrow ? NARROW_FIGURES : FIGURES_WIDTH) + BRANCH_WIDTH * depth;
	size_t least = is_narrow ? NARROW_WORDS_MIN : WORDS_MIN;
	size_t room = width > taken + least ? width - taken : least;
	size_t bytes = strlen(words->branch) + 1;

	if (!width)
		return 0;
	char *shortened = malloc(bytes);
	if (!shortened)
		return -ENOMEM;
	hl_format_shortened(words->branch, room, shortened, bytes);
	free(words->branch);
	words->branch = shortened;
	return 0;
}

static void emit_cells(struct hl_emit *emit, const struct drawing *drawing, const struct item *item,
		       const struct words *words, struct hl_aggregate_figures flat)
{
	enum hl_unit unit = drawing->options->unit;
	bool bytes = unit == HL_UNIT_BYTES;

	hl_emit_cell_integer(emit, item->sum);
	hl_emit_cell_percent(emit, item->sum, drawing->tree.nodes[0].sum);
	hl_emit_cell_integer(emit, hl_aggregate_figure(flat, unit));
	hl_emit_cell_integer(emit, item->other);
	hl_emit_cell_text(emit, words->branch);
	hl_emit_cell_integer(emit, drawing->row_count);
	hl_emit_cell_integer(emit, item->parent_row);
	hl_emit_cell_integer(emit, item->depth);
	hl_emit_cell_text(emit, words->label.name);
	hl_emit_cell_text(emit, words->label.file);
	hl_emit_cell_integer(emit, words->label.line);
	hl_emit_cell_text(emit, words->label.module);
	hl_emit_cell_integer(emit, item->folded);
	hl_emit_cell_integer(emit, bytes ? item->sum : item->other);
	hl_emit_cell_integer(emit, bytes ? item->other : item->sum);
	hl_emit_cell_integer(emit, flat.bytes);
	hl_emit_cell_integer(emit, flat.objects);
}

/* The node's own figures; in the other unit, what its children do not have. */
static struct hl_aggregate_figures own_figures(const struct drawing *drawing, uint32_t node)
{
	const struct hl_calltree_node *nodes = drawing->tree.nodes;
	int64_t self = nodes[node].self, other = nodes[node].other;

	for (uint32_t i = node + 1; i < nodes[node].end; i = nodes[i].end)
		other -= nodes[i].other;
	if (drawing->options->unit == HL_UNIT_BYTES)
		return (struct hl_aggregate_figures){self, other};
	return (struct hl_aggregate_figures){other, self};
}

static int emit_item(struct hl_emit *emit, struct drawing *drawing, const struct item *item)
{
	struct hl_aggregate_figures flat = {0};
	struct words words;
	unsigned emphasis = 0;
	int r;

	if (item->folded) {
		r = describe_folded(item->folded, &words);
	} else {
		r = describe_node(drawing->profile, &drawing->tree.nodes[item->node], &words);
		flat = own_figures(drawing, item->node);
		emphasis = hl_rows_emphasis(SIZE_MAX,
					    hl_aggregate_figure(flat, drawing->options->unit),
					    drawing->tree.nodes[0].sum);
	}
	if (r < 0)
		return r;
	r = fit(&words, hl_emit_width(emit), item->depth - 1);
	if (r == 0) {
		drawing->row_count++;
		hl_emit_row_below(emit, item->depth, emphasis);
		emit_cells(emit, drawing, item, &words, flat);
	}
	free(words.branch);
	return r;
}

/* Whether ${item} stands for folded branches that would be a row of a table without figures. */
static bool is_trifle(const struct hl_emit *emit, const struct drawing *drawing,
		      const struct item *item)
{
	char percent[HL_FORMAT_MAX];

	return item->folded && !hl_emit_is_json(emit) &&
	       !strcmp(hl_format_percent(item->sum, drawing->tree.nodes[0].sum, percent), "0.0%");
}

/* Without recursion: profiles of other programs may have stacks of any depth. */
static int emit_items(struct hl_emit *emit, struct drawing *drawing)
{
	int r = add_children(drawing, 0, 0);

	while (r == 0 && drawing->item_count) {
		struct item item = drawing->items[--drawing->item_count];
		bool is_none = !item.folded && !item.node; /* nothing was folded */
		if (is_none || is_trifle(emit, drawing, &item))
			continue;
		r = emit_item(emit, drawing, &item);
		if (r == 0 && !item.folded)
			r = add_children(drawing, item.node, drawing->row_count);
	}
	return r;
}

/* ---- all of it ---- */

/* What was allocated with no frame at all stands in no row. */
static void emit_stackless(struct hl_emit *emit, const struct drawing *drawing)
{
	struct hl_aggregate_figures own = own_figures(drawing, 0);
	char figures[HL_SUMMARY_FIGURES_MAX];
	enum hl_value value = drawing->options->value;

	hl_emit_object(emit, "stackless");
	if (hl_profile_knows(drawing->profile, value, HL_UNIT_BYTES))
		hl_emit_integer(emit, "bytes", own.bytes);
	if (hl_profile_knows(drawing->profile, value, HL_UNIT_OBJECTS))
		hl_emit_integer(emit, "objects", own.objects);
	hl_emit_object_end(emit);
	if (own.bytes || own.objects)
		hl_emit_line(emit, "without a stack: %s",
			     hl_summary_figures(drawing->profile, &drawing->profile->counters[0],
						value, figures));
}

static int emit_tree(struct drawing *drawing)
{
	const struct hl_view_options *options = drawing->options;
	struct hl_emit *emit;

	int r = hl_emit_new(options->out, options->json ? HL_EMIT_JSON : HL_EMIT_TABLE,
			    options->color, &emit);
	if (r < 0)
		return r;
	hl_emit_begin(emit, "tree");
	hl_summary_members(emit, drawing->profile, options);
	hl_emit_boolean(emit, "reversed", options->reversed);
	hl_summary_lines(emit, drawing->profile);
	if (!hl_summary_is_empty(drawing->profile))
		hl_summary_value_line(emit, drawing->profile, options);
	emit_stackless(emit, drawing);
	if (!hl_summary_is_empty(drawing->profile))
		hl_emit_line(emit, "%s", "");
	begin_rows(emit, drawing);
	r = emit_items(emit, drawing);
	hl_emit_rows_end(emit);
	hl_summary_names_line(emit, drawing->profile);
	int finished = hl_emit_finish(emit);
	return r < 0 ? r : finished;
}

int hl_view_tree(const struct hl_profile *profile, const struct hl_view_options *options,
		 struct hl_error *err)
{
	struct drawing drawing = {.profile = profile, .options = options};
	int (*init)(struct hl_calltree *, const struct hl_profile *, enum hl_value, enum hl_unit) =
		options->reversed ? hl_calltree_init_reversed : hl_calltree_init;

	int r = init(&drawing.tree, profile, options->value, options->unit);
	if (r == 0) {
		drawing.least = fabs((double)drawing.tree.nodes[0].sum) * options->threshold / 100;
		r = emit_tree(&drawing);
	}
	free(drawing.items);
	hl_calltree_release(&drawing.tree);
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
