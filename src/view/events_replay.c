/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline events --replay: whether the events tell the same as the log. */
#include "profile/event_replay.h"
#include "view/events.h"
#include "view/format.h"
#include "view/table.h"

#include <errno.h>

static bool is_equal(const struct hl_event_replay *replay)
{
	return !replay->different && !replay->different_stacks;
}

static void emit_members(struct hl_emit *emit, const struct hl_event_replay *replay)
{
	hl_emit_boolean(emit, "equal", is_equal(replay));
	hl_emit_integer(emit, "events", replay->events);
	hl_emit_integer(emit, "intervals", replay->compared);
	hl_emit_integer(emit, "uncertain_intervals", replay->uncertain);
	hl_emit_integer(emit, "different_intervals", replay->different);
	hl_emit_integer(emit, "states", replay->states);
	hl_emit_integer(emit, "stacks", replay->stacks);
	hl_emit_integer(emit, "different_stacks", replay->different_stacks);
}

static void from_ms(struct hl_emit *emit, const void *row, const void *context)
{
	(void)context;
	hl_cell_unsigned(emit,
			 ((const struct hl_event_difference *)row)->number * HL_INTERVAL_TICKS);
}

#define MEMBER(name) HL_MEMBER(struct hl_event_difference, name)

static const struct hl_column columns[] = {
	{"ms", "from ms", HL_COLUMN_NUMBER, .cell = from_ms},
	{"log_max_bytes", "log's maximum", HL_COLUMN_NUMBER, MEMBER(log.max_bytes)},
	{"replayed_max_bytes", "replayed", HL_COLUMN_NUMBER, MEMBER(replayed.max_bytes)},
	{"log_end_bytes", "log's end", HL_COLUMN_NUMBER, MEMBER(log.end_bytes)},
	{"replayed_end_bytes", "replayed", HL_COLUMN_NUMBER, MEMBER(replayed.end_bytes)},
};

static void emit_differences(struct hl_emit *emit, const struct hl_event_replay *replay)
{
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", columns)});
	for (size_t i = 0; i < replay->different && i < HL_EVENT_DIFFERENCES_MAX; i++)
		hl_table_row(emit, &replay->first[i], 0);
	hl_table_end(emit);
}

static void say(struct hl_emit *emit, const struct hl_event_replay *replay)
{
	char events[HL_FORMAT_MAX], stacks[HL_FORMAT_MAX], intervals[HL_FORMAT_MAX];

	hl_emit_line(emit,
		     "%s events replayed: %s intervals, and %s stacks at %llu moments, compared",
		     hl_format_count(replay->events, events),
		     hl_format_count(replay->compared, intervals),
		     hl_format_count(replay->stacks, stacks), (unsigned long long)replay->states);
	if (replay->uncertain)
		hl_emit_line(emit,
			     "%llu intervals could not be compared: some of their events "
			     "are missing",
			     (unsigned long long)replay->uncertain);
	if (is_equal(replay))
		hl_emit_line(emit, "equal: the events and the log agree");
}

static int fail(const struct hl_events_report *report, const struct hl_event_replay *replay,
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

int hl_events_replay(const struct hl_events_report *report, struct hl_error *err)
{
	const struct hl_history *history = report->history;
	struct hl_event_replay replay;

	int r = hl_event_replay(report->log, history->log, &report->range, &history->reading,
				&replay, err);
	if (r < 0)
		return r;
	hl_events_head(report, "replay");
	emit_members(report->emit, &replay);
	say(report->emit, &replay);
	if (replay.different || report->options->json)
		emit_differences(report->emit, &replay);
	return is_equal(&replay) ? 0 : fail(report, &replay, err);
}
