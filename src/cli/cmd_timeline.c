/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline timeline: how much was in use, over time. */
#include "cli/view_options.h"
#include "view/pictures/timeline.h"

static const char *const by_words[] = {"total", "module", "function", NULL};
static const enum hl_view_key by_keys[] = {HL_VIEW_BY_TOTAL, HL_VIEW_BY_MODULE,
					   HL_VIEW_BY_FUNCTION};

/* By enum hl_view_timeline. */
static const char *const format_words[] = {"text", "svg", "csv", NULL};

static const struct hl_view_request defaults = {
	HL_VIEW_DEFAULTS,
	.history_view = hl_timeline_view,
	.formats = format_words,
	.options = {.row_limit = HL_EMIT_ROWS_DEFAULT, .timeline.key_limit = 5},
};

static const struct hl_option options[] = {
	{"by", 'b', "KEY", "total, module or function (default: total)", HL_OPTION_CHOICE,
	 HL_VIEW_AT(options.by), by_words},
	{"heaviest", 0, "N", "show the N largest modules or functions, and the rest (default: 5)",
	 HL_OPTION_COUNT, HL_VIEW_AT(options.timeline.key_limit),
	 HL_BOUNDS(1, HL_TIMELINE_KEYS_MAX)},
	{"rows", 'n', "N",
	 "at most N rows; 0: one for each interval (default: 40, in CSV and JSON all)",
	 HL_OPTION_COUNT, HL_VIEW_AT(options.row_limit), NULL},
	{"format", 0, "FORMAT", "text, svg or csv (default: as FILE is named, else text)",
	 HL_OPTION_CHOICE, HL_VIEW_AT(format), format_words},
	{0},
};

static int run_timeline(void *parsed, int argc, char **argv)
{
	struct hl_view_request *request = parsed;

	int format = hl_view_options_choose_format(request, HL_VIEW_TIMELINE_TEXT);
	request->pages = format == HL_VIEW_TIMELINE_TEXT;
	request->binary = format == HL_VIEW_TIMELINE_SVG;
	request->options.timeline.form = (enum hl_view_timeline)format;
	request->options.by = by_keys[request->options.by];
	return hl_view_run(&hl_verb_timeline, argc, argv, request);
}

const struct hl_verb hl_verb_timeline = {
	.name = "timeline",
	.group = HL_GROUP_LOOK,
	.arguments = "[NAME.hl]",
	.summary = "show how much was in use over time",
	.options = options,
	.shared_options = {hl_view_history_options, hl_view_stack_options, hl_view_plumbing_options,
			   hl_view_json_options, hl_view_color_options, hl_view_output_options},
	HL_REQUEST(defaults),
	.run = run_timeline,
};
