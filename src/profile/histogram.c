/* SPDX-License-Identifier: BSD-2-Clause */
/* One entry for each stack and size class, sorted by these, equal ones merged; see calltree.h. */
#include "profile/calltree.h"

#include "base/array.h"
#include "base/cleanup.h"

#include <string.h>

static void add(struct hl_histogram_figures *sum, const struct hl_histogram_figures *more)
{
	sum->bytes += more->bytes;
	sum->objects += more->objects;
	sum->inuse_bytes += more->inuse_bytes;
	sum->slack_bytes += more->slack_bytes;
}

static bool is_nothing(const struct hl_histogram_figures *figures)
{
	return !figures->bytes && !figures->objects && !figures->inuse_bytes &&
	       !figures->slack_bytes;
}

/* ---- the class of a mean size ---- */

enum hl_value hl_histogram_size_value(enum hl_value value)
{
	if (value == HL_VALUE_TEMPORARY)
		return HL_VALUE_ALLOC;
	return value == HL_VALUE_SLACK || hl_value_is_of_pages(value) ? HL_VALUE_INUSE : value;
}

static uint64_t magnitude(int64_t number)
{
	return number < 0 ? -(uint64_t)number : (uint64_t)number;
}

/*
 * The class of the mean size of ${value}, or of the first other value that has one: a stack with
 * nothing of the value itself can have slack. Blocks that other threads freed can make both figures
 * of a value negative.
 */
static uint32_t class_of_mean(const struct hl_profile_counters *counters, enum hl_value value)
{
	const enum hl_value candidates[] = {hl_histogram_size_value(value), HL_VALUE_INUSE,
					    HL_VALUE_ALLOC, HL_VALUE_PEAK};

	for (size_t i = 0; i < HL_COUNT_OF(candidates); i++) {
		int64_t bytes = hl_profile_figure(counters, candidates[i], HL_UNIT_BYTES);
		int64_t objects = hl_profile_figure(counters, candidates[i], HL_UNIT_OBJECTS);
		if (objects && (!bytes || (bytes < 0) == (objects < 0)))
			return hl_size_class(magnitude(bytes) / magnitude(objects));
	}
	return 0;
}

/* ---- entries ---- */

static struct hl_histogram_figures figures_of(const struct hl_profile_counters *counters,
					      enum hl_value value)
{
	return (struct hl_histogram_figures){
		.bytes = hl_profile_figure(counters, value, HL_UNIT_BYTES),
		.objects = hl_profile_figure(counters, value, HL_UNIT_OBJECTS),
		.inuse_bytes = hl_profile_figure(counters, HL_VALUE_INUSE, HL_UNIT_BYTES),
		.slack_bytes = counters->slack_bytes,
	};
}

static void subtract(struct hl_profile_counters *counters, const struct hl_profile_counters *less)
{
	counters->alloc_bytes -= less->alloc_bytes;
	counters->alloc_objects -= less->alloc_objects;
	counters->free_bytes -= less->free_bytes;
	counters->free_objects -= less->free_objects;
	counters->peak_bytes -= less->peak_bytes;
	counters->peak_objects -= less->peak_objects;
	counters->temporary_objects -= less->temporary_objects;
	counters->slack_bytes -= less->slack_bytes;
	counters->resident_bytes -= less->resident_bytes;
	counters->swapped_bytes -= less->swapped_bytes;
}

static int append(struct hl_histogram *histogram, size_t *capacity, uint32_t leaf,
		  uint32_t size_class, const struct hl_histogram_figures *figures)
{
	return HL_ARRAY_APPEND(histogram->stacks, histogram->stack_count, *capacity,
			       (struct hl_histogram_stack){size_class, leaf, *figures});
}

/* ---- from entries to classes ---- */

static int by_class_and_leaf(const void *left, const void *right)
{
	const struct hl_histogram_stack *a = left, *b = right;

	if (a->size_class != b->size_class)
		return a->size_class < b->size_class ? -1 : 1;
	return (a->leaf > b->leaf) - (a->leaf < b->leaf);
}

