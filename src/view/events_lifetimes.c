/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline events --lifetimes: how long the blocks of each stack live. */
#include "profile/calltree.h"
#include "profile/event_lifetimes.h"
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

/* Sums by stack; stacks of which no block was seen are left out. */
static void fill_rows(struct lifetimes *lifetimes)
{
	const struct hl_history *history = lifetimes->report->history;
	size_t known = history->log_node_count;

	for (uint32_t i = 0; i < lifetimes->tree.count; i++)
		lifetimes->rows[i].node = i;
	for (size_t i = 1; i < lifetimes->nodes.node_count && i < known; i++) {
		uint32_t node = lifetimes->tree.node_of[history->profile_nodes[i]];
		hl_event_lifetime_add(&lifetimes->rows[node].figures, &lifetimes->nodes.nodes[i]);
	}
	for (uint32_t i = 0; i < lifetimes->tree.count; i++) {
		struct row *row = &lifetimes->rows[i];
		int64_t seen = hl_event_lifetime_seen(&row->figures);
		if (seen <= 0)
			continue;
		row->mean_ms = (double)row->figures.area / (double)seen;
		lifetimes->rows[lifetimes->row_count++] = *row;
	}
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
	fill_rows(lifetimes);
	qsort(lifetimes->rows, lifetimes->row_count, sizeof(*lifetimes->rows), longest_first);
	return 0;
}

/* ---- writing ---- */

/* "0.25 ms", "12 s". */
static const char *format_lifetime(double ms, char buffer[HL_FORMAT_MAX])
{
	if (ms >= 10)
		return hl_format_duration((uint64_t)(ms * 1e6), buffer);
	snprintf(buffer, HL_FORMAT_MAX, "%.2f ms", ms);
	return buffer;
}

static int emit_row(struct lifetimes *lifetimes, const struct row *row)
{
	const struct hl_event_lifetime *figures = &row->figures;
	struct hl_emit *emit = lifetimes->report->emit;
	bool json = lifetimes->report->options->json;
	size_t depth = hl_stack_path_fill(&lifetimes->path, row->node);
	char *line = json ? NULL
			  : hl_stack_path_line(&lifetimes->path, row->node,
					       lifetimes->report->options->full);
	char lifetime[HL_FORMAT_MAX];

	if (!json && !line)
		return -ENOMEM;
	hl_emit_row(emit, 0);
	hl_emit_cell_text(emit, format_lifetime(row->mean_ms, lifetime));
	hl_emit_cell_integer(emit, (int64_t)(row->mean_ms * US_PER_MS + 0.5));
	hl_emit_cell_integer(emit, figures->area);
	hl_emit_cell_integer(emit, figures->held_objects);
	hl_emit_cell_integer(emit, figures->alloc_objects);
	hl_emit_cell_integer(emit, figures->alloc_bytes);
	hl_emit_cell_integer(emit, figures->held_objects + figures->alloc_objects -
					   figures->free_objects);
	hl_emit_cell_integer(emit,
			     figures->held_bytes + figures->alloc_bytes - figures->free_bytes);
	hl_emit_cell_text(emit, line ? line : "");
	hl_emit_cell_stack(emit, lifetimes->path.names, depth);
	hl_emit_cell_frames(emit, lifetimes->path.frames, depth);
	free(line);
	return 0;
}

static int tell_apart(struct lifetimes *lifetimes, size_t count)
{
	int r = 0;

	hl_stack_path_begin_table(&lifetimes->path);
	for (size_t i = 0; r == 0 && i < count; i++)
		r = hl_stack_path_add(&lifetimes->path, lifetimes->rows[i].node);
	return r;
}

static int emit_rows(struct lifetimes *lifetimes, size_t count)
{
	unsigned shortened = lifetimes->report->options->full ? 0 : HL_EMIT_SHORTENED;
	const struct hl_emit_column columns[] = {
		{NULL, "mean life", HL_EMIT_TEXT, HL_EMIT_TEXT_ONLY},
		{"lifetime_us", NULL, HL_EMIT_NUMBER, HL_EMIT_JSON_ONLY},
		{"object_ms", NULL, HL_EMIT_NUMBER, HL_EMIT_JSON_ONLY},
		{"held_objects", "before", HL_EMIT_COUNT, HL_EMIT_BLANK_ZERO},
		{"alloc_objects", "allocated", HL_EMIT_COUNT, 0},
		{"alloc_bytes", "bytes", HL_EMIT_BYTES, 0},
		{"left_objects", "left", HL_EMIT_COUNT, HL_EMIT_BLANK_ZERO},
		{"left_bytes", "bytes", HL_EMIT_BYTES, HL_EMIT_BLANK_ZERO},
		{NULL, "stack, from its leaf", HL_EMIT_TEXT, HL_EMIT_TEXT_ONLY | shortened},
		{"stack", NULL, HL_EMIT_STACK, HL_EMIT_JSON_ONLY},
		{"frames", NULL, HL_EMIT_FRAMES, HL_EMIT_JSON_ONLY},
	};
	int r = tell_apart(lifetimes, count);

	if (r < 0)
		return r;

	hl_emit_rows(lifetimes->report->emit, "rows", columns, HL_COUNT_OF(columns));
	for (size_t i = 0; r == 0 && i < count; i++)
		r = emit_row(lifetimes, &lifetimes->rows[i]);
	hl_emit_rows_end(lifetimes->report->emit);
	return r;
}

/* People want both ends of the list; JSON has all of it. */
static int emit_ends(struct lifetimes *lifetimes, size_t count)
{
	struct hl_emit *emit = lifetimes->report->emit;

	hl_emit_line(emit, "%s", "");
	hl_emit_line(emit, "longest lived, of %zu stacks:", lifetimes->row_count);
	int r = emit_rows(lifetimes, count);
	if (r < 0 || count == lifetimes->row_count)
		return r;
	qsort(lifetimes->rows, lifetimes->row_count, sizeof(*lifetimes->rows), shortest_first);
	hl_emit_line(emit, "%s", "");
	hl_emit_line(emit, "shortest lived; -n shows more of both:");
	return emit_rows(lifetimes, count);
}

static int emit_all(struct lifetimes *lifetimes)
{
	const struct hl_events_report *report = lifetimes->report;
	size_t count = hl_events_rows(report, ROWS_USUAL, lifetimes->row_count);

	hl_events_head(report, "lifetimes");
	hl_emit_integer(report->emit, "stacks", (int64_t)lifetimes->row_count);
	hl_emit_line(report->emit, "mean lifetimes of blocks as far as they lie within that time, "
				   "to 1 ms");
	return report->options->json ? emit_rows(lifetimes, count) : emit_ends(lifetimes, count);
}

int hl_events_lifetimes(const struct hl_events_report *report, struct hl_error *err)
{
	struct lifetimes lifetimes = {.report = report};

	int r = read_rows(&lifetimes, err);
	if (r == 0)
		r = emit_all(&lifetimes);
	free(lifetimes.rows);
	hl_stack_path_release(&lifetimes.path);
	hl_calltree_release(&lifetimes.tree);
	hl_event_lifetimes_release(&lifetimes.nodes);
	return r;
}
