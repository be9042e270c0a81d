/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline events: the events that were kept beside a log. */
#include "cli/view_options.h"

struct request {
	struct hl_view_request view;
	bool dump, lifetimes, replay;
};

static const struct request defaults = {
	.view = {HL_VIEW_DEFAULTS, .history_view = hl_events_view, .pages = true,
		 .options.row_limit = HL_EMIT_ROWS_DEFAULT},
};

static const struct hl_option options[] = {
	{"dump", 0, NULL, "list events, one on each line", HL_OPTION_FLAG, HL_AT(dump), NULL},
	{"lifetimes", 0, NULL, "show how long blocks live, by stack", HL_OPTION_FLAG,
	 HL_AT(lifetimes), NULL},
	{"replay", 0, NULL, "check that events agree with the log", HL_OPTION_FLAG, HL_AT(replay),
	 NULL},
	{"stacks", 0, NULL, "with --dump: also show the function that allocated", HL_OPTION_FLAG,
	 HL_VIEW_AT(options.events.names), NULL},
	{"full", 0, NULL, "with --lifetimes: stacks with all their frames", HL_OPTION_FLAG,
	 HL_VIEW_AT(options.full), NULL},
	{"rows", 'n', "N", "at most N rows; 0: all (default: 10, with --dump and in JSON all)",
	 HL_OPTION_COUNT, HL_VIEW_AT(options.row_limit), NULL},
	{0},
};

static int run_events(void *parsed, int argc, char **argv)
{
	struct request *request = parsed;
	bool dump = request->dump, lifetimes = request->lifetimes, replay = request->replay;
	struct hl_view_options *chosen = &request->view.options;

	if (dump + lifetimes + replay > 1)
		return hl_cli_usage_error(&hl_verb_events,
					  "--dump, --lifetimes and --replay exclude each other");
	if (chosen->events.names && !dump)
		return hl_cli_usage_error(&hl_verb_events, "--stacks is for --dump");
	if (chosen->full && !lifetimes)
		return hl_cli_usage_error(&hl_verb_events, "--full is for --lifetimes");
	chosen->events.report = dump	    ? HL_VIEW_EVENTS_DUMP
				: lifetimes ? HL_VIEW_EVENTS_LIFETIMES
				: replay    ? HL_VIEW_EVENTS_REPLAY
					    : HL_VIEW_EVENTS_SUMMARY;
	return hl_view_run(&hl_verb_events, argc, argv, &request->view);
}

const struct hl_verb hl_verb_events = {
	.name = "events",
	.group = HL_GROUP_LOOK,
	.arguments = "[NAME.hl]",
	.summary = "show the events that were kept beside a log",
	.options = options,
	.shared_options = {hl_view_history_options, hl_view_json_options, hl_view_color_options,
			   hl_view_output_options},
	HL_REQUEST(defaults),
	.run = run_events,
};
