/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline events --dump: one line for each event. */
#include "profile/calltree.h"
#include "profile/event_lifetimes.h"
#include "view/events.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define STOPPED 1 /* by --rows */

struct dump {
	const struct hl_events_report *report;
	struct hl_calltree tree; /* with names alone */
	uint64_t left;		 /* events still to be written */
};

/* ---- names ---- */

static int read_names(struct dump *dump, struct hl_error *err)
{
	const struct hl_events_report *report = dump->report;
	struct hl_history *history = report->history;
	struct hl_log_state *names;

	if (!report->options->stacks)
		return 0;
	int r = hl_event_names_read(report->log, &report->range, &history->reading, &names, err);
	if (r < 0)
		return r;
	r = hl_history_name(history, names, err);
	hl_log_state_free(names);
	return r < 0 ? r
		     : hl_calltree_init(&dump->tree, history->profile, HL_VALUE_INUSE,
					HL_UNIT_BYTES);
}

/* The function that called malloc; nodes that damage has left without a name have none. */
static const char *name_of(const struct dump *dump, uint32_t node)
{
	const struct hl_history *history = dump->report->history;

	if (node >= history->log_node_count)
		return "[unknown]";
	uint32_t leaf = dump->tree.node_of[history->profile_nodes[node]];
	return hl_profile_text(history->profile, dump->tree.nodes[leaf].name);
}

/* ---- events ---- */

/* "+24", "-24"; where it is not of one block "+72/3". */
static void format_event(const struct hl_event *event, char *text, size_t size)
{
	char sign = event->is_free ? '-' : '+';
	int64_t bytes = event->is_free ? -event->bytes : event->bytes;
	int64_t objects = event->is_free ? -event->objects : event->objects;

	if (objects == 1)
		snprintf(text, size, "%c%" PRId64, sign, bytes);
	else
		snprintf(text, size, "%c%" PRId64 "/%" PRId64, sign, bytes, objects);
}

static void emit_event(struct dump *dump, const struct hl_event_run *run,
		       const struct hl_event *event)
{
	struct hl_emit *emit = dump->report->emit;
	char text[64];

	format_event(event, text, sizeof(text));
	hl_emit_row(emit, 0);
	hl_emit_cell_integer(emit, (int64_t)run->tick);
	hl_emit_cell_integer(emit, run->thread);
	hl_emit_cell_text(emit, text);
	hl_emit_cell_integer(emit, event->bytes);
	hl_emit_cell_integer(emit, event->objects);
	hl_emit_cell_integer(emit, event->node);
	if (dump->report->options->stacks)
		hl_emit_cell_text(emit, name_of(dump, event->node));
}

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
		emit_event(dump, run, &run->events[i]);
	}
	return ferror(dump->report->options->out) ? -EIO : 0;
}

static void begin_rows(const struct hl_events_report *report)
{
	const struct hl_emit_column columns[] = {
		{"tick", "ms", HL_EMIT_NUMBER, 0},
		{"thread", "thread", HL_EMIT_NUMBER, 0},
		{NULL, "bytes", HL_EMIT_TEXT, HL_EMIT_TEXT_ONLY},
		{"bytes", NULL, HL_EMIT_NUMBER, HL_EMIT_JSON_ONLY},
		{"objects", NULL, HL_EMIT_NUMBER, HL_EMIT_JSON_ONLY},
		{"node", "node", HL_EMIT_NUMBER, 0},
		{"name", "function", HL_EMIT_TEXT, 0},
	};
	size_t count = HL_COUNT_OF(columns) - !report->options->stacks;

	hl_emit_rows_streamed(report->emit, "rows", columns, count);
}

/* One part after another: lines are in the order of events. */
static int dump_events(struct dump *dump, struct hl_error *err)
{
	const struct hl_events_report *report = dump->report;
	const struct hl_log_options options = {.jobs = 1,
					       .progress = report->history->reading.progress};
	const struct hl_event_fold fold = {.context = dump, .visit = dump_run};

	hl_events_head(report, "dump");
	begin_rows(report);
	int r = hl_event_range_read(report->log, &report->range, &options, &fold, err);
	hl_emit_rows_end(report->emit);
	return r == STOPPED ? 0 : r;
}

int hl_events_dump(const struct hl_events_report *report, struct hl_error *err)
{
	uint64_t limit = report->options->row_limit;
	struct dump dump = {.report = report, .left = limit ? limit : UINT64_MAX};

	int r = read_names(&dump, err);
	if (r == 0)
		r = dump_events(&dump, err);
	hl_calltree_release(&dump.tree);
	return r;
}
