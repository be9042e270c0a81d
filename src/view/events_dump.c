/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline events --dump: one line for each event. */
#include "profile/calltree.h"
#include "profile/event_lifetimes.h"
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

struct row {
	uint64_t ms;
	uint32_t thread;
	const struct hl_event *event;
};

/* "+24", "-24"; where it is not of one block "+72/3". */
static void change(struct hl_emit *emit, const void *row, const void *context)
{
	const struct hl_event *event = ((const struct row *)row)->event;
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

static void bytes(struct hl_emit *emit, const void *row, const void *context)
{
	(void)context;
	hl_cell_integer(emit, ((const struct row *)row)->event->bytes);
}

static void objects(struct hl_emit *emit, const void *row, const void *context)
{
	(void)context;
	hl_cell_integer(emit, ((const struct row *)row)->event->objects);
}

static void node(struct hl_emit *emit, const void *row, const void *context)
{
	(void)context;
	hl_cell_integer(emit, ((const struct row *)row)->event->node);
}

static void function(struct hl_emit *emit, const void *row, const void *dump)
{
	hl_cell_text(emit, name_of(dump, ((const struct row *)row)->event->node));
}

#define HAS_NAMES 1

static const struct hl_column columns[] = {
	{"tick", "ms", HL_COLUMN_NUMBER, HL_MEMBER(struct row, ms)},
	{"thread", "thread", HL_COLUMN_NUMBER, HL_MEMBER(struct row, thread)},
	{NULL, "bytes", HL_COLUMN_TEXT, .cell = change},
	{"bytes", NULL, HL_COLUMN_NUMBER, .cell = bytes},
	{"objects", NULL, HL_COLUMN_NUMBER, .cell = objects},
	{"node", "node", HL_COLUMN_NUMBER, .cell = node},
	{"name", "function", HL_COLUMN_TEXT, .cell = function, .shown_if = HAS_NAMES},
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
			     &(struct row){run->tick, run->thread, &run->events[i]}, 0);
	}
	return ferror(dump->report->options->out) ? -EIO : 0;
}

/* One part after another: lines are in the order of events. */
static int dump_events(struct dump *dump, struct hl_error *err)
{
	const struct hl_events_report *report = dump->report;
	const struct hl_log_options options = {.jobs = 1,
					       .progress = report->history->reading.progress};
	const struct hl_event_fold fold = {.context = dump, .visit = dump_run};

	hl_events_head(report, "dump");
	hl_table_begin_streamed(
		report->emit, &(struct hl_table){HL_TABLE("rows", columns), .context = dump,
						 .facts = report->options->stacks ? HAS_NAMES : 0});
	int r = hl_event_range_read(report->log, &report->range, &options, &fold, err);
	hl_table_end(report->emit);
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
