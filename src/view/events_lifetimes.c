/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline events --lifetimes: how long the blocks of each stack live. */
#include "profile/calltree.h"
#include "profile/event_reports.h"
#include "view/events.h"
#include "view/format.h"
#include "view/stack_path.h"

#include <errno.h>
#include <stdlib.h>

#define ROWS_USUAL 10
#define US_PER_MS  1000

struct row {
	uint32_t node; /* of the call tree */
	double mean_ms;
	int64_t lifetime_us, left_objects, left_bytes;
	struct hl_event_lifetime figures;
};

struct lifetimes {
	const struct hl_events_report *report;
	struct hl_event_lifetimes nodes;
	struct hl_calltree tree;
	struct hl_stack_path path;
	struct row *rows; /* longest lived first */
	size_t row_count;
};

/* ---- rows ---- */

static int64_t touched_bytes(const struct row *row)
{
	return row->figures.held_bytes + row->figures.alloc_bytes;
}

/* Of those that live equally long, first the one with more bytes. */
static int longest_first(const void *left, const void *right)
{
	const struct row *a = left, *b = right;

	if (a->mean_ms != b->mean_ms)
		return a->mean_ms < b->mean_ms ? 1 : -1;
	if (touched_bytes(a) != touched_bytes(b))
		return touched_bytes(a) < touched_bytes(b) ? 1 : -1;
	return (a->node > b->node) - (a->node < b->node);
}

static int shortest_first(const void *left, const void *right)
{
	const struct row *a = left, *b = right;

	if (a->mean_ms != b->mean_ms)
		return a->mean_ms < b->mean_ms ? -1 : 1;
	return longest_first(left, right);
}

static int read_rows(struct lifetimes *lifetimes, struct hl_error *err)
{
	const struct hl_events_report *report = lifetimes->report;
	struct hl_history *history = report->history;

	int r = hl_event_lifetimes_read(&lifetimes->nodes, report->log, &report->range,
					&history->reading, err);
	if (r == 0)
		r = hl_history_name(history, lifetimes->nodes.names, err);
	if (r == 0)
		r = hl_calltree_init(&lifetimes->tree, history->profile, HL_VALUE_INUSE,
				     HL_UNIT_BYTES);
	if (r == 0)
		r = hl_stack_path_init(&lifetimes->path, history->profile, &lifetimes->tree);
	if (r < 0)
		return r;
	lifetimes->rows = calloc(lifetimes->tree.count, sizeof(*lifetimes->rows));
	if (!lifetimes->rows)
		return -ENOMEM;
	for (size_t i = 1; i < lifetimes->nodes.node_count && i < history->log_node_count; i++) {
		uint32_t node = lifetimes->tree.node_of[history->profile_nodes[i]];
		hl_event_lifetime_add(&lifetimes->rows[node].figures, &lifetimes->nodes.nodes[i]);
	}
	for (uint32_t i = 0; i < lifetimes->tree.count; i++) {
		const struct hl_event_lifetime sum = lifetimes->rows[i].figures;
		int64_t seen = hl_event_lifetime_seen(&sum);
		if (seen <= 0) /* no block of it was seen */
			continue;
		double mean_ms = (double)sum.area / (double)seen;
		lifetimes->rows[lifetimes->row_count++] = (struct row){
			.node = i,
			.mean_ms = mean_ms,
			.lifetime_us = (int64_t)(mean_ms * US_PER_MS + 0.5),
			.left_objects = seen - sum.free_objects,
			.left_bytes = sum.held_bytes + sum.alloc_bytes - sum.free_bytes,
			.figures = sum,
		};
	}
	qsort(lifetimes->rows, lifetimes->row_count, sizeof(*lifetimes->rows), longest_first);
	return 0;
}

/* ---- writing ---- */

/* "0.25 ms", "12 s". */
static void life(struct hl_emit *emit, const void *row, const void *context)
{
	double ms = ((const struct row *)row)->mean_ms;
	char text[HL_FORMAT_MAX];

	(void)context;
	if (ms >= 10)
		hl_format_duration((uint64_t)(ms * 1e6), text);
	else
		snprintf(text, sizeof(text), "%.2f ms", ms);
	hl_cell_text(emit, text);
}

