/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline events: the events that were kept beside a log. */
#include "view/events.h"

#include "base/cleanup.h"
#include "profile/event_reports.h"
#include "view/format.h"
#include "view/history_head.h"
#include "view/summary.h"
#include "view/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_MS UINT64_C(1000000)

/* ---- the head ---- */

static void add_notices(struct hl_notices *notices, const struct hl_event_log *log)
{
	if (log->missing_events)
		hl_notices_warn(notices, "MISSING: %llu events could not be written to files",
				(unsigned long long)log->missing_events);
	hl_history_head_unused(notices, log->foreign_count, log->foreign_name, log->ignored_count,
			       "event file");
	if (log->damaged)
		hl_notices_warn(notices, "DAMAGED: '%s' is damaged; the last events may be missing",
				log->damaged);
	else if (log->cut_off)
		hl_notices_add(notices,
			       "note: the events have no end: they are still being written, "
			       "or their writer was killed");
}

void hl_events_head(const struct hl_events_report *report, const char *name)
{
	const struct hl_event_log *log = report->log;
	struct hl_emit *emit = report->emit;
	struct hl_notices notices = {0};
	char bytes[HL_FORMAT_MAX], duration[HL_FORMAT_MAX];
	uint64_t first = report->range.first, end = report->range.end;

	hl_emit_text(emit, "report", name);
	hl_history_head_members(emit, report->history);
	hl_emit_object(emit, "files");
	hl_emit_integer(emit, "count", log->file_count);
	hl_emit_integer(emit, "bytes", log->file_bytes);
	hl_emit_integer(emit, "ignored", log->ignored_count);
	hl_emit_integer(emit, "foreign", log->foreign_count);
	hl_emit_integer(emit, "missing_events", log->missing_events);
	hl_emit_boolean(emit, "complete", !log->cut_off);
	hl_emit_object_end(emit);
	hl_emit_integer(emit, "first_ms", first);
	hl_emit_integer(emit, "last_ms", (int64_t)end - 1);
	hl_summary_lines(emit, report->history->profile);
	add_notices(&notices, log);
	hl_notices_emit(&notices, emit);
	hl_emit_line(emit, "events from %llu to %llu ms (%s), of %u file%s with %s",
		     (unsigned long long)first, (unsigned long long)end - 1,
		     hl_format_duration((end - first) * NS_PER_MS, duration), log->file_count,
		     log->file_count == 1 ? "" : "s", hl_format_bytes(log->file_bytes, bytes));
}

/* ---- what they add up to ---- */

#define ROWS_USUAL 10

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

static int busiest_first(const void *left, const void *right)
{
	const struct row *a = left, *b = right;

	if (a->figures.events != b->figures.events)
		return a->figures.events < b->figures.events ? 1 : -1;
	return (a->id > b->id) - (a->id < b->id);
}

