/* SPDX-License-Identifier: BSD-2-Clause */
/* Test cases as a table and as JSON; see check_cases.h. */
#include "view/check_cases.h"

#include "base/cleanup.h"
#include "view/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN 20u

const char *hl_check_cases_verdict(const struct hl_check_cases *cases,
				   char text[HL_CHECK_CASES_VERDICT_MAX])
{
	char count[HL_FORMAT_MAX], crossed[HL_FORMAT_MAX], more[48] = "", rest[48] = "";

	hl_format_count((int64_t)cases->count, count);
	hl_format_count((int64_t)cases->crossed, crossed);
	if (cases->open)
		snprintf(more, sizeof(more), "; %zu did not end", cases->open);
	else if (cases->unknown)
		snprintf(more, sizeof(more), "; %zu not in the baseline", cases->unknown);
	if (cases->not_run_count)
		snprintf(rest, sizeof(rest), "; %zu of the baseline not run", cases->not_run_count);
	if (cases->crossed)
		snprintf(text, HL_CHECK_CASES_VERDICT_MAX,
			 "%s of %s test case%s crossed a limit%s%s", crossed, count,
			 cases->count == 1 ? "" : "s", more, rest);
	else
		snprintf(text, HL_CHECK_CASES_VERDICT_MAX,
			 "no limit was crossed by %s test case%s%s%s", count,
			 cases->count == 1 ? "" : "s", more, rest);
	return text;
}

const char *hl_check_cases_not_run(const struct hl_check_cases *cases,
				   char text[HL_CHECK_CASES_NOT_RUN_MAX])
{
	size_t used = 0, named = 0;

	text[0] = '\0';
	for (; named < cases->not_run_count && used < HL_CHECK_CASES_NOT_RUN_MAX / 2; named++) {
		char name[HL_CHECK_CASES_NOT_RUN_MAX / 4];
		used += (size_t)snprintf(
			text + used, HL_CHECK_CASES_NOT_RUN_MAX - used, "%s%s",
			named ? ", " : "in the baseline, and not run: ",
			hl_format_shortened(cases->not_run[named], 0, name, sizeof(name)));
	}
	if (named < cases->not_run_count)
		snprintf(text + used, HL_CHECK_CASES_NOT_RUN_MAX - used, " and %zu more",
			 cases->not_run_count - named);
	return text;
}

static int compare_cases(const void *left, const void *right, void *context)
{
	const struct hl_check_cases *cases = context;
	const struct hl_check_case *a = &cases->cases[*(const size_t *)left];
	const struct hl_check_case *b = &cases->cases[*(const size_t *)right];

	if (!a->verdict_count != !b->verdict_count)
		return a->verdict_count ? -1 : 1;
	if (a->is_open != b->is_open)
		return a->is_open ? -1 : 1;
	if (a->peak_bytes != b->peak_bytes)
		return a->peak_bytes > b->peak_bytes ? -1 : 1;
	return a < b ? -1 : 1;
}

size_t *hl_check_cases_order(const struct hl_check_cases *cases)
{
	size_t *order = calloc(cases->count + 1, sizeof(*order));

	for (size_t i = 0; order && i < cases->count; i++)
		order[i] = i;
	if (order)
		qsort_r(order, cases->count, sizeof(*order), compare_cases, (void *)cases);
	return order;
}

static void outcome(struct hl_emit *emit, const void *row, const void *context)
{
	const struct hl_check_case *one = row;

	(void)context;
	hl_cell_text(emit, one->verdict_count ? "CROSSED" : one->is_open ? "DID NOT END" : "ok");
}

#define NAME_SHOWN 72u

/* The end says most, and --json has all; one that is long would move the next column out of sight. */
static void name(struct hl_emit *emit, const void *row, const void *context)
{
	char shown[4 * NAME_SHOWN + 1];

	(void)context;
	hl_cell_text(emit, hl_format_tail(((const struct hl_check_case *)row)->name, NAME_SHOWN,
					  shown, sizeof(shown)));
}

/* The first limit that was crossed, of others how many they are, and where most of it comes from. */
static void crossed(struct hl_emit *emit, const void *row, const void *context)
{
	const struct hl_check_case *one = row;
	const struct hl_check_verdict *verdict = one->verdicts;
	char figure[HL_CHECK_FORMAT_MAX], most[HL_CHECK_FORMAT_MAX], *text = NULL;

	(void)context;
	if (!one->verdict_count) {
		hl_cell_text(emit, "");
		return;
	}
	hl_check_format_both(verdict, figure, most);
	int length =
		asprintf(&text, "%s%s %s, at most %s%s%s%s", hl_check_names[verdict->limit.kind],
			 verdict->limit.is_of_baseline ? " of the baseline" : "", figure, most,
			 one->verdict_count > 1 ? " (and others)" : "", verdict->blame ? ": " : "",
			 verdict->blame ? verdict->blame : "");
	if (length < 0) {
		hl_emit_fail(emit, -ENOMEM);
		return;
	}
	hl_cell_text(emit, text);
	free(text);
}

