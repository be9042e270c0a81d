/* SPDX-License-Identifier: BSD-2-Clause */
/* What has changed between two snapshots of heaps. */
#include "view/heap.h"

#include "heap/heap_figures.h"
#include "view/format.h"
#include "view/heap_words.h"

#include <inttypes.h>
#include <string.h>

static void emit_snapshot(struct hl_emit *emit, const char *key,
			  const struct hl_heap_figures *figures)
{
	hl_emit_object(emit, key);
	hl_emit_text(emit, "command", figures->command);
	hl_emit_integer(emit, "pid", figures->pid);
	hl_emit_text(emit, "taken", figures->taken);
	hl_emit_object_end(emit);
	hl_emit_line(emit, "%s: %s (pid %" PRId64 "), %s", key, figures->command, figures->pid,
		     figures->taken);
}

struct change {
	enum hl_heap_figure figure;
	const char *name;
	int64_t before, after, change;
};

static void put(struct hl_emit *emit, const struct change *row, const char *sign, int64_t number)
{
	char text[HL_FORMAT_MAX], signed_text[HL_FORMAT_MAX + 1];

	if (hl_heap_figure_is_bytes(row->figure))
		hl_format_bytes(number, text);
	else
		hl_format_count(number, text);
	snprintf(signed_text, sizeof(signed_text), "%s%s", sign, text);
	hl_cell_text(emit, signed_text);
}

static void before_text(struct hl_emit *emit, const void *row, const void *context)
{
	(void)context;
	put(emit, row, "", ((const struct change *)row)->before);
}

static void after_text(struct hl_emit *emit, const void *row, const void *context)
{
	(void)context;
	put(emit, row, "", ((const struct change *)row)->after);
}

static void change_text(struct hl_emit *emit, const void *row, const void *context)
{
	int64_t change = ((const struct change *)row)->change;

	(void)context;
	put(emit, row, change > 0 ? "+" : "", change);
}

/* In tables bytes are for people; JSON has them all as integers. */
static const struct hl_column columns[] = {
	{"figure", "figure", HL_COLUMN_TEXT, HL_MEMBER(struct change, name), HL_COLUMN_KEY},
	{"before", NULL, HL_COLUMN_COUNT, HL_MEMBER(struct change, before)},
	{"after", NULL, HL_COLUMN_COUNT, HL_MEMBER(struct change, after)},
	{"change", NULL, HL_COLUMN_COUNT, HL_MEMBER(struct change, change)},
	{NULL, "before", HL_COLUMN_TEXT, .cell = before_text},
	{NULL, "after", HL_COLUMN_TEXT, .cell = after_text},
	{NULL, "change", HL_COLUMN_TEXT, .cell = change_text},
};

static void emit_changes(struct hl_emit *emit, const struct hl_heap_figures *before,
			 const struct hl_heap_figures *after)
{
	hl_emit_blank(emit);
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", columns)});
	for (int i = 0; i < HL_HEAP_FIGURE_COUNT; i++) {
		int64_t from = hl_heap_number(before->numbers[i]);
		int64_t to = hl_heap_number(after->numbers[i]);
		struct change row = {(enum hl_heap_figure)i, hl_heap_figure_names[i], from, to,
				     to - from};
		if (from || to)
			hl_table_row(emit, &row, 0);
	}
	hl_table_end(emit);
}

int hl_view_heap_diff(const struct hl_heap_figures *before, const struct hl_heap_figures *after,
		      const struct hl_emit_options *options)
{
	struct hl_emit *emit;

	int r = hl_emit_open(options, "heap-diff/1", &emit);
	if (r < 0)
		return r;
	emit_snapshot(emit, "before", before);
	emit_snapshot(emit, "after", after);
	if (before->pid != after->pid || strcmp(before->command, after->command) != 0)
		hl_emit_warning(emit, "%s", "the snapshots are of different processes");
	emit_changes(emit, before, after);
	return hl_emit_finish(emit);
}
