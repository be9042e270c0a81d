/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline sizes: how large the blocks are, and which stacks allocated those of each size. */
#include "profile/histogram.h"
#include "view/format.h"
#include "view/keys.h"
#include "view/rows.h"
#include "view/stack_path.h"
#include "view/summary.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BAR_COLUMNS 16

/* What all parts of the report need. */
struct report {
	struct hl_emit *emit;
	const struct hl_profile *profile;
	const struct hl_view_options *options;
	const struct hl_histogram *histogram;
	struct hl_stack_path *path;
	bool knows_bytes, knows_objects, knows_slack;
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

/* "512 B", "4 KiB": the first size of a class is a power of two, so nothing is rounded. */
static const char *format_power(uint64_t size, char buffer[HL_FORMAT_MAX])
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	size_t unit = 0;

	for (; size >= 1024; size /= 1024)
		unit++;
	snprintf(buffer, HL_FORMAT_MAX, "%u %s", (unsigned)size, units[unit]);
	return buffer;
}

/* "16 B .. 31 B"; from 1 KiB on "1 KiB .. <2 KiB". */
static void format_class(uint32_t size_class, char *buffer, size_t buffer_size)
{
	uint64_t first = hl_size_class_first(size_class), last = hl_size_class_last(size_class);
	char low[HL_FORMAT_MAX], high[HL_FORMAT_MAX];

	if (first == last)
		snprintf(buffer, buffer_size, "%s", format_power(first, low));
	else if (last < 1024)
		snprintf(buffer, buffer_size, "%s .. %s", format_power(first, low),
			 format_power(last, high));
	else if (last < UINT64_MAX)
		snprintf(buffer, buffer_size, "%s .. <%s", format_power(first, low),
			 format_power(last + 1, high));
	else
		snprintf(buffer, buffer_size, "%s ..", format_power(first, low));
}

/* As many signs as ${part} is of ${most}; one at least when it is anything. */
static void draw_bar(int64_t part, int64_t most, char bar[BAR_COLUMNS + 1])
{
	size_t length = 0;

	if (part > 0 && most > 0)
		length = (size_t)((double)part / (double)most * BAR_COLUMNS + 0.5);
	if (part > 0 && !length)
		length = 1;
	memset(bar, '#', length);
	bar[length] = '\0';
}

/* Not so when it has slack alone. Blocks of size 0 have no bytes, but count. */
static bool has_value(const struct hl_histogram_stack *stack)
{
	return stack->figures.bytes || stack->figures.objects;
}

/* ---- the histogram ---- */

/* JSON's integers are signed; a size beyond them stands in damaged files alone. */
static int64_t size_number(uint64_t size)
{
	return size > INT64_MAX ? INT64_MAX : (int64_t)size;
}

static void begin_classes(const struct report *report)
{
	unsigned bytes = report->knows_bytes ? 0 : HL_EMIT_HIDDEN;
	unsigned objects = report->knows_objects ? 0 : HL_EMIT_HIDDEN;
	unsigned slack = report->knows_slack ? 0 : HL_EMIT_HIDDEN;
	bool is_slack = report->options->value == HL_VALUE_SLACK;
	const struct hl_emit_column columns[] = {
		{NULL, "size", HL_EMIT_TEXT, HL_EMIT_TEXT_ONLY},
		{"size_min", NULL, HL_EMIT_BYTES, HL_EMIT_JSON_ONLY},
		{"size_max", NULL, HL_EMIT_BYTES, HL_EMIT_JSON_ONLY},
		{"objects", "objects", HL_EMIT_COUNT, objects},
		{"bytes", "bytes", HL_EMIT_BYTES, bytes},
		{NULL, "share", HL_EMIT_PERCENT, HL_EMIT_TEXT_ONLY},
		{NULL, "", HL_EMIT_TEXT, HL_EMIT_TEXT_ONLY | HL_EMIT_OMITTED},
		{"slack_bytes", "slack", HL_EMIT_BYTES, slack | (is_slack ? HL_EMIT_JSON_ONLY : 0)},
		{NULL, "slack%", HL_EMIT_PERCENT, slack | HL_EMIT_TEXT_ONLY},
		{"inuse_bytes", NULL, HL_EMIT_BYTES, slack | HL_EMIT_JSON_ONLY},
	};
	hl_emit_rows(report->emit, "rows", columns, HL_COUNT_OF(columns));
}

