/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline page-events: the page faults of a running process by stack. */
#include "bpf/page_trace.h"
#include "cli/trace_run.h"
#include "cli/view_options.h"

static const struct hl_trace_target defaults = {HL_TRACE_DEFAULTS};

static int run_page_events(void *parsed, int argc, char **argv)
{
	static const struct hl_page_settings settings;
	const struct hl_trace_command command = {.backend = &hl_page_event_trace,
						 .settings = &settings};

	return hl_trace_run(&hl_verb_page_events, argc, argv, parsed, &command);
}

const struct hl_verb hl_verb_page_events = {
	.name = "page-events",
	.group = HL_GROUP_LIVE,
	.arguments = "-p PID [SECONDS]",
	.summary = "show the page faults of a running process, from outside",
	.shared_options = {hl_trace_options, hl_view_unit_options, hl_view_filter_options,
			   hl_view_plumbing_options, hl_view_json_options, hl_view_color_options},
	HL_REQUEST(defaults),
	.run = run_page_events,
};
