/* SPDX-License-Identifier: BSD-2-Clause */
/* What has changed between two snapshots of heaps. */
#include "view/heap.h"

#include "heap/heap_figures.h"

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
	const char *name;
	int64_t before, after, change;
	char before_text[HL_FORMAT_MAX], after_text[HL_FORMAT_MAX], change_text[HL_FORMAT_MAX + 1];
};

#define MEMBER(name) HL_MEMBER(struct change, name)
#define TEXT(name)   HL_MEMBER_ARRAY(struct change, name)

/* In tables bytes are for people; JSON has them all as integers. */
static const struct hl_column columns[] = {
	{"figure", "figure", HL_COLUMN_TEXT, MEMBER(name), HL_COLUMN_KEY},
	{"before", NULL, HL_COLUMN_COUNT, MEMBER(before)},
	{"after", NULL, HL_COLUMN_COUNT, MEMBER(after)},
	{"change", NULL, HL_COLUMN_COUNT, MEMBER(change)},
	{NULL, "before", HL_COLUMN_TEXT, TEXT(before_text)},
	{NULL, "after", HL_COLUMN_TEXT, TEXT(after_text)},
	{NULL, "change", HL_COLUMN_TEXT, TEXT(change_text)},
};

int hl_heap_diff_view(const struct hl_heap_figures *before, const struct hl_heap_figures *after,
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
	hl_emit_blank(emit);
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", columns)});
	for (int i = 0; i < HL_HEAP_FIGURE_COUNT; i++) {
		bool is_bytes = hl_heap_figure_is_bytes((enum hl_heap_figure)i);
		struct change row = {
			.name = hl_heap_figure_names[i],
			.before = hl_heap_number(before->numbers[i]),
			.after = hl_heap_number(after->numbers[i]),
		};
		if (!row.before && !row.after)
			continue;
		row.change = row.after - row.before;
		hl_format_figure(row.before, is_bytes, row.before_text);
		hl_format_figure(row.after, is_bytes, row.after_text);
		row.change_text[0] = '+';
		hl_format_figure(row.change, is_bytes, row.change_text + (row.change > 0));
		hl_table_row(emit, &row, 0);
	}
	hl_table_end(emit);
	return hl_emit_finish(emit);
}
