/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline sizes: how large the blocks are, and which stacks allocated those of each size. */
#include "profile/calltree.h"
#include "view/format.h"
#include "view/rows.h"
#include "view/summary.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What all parts of the report need. */
struct report {
	struct hl_emit *emit;
	const struct hl_profile *profile;
	const struct hl_view_options *options;
	const struct hl_histogram *histogram;
	struct hl_stack_path *path;
	unsigned facts;
};

/* Facts of tables. */
enum {
	KNOWS_BYTES = 1,
	KNOWS_OBJECTS = 2,
	KNOWS_SLACK = 4,
	SHOWS_SLACK = 8, /* beside another value */
	SHORTENS = 16,
	FULL = 32,
};

static int64_t weight_of(const struct report *report, const struct hl_histogram_figures *figures)
{
	return report->options->unit == HL_UNIT_BYTES ? figures->bytes : figures->objects;
}

static int64_t whole_of(const struct report *report)
{
	return weight_of(report, &report->histogram->total);
}

/* ---- words ---- */

#define LABEL_MAX (2 * HL_FORMAT_MAX + 8)

/* "16 B .. 31 B"; from 1 KiB on "1 KiB .. <2 KiB". */
static void format_class(uint32_t size_class, char label[LABEL_MAX])
{
	uint64_t first = hl_size_class_first(size_class), last = hl_size_class_last(size_class);
	char low[HL_FORMAT_MAX], high[HL_FORMAT_MAX];

	hl_format_exact_bytes(first, low);
	if (first == last)
		snprintf(label, LABEL_MAX, "%s", low);
	else if (last < 1024)
		snprintf(label, LABEL_MAX, "%s .. %u B", low, (unsigned)last);
	else if (last < UINT64_MAX)
		snprintf(label, LABEL_MAX, "%s .. <%s", low, hl_format_exact_bytes(last + 1, high));
	else
		snprintf(label, LABEL_MAX, "%s ..", low);
}

/* Not so when it has slack alone. Blocks of size 0 have no bytes, but count. */
static bool has_value(const struct hl_histogram_stack *stack)
{
	return stack->figures.bytes || stack->figures.objects;
}

/* ---- the histogram ---- */

/* Classes are few, so the heaviest five would be nearly all: a tenth of the total is asked, too. */
static unsigned emphasis_of(const struct report *report, const struct hl_histogram_class *class)
{
	int64_t weight = weight_of(report, &class->figures);
	size_t rank = 0; /* how many classes are heavier */

	for (size_t i = 0; i < report->histogram->class_count; i++)
		rank += weight_of(report, &report->histogram->classes[i].figures) > weight;
	unsigned emphasis = hl_rows_emphasis(rank, weight, whole_of(report));
	return emphasis & HL_EMIT_HEAVY ? emphasis : 0;
}

static size_t stacks_shown(const struct report *report, const struct hl_histogram_class *class)
{
	return hl_emit_shown(report->emit, report->options->stack_limit, 0, class->stack_count);
}

/* A class, or all of them. */
struct class_row {
	char label[LABEL_MAX], bar[HL_FORMAT_MAX];
	uint64_t size_min, size_max;
	struct hl_histogram_figures figures;
	int64_t weight;
	const struct hl_histogram_class *class;
};

/* Slack is a share of what the allocator has set aside. */
static void slack_share(struct hl_emit *emit, const void *at, const void *context)
{
	const struct hl_histogram_figures *figures = at;

	(void)context;
	hl_cell_share(emit, figures->slack_bytes, figures->inuse_bytes + figures->slack_bytes);
}

/* In tables stacks have one of their own. */
static void stacks(struct hl_emit *emit, const void *row, const void *context)
{
	const struct hl_histogram_class *class = ((const struct class_row *)row)->class;
	const struct report *report = context;
	struct hl_emit_frame *frames = report->path->frames;

	hl_emit_array(emit, "stacks");
	for (size_t i = 0; i < stacks_shown(report, class); i++) {
		const struct hl_histogram_stack *stack = &class->stacks[i];
		if (!has_value(stack))
			continue;
		size_t depth = hl_stack_path_fill(report->path, stack->leaf);
		for (size_t root = 0, leaf = depth; root + 1 < leaf; root++) { /* leaf first */
			struct hl_emit_frame frame = frames[--leaf];
			frames[leaf] = frames[root];
			frames[root] = frame;
		}
		hl_emit_object(emit, NULL);
		if (report->facts & KNOWS_BYTES)
			hl_emit_integer(emit, "bytes", stack->figures.bytes);
		if (report->facts & KNOWS_OBJECTS)
			hl_emit_integer(emit, "objects", stack->figures.objects);
		hl_emit_array(emit, "stack");
		for (size_t frame = 0; frame < depth; frame++)
			hl_emit_text(emit, NULL, frames[frame].function);
		hl_emit_array_end(emit);
		hl_emit_frames(emit, "frames", frames, depth);
		hl_emit_object_end(emit);
	}
	hl_emit_array_end(emit);
}

