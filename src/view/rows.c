/* SPDX-License-Identifier: BSD-2-Clause */
/* Sums by key, without what is nothing, sorted; see rows.h. */
#include "view/rows.h"

#include "view/emit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HEAVY_SHARE 10 /* a row from a tenth of the total on stands out */

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

static int by_weight(const void *left, const void *right, void *context)
{
	const struct hl_row *a = left, *b = right;
	const struct hl_view_options *options = context;
	int flat = compare_figures(a->flat, b->flat, options->unit);
	int cum = compare_figures(a->cum, b->cum, options->unit);
	bool flat_first = options->sort == HL_VIEW_SORT_FLAT;
	int by_name = strcmp(a->label.name, b->label.name);

	if (flat_first && a->leaf != b->leaf)
		return a->leaf ? -1 : 1;
	if (flat || cum)
		return flat_first ? (flat ? flat : cum) : (cum ? cum : flat);
	return by_name ? by_name : (a->id > b->id) - (a->id < b->id);
}

/* ---- by frames ---- */

static bool is_nothing(struct hl_aggregate_figures figures)
{
	return !figures.bytes && !figures.objects;
}

static void append(struct hl_rows *rows, struct hl_row row)
{
	if (!is_nothing(row.flat) || !is_nothing(row.cum))
		rows->rows[rows->count++] = row;
}

/* What was allocated with no frame at all: the root's own. */
static void append_root(struct hl_rows *rows, const struct hl_profile *profile, enum hl_value value)
{
	struct hl_aggregate_figures own = hl_aggregate_figures_of(&profile->counters[0], value);

	append(rows, (struct hl_row){.label = hl_keys_label(&rows->keys, profile, 0),
				     .flat = own,
				     .cum = own,
				     .leaf = true});
}

/* ${leaves}: by key, whether stacks with any of the value end there. */
static void mark_leaves(const struct hl_rows *rows, const struct hl_profile *profile,
			enum hl_value value, bool *leaves)
{
	for (uint32_t i = 1; i < profile->node_count; i++)
		if (hl_profile_figure(&profile->counters[i], value, HL_UNIT_BYTES) ||
		    hl_profile_figure(&profile->counters[i], value, HL_UNIT_OBJECTS))
			leaves[rows->keys.of_frame[profile->nodes[i].frame]] = true;
}

static int collect_keys(struct hl_rows *rows, const struct hl_profile *profile,
			const struct hl_view_options *options, const struct hl_aggregate *sums)
{
	bool *leaves = calloc(rows->keys.count, sizeof(*leaves));

	rows->rows = calloc(rows->keys.count, sizeof(*rows->rows));
	if (!leaves || !rows->rows) {
		free(leaves);
		return -ENOMEM;
	}
	mark_leaves(rows, profile, options->value, leaves);
	append_root(rows, profile, options->value);
	for (uint32_t key = 1; key < rows->keys.count; key++)
		append(rows, (struct hl_row){.label = hl_keys_label(&rows->keys, profile, key),
					     .id = key,
					     .flat = sums->flat[key],
					     .cum = sums->cum[key],
					     .leaf = leaves[key]});
	rows->total = sums->total;
	free(leaves);
	return 0;
}

static int collect_frames(struct hl_rows *rows, const struct hl_profile *profile,
			  const struct hl_view_options *options)
{
	struct hl_aggregate sums = {0};

	int r = hl_keys_init(&rows->keys, profile, options->by);
	if (r == 0)
		r = hl_keys_choose_lines(&rows->keys, profile, options->value, options->unit,
					 options->sort == HL_VIEW_SORT_FLAT);
	if (r == 0)
		r = hl_aggregate_init(&sums, profile, options->value, rows->keys.of_frame,
				      rows->keys.count);
	if (r == 0)
		r = collect_keys(rows, profile, options, &sums);
	hl_aggregate_release(&sums);
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
		append(rows,
		       (struct hl_row){.label = {.name = hl_profile_text(profile, thread->name),
						 .file = "",
						 .module = ""},
				       .id = i,
				       .flat = own,
				       .cum = own,
				       .leaf = true});
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
						 : collect_frames(rows, profile, options);
	if (r == 0)
		qsort_r(rows->rows, rows->count, sizeof(*rows->rows), by_weight, &order);
	else
		hl_rows_release(rows);
	return r;
}

void hl_rows_release(struct hl_rows *rows)
{
	hl_keys_release(&rows->keys);
	free(rows->rows);
	*rows = (struct hl_rows){0};
}

size_t hl_rows_shown(const struct hl_rows *rows, const struct hl_view_options *options,
		     uint64_t row_default)
{
	uint64_t limit = options->row_limit;

	if (limit == HL_EMIT_ROWS_DEFAULT)
		limit = options->json ? 0 : row_default;
	return limit && limit < rows->count ? limit : rows->count;
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
