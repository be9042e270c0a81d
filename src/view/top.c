/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline top: functions, heaviest first. */
#include "profile/aggregate.h"
#include "view/summary.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_ROWS	30
#define HIGHLIGHT_SHARE 10 /* a row from a tenth of the total on stands out */

struct row {
	uint32_t function;
	struct hl_aggregate_figures flat, cum;
	const char *name;
};

/* What the order of rows depends on; qsort_r passes it to by_weight(). */
struct order {
	enum hl_unit unit;
	enum hl_view_sort sort;
};

static int64_t figure(struct hl_aggregate_figures figures, enum hl_unit unit)
{
	return unit == HL_UNIT_BYTES ? figures.bytes : figures.objects;
}

static int heavier_first(int64_t a, int64_t b)
{
	return (a < b) - (a > b);
}

static int by_weight(const void *left, const void *right, void *context)
{
	const struct row *a = left, *b = right;
	const struct order *order = context;
	int flat = heavier_first(figure(a->flat, order->unit), figure(b->flat, order->unit));
	int cum = heavier_first(figure(a->cum, order->unit), figure(b->cum, order->unit));
	int first = order->sort == HL_VIEW_SORT_FLAT ? flat : cum;
	int second = order->sort == HL_VIEW_SORT_FLAT ? cum : flat;
	int by_name = strcmp(a->name, b->name);

	if (first || second)
		return first ? first : second;
	return by_name ? by_name : (a->function > b->function) - (a->function < b->function);
}

static bool is_nothing(struct hl_aggregate_figures figures)
{
	return !figures.bytes && !figures.objects;
}

/* Functions with any figure, in order, in ${ret_rows}. */
static int collect_rows(const struct hl_profile *profile, const struct hl_view_options *options,
			const struct hl_aggregate *sums, struct row **ret_rows, size_t *ret_count)
{
	struct row *rows = calloc(sums->key_count + 1, sizeof(*rows));
	struct order order = {options->unit, options->sort};
	size_t count = 0;

	if (!rows)
		return -ENOMEM;
	for (uint32_t i = 1; i < sums->key_count; i++) {
		if (is_nothing(sums->flat[i]) && is_nothing(sums->cum[i]))
			continue;
		rows[count++] = (struct row){i, sums->flat[i], sums->cum[i],
					     hl_profile_text(profile, profile->functions[i].name)};
	}
	qsort_r(rows, count, sizeof(*rows), by_weight, &order);
	*ret_rows = rows;
	*ret_count = count;
	return 0;
}

static const char *basename_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash && slash[1] ? slash + 1 : path;
}

/* "file.c:12" for people, or the module's name. */
static const char *place_of(const struct hl_profile *profile,
			    const struct hl_profile_function *function, char *buffer, size_t size)
{
	const char *module = hl_profile_text(profile, profile->modules[function->module].path);

	if (!function->file)
		return basename_of(module);
	snprintf(buffer, size, "%s:%u", basename_of(hl_profile_text(profile, function->file)),
		 function->line);
	return buffer;
}

enum {
	COLUMN_FLAT,
	COLUMN_FLAT_PERCENT,
	COLUMN_CUM,
	COLUMN_CUM_PERCENT,
	COLUMN_OTHER, /* flat in the other unit */
	COLUMN_PLACE,
	COLUMN_NAME, /* last in tables: names can be very long */
	COLUMN_FILE,
	COLUMN_LINE,
	COLUMN_MODULE,
	COLUMN_FLAT_BYTES,
	COLUMN_FLAT_OBJECTS,
	COLUMN_CUM_BYTES,
	COLUMN_CUM_OBJECTS,
	COLUMN_COUNT,
};