static int heavier_first(int64_t a, int64_t b)
{
	return (a < b) - (a > b);
}

/* Nodes of the call tree are in order of name, so equally heavy stacks are, too. */
static int by_weight(const void *left, const void *right, void *context)
{
	const struct hl_histogram_stack *a = left, *b = right;
	enum hl_unit unit = *(const enum hl_unit *)context;
	int bytes = heavier_first(a->figures.bytes, b->figures.bytes);
	int objects = heavier_first(a->figures.objects, b->figures.objects);
	int first = unit == HL_UNIT_BYTES ? bytes : objects;

	if (first)
		return first;
	if (bytes || objects)
		return bytes ? bytes : objects;
	return (a->leaf > b->leaf) - (a->leaf < b->leaf);
}

static void make_classes(struct hl_histogram *histogram, enum hl_unit unit)
{
	struct hl_histogram_stack *stacks = histogram->stacks;
	size_t kept = 0;

	if (!histogram->stack_count)
		return;
	qsort(stacks, histogram->stack_count, sizeof(*stacks), by_class_and_leaf);
	for (size_t i = 0; i < histogram->stack_count; i++) {
		if (kept && by_class_and_leaf(&stacks[kept - 1], &stacks[i]) == 0)
			add(&stacks[kept - 1].figures, &stacks[i].figures);
		else
			stacks[kept++] = stacks[i];
	}
	histogram->stack_count = kept;
	for (size_t i = 0; i < kept; i++) {
		if (!i || stacks[i].size_class != stacks[i - 1].size_class)
			histogram->classes[histogram->class_count++] = (struct hl_histogram_class){
				.size_class = stacks[i].size_class, .stacks = &stacks[i]};
		struct hl_histogram_class *class = &histogram->classes[histogram->class_count - 1];
		class->stack_count++;
		add(&class->figures, &stacks[i].figures);
		add(&histogram->total, &stacks[i].figures);
	}
	for (size_t i = 0; i < histogram->class_count; i++) {
		const struct hl_histogram_class *class = &histogram->classes[i];
		qsort_r(stacks + (class->stacks - stacks), class->stack_count, sizeof(*stacks),
			by_weight, &unit);
	}
}

/*
 * Blocks whose size was recorded count in its class. The rest goes by the mean of each node of the
 * profile: calls of one function from different lines are one leaf of the call tree, but seldom ask
 * for one size.
 */
int hl_histogram_init(struct hl_histogram *histogram, const struct hl_profile *profile,
		      const struct hl_calltree *tree, enum hl_value value, enum hl_unit unit)
{
	HL_FREED struct hl_profile_counters *rest = calloc(profile->node_count, sizeof(*rest));
	size_t capacity = 0;
	int r = rest ? 0 : -ENOMEM;

	*histogram = (struct hl_histogram){.exact = true};
	if (rest)
		memcpy(rest, profile->counters, profile->node_count * sizeof(*rest));
	for (size_t i = 0; r == 0 && i < profile->size_count; i++) {
		const struct hl_profile_size *size = &profile->sizes[i];
		struct hl_histogram_figures figures = figures_of(&size->counters, value);
		subtract(&rest[size->node], &size->counters);
		if (!is_nothing(&figures))
			r = append(histogram, &capacity, tree->node_of[size->node],
				   size->size_class, &figures);
	}
	for (size_t i = 0; r == 0 && i < profile->node_count; i++) {
		struct hl_histogram_figures figures = figures_of(&rest[i], value);
		if (is_nothing(&figures))
			continue;
		histogram->exact = false;
		r = append(histogram, &capacity, tree->node_of[i], class_of_mean(&rest[i], value),
			   &figures);
	}
	if (r == 0)
		make_classes(histogram, unit);
	else
		hl_histogram_release(histogram);
	return r;
}

void hl_histogram_release(struct hl_histogram *histogram)
{
	free(histogram->stacks);
	histogram->stacks = NULL;
	histogram->stack_count = histogram->class_count = 0;
}
