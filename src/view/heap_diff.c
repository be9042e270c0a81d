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

/* In tables bytes are for people; JSON has them all as integers. */
static void emit_change(struct hl_emit *emit, enum hl_heap_figure figure, uint64_t before,
			uint64_t after)
{
	char from[HL_FORMAT_MAX], to[HL_FORMAT_MAX], by[HL_FORMAT_MAX], change[HL_FORMAT_MAX + 1];
	const char *(*format)(int64_t, char[HL_FORMAT_MAX]) =
		hl_heap_figure_is_bytes(figure) ? hl_format_bytes : hl_format_count;
	int64_t difference = hl_heap_number(after) - hl_heap_number(before);
	snprintf(change, sizeof(change), "%s%s", difference > 0 ? "+" : "", format(difference, by));
	hl_emit_row(emit, 0);
	hl_emit_cell_text(emit, hl_heap_figure_names[figure]);
	hl_emit_cell_integer(emit, hl_heap_number(before));
	hl_emit_cell_integer(emit, hl_heap_number(after));
	hl_emit_cell_integer(emit, difference);
	hl_emit_cell_text(emit, format(hl_heap_number(before), from));
	hl_emit_cell_text(emit, format(hl_heap_number(after), to));
	hl_emit_cell_text(emit, change);
}

static void emit_changes(struct hl_emit *emit, const struct hl_heap_figures *before,
			 const struct hl_heap_figures *after)
{
	static const struct hl_emit_column columns[] = {
		{"figure", "figure", HL_EMIT_TEXT, HL_EMIT_KEY},
		{"before", NULL, HL_EMIT_COUNT, HL_EMIT_JSON_ONLY},
		{"after", NULL, HL_EMIT_COUNT, HL_EMIT_JSON_ONLY},
		{"change", NULL, HL_EMIT_COUNT, HL_EMIT_JSON_ONLY},
		{NULL, "before", HL_EMIT_TEXT, HL_EMIT_TEXT_ONLY},
		{NULL, "after", HL_EMIT_TEXT, HL_EMIT_TEXT_ONLY},
		{NULL, "change", HL_EMIT_TEXT, HL_EMIT_TEXT_ONLY},
	};
	hl_emit_line(emit, "%s", "");
	hl_emit_rows(emit, "rows", columns, HL_COUNT_OF(columns));
	for (int i = 0; i < HL_HEAP_FIGURE_COUNT; i++)
		if (before->numbers[i] || after->numbers[i])
			emit_change(emit, (enum hl_heap_figure)i, before->numbers[i],
				    after->numbers[i]);
	hl_emit_rows_end(emit);
}

int hl_view_heap_diff(const struct hl_heap_figures *before, const struct hl_heap_figures *after,
		      const struct hl_heap_view_options *options)
{
	struct hl_emit *emit;
	int r = hl_emit_new(options->out, options->json ? HL_EMIT_JSON : HL_EMIT_TABLE,
			    options->color, &emit);
	if (r < 0)
		return r;
	hl_emit_begin(emit, "heap-diff");
	emit_snapshot(emit, "before", before);
	emit_snapshot(emit, "after", after);
	if (before->pid != after->pid || strcmp(before->command, after->command) != 0)
		hl_emit_warning(emit, "%s", "the snapshots are of different processes");
	emit_changes(emit, before, after);
	return hl_emit_finish(emit);
}