static void begin_rows(struct hl_emit *emit, const struct hl_view_options *options)
{
	bool bytes = options->unit == HL_UNIT_BYTES;
	enum hl_emit_type type = bytes ? HL_EMIT_BYTES : HL_EMIT_COUNT;
	enum hl_unit other = bytes ? HL_UNIT_OBJECTS : HL_UNIT_BYTES;
	unsigned has_bytes = hl_profile_has_unit(options->value, HL_UNIT_BYTES)
				     ? HL_EMIT_JSON_ONLY
				     : HL_EMIT_JSON_ONLY | HL_EMIT_TEXT_ONLY;
	unsigned has_objects = hl_profile_has_unit(options->value, HL_UNIT_OBJECTS)
				       ? HL_EMIT_JSON_ONLY
				       : HL_EMIT_JSON_ONLY | HL_EMIT_TEXT_ONLY;
	const struct hl_emit_column columns[COLUMN_COUNT] = {
		[COLUMN_FLAT] = {NULL, "flat", type, HL_EMIT_TEXT_ONLY},
		[COLUMN_FLAT_PERCENT] = {NULL, "flat%", HL_EMIT_PERCENT, HL_EMIT_TEXT_ONLY},
		[COLUMN_CUM] = {NULL, "cum", type, HL_EMIT_TEXT_ONLY},
		[COLUMN_CUM_PERCENT] = {NULL, "cum%", HL_EMIT_PERCENT, HL_EMIT_TEXT_ONLY},
		[COLUMN_OTHER] = {NULL, hl_unit_names[other], bytes ? HL_EMIT_COUNT : HL_EMIT_BYTES,
				  HL_EMIT_TEXT_ONLY | (hl_profile_has_unit(options->value, other)
							       ? 0
							       : HL_EMIT_JSON_ONLY)},
		[COLUMN_PLACE] = {NULL, "where", HL_EMIT_TEXT,
				  HL_EMIT_TEXT_ONLY | HL_EMIT_SHORTENED},
		[COLUMN_NAME] = {"name", "function", HL_EMIT_TEXT, HL_EMIT_SHORTENED},
		[COLUMN_FILE] = {"file", NULL, HL_EMIT_TEXT, HL_EMIT_JSON_ONLY},
		[COLUMN_LINE] = {"line", NULL, HL_EMIT_COUNT, HL_EMIT_JSON_ONLY},
		[COLUMN_MODULE] = {"module", NULL, HL_EMIT_TEXT, HL_EMIT_JSON_ONLY},
		[COLUMN_FLAT_BYTES] = {"flat_bytes", NULL, HL_EMIT_BYTES, has_bytes},
		[COLUMN_FLAT_OBJECTS] = {"flat_objects", NULL, HL_EMIT_COUNT, has_objects},
		[COLUMN_CUM_BYTES] = {"cum_bytes", NULL, HL_EMIT_BYTES, has_bytes},
		[COLUMN_CUM_OBJECTS] = {"cum_objects", NULL, HL_EMIT_COUNT, has_objects},
	};
	hl_emit_rows(emit, "rows", columns, COLUMN_COUNT);
}

/* Cells in the order of the columns above. */
static void emit_row(struct hl_emit *emit, const struct hl_profile *profile,
		     const struct hl_view_options *options, const struct row *row,
		     struct hl_aggregate_figures total)
{
	const struct hl_profile_function *function = &profile->functions[row->function];
	enum hl_unit unit = options->unit;
	int64_t whole = figure(total, unit);
	int64_t sorted = figure(options->sort == HL_VIEW_SORT_FLAT ? row->flat : row->cum, unit);
	char place[256];

	hl_emit_row(emit, whole > 0 && sorted > (whole - 1) / HIGHLIGHT_SHARE);
	hl_emit_cell_integer(emit, figure(row->flat, unit));
	hl_emit_cell_percent(emit, figure(row->flat, unit), whole);
	hl_emit_cell_integer(emit, figure(row->cum, unit));
	hl_emit_cell_percent(emit, figure(row->cum, unit), whole);
	hl_emit_cell_integer(emit, unit == HL_UNIT_BYTES ? row->flat.objects : row->flat.bytes);
	hl_emit_cell_text(emit, place_of(profile, function, place, sizeof(place)));
	hl_emit_cell_text(emit, row->name);
	hl_emit_cell_text(emit, hl_profile_text(profile, function->file));
	hl_emit_cell_integer(emit, function->line);
	hl_emit_cell_text(emit, hl_profile_text(profile, profile->modules[function->module].path));
	hl_emit_cell_integer(emit, row->flat.bytes);
	hl_emit_cell_integer(emit, row->flat.objects);
	hl_emit_cell_integer(emit, row->cum.bytes);
	hl_emit_cell_integer(emit, row->cum.objects);
}

static size_t rows_shown(const struct hl_view_options *options, size_t count)
{
	uint64_t limit = options->row_limit;

	if (limit == HL_VIEW_ROWS_DEFAULT)
		limit = options->json ? 0 : DEFAULT_ROWS;
	return limit && limit < count ? limit : count;
}

static int emit_rows(const struct hl_profile *profile, const struct hl_view_options *options,
		     const struct row *rows, size_t count, struct hl_aggregate_figures total)
{
	struct hl_emit *emit;
	size_t shown = rows_shown(options, count);

	int r = hl_emit_new(options->out, options->json ? HL_EMIT_JSON : HL_EMIT_TABLE,
			    options->color, &emit);
	if (r < 0)
		return r;
	hl_emit_begin(emit, "top");
	hl_summary_members(emit, profile, options);
	hl_summary_lines(emit, profile);
	if (count) {
		hl_summary_value_line(emit, options);
		hl_emit_line(emit, "%s", "");
	}
	begin_rows(emit, options);
	for (size_t i = 0; i < shown; i++)
		emit_row(emit, profile, options, &rows[i], total);
	hl_emit_rows_end(emit);
	if (shown < count)
		hl_emit_line(emit, "... and %zu more; -n 0 shows all", count - shown);
	hl_summary_names_line(emit, profile);
	return hl_emit_finish(emit);
}

int hl_view_top(const struct hl_profile *profile, const struct hl_view_options *options,
		struct hl_error *err)
{
	struct hl_aggregate sums = {0};
	struct row *rows = NULL;
	size_t count;

	int r = hl_aggregate_init(&sums, profile, options->value, NULL, 0);
	if (r == 0)
		r = collect_rows(profile, options, &sums, &rows, &count);
	if (r == 0)
		r = emit_rows(profile, options, rows, count, sums.total);
	free(rows);
	hl_aggregate_release(&sums);
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