static int report_summary(const struct hl_events_report *report, struct hl_error *err)
{
	const struct hl_history *history = report->history;
	HL_CLEANUP(hl_event_summary_release) struct hl_event_summary summary = {0};
	const struct hl_event_figures *total = &summary.total;
	uint64_t limit = report->options->row_limit;
	struct hl_emit *emit = report->emit;
	char events[HL_FORMAT_MAX], allocations[HL_FORMAT_MAX], frees[HL_FORMAT_MAX];
	char allocated[HL_FORMAT_MAX], freed[HL_FORMAT_MAX];
	size_t count = 0;

	int r = hl_event_summary_read(&summary, report->log, &report->range, &history->reading,
				      err);
	if (r < 0)
		return r;
	HL_FREED struct row *threads = calloc(summary.thread_count + 1, sizeof(*threads));
	if (!threads)
		return -ENOMEM;
	for (size_t i = 0; i < summary.thread_count; i++)
		if (summary.threads[i].events)
			threads[count++] = (struct row){i, summary.threads[i]};
	qsort(threads, count, sizeof(*threads), busiest_first);
	hl_events_head(report, "summary");
	hl_emit_integer(emit, "events", total->events);
	hl_emit_integer(emit, "alloc_objects", total->allocations);
	hl_emit_integer(emit, "alloc_bytes", total->alloc_bytes);
	hl_emit_integer(emit, "free_objects", total->frees);
	hl_emit_integer(emit, "free_bytes", total->free_bytes);
	hl_emit_line(emit, "%s events: %s blocks of %s allocated, %s of %s freed",
		     hl_format_count(total->events, events),
		     hl_format_count(total->allocations, allocations),
		     hl_format_bytes(total->alloc_bytes, allocated),
		     hl_format_count(total->frees, frees),
		     hl_format_bytes(total->free_bytes, freed));
	/* The files hold all events; a range of them cannot be weighed alone. */
	if (history->point_count == history->log->point_count && total->events)
		hl_emit_line(emit, "%.2f bytes of file for a malloc and a free",
			     (double)report->log->file_bytes * 2 / (double)total->events);
	if (total->events)
		hl_emit_line(emit, "the first at %llu ms, the last at %llu ms",
			     (unsigned long long)summary.first_tick,
			     (unsigned long long)summary.last_tick);
	size_t shown = hl_emit_shown(emit, limit, ROWS_USUAL, count);
	hl_emit_blank(emit);
	hl_table_write(
		emit, &(struct hl_table){HL_TABLE("threads", thread_columns), .sum = total->events},
		threads, shown, sizeof(*threads));
	if (shown < count)
		hl_emit_line(emit, "... and %zu more threads; -n 0 shows all", count - shown);
	shown = hl_emit_shown(emit, limit, ROWS_USUAL, summary.tick_count);
	hl_emit_blank(emit);
	hl_table_begin(emit,
		       &(struct hl_table){HL_TABLE("ticks", tick_columns), .sum = total->events});
	for (size_t i = 0; i < shown; i++)
		hl_table_row(emit, &(struct row){summary.ticks[i].tick, summary.ticks[i].figures},
			     0);
	hl_table_end(emit);
	return 0;
}

/* ---- whether they tell the same as the log ---- */

static void from_ms(struct hl_emit *emit, const void *row, const void *context)
{
	(void)context;
	hl_cell_unsigned(emit,
			 ((const struct hl_event_difference *)row)->number * HL_INTERVAL_TICKS);
}

#define DIFFERENCE(name) HL_MEMBER(struct hl_event_difference, name)

static const struct hl_column difference_columns[] = {
	{"ms", "from ms", HL_COLUMN_NUMBER, .cell = from_ms},
	{"log_max_bytes", "log's maximum", HL_COLUMN_NUMBER, DIFFERENCE(log.max_bytes)},
	{"replayed_max_bytes", "replayed", HL_COLUMN_NUMBER, DIFFERENCE(replayed.max_bytes)},
	{"log_end_bytes", "log's end", HL_COLUMN_NUMBER, DIFFERENCE(log.end_bytes)},
	{"replayed_end_bytes", "replayed", HL_COLUMN_NUMBER, DIFFERENCE(replayed.end_bytes)},
};

static int replay_fail(const struct hl_events_report *report, const struct hl_event_replay *replay,
		       struct hl_error *err)
{
	if (replay->different)
		return hl_error_set(err, -EBADMSG,
				    "the events and the log of '%s' differ in %llu of %llu "
				    "intervals, first in the one from %llu ms on",
				    report->history->path, (unsigned long long)replay->different,
				    (unsigned long long)replay->compared,
				    (unsigned long long)replay->first[0].number *
					    HL_INTERVAL_TICKS);
	return hl_error_set(err, -EBADMSG,
			    "the events and the log of '%s' differ in what %llu stacks held, first "
			    "that of node %u at %llu ms",
			    report->history->path, (unsigned long long)replay->different_stacks,
			    replay->different_node,
			    (unsigned long long)(replay->different_interval + 1) *
				    HL_INTERVAL_TICKS);
}

