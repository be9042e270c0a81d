/* SPDX-License-Identifier: BSD-2-Clause */
/* Sums before and after by key, leaves out what is equal, and sorts the rest; see diff_rows.h. */
#include "view/diff_rows.h"

#include "view/rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- order ---- */

static int heavier_first(int64_t a, int64_t b)
{
	return (a < b) - (a > b);
}

static int64_t growth_of(const struct hl_diff_row *row, enum hl_unit unit)
{
	return hl_aggregate_figure(hl_diff_delta(row->before, row->after), unit);
}

static int64_t size_of(const struct hl_diff_row *row, enum hl_unit unit)
{
	int64_t before = hl_aggregate_figure(row->before, unit),
		after = hl_aggregate_figure(row->after, unit);
	return before > after ? before : after;
}

static int compare(const struct hl_diff_row *a, const struct hl_diff_row *b,
		   const struct hl_view_options *options, enum hl_unit unit)
{
	if (options->sort == HL_VIEW_SORT_SIZE)
		return heavier_first(size_of(a, unit), size_of(b, unit));
	return heavier_first(growth_of(a, unit), growth_of(b, unit));
}

static int by_weight(const void *left, const void *right, void *context)
{
	const struct hl_diff_row *a = left, *b = right;
	const struct hl_view_options *options = context;
	enum hl_unit other = hl_unit_other(options->unit);
	int chosen = compare(a, b, options, options->unit), second = compare(a, b, options, other);
	int by_name = strcmp(a->label.name, b->label.name);

	if (chosen || second)
		return chosen ? chosen : second;
	return by_name ? by_name : (a->id > b->id) - (a->id < b->id);
}

/* ---- rows ---- */

static bool differ(struct hl_aggregate_figures a, struct hl_aggregate_figures b)
{
	return a.bytes != b.bytes || a.objects != b.objects;
}

/* By key of frames; key 0 is what was allocated with no frame at all. */
static int collect_keys(struct hl_diff_rows *rows, const struct hl_profile *profile,
			const struct hl_aggregate *before, const struct hl_aggregate *after,
			enum hl_value value)
{
	rows->rows = calloc(rows->keys.count, sizeof(*rows->rows));
	if (!rows->rows)
		return -ENOMEM;
	rows->before = before->total;
	rows->after = after->total;
	for (uint32_t i = 0; i < rows->keys.count; i++) {
		struct hl_diff_row row = {
			.id = i,
			.before = i ? before->flat[i]
				    : hl_aggregate_figures_of(&profile->base[0], value),
			.after = i ? after->flat[i]
				   : hl_aggregate_figures_of(&profile->counters[0], value),
		};
		if (!differ(row.before, row.after))
			continue;
		row.label = hl_keys_label(&rows->keys, profile, i);
		rows->rows[rows->count++] = row;
	}
	return 0;
}

static int collect_by_key(struct hl_diff_rows *rows, const struct hl_profile *profile,
			  const struct hl_view_options *options)
{
	struct hl_aggregate before = {0}, after = {0};

	int r = hl_keys_init(&rows->keys, profile, options->by);
	if (r == 0)
		r = hl_keys_choose_lines(&rows->keys, profile, options->value, options->unit, true);
	if (r == 0)
		r = hl_aggregate_init_base(&before, profile, options->value, rows->keys.of_frame,
					   rows->keys.count);
	if (r == 0)
		r = hl_aggregate_init(&after, profile, options->value, rows->keys.of_frame,
				      rows->keys.count);
	if (r == 0)
		r = collect_keys(rows, profile, &before, &after, options->value);
	hl_aggregate_release(&before);
	hl_aggregate_release(&after);
	return r;
}

/* ---- stacks ---- */

/* Stacks are those of the call tree: equal when the names of their functions are. */
static int collect_by_stack(struct hl_diff_rows *rows, const struct hl_profile *profile,
			    const struct hl_view_options *options)
{
	int r = hl_calltree_init(&rows->tree, profile, options->value, options->unit);
	if (r < 0)
		return r;
	rows->rows = calloc(rows->tree.count, sizeof(*rows->rows));
	if (!rows->rows)
		return -ENOMEM;
	for (size_t i = 0; i < profile->node_count; i++) {
		struct hl_diff_row *row = &rows->rows[rows->tree.node_of[i]];
		hl_aggregate_add(&row->before,
				 hl_aggregate_figures_of(&profile->base[i], options->value));
		hl_aggregate_add(&row->after,
				 hl_aggregate_figures_of(&profile->counters[i], options->value));
	}
	for (uint32_t i = 0; i < rows->tree.count; i++) {
		struct hl_diff_row row = rows->rows[i];
		hl_aggregate_add(&rows->before, row.before);
		hl_aggregate_add(&rows->after, row.after);
		if (!differ(row.before, row.after))
			continue;
		row.id = i;
		row.label = hl_keys_node_label(profile, &rows->tree.nodes[i]);
		rows->rows[rows->count++] = row;
	}
	return 0;
}

/* ---- all of it ---- */

static void sort(struct hl_diff_rows *rows, const struct hl_view_options *options)
{
	struct hl_view_options order = *options; /* qsort_r() wants what it may change */

	qsort_r(rows->rows, rows->count, sizeof(*rows->rows), by_weight, &order);
	rows->shrunk_from = rows->count;
	if (options->sort == HL_VIEW_SORT_SIZE)
		return;
	while (rows->shrunk_from &&
	       growth_of(&rows->rows[rows->shrunk_from - 1], options->unit) < 0)
		rows->shrunk_from--;
}

int hl_diff_rows_init(struct hl_diff_rows *rows, const struct hl_profile *profile,
		      const struct hl_view_options *options)
{
	*rows = (struct hl_diff_rows){0};
	int r = options->by == HL_VIEW_BY_STACK ? collect_by_stack(rows, profile, options)
						: collect_by_key(rows, profile, options);
	if (r == 0)
		sort(rows, options);
	else
		hl_diff_rows_release(rows);
	return r;
}

void hl_diff_rows_release(struct hl_diff_rows *rows)
{
	hl_keys_release(&rows->keys);
	hl_calltree_release(&rows->tree);
	free(rows->rows);
	*rows = (struct hl_diff_rows){0};
}
