/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline events: what they add up to. */
#include "view/events.h"
#include "view/format.h"
#include "view/table.h"

#include <errno.h>
#include <stdlib.h>

#define ROWS_USUAL 10

static void emit_figures(struct hl_emit *emit, const struct hl_event_figures *figures)
{
	hl_emit_integer(emit, "events", figures->events);
	hl_emit_integer(emit, "alloc_objects", figures->allocations);
	hl_emit_integer(emit, "alloc_bytes", figures->alloc_bytes);
	hl_emit_integer(emit, "free_objects", figures->frees);
	hl_emit_integer(emit, "free_bytes", figures->free_bytes);
}

static void say_figures(struct hl_emit *emit, const struct hl_event_figures *figures)
{
	char events[HL_FORMAT_MAX], allocations[HL_FORMAT_MAX], frees[HL_FORMAT_MAX];
	char allocated[HL_FORMAT_MAX], freed[HL_FORMAT_MAX];

	hl_emit_line(emit, "%s events: %s blocks of %s allocated, %s of %s freed",
		     hl_format_count(figures->events, events),
		     hl_format_count(figures->allocations, allocations),
		     hl_format_bytes(figures->alloc_bytes, allocated),
		     hl_format_count(figures->frees, frees),
		     hl_format_bytes(figures->free_bytes, freed));
}

/* The files hold all events; a range of them cannot be weighed alone. */
static void say_cost(const struct hl_events_report *report, uint64_t events)
{
	const struct hl_history *history = report->history;
	bool whole = history->point_count == history->log->point_count;

	if (whole && events)
		hl_emit_line(report->emit, "%.2f bytes of file for a malloc and a free",
			     (double)report->log->file_bytes * 2 / (double)events);
}

/* Of a thread, or of a tick. */
struct row {
	uint64_t id;
	struct hl_event_figures figures;
};

#define FIGURE(name) HL_MEMBER(struct row, figures.name)
#define FIGURE_COLUMNS                                                                \
	{"events", "events", HL_COLUMN_COUNT, FIGURE(events)},                        \
		{NULL, "share", HL_COLUMN_SHARE, FIGURE(events)},                     \
		{"alloc_objects", "allocated", HL_COLUMN_COUNT, FIGURE(allocations)}, \
		{"alloc_bytes", "bytes", HL_COLUMN_BYTES, FIGURE(alloc_bytes)},       \
		{"free_objects", "freed", HL_COLUMN_COUNT, FIGURE(frees)},            \
	{                                                                             \
		"free_bytes", "bytes", HL_COLUMN_BYTES, FIGURE(free_bytes)            \
	}

static const struct hl_column thread_columns[] = {
	{"thread", "thread", HL_COLUMN_NUMBER, HL_MEMBER(struct row, id)},
	FIGURE_COLUMNS,
};

static const struct hl_column tick_columns[] = {
	{"ms", "ms", HL_COLUMN_NUMBER, HL_MEMBER(struct row, id)},
	FIGURE_COLUMNS,
};

/* ---- threads ---- */

static int busiest_first(const void *left, const void *right, void *context)
{
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
	const struct hl_event_figures *threads = context;

	if (threads[a].events != threads[b].events)
		return threads[a].events < threads[b].events ? 1 : -1;
	return (a > b) - (a < b);
}

static int emit_threads(const struct hl_events_report *report,
			const struct hl_event_summary *summary)
{
	uint32_t *order = calloc(summary->thread_count + 1, sizeof(*order));
	size_t count = 0;

	if (!order)
		return -ENOMEM;
	for (uint32_t i = 0; i < summary->thread_count; i++)
		if (summary->threads[i].events)
			order[count++] = i;
	qsort_r(order, count, sizeof(*order), busiest_first, summary->threads);
	size_t shown = hl_emit_shown(report->emit, report->options->row_limit, ROWS_USUAL, count);
	hl_emit_blank(report->emit);
	hl_table_begin(report->emit, &(struct hl_table){HL_TABLE("threads", thread_columns),
							.sum = summary->total.events});
	for (size_t i = 0; i < shown; i++)
		hl_table_row(report->emit, &(struct row){order[i], summary->threads[order[i]]}, 0);
	hl_table_end(report->emit);
	if (shown < count)
		hl_emit_line(report->emit, "... and %zu more threads; -n 0 shows all",
			     count - shown);
	free(order);
	return 0;
}

/* ---- ticks ---- */

static void emit_ticks(const struct hl_events_report *report,
		       const struct hl_event_summary *summary)
{
	size_t shown = hl_emit_shown(report->emit, report->options->row_limit, ROWS_USUAL,
				     summary->tick_count);

	hl_emit_blank(report->emit);
	hl_table_begin(report->emit, &(struct hl_table){HL_TABLE("ticks", tick_columns),
							.sum = summary->total.events});
	for (size_t i = 0; i < shown; i++)
		hl_table_row(report->emit,
			     &(struct row){summary->ticks[i].tick, summary->ticks[i].figures}, 0);
	hl_table_end(report->emit);
}

/* ---- all of it ---- */

static int emit_summary(const struct hl_events_report *report,
			const struct hl_event_summary *summary)
{
	hl_events_head(report, "summary");
	emit_figures(report->emit, &summary->total);
	say_figures(report->emit, &summary->total);
	say_cost(report, summary->total.events);
	if (summary->total.events)
		hl_emit_line(report->emit, "the first at %llu ms, the last at %llu ms",
			     (unsigned long long)summary->first_tick,
			     (unsigned long long)summary->last_tick);
	int r = emit_threads(report, summary);
	emit_ticks(report, summary);
	return r;
}

int hl_events_summary(const struct hl_events_report *report, struct hl_error *err)
{
	struct hl_event_summary *summary = calloc(1, sizeof(*summary));

	if (!summary)
		return -ENOMEM;
	int r = hl_event_summary_read(summary, report->log, &report->range,
				      &report->history->reading, err);
	if (r == 0)
		r = emit_summary(report, summary);
	hl_event_summary_release(summary);
	free(summary);
	return r;
}