static int report_replay(const struct hl_events_report *report, struct hl_error *err)
{
	const struct hl_history *history = report->history;
	struct hl_emit *emit = report->emit;
	char events[HL_FORMAT_MAX], stacks[HL_FORMAT_MAX], intervals[HL_FORMAT_MAX];
	struct hl_event_replay replay;

	int r = hl_event_replay(report->log, history->log, &report->range, &history->reading,
				&replay, err);
	if (r < 0)
		return r;
	bool is_equal = !replay.different && !replay.different_stacks;
	hl_events_head(report, "replay");
	hl_emit_boolean(emit, "equal", is_equal);
	hl_emit_integer(emit, "events", replay.events);
	hl_emit_integer(emit, "intervals", replay.compared);
	hl_emit_integer(emit, "uncertain_intervals", replay.uncertain);
	hl_emit_integer(emit, "different_intervals", replay.different);
	hl_emit_integer(emit, "states", replay.states);
	hl_emit_integer(emit, "stacks", replay.stacks);
	hl_emit_integer(emit, "different_stacks", replay.different_stacks);
	hl_emit_line(
		emit, "%s events replayed: %s intervals, and %s stacks at %llu moments, compared",
		hl_format_count(replay.events, events), hl_format_count(replay.compared, intervals),
		hl_format_count(replay.stacks, stacks), (unsigned long long)replay.states);
	if (replay.uncertain)
		hl_emit_line(
			emit,
			"%llu intervals could not be compared: some of their events are missing",
			(unsigned long long)replay.uncertain);
	if (is_equal)
		hl_emit_line(emit, "equal: the events and the log agree");
	if (replay.different || report->options->json) {
		size_t shown = replay.different < HL_EVENT_DIFFERENCES_MAX
				       ? (size_t)replay.different
				       : HL_EVENT_DIFFERENCES_MAX;
		hl_table_write(emit, &(struct hl_table){HL_TABLE("rows", difference_columns)},
			       replay.first, shown, sizeof(*replay.first));
	}
	return is_equal ? 0 : replay_fail(report, &replay, err);
}

/* ---- all of it ---- */

static hl_events_part *const parts[] = {
	[HL_VIEW_EVENTS_SUMMARY] = report_summary,
	[HL_VIEW_EVENTS_DUMP] = hl_events_dump,
	[HL_VIEW_EVENTS_LIFETIMES] = hl_events_lifetimes,
	[HL_VIEW_EVENTS_REPLAY] = report_replay,
};

HL_DEFINE_FREE_AT(struct hl_event_log, hl_event_log_free)

static int write_report(struct hl_history *history, const struct hl_view_options *options,
			struct hl_error *err)
{
	uint64_t first = hl_history_start_ms(history);
	uint64_t end = first + hl_history_length_ms(history);
	uint64_t left = history->process->duration_ns / NS_PER_MS + 1;
	struct hl_events_report report = {.history = history, .options = options};
	bool lines = options->events.report == HL_VIEW_EVENTS_DUMP && !options->json;
	HL_CLEANUP(hl_event_log_free_at) struct hl_event_log *log = NULL;
	struct hl_notices notices = {0};

	int r = hl_event_log_open(&history->source.log.place, history->process->sequence,
				  &history->reading, &log, err);
	if (r < 0)
		return r;
	report.log = log;
	/* The process may have left its last interval early; nothing lives on after that. */
	if (left < end && left + HL_INTERVAL_TICKS > end)
		end = left;
	/* Files of events cover less time than as many segments of the log. */
	uint64_t known = log->parts[0].first_interval * HL_INTERVAL_TICKS;
	if (end <= known)
		return hl_error_set(err, -ERANGE,
				    "'%s' holds no events before %llu ms; older ones were deleted",
				    history->path, (unsigned long long)known);
	report.range = (struct hl_event_range){first < known ? known : first, end};
	r = hl_emit_new(options->out,
			options->json ? HL_EMIT_JSON
			: lines	      ? HL_EMIT_LINES
				      : HL_EMIT_TABLE,
			options->color, "events/1", &report.emit);
	if (r < 0)
		return r;
	r = parts[options->events.report](&report, err);
	int finished = hl_emit_finish(report.emit);
	if (r == 0)
		r = finished;
	if (r < 0 || !lines)
		return r;
	/* Lines that another program reads have no place for what is missing. */
	hl_summary_notices(&notices, history->profile);
	hl_history_head_notices(&notices, history);
	add_notices(&notices, log);
	return hl_notices_put(&notices, options->notes);
}

int hl_events_view(struct hl_history *history, const struct hl_view_options *options,
		   struct hl_error *err)
{
	int r = write_report(history, options, err);

	return r < 0 ? hl_error_set(err, r, "cannot show '%s': %s", history->path,
				    r == -ENOMEM ? "out of memory" : strerror(-r))
		     : r;
}
