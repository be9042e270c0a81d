/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline events: the events that were kept beside a log. */
#include "view/events.h"

#include "view/format.h"
#include "view/history_head.h"
#include "view/summary.h"

#include <errno.h>
#include <string.h>

#define NS_PER_MS UINT64_C(1000000)

static hl_events_part *const parts[] = {
	[HL_VIEW_EVENTS_SUMMARY] = hl_events_summary,
	[HL_VIEW_EVENTS_DUMP] = hl_events_dump,
	[HL_VIEW_EVENTS_LIFETIMES] = hl_events_lifetimes,
	[HL_VIEW_EVENTS_REPLAY] = hl_events_replay,
};

/* ---- the head ---- */

static void emit_files(const struct hl_events_report *report)
{
	const struct hl_event_log *log = report->log;
	struct hl_emit *emit = report->emit;

	hl_emit_object(emit, "files");
	hl_emit_integer(emit, "count", log->file_count);
	hl_emit_integer(emit, "bytes", log->file_bytes);
	hl_emit_integer(emit, "ignored", log->ignored_count);
	hl_emit_integer(emit, "foreign", log->foreign_count);
	hl_emit_integer(emit, "missing_events", log->missing_events);
	hl_emit_boolean(emit, "complete", !log->cut_off);
	hl_emit_object_end(emit);
	hl_emit_integer(emit, "first_ms", report->range.first);
	hl_emit_integer(emit, "last_ms", (int64_t)report->range.end - 1);
}

static void warn(struct hl_emit *emit, const struct hl_event_log *log)
{
	if (log->missing_events)
		hl_emit_warning(emit, "MISSING: %llu events could not be written to files",
				(unsigned long long)log->missing_events);
	hl_history_head_foreign(emit, log->foreign_count);
	if (log->ignored_count)
		hl_emit_warning(emit,
				"GAP: %u older file%s left out, because events after %s are "
				"missing or damaged",
				log->ignored_count, log->ignored_count == 1 ? " is" : "s are",
				log->ignored_count == 1 ? "it" : "them");
	if (log->cut_off)
		hl_emit_line(emit, "note: the events have no end: they are still being written, "
				   "or their writer was killed");
}

void hl_events_head(const struct hl_events_report *report, const char *name)
{
	char bytes[HL_FORMAT_MAX], duration[HL_FORMAT_MAX];
	uint64_t first = report->range.first, end = report->range.end;

	hl_emit_text(report->emit, "report", name);
	hl_history_head_members(report->emit, report->history);
	emit_files(report);
	hl_summary_lines(report->emit, report->history->profile);
	warn(report->emit, report->log);
	hl_emit_line(report->emit, "events from %llu to %llu ms (%s), of %u file%s with %s",
		     (unsigned long long)first, (unsigned long long)end - 1,
		     hl_format_duration((end - first) * NS_PER_MS, duration),
		     report->log->file_count, report->log->file_count == 1 ? "" : "s",
		     hl_format_bytes(report->log->file_bytes, bytes));
}

/* ---- all of it ---- */

/* The process may have left its last interval early; nothing lives on after that. */
static uint64_t end_of(const struct hl_history *history)
{
	uint64_t end = hl_history_start_ms(history) + hl_history_length_ms(history);
	uint64_t left = history->process->duration_ns / NS_PER_MS + 1;

	return left < end && left + HL_INTERVAL_TICKS > end ? left : end;
}

/* Files of events cover less time than as many segments of the log. */
static int find_range(struct hl_events_report *report, struct hl_error *err)
{
	const struct hl_history *history = report->history;
	uint64_t known = report->log->parts[0].first_interval * HL_INTERVAL_TICKS;

	report->range.first = hl_history_start_ms(history);
	report->range.end = end_of(history);
	if (report->range.end <= known)
		return hl_error_set(err, -ERANGE,
				    "'%s' holds no events before %llu ms; older ones were deleted",
				    history->path, (unsigned long long)known);
	if (report->range.first < known)
		report->range.first = known;
	return 0;
}

/* Lines that another program reads have no place for what is missing. */
static int note_what_is_missing(const struct hl_events_report *report)
{
	struct hl_emit *emit;

	int r = hl_history_head_note(report->history, report->options);
	if (r == 0)
		r = hl_emit_new(report->options->notes, HL_EMIT_TABLE, false, &emit);
	if (r < 0)
		return r;
	warn(emit, report->log);
	return hl_emit_finish(emit);
}

static int write_report(struct hl_events_report *report, struct hl_error *err)
{
	const struct hl_view_options *options = report->options;
	bool lines = options->events == HL_VIEW_EVENTS_DUMP && !options->json;

	int r = hl_emit_new(options->out,
			    options->json ? HL_EMIT_JSON
			    : lines	  ? HL_EMIT_LINES
					  : HL_EMIT_TABLE,
			    options->color, &report->emit);
	if (r < 0)
		return r;
	hl_emit_begin(report->emit, "events/1");
	r = parts[options->events](report, err);
	int finished = hl_emit_finish(report->emit);
	if (r == 0)
		r = finished;
	return r == 0 && lines ? note_what_is_missing(report) : r;
}

int hl_view_events(struct hl_history *history, const struct hl_view_options *options,
		   struct hl_error *err)
{
	struct hl_events_report report = {.history = history, .options = options};
	struct hl_event_log *log;

	int r = hl_event_log_open(&history->source.log.place, history->process->sequence,
				  &history->reading, &log, err);
	if (r < 0)
		return r;
	report.log = log;
	r = find_range(&report, err);
	if (r == 0)
		r = write_report(&report, err);
	hl_event_log_free(log);
	return r < 0 ? hl_error_set(err, r, "cannot show '%s': %s", history->path,
				    r == -ENOMEM ? "out of memory" : strerror(-r))
		     : r;
}