#define CLASS(name) HL_MEMBER(struct class_row, name)
#define TEXT(name)  HL_MEMBER_ARRAY(struct class_row, name)

static const struct hl_column class_columns[] = {
	{NULL, "size", HL_COLUMN_TEXT, TEXT(label)},
	{"size_min", NULL, HL_COLUMN_BYTES, CLASS(size_min)},
	{"size_max", NULL, HL_COLUMN_BYTES, CLASS(size_max)},
	{"objects", "objects", HL_COLUMN_COUNT, CLASS(figures.objects), .shown_if = KNOWS_OBJECTS},
	{"bytes", "bytes", HL_COLUMN_BYTES, CLASS(figures.bytes), .shown_if = KNOWS_BYTES},
	{NULL, "share", HL_COLUMN_SHARE, CLASS(weight)},
	{NULL, "", HL_COLUMN_TEXT, TEXT(bar), HL_COLUMN_OMITTED},
	{"slack_bytes", NULL, HL_COLUMN_BYTES, CLASS(figures.slack_bytes), .shown_if = KNOWS_SLACK},
	{NULL, "slack", HL_COLUMN_BYTES, CLASS(figures.slack_bytes), .shown_if = SHOWS_SLACK},
	{NULL, "slack%", HL_COLUMN_SHARE, HL_MEMBER_CELL(struct class_row, figures, slack_share),
	 .shown_if = KNOWS_SLACK},
	{"inuse_bytes", NULL, HL_COLUMN_BYTES, CLASS(figures.inuse_bytes), .shown_if = KNOWS_SLACK},
	{"stacks", NULL, HL_COLUMN_MEMBERS, .cell = stacks},
};

static void write_classes(const struct report *report)
{
	const struct hl_histogram *histogram = report->histogram;
	struct class_row total = {
		.label = "total", .figures = histogram->total, .weight = whole_of(report)};
	int64_t heaviest = 0;

	for (size_t i = 0; i < histogram->class_count; i++) {
		int64_t weight = weight_of(report, &histogram->classes[i].figures);
		heaviest = weight > heaviest ? weight : heaviest;
	}
	hl_emit_blank(report->emit);
	hl_table_begin(report->emit,
		       &(struct hl_table){HL_TABLE("rows", class_columns), .context = report,
					  .facts = report->facts, .sum = whole_of(report)});
	for (size_t i = 0; i < histogram->class_count; i++) {
		const struct hl_histogram_class *class = &histogram->classes[i];
		struct class_row row = {
			.size_min = hl_size_class_first(class->size_class),
			.size_max = hl_size_class_last(class->size_class),
			.figures = class->figures,
			.weight = weight_of(report, &class->figures),
			.class = class,
		};
		format_class(class->size_class, row.label);
		hl_format_bar(row.weight > 0 ? row.weight : 0, heaviest, row.bar);
		row.bar[strcspn(row.bar, ".")] = '\0';
		hl_table_row(report->emit, &row, emphasis_of(report, class));
	}
	if (!report->options->json && histogram->class_count)
		hl_table_row(report->emit, &total, 0);
	hl_table_end(report->emit);
	if (report->facts & KNOWS_SLACK && histogram->class_count)
		hl_emit_line(report->emit, "slack: of the blocks in use at the end, as a share of "
					   "what the allocator set aside for them");
}

/* ---- the stacks of each class, as a table ---- */

struct stack_row {
	const char *label; /* of the class; "" after its first stack */
	struct hl_histogram_figures figures;
	int64_t weight;
	uint32_t leaf;
};

#define STACK(name) HL_MEMBER(struct stack_row, name)
#define LINE	    HL_MEMBER_CELL(struct stack_row, leaf, hl_stack_path_cell_line)
#define NAME	    HL_COLUMN_SHORTENED | HL_COLUMN_NAMES | HL_COLUMN_KEY

static const struct hl_column stack_columns[] = {
	{NULL, "size", HL_COLUMN_TEXT, STACK(label)},
	{NULL, "objects", HL_COLUMN_COUNT, STACK(figures.objects), .shown_if = KNOWS_OBJECTS},
	{NULL, "bytes", HL_COLUMN_BYTES, STACK(figures.bytes), .shown_if = KNOWS_BYTES},
	{NULL, "share", HL_COLUMN_SHARE, STACK(weight)},
	{NULL, "allocated by", HL_COLUMN_TEXT, LINE, .flags = NAME, .shown_if = SHORTENS},
	{NULL, "allocated by", HL_COLUMN_TEXT, LINE, .shown_if = FULL},
};

