/* SPDX-License-Identifier: BSD-2-Clause */
/* What became of limits, as a table or JSON; see check.h. */
#include "view/check.h"

#include "base/encode.h"
#include "view/format.h"
#include "view/notices.h"
#include "view/summary.h"
#include "view/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- words ---- */

static const char *const units[HL_CHECK_COUNT] = {
	[HL_CHECK_PEAK] = "bytes",	 [HL_CHECK_INUSE] = "bytes",
	[HL_CHECK_ALLOCS] = "objects",	 [HL_CHECK_PER_STACK] = "bytes",
	[HL_CHECK_GROWTH] = "bytes/min", [HL_CHECK_RSS] = "bytes",
	[HL_CHECK_LOST] = "bytes",
};

const char *hl_check_format(enum hl_check_kind kind, uint64_t number,
			    char buffer[HL_CHECK_FORMAT_MAX])
{
	int64_t shown = number > INT64_MAX ? INT64_MAX : (int64_t)number;

	hl_format_figure(shown, kind != HL_CHECK_ALLOCS, buffer);
	return kind == HL_CHECK_GROWTH ? strcat(buffer, "/min") : buffer;
}

void hl_check_format_both(const struct hl_check_verdict *verdict, char figure[HL_CHECK_FORMAT_MAX],
			  char most[HL_CHECK_FORMAT_MAX])
{
	const struct hl_check_limit *limit = &verdict->limit;
	char number[HL_GROUPED_MAX];
	const char *unit = limit->kind == HL_CHECK_GROWTH ? "B/min" : "B";

	hl_check_format(limit->kind, verdict->figure, figure);
	hl_check_format(limit->kind, limit->most, most);
	if (verdict->figure == limit->most || strcmp(figure, most) != 0)
		return;
	snprintf(figure, HL_CHECK_FORMAT_MAX, "%s %s", hl_grouped(number, verdict->figure), unit);
	snprintf(most, HL_CHECK_FORMAT_MAX, "%s %s", hl_grouped(number, limit->most), unit);
}

void hl_check_put_name(FILE *out, const struct hl_check_limit *limit)
{
	fputs(hl_check_names[limit->kind], out);
	if (limit->is_of_baseline)
		fputs(" of the baseline", out);
	if (limit->title)
		fprintf(out, " (%s)", limit->title);
}

/* ---- the table ---- */

static void limit_name(struct hl_emit *emit, const void *row, const void *context)
{
	const struct hl_check_verdict *verdict = row;
	char *text = NULL;
	size_t size;

	(void)context;
	FILE *out = open_memstream(&text, &size);
	if (out) {
		hl_check_put_name(out, &verdict->limit);
		fclose(out);
	}
	if (text)
		hl_cell_text(emit, text);
	else
		hl_emit_fail(emit, -ENOMEM);
	free(text);
}

static void figure(struct hl_emit *emit, const void *row, const void *context)
{
	char text[HL_CHECK_FORMAT_MAX], other[HL_CHECK_FORMAT_MAX];

	(void)context;
	hl_check_format_both(row, text, other);
	hl_cell_text(emit, text);
}

static void most(struct hl_emit *emit, const void *row, const void *context)
{
	char text[HL_CHECK_FORMAT_MAX], other[HL_CHECK_FORMAT_MAX];

	(void)context;
	hl_check_format_both(row, other, text);
	hl_cell_text(emit, text);
}

static void outcome(struct hl_emit *emit, const void *row, const void *context)
{
	(void)context;
	hl_cell_text(emit, ((const struct hl_check_verdict *)row)->is_crossed ? "CROSSED" : "ok");
}

static void blamed(struct hl_emit *emit, const void *row, const void *context)
{
	const struct hl_check_verdict *verdict = row;

	(void)context;
	hl_cell_text(emit, verdict->is_crossed && verdict->blame ? verdict->blame : "");
}