/* Slack is a share of what the allocator has set aside. */
static void emit_figures(const struct report *report, const struct hl_histogram_figures *figures,
			 const char *bar)
{
	struct hl_emit *emit = report->emit;

	hl_emit_cell_integer(emit, figures->objects);
	hl_emit_cell_integer(emit, figures->bytes);
	hl_emit_cell_percent(emit, weight_of(report, figures), whole_of(report));
	hl_emit_cell_text(emit, bar);
	hl_emit_cell_integer(emit, figures->slack_bytes);
	hl_emit_cell_percent(emit, figures->slack_bytes,
			     figures->inuse_bytes + figures->slack_bytes);
	hl_emit_cell_integer(emit, figures->inuse_bytes);
}

/* How many classes are heavier. */
static size_t rank_of(const struct report *report, const struct hl_histogram_class *class)
{
	int64_t weight = weight_of(report, &class->figures);
	size_t rank = 0;

	for (size_t i = 0; i < report->histogram->class_count; i++)
		rank += weight_of(report, &report->histogram->classes[i].figures) > weight;
	return rank;
}

static int64_t heaviest_weight(const struct report *report)
{
	int64_t most = 0;

	for (size_t i = 0; i < report->histogram->class_count; i++) {
		int64_t weight = weight_of(report, &report->histogram->classes[i].figures);
		most = weight > most ? weight : most;
	}
	return most;
}

/* Classes are few, so the heaviest five would be nearly all: a tenth of the total is asked, too. */
static void begin_row(const struct report *report, const struct hl_histogram_class *class)
{
	unsigned emphasis = hl_rows_emphasis(rank_of(report, class),
					     weight_of(report, &class->figures), whole_of(report));
	hl_emit_row(report->emit, emphasis & HL_EMIT_HEAVY ? emphasis : 0);
}

static size_t stacks_shown(const struct report *report, const struct hl_histogram_class *class)
{
	uint64_t limit = report->options->stack_limit;
	return limit && limit < class->stack_count ? limit : class->stack_count;
}

/* Nothing in tables, where stacks have one of their own. */
static void emit_stack_member(const struct report *report, const struct hl_histogram_stack *stack)
{
	struct hl_emit *emit = report->emit;

	hl_emit_object(emit, NULL);
	if (report->knows_bytes)
		hl_emit_integer(emit, "bytes", stack->figures.bytes);
	if (report->knows_objects)
		hl_emit_integer(emit, "objects", stack->figures.objects);
	size_t depth = hl_stack_path_fill(report->path, stack->leaf);
	hl_emit_array(emit, "stack");
	for (size_t i = depth; i-- > 0;)
		hl_emit_text(emit, NULL, report->path->names[i]);
	hl_emit_array_end(emit);
	hl_emit_array(emit, "frames");
	for (size_t i = depth; i-- > 0;) {
		const struct hl_emit_frame *frame = &report->path->frames[i];
		hl_emit_object(emit, NULL);
		hl_emit_text(emit, "function", frame->function);
		hl_emit_text(emit, "module", frame->module);
		hl_emit_text(emit, "file", frame->file);
		hl_emit_integer(emit, "line", frame->line);
		hl_emit_object_end(emit);
	}
	hl_emit_array_end(emit);
	hl_emit_object_end(emit);
}

static void emit_class(const struct report *report, const struct hl_histogram_class *class)
{
	char label[2 * HL_FORMAT_MAX + 8], bar[BAR_COLUMNS + 1];

	format_class(class->size_class, label, sizeof(label));
	draw_bar(weight_of(report, &class->figures), heaviest_weight(report), bar);
	begin_row(report, class);
	hl_emit_cell_text(report->emit, label);
	hl_emit_cell_integer(report->emit, size_number(hl_size_class_first(class->size_class)));
	hl_emit_cell_integer(report->emit, size_number(hl_size_class_last(class->size_class)));
	emit_figures(report, &class->figures, bar);
	hl_emit_array(report->emit, "stacks");
	for (size_t i = 0; i < stacks_shown(report, class); i++)
		if (has_value(&class->stacks[i]))
			emit_stack_member(report, &class->stacks[i]);
	hl_emit_array_end(report->emit);
}

