/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline events --dump: one line for each event. */
#include "profile/calltree.h"
#include "profile/event_reports.h"
#include "view/events.h"
#include "view/table.h"

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

struct row {
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

#define MEMBER(name)	     HL_MEMBER(struct row, name)
#define CELL(name, function) HL_MEMBER_CELL(struct row, name, function)

static const struct hl_column columns[] = {
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
			     &(struct row){run->tick, run->thread, run->events[i]}, 0);
	}
	return ferror(dump->report->options->out) ? -EIO : 0;
}

int hl_events_dump(const struct hl_events_report *report, struct hl_error *err)
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
		hl_events_head(report, "dump");
		hl_table_begin_streamed(
			report->emit,
			&(struct hl_table){HL_TABLE("rows", columns), .context = &dump,
					   .facts = options->events.names ? HAS_NAMES : 0});
		r = hl_event_log_read_range(report->log, &report->range, &reading, &fold, err);
		hl_table_end(report->emit);
	}
	hl_calltree_release(&dump.tree);
	return r == STOPPED ? 0 : r;
}