static void members(struct hl_emit *emit, const void *row, const void *context)
{
	const struct hl_check_verdict *verdict = row;
	const struct hl_check_limit *limit = &verdict->limit;

	(void)context;
	hl_emit_text(emit, "limit", hl_check_names[limit->kind]);
	if (limit->title)
		hl_emit_text(emit, "title", limit->title);
	if (limit->focus)
		hl_emit_text(emit, "focus", limit->focus);
	hl_emit_text(emit, "unit", units[limit->kind]);
	hl_emit_unsigned(emit, "figure", verdict->figure);
	hl_emit_unsigned(emit, "most", limit->most);
	hl_emit_boolean(emit, "baseline", limit->is_of_baseline);
	hl_emit_boolean(emit, "crossed", verdict->is_crossed);
	if (verdict->blame) {
		hl_emit_text(emit, "stack", verdict->blame);
		hl_emit_integer(emit, "stack_figure", verdict->blame_figure);
	}
}

static const struct hl_column columns[] = {
	{NULL, "", HL_COLUMN_TEXT, .cell = outcome},
	{NULL, "limit", HL_COLUMN_TEXT, .cell = limit_name, .flags = HL_COLUMN_ESSENTIAL},
	{NULL, "figure", HL_COLUMN_TEXT, .cell = figure, .flags = HL_COLUMN_ESSENTIAL},
	{NULL, "at most", HL_COLUMN_TEXT, .cell = most, .flags = HL_COLUMN_ESSENTIAL},
	{NULL, "most of it by", HL_COLUMN_TEXT, .cell = blamed,
	 .flags = HL_COLUMN_SHORTENED | HL_COLUMN_NAMES | HL_COLUMN_KEY},
	{"members", NULL, HL_COLUMN_MEMBERS, .cell = members},
};

static uint64_t left_out_bytes(const struct hl_check *check)
{
	uint64_t bytes = 0;

	for (const struct hl_check_left_out *part = check->left_out; part->what; part++)
		bytes += part->bytes;
	return bytes;
}

static void write_left_out(struct hl_emit *emit, const struct hl_check *check)
{
	char bytes[HL_FORMAT_MAX];

	for (const struct hl_check_left_out *part = check->left_out; part->what; part++)
		hl_emit_line(emit, "%s of %s left out",
			     hl_format_bytes((int64_t)part->bytes, bytes), part->what);
}

int hl_check_view(const struct hl_check *check, const struct hl_emit_options *options)
{
	struct hl_notices notices = {0};
	struct hl_emit *emit;

	int r = hl_emit_open(options, "check/1", &emit);
	if (r < 0)
		return r;
	hl_summary_members(emit, check->profile, NULL);
	hl_emit_unsigned(emit, "crossed", check->crossed);
	hl_emit_boolean(emit, "damaged", check->is_damaged);
	hl_emit_boolean(emit, "interrupted", check->is_interrupted);
	hl_emit_unsigned(emit, "left_out_bytes", left_out_bytes(check));
	hl_summary_facts(emit, check->profile);
	hl_notices_of_profile(&notices, check->profile);
	hl_notices_emit(&notices, emit);
	hl_emit_blank(emit);
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", columns)});
	for (size_t i = 0; i < check->count; i++)
		hl_table_row(emit, &check->verdicts[i],
			     check->verdicts[i].is_crossed ? HL_EMIT_HEAVIEST : 0);
	hl_table_end(emit);
	hl_emit_blank(emit);
	write_left_out(emit, check);
	if (!check->crossed)
		hl_emit_line(emit, "no limit of %zu was crossed%s", check->count,
			     check->flawed ? ", but figures may be too small" : "");
	else if (check->is_kept)
		hl_emit_line(emit, "%zu of %zu limits crossed; see 'heapline top %s'",
			     check->crossed, check->count,
			     hl_profile_text(check->profile, check->profile->name));
	else
		hl_emit_line(emit,
			     "%zu of %zu limits crossed; '--recording NAME.hl' keeps the recording",
			     check->crossed, check->count);
	return hl_emit_finish(emit);
}