static void write_stacks(const struct report *report)
{
	if (report->options->json || !report->histogram->class_count)
		return;
	hl_emit_blank(report->emit);
	hl_table_begin(report->emit,
		       &(struct hl_table){HL_TABLE(NULL, stack_columns), .context = report->path,
					  .facts = report->facts, .sum = whole_of(report)});
	for (size_t i = 0; i < report->histogram->class_count; i++) {
		const struct hl_histogram_class *class = &report->histogram->classes[i];
		size_t shown = stacks_shown(report, class);
		char label[LABEL_MAX];

		format_class(class->size_class, label);
		hl_stack_path_begin_table(report->path);
		for (size_t j = 0; j < shown; j++)
			if (hl_stack_path_add(report->path, class->stacks[j].leaf) < 0)
				hl_emit_fail(report->emit, -ENOMEM);
		for (size_t j = 0; j < shown; j++) {
			const struct hl_histogram_stack *stack = &class->stacks[j];
			const struct stack_row row = {j ? "" : label, stack->figures,
						      weight_of(report, &stack->figures),
						      stack->leaf};
			if (has_value(stack))
				hl_table_row(report->emit, &row, emphasis_of(report, class));
		}
	}
	hl_table_end(report->emit);
	hl_emit_line(report->emit, "the heaviest stacks of each size; --stacks shows more, --full "
				   "all their frames");
}

/* ---- all of it ---- */

static bool knows_in_both_units(const struct hl_profile *profile, enum hl_value value)
{
	return hl_profile_knows(profile, value, HL_UNIT_BYTES) &&
	       hl_profile_knows(profile, value, HL_UNIT_OBJECTS);
}

/* Other tools' files may hold bytes alone; then the number of blocks is unknown. */
static int check_sizes_are_known(const struct hl_profile *profile, enum hl_value value,
				 struct hl_error *err)
{
	enum hl_value of_sizes = hl_histogram_size_value(value);
	bool any = false;

	if (profile->size_count || knows_in_both_units(profile, of_sizes))
		return 0;
	for (unsigned other = 0; other < HL_VALUE_COUNT; other++)
		any |= knows_in_both_units(profile, hl_histogram_size_value((enum hl_value)other));
	if (!any)
		return hl_error_set(err, -ENODATA,
				    "cannot tell sizes in '%s': it holds no value in both bytes "
				    "and objects",
				    hl_profile_text(profile, profile->name));
	return hl_error_set(err, -ENODATA,
			    "cannot tell sizes in '%s': it does not hold %s in both bytes and "
			    "objects; choose what it does with --value",
			    hl_profile_text(profile, profile->name), hl_value_names[of_sizes]);
}

int hl_sizes_view(const struct hl_profile *profile, const struct hl_view_options *options,
		  struct hl_error *err)
{
	HL_CLEANUP(hl_calltree_release) struct hl_calltree tree = {0};
	HL_CLEANUP(hl_histogram_release) struct hl_histogram histogram = {0};
	HL_CLEANUP(hl_stack_path_release) struct hl_stack_path path = {0};
	struct report report = {
		.profile = profile,
		.options = options,
		.histogram = &histogram,
		.path = &path,
		.facts = options->full ? FULL : SHORTENS,
	};

	if (hl_profile_knows(profile, options->value, HL_UNIT_BYTES))
		report.facts |= KNOWS_BYTES;
	if (hl_profile_knows(profile, options->value, HL_UNIT_OBJECTS))
		report.facts |= KNOWS_OBJECTS;
	if (hl_profile_knows(profile, HL_VALUE_SLACK, HL_UNIT_BYTES))
		report.facts |= KNOWS_SLACK | (options->value == HL_VALUE_SLACK ? 0 : SHOWS_SLACK);
	int r = check_sizes_are_known(profile, options->value, err);
	if (r < 0)
		return r;
	r = hl_calltree_init(&tree, profile, options->value, options->unit);
	if (r == 0)
		r = hl_histogram_init(&histogram, profile, &tree, options->value, options->unit);
	if (r == 0)
		r = hl_stack_path_init(&path, profile, &tree);
	path.full = options->full;
	if (r == 0)
		r = hl_summary_begin(profile, options, "sizes/2", &report.emit);
	if (r < 0)
		return hl_summary_fail(profile, r, err);
	/* Whose size decides: the block's own, or the mean of its stack. */
	hl_emit_boolean(report.emit, "exact", histogram.exact);
	if (histogram.class_count) {
		hl_summary_value_line(report.emit, profile, options);
		hl_emit_line(report.emit, "by the %s",
			     histogram.exact	   ? "size of each block"
			     : profile->size_count ? "size of each block, mappings by the mean "
						     "size of each stack"
			     : profile->imported   ? "mean size of each stack"
						   : "mean size of each stack; 'heapline record "
						     "--sizes' tells each size apart");
	}
	write_classes(&report);
	write_stacks(&report);
	r = hl_summary_end(report.emit, profile);
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
