/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline events: the events that were kept beside a log. */
#include "base/cleanup.h"
#include "profile/calltree.h"
#include "profile/event_reports.h"
#include "view/format.h"
#include "view/rows.h"
#include "view/summary.h"
#include "view/table.h"
#include "view/view.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct events_report {
	struct hl_history *history;
	const struct hl_view_options *options;
	const struct hl_event_log *log;
	struct hl_event_range range; /* of history, as far as there are events of it */
	struct hl_emit *emit;
};

/*
 * A report: reads the events, then calls events_head(), then emits what it has found. 0 or a
 * negative errno, with a sentence unless it is -ENOMEM.
 */
typedef int events_part(const struct events_report *report, struct hl_error *err);

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

/* Emits the head: which report it is, whose events they are, and what is missing. */
static void events_head(const struct events_report *report, const char *name)
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

static int report_summary(const struct events_report *report, struct hl_error *err)
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
	events_head(report, "summary");
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

static int replay_fail(const struct events_report *report, const struct hl_event_replay *replay,
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

static int report_replay(const struct events_report *report, struct hl_error *err)
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
	events_head(report, "replay");
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

/* ---- --dump: one line for each event ---- */

#define STOPPED 1 /* by --rows */

struct dump {
	const struct events_report *report;
	struct hl_calltree tree; /* with names alone */
	uint64_t left;		 /* events still to be written */
};

struct dump_row {
	uint64_t ms;
	uint32_t thread;
	struct hl_event event;
};

/* "+24", "-24"; where it is not of one block "+72/3". */
static void change(struct hl_emit *emit, const void *at, const void *context)
{
	const struct hl_event *event = at;
	char sign = event->is_free ? '-' : '+', text[64];
	int64_t bytes = event->is_free ? -event->bytes : event->bytes;
	int64_t objects = event->is_free ? -event->objects : event->objects;

	(void)context;
	if (objects == 1)
		snprintf(text, sizeof(text), "%c%" PRId64, sign, bytes);
	else
		snprintf(text, sizeof(text), "%c%" PRId64 "/%" PRId64, sign, bytes, objects);
	hl_cell_text(emit, text);
}

/* The function that called malloc; nodes that damage has left without a name have none. */
static void function(struct hl_emit *emit, const void *at, const void *context)
{
	const struct dump *dump = context;
	const struct hl_history *history = dump->report->history;
	uint32_t node = *(const uint32_t *)at;

	if (node >= history->log_node_count) {
		hl_cell_text(emit, "[unknown]");
		return;
	}
	uint32_t leaf = dump->tree.node_of[history->profile_nodes[node]];
	hl_cell_text(emit, hl_profile_text(history->profile, dump->tree.nodes[leaf].name));
}

#define HAS_NAMES 1

#define MEMBER(name)	     HL_MEMBER(struct dump_row, name)
#define CELL(name, function) HL_MEMBER_CELL(struct dump_row, name, function)

static const struct hl_column dump_columns[] = {
	{"tick", "ms", HL_COLUMN_NUMBER, MEMBER(ms)},
	{"thread", "thread", HL_COLUMN_NUMBER, MEMBER(thread)},
	{NULL, "bytes", HL_COLUMN_TEXT, CELL(event, change)},
	{"bytes", NULL, HL_COLUMN_NUMBER, MEMBER(event.bytes)},
	{"objects", NULL, HL_COLUMN_NUMBER, MEMBER(event.objects)},
	{"node", "node", HL_COLUMN_NUMBER, MEMBER(event.node)},
	{"name", "function", HL_COLUMN_TEXT, CELL(event.node, function), .shown_if = HAS_NAMES},
};

static int dump_run(void *context, size_t part, const struct hl_event_run *run)
{
	struct dump *dump = context;
	const struct hl_event_range *range = &dump->report->range;

	(void)part;
	if (run->tick < range->first)
		return 0;
	if (run->tick >= range->end)
		return STOPPED;
	for (size_t i = 0; i < run->count; i++) {
		if (!dump->left)
			return STOPPED;
		dump->left--;
		hl_table_row(dump->report->emit,
			     &(struct dump_row){run->tick, run->thread, run->events[i]}, 0);
	}
	return ferror(dump->report->options->out) ? -EIO : 0;
}

static int report_dump(const struct events_report *report, struct hl_error *err)
{
	struct hl_history *history = report->history;
	const struct hl_view_options *options = report->options;
	/* One part after another: lines are in the order of events. */
	const struct hl_log_options reading = {.jobs = 1, .progress = history->reading.progress};
	struct dump dump = {.report = report,
			    .left = options->row_limit ? options->row_limit : UINT64_MAX};
	const struct hl_event_fold fold = {.context = &dump, .visit = dump_run};
	struct hl_log_state *names = NULL;
	int r = 0;

	if (options->events.names) {
		r = hl_history_names_read_events(report->log, &report->range, &history->reading,
						 &names, err);
		if (r == 0)
			r = hl_history_name(history, names, err);
		if (r == 0)
			r = hl_calltree_init(&dump.tree, history->profile, HL_VALUE_INUSE,
					     HL_UNIT_BYTES);
		hl_log_state_free(names);
	}
	if (r == 0) {
		events_head(report, "dump");
		hl_table_begin_streamed(
			report->emit,
			&(struct hl_table){HL_TABLE("rows", dump_columns), .context = &dump,
					   .facts = options->events.names ? HAS_NAMES : 0});
		r = hl_event_log_read_range(report->log, &report->range, &reading, &fold, err);
		hl_table_end(report->emit);
	}
	hl_calltree_release(&dump.tree);
	return r == STOPPED ? 0 : r;
}

/* ---- --lifetimes: how long the blocks of each stack live ---- */

#define US_PER_MS 1000

struct lifetime_row {
	uint32_t node; /* of the call tree */
	double mean_ms;
	int64_t lifetime_us, left_objects, left_bytes;
	struct hl_event_lifetime figures;
};

struct lifetimes {
	const struct events_report *report;
	struct hl_event_lifetimes nodes;
	struct hl_calltree tree;
	struct hl_stack_path path;
	struct lifetime_row *rows; /* longest lived first */
	size_t row_count;
};

static int64_t touched_bytes(const struct lifetime_row *row)
{
	return row->figures.held_bytes + row->figures.alloc_bytes;
}

/* Of those that live equally long, first the one with more bytes. */
static int longest_first(const void *left, const void *right)
{
	const struct lifetime_row *a = left, *b = right;

	if (a->mean_ms != b->mean_ms)
		return a->mean_ms < b->mean_ms ? 1 : -1;
	if (touched_bytes(a) != touched_bytes(b))
		return touched_bytes(a) < touched_bytes(b) ? 1 : -1;
	return (a->node > b->node) - (a->node < b->node);
}

static int shortest_first(const void *left, const void *right)
{
	const struct lifetime_row *a = left, *b = right;

	if (a->mean_ms != b->mean_ms)
		return a->mean_ms < b->mean_ms ? -1 : 1;
	return longest_first(left, right);
}

static int read_rows(struct lifetimes *lifetimes, struct hl_error *err)
{
	const struct events_report *report = lifetimes->report;
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
		lifetimes->rows[lifetimes->row_count++] = (struct lifetime_row){
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

/* "0.25 ms", "12 s". */
static void life(struct hl_emit *emit, const void *row, const void *context)
{
	double ms = ((const struct lifetime_row *)row)->mean_ms;
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

#define LIFETIME(name) HL_MEMBER(struct lifetime_row, figures.name)
#define STACK(what)    HL_MEMBER_CELL(struct lifetime_row, node, hl_stack_path_cell_##what)
#define BLANK	       HL_COLUMN_BLANK_ZERO
#define SHORTENED      HL_COLUMN_SHORTENED

static const struct hl_column lifetime_columns[] = {
	{NULL, "mean life", HL_COLUMN_TEXT, .cell = life},
	{"lifetime_us", NULL, HL_COLUMN_NUMBER, HL_MEMBER(struct lifetime_row, lifetime_us)},
	{"object_ms", NULL, HL_COLUMN_NUMBER, LIFETIME(area)},
	{"held_objects", "before", HL_COLUMN_COUNT, LIFETIME(held_objects), BLANK},
	{"alloc_objects", "allocated", HL_COLUMN_COUNT, LIFETIME(alloc_objects)},
	{"alloc_bytes", "bytes", HL_COLUMN_BYTES, LIFETIME(alloc_bytes)},
	{"left_objects", "left", HL_COLUMN_COUNT, HL_MEMBER(struct lifetime_row, left_objects),
	 BLANK},
	{"left_bytes", "bytes", HL_COLUMN_BYTES, HL_MEMBER(struct lifetime_row, left_bytes), BLANK},
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
		       &(struct hl_table){HL_TABLE("rows", lifetime_columns),
					  .context = &lifetimes->path,
					  .facts = full ? FULL : SHORTENS},
		       lifetimes->rows, count, sizeof(*lifetimes->rows));
}

static int report_lifetimes(const struct events_report *report, struct hl_error *err)
{
	struct lifetimes lifetimes = {.report = report};
	struct hl_emit *emit = report->emit;

	int r = read_rows(&lifetimes, err);
	if (r == 0) {
		size_t all = lifetimes.row_count;
		size_t count = hl_emit_shown(emit, report->options->row_limit, ROWS_USUAL, all);
		events_head(report, "lifetimes");
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

/* ---- all of it ---- */

static events_part *const parts[] = {
	[HL_VIEW_EVENTS_SUMMARY] = report_summary,
	[HL_VIEW_EVENTS_DUMP] = report_dump,
	[HL_VIEW_EVENTS_LIFETIMES] = report_lifetimes,
	[HL_VIEW_EVENTS_REPLAY] = report_replay,
};

HL_DEFINE_FREE_AT(struct hl_event_log, hl_event_log_free)

static int write_report(struct hl_history *history, const struct hl_view_options *options,
			struct hl_error *err)
{
	uint64_t first = hl_history_start_ms(history);
	uint64_t end = first + hl_history_length_ms(history);
	uint64_t left = history->process->duration_ns / NS_PER_MS + 1;
	struct events_report report = {.history = history, .options = options};
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