/* For people; JSON has the totals at its head. */
static void emit_total(const struct report *report)
{
	if (report->options->json || !report->histogram->class_count)
		return;
	hl_emit_row(report->emit, 0);
	hl_emit_cell_text(report->emit, "total");
	hl_emit_cell_integer(report->emit, 0);
	hl_emit_cell_integer(report->emit, 0);
	emit_figures(report, &report->histogram->total, "");
}

static void emit_classes(const struct report *report)
{
	hl_emit_line(report->emit, "%s", "");
	begin_classes(report);
	for (size_t i = 0; i < report->histogram->class_count; i++)
		emit_class(report, &report->histogram->classes[i]);
	emit_total(report);
	hl_emit_rows_end(report->emit);
	if (report->knows_slack && report->histogram->class_count)
		hl_emit_line(report->emit, "slack: of the blocks in use at the end, as a share of "
					   "what the allocator set aside for them");
}

/* ---- the stacks of each class, as a table ---- */

static int emit_stack_row(const struct report *report, const struct hl_histogram_stack *stack,
			  const char *label)
{
	char *text = hl_stack_path_line(report->path, stack->leaf, report->options->full);

	if (!text)
		return -ENOMEM;
	hl_emit_cell_text(report->emit, label);
	hl_emit_cell_integer(report->emit, stack->figures.objects);
	hl_emit_cell_integer(report->emit, stack->figures.bytes);
	hl_emit_cell_percent(report->emit, weight_of(report, &stack->figures), whole_of(report));
	hl_emit_cell_text(report->emit, text);
	free(text);
	return 0;
}

static int tell_apart(const struct report *report, const struct hl_histogram_class *class)
{
	int r = 0;

	hl_stack_path_begin_table(report->path);
	for (size_t i = 0; r == 0 && i < stacks_shown(report, class); i++)
		r = hl_stack_path_add(report->path, class->stacks[i].leaf);
	return r;
}

static int emit_stacks_of(const struct report *report, const struct hl_histogram_class *class)
{
	char label[2 * HL_FORMAT_MAX + 8];
	int r = tell_apart(report, class);

	format_class(class->size_class, label, sizeof(label));
	for (size_t i = 0; r == 0 && i < stacks_shown(report, class); i++) {
		if (!has_value(&class->stacks[i]))
			continue;
		begin_row(report, class);
		r = emit_stack_row(report, &class->stacks[i], i ? "" : label);
	}
	return r;
}

static int emit_stacks(const struct report *report)
{
	const struct hl_view_options *options = report->options;
	const struct hl_emit_column columns[] = {
		{NULL, "size", HL_EMIT_TEXT, 0},
		{NULL, "objects", HL_EMIT_COUNT, report->knows_objects ? 0 : HL_EMIT_HIDDEN},
		{NULL, "bytes", HL_EMIT_BYTES, report->knows_bytes ? 0 : HL_EMIT_HIDDEN},
		{NULL, "share", HL_EMIT_PERCENT, 0},
		{NULL, "allocated by", HL_EMIT_TEXT,
		 options->full ? 0 : HL_EMIT_SHORTENED | HL_EMIT_NAMES | HL_EMIT_KEY},
	};
	int r = 0;

	if (options->json || !report->histogram->class_count)
		return 0;
	hl_emit_line(report->emit, "%s", "");
	hl_emit_rows(report->emit, NULL, columns, HL_COUNT_OF(columns));
	for (size_t i = 0; r == 0 && i < report->histogram->class_count; i++)
		r = emit_stacks_of(report, &report->histogram->classes[i]);
	hl_emit_rows_end(report->emit);
	hl_emit_line(report->emit, "the heaviest stacks of each size; --stacks shows more, --full "
				   "all their frames");
	return r;
}

/* ---- all of it ---- */