/* Facts of the table. */
enum {
	SHORTENS = 1,
	FULL = 2,
};

#define FIGURE(name) HL_MEMBER(struct row, figures.name)
#define STACK(what)  HL_MEMBER_CELL(struct row, node, hl_stack_path_cell_##what)
#define BLANK	     HL_COLUMN_BLANK_ZERO
#define SHORTENED    HL_COLUMN_SHORTENED

static const struct hl_column columns[] = {
	{NULL, "mean life", HL_COLUMN_TEXT, .cell = life},
	{"lifetime_us", NULL, HL_COLUMN_NUMBER, HL_MEMBER(struct row, lifetime_us)},
	{"object_ms", NULL, HL_COLUMN_NUMBER, FIGURE(area)},
	{"held_objects", "before", HL_COLUMN_COUNT, FIGURE(held_objects), BLANK},
	{"alloc_objects", "allocated", HL_COLUMN_COUNT, FIGURE(alloc_objects)},
	{"alloc_bytes", "bytes", HL_COLUMN_BYTES, FIGURE(alloc_bytes)},
	{"left_objects", "left", HL_COLUMN_COUNT, HL_MEMBER(struct row, left_objects), BLANK},
	{"left_bytes", "bytes", HL_COLUMN_BYTES, HL_MEMBER(struct row, left_bytes), BLANK},
	{NULL, "stack, from its leaf", HL_COLUMN_TEXT, STACK(line), .flags = SHORTENED,
	 .shown_if = SHORTENS},
	{NULL, "stack, from its leaf", HL_COLUMN_TEXT, STACK(line), .shown_if = FULL},
	{"stack", NULL, HL_COLUMN_STACK, STACK(names)},
	{"frames", NULL, HL_COLUMN_FRAMES, STACK(frames)},
};

static void emit_rows(struct lifetimes *lifetimes, size_t count)
{
	struct hl_emit *emit = lifetimes->report->emit;
	bool full = lifetimes->report->options->full;

	lifetimes->path.full = full;
	hl_stack_path_begin_table(&lifetimes->path);
	for (size_t i = 0; i < count; i++)
		if (hl_stack_path_add(&lifetimes->path, lifetimes->rows[i].node) < 0)
			hl_emit_fail(emit, -ENOMEM);
	hl_table_write(emit,
		       &(struct hl_table){HL_TABLE("rows", columns), .context = &lifetimes->path,
					  .facts = full ? FULL : SHORTENS},
		       lifetimes->rows, count, sizeof(*lifetimes->rows));
}

int hl_events_lifetimes(const struct hl_events_report *report, struct hl_error *err)
{
	struct lifetimes lifetimes = {.report = report};
	struct hl_emit *emit = report->emit;

	int r = read_rows(&lifetimes, err);
	if (r == 0) {
		size_t all = lifetimes.row_count;
		size_t count = hl_emit_shown(emit, report->options->row_limit, ROWS_USUAL, all);
		hl_events_head(report, "lifetimes");
		hl_emit_integer(emit, "stacks", all);
		hl_emit_line(
			emit,
			"mean lifetimes of blocks as far as they lie within that time, to 1 ms");
		hl_emit_blank(emit);
		hl_emit_line(emit, "longest lived, of %zu stacks:", all);
		emit_rows(&lifetimes, count);
		/* People want both ends of the list; JSON has all of it. */
		if (!report->options->json && count < all) {
			qsort(lifetimes.rows, all, sizeof(*lifetimes.rows), shortest_first);
			hl_emit_blank(emit);
			hl_emit_line(emit, "shortest lived; -n shows more of both:");
			emit_rows(&lifetimes, count);
		}
	}
	free(lifetimes.rows);
	hl_stack_path_release(&lifetimes.path);
	hl_calltree_release(&lifetimes.tree);
	hl_event_lifetimes_release(&lifetimes.nodes);
	return r;
}
