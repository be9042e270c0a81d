/* SPDX-License-Identifier: BSD-2-Clause */
/* Sums by key, without what is nothing, sorted; see rows.h. */
#include "view/rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