/* Whose size decides: the block's own, or the mean of its stack. */
static void emit_method(const struct report *report)
{
	const struct hl_profile *profile = report->profile;

	hl_emit_boolean(report->emit, "exact", report->histogram->exact);
	if (!report->histogram->class_count)
		return;
	if (report->histogram->exact)
		hl_emit_line(report->emit, "by the size of each block");
	else if (profile->size_count)
		hl_emit_line(report->emit, "by the size of each block, mappings by the mean size "
					   "of each stack");
	else
		hl_emit_line(report->emit, "by the mean size of each stack%s",
			     profile->imported
				     ? ""
				     : "; 'heapline record --sizes' tells each size apart");
}

static int emit_report(const struct hl_profile *profile, const struct hl_view_options *options,
		       const struct hl_histogram *histogram, struct hl_stack_path *path)
{
	struct report report = {
		.profile = profile,
		.options = options,
		.histogram = histogram,
		.path = path,
		.knows_bytes = hl_profile_knows(profile, options->value, HL_UNIT_BYTES),
		.knows_objects = hl_profile_knows(profile, options->value, HL_UNIT_OBJECTS),
		.knows_slack = hl_profile_knows(profile, HL_VALUE_SLACK, HL_UNIT_BYTES),
	};

	int r = hl_emit_new(options->out, options->json ? HL_EMIT_JSON : HL_EMIT_TABLE,
			    options->color, &report.emit);
	if (r < 0)
		return r;
	hl_emit_begin_version(report.emit, "sizes", 2); /* 1: names in `frames` */
	hl_summary_members(report.emit, profile, options);
	hl_summary_lines(report.emit, profile);
	if (histogram->class_count)
		hl_summary_value_line(report.emit, profile, options);
	emit_method(&report);
	emit_classes(&report);
	r = emit_stacks(&report);
	hl_summary_names_line(report.emit, profile);
	int finished = hl_emit_finish(report.emit);
	return r < 0 ? r : finished;
}

static bool knows_in_both_units(const struct hl_profile *profile, enum hl_value value)
{
	return hl_profile_knows(profile, value, HL_UNIT_BYTES) &&
	       hl_profile_knows(profile, value, HL_UNIT_OBJECTS);
}

static bool knows_any_sizes(const struct hl_profile *profile)
{
	bool any = false;

	for (unsigned value = 0; value < HL_VALUE_COUNT; value++)
		any |= knows_in_both_units(profile, hl_histogram_size_value((enum hl_value)value));
	return any;
}

/* Other tools' files may hold bytes alone; then the number of blocks is unknown. */
static int check_sizes_are_known(const struct hl_profile *profile, enum hl_value value,
				 struct hl_error *err)
{
	enum hl_value of_sizes = hl_histogram_size_value(value);

	if (profile->size_count || knows_in_both_units(profile, of_sizes))
		return 0;
	if (!knows_any_sizes(profile))
		return hl_error_set(err, -ENODATA,
				    "cannot tell sizes in '%s': it holds no value in both bytes "
				    "and objects",
				    hl_profile_text(profile, profile->name));
	return hl_error_set(err, -ENODATA,
			    "cannot tell sizes in '%s': it does not hold %s in both bytes and "
			    "objects; choose what it does with --value",
			    hl_profile_text(profile, profile->name), hl_value_names[of_sizes]);
}

int hl_view_sizes(const struct hl_profile *profile, const struct hl_view_options *options,
		  struct hl_error *err)
{
	struct hl_calltree tree = {0};
	struct hl_histogram histogram = {0};
	struct hl_stack_path path = {0};

	int r = check_sizes_are_known(profile, options->value, err);
	if (r < 0)
		return r;
	r = hl_calltree_init(&tree, profile, options->value, options->unit);
	if (r == 0)
		r = hl_histogram_init(&histogram, profile, &tree, options->value, options->unit);
	if (r == 0)
		r = hl_stack_path_init(&path, profile, &tree);
	if (r == 0)
		r = emit_report(profile, options, &histogram, &path);
	hl_stack_path_release(&path);
	hl_histogram_release(&histogram);
	hl_calltree_release(&tree);
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