static void all_members(struct hl_emit *emit, const void *row, const void *context)
{
	const struct hl_check_case *one = row;

	(void)context;
	hl_emit_text(emit, "name", one->name);
	hl_emit_integer(emit, "pid", one->pid);
	hl_emit_boolean(emit, "process", one->is_process);
	hl_emit_boolean(emit, "unfinished", one->is_open);
	hl_emit_unsigned(emit, "peak_bytes", one->peak_bytes);
	hl_emit_unsigned(emit, "allocations", one->allocations);
	hl_emit_unsigned(emit, "allocated_bytes", one->allocated_bytes);
	hl_emit_unsigned(emit, "kept_blocks", one->kept_blocks);
	hl_emit_unsigned(emit, "kept_bytes", one->kept_bytes);
	hl_emit_unsigned(emit, "lost_events", one->lost);
	hl_emit_array(emit, "crossed");
	for (size_t i = 0; i < one->verdict_count; i++) {
		const struct hl_check_verdict *verdict = &one->verdicts[i];
		hl_emit_object(emit, NULL);
		hl_emit_text(emit, "limit", hl_check_names[verdict->limit.kind]);
		hl_emit_unsigned(emit, "figure", verdict->figure);
		hl_emit_unsigned(emit, "most", verdict->limit.most);
		hl_emit_boolean(emit, "baseline", verdict->limit.is_of_baseline);
		if (verdict->blame) {
			hl_emit_text(emit, "stack", verdict->blame);
			hl_emit_integer(emit, "stack_figure", verdict->blame_figure);
		}
		hl_emit_object_end(emit);
	}
	hl_emit_array_end(emit);
}

static const struct hl_column columns[] = {
	{NULL, "", HL_COLUMN_TEXT, .cell = outcome},
	{NULL, "peak", HL_COLUMN_BYTES, HL_MEMBER(struct hl_check_case, peak_bytes)},
	{NULL, "allocations", HL_COLUMN_COUNT, HL_MEMBER(struct hl_check_case, allocations)},
	{NULL, "kept", HL_COLUMN_BYTES, HL_MEMBER(struct hl_check_case, kept_bytes)},
	{NULL, "test case", HL_COLUMN_TEXT, .cell = name, .flags = HL_COLUMN_ESSENTIAL},
	{NULL, "limit", HL_COLUMN_TEXT, .cell = crossed,
	 .flags = HL_COLUMN_SHORTENED | HL_COLUMN_NAMES | HL_COLUMN_KEY},
	{"members", NULL, HL_COLUMN_MEMBERS, .cell = all_members},
};

int hl_check_cases_view(const struct hl_check_cases *cases, const struct hl_emit_options *options)
{
	HL_FREED size_t *order = hl_check_cases_order(cases);
	char text[HL_CHECK_CASES_VERDICT_MAX], not_run[HL_CHECK_CASES_NOT_RUN_MAX];
	struct hl_emit *emit;

	int r = order ? hl_emit_open(options, "check-cases/1", &emit) : -ENOMEM;
	if (r < 0)
		return r;
	hl_emit_unsigned(emit, "cases", cases->count);
	hl_emit_unsigned(emit, "crossed", cases->crossed);
	hl_emit_unsigned(emit, "unfinished", cases->open);
	hl_emit_unsigned(emit, "not_in_baseline", cases->unknown);
	hl_emit_unsigned(emit, "not_noted", cases->refused_count);
	hl_emit_array(emit, "not_run");
	for (size_t i = 0; i < cases->not_run_count; i++)
		hl_emit_text(emit, NULL, cases->not_run[i]);
	hl_emit_array_end(emit);
	hl_emit_line(emit, "%s", hl_check_cases_verdict(cases, text));
	if (cases->not_run_count)
		hl_emit_line(emit, "%s", hl_check_cases_not_run(cases, not_run));
	if (!cases->was_named)
		hl_emit_line(emit,
			     "the program noted no case: each process that it started is one");
	hl_emit_blank(emit);
	size_t shown = hl_emit_is_json(emit) || cases->count < SHOWN ? cases->count : SHOWN;
	while (shown < cases->count &&
	       (cases->cases[order[shown]].verdict_count || cases->cases[order[shown]].is_open))
		shown++;
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", columns)});
	for (size_t i = 0; i < shown; i++) {
		const struct hl_check_case *one =
			&cases->cases[hl_emit_is_json(emit) ? i : order[i]];
		hl_table_row(emit, one, one->verdict_count || one->is_open ? HL_EMIT_HEAVIEST : 0);
	}
	hl_table_end(emit);
	if (shown < cases->count)
		hl_emit_line(emit, "and %zu with smaller peaks; --json has all",
			     cases->count - shown);
	return hl_emit_finish(emit);
}
