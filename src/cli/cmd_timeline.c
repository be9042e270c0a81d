/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline timeline: how much was in use, over time. */
#include "cli/view_options.h"
#include "view/pictures/timeline.h"

static int by;
static int format = -1; /* -1: what the name of the output says */
static uint64_t row_limit = HL_EMIT_ROWS_DEFAULT;
static uint64_t key_limit = 5;

static const char *const by_words[] = {"total", "module", "function", NULL};
static const enum hl_view_key by_keys[] = {HL_VIEW_BY_TOTAL, HL_VIEW_BY_MODULE,
					   HL_VIEW_BY_FUNCTION};

/* By enum hl_view_timeline. */
static const char *const format_words[] = {"text", "svg", "csv", NULL};

static const struct hl_option options[] = {
	{"by", 'b', "KEY", "total, module or function (default: total)", HL_OPTION_CHOICE, &by,
	 by_words},
	{"heaviest", 0, "N", "show the N largest modules or functions, and the rest (default: 5)",
	 HL_OPTION_COUNT, &key_limit, NULL},
	{"rows", 'n', "N",
	 "at most N rows; 0: one for each interval (default: 40, in CSV and JSON all)",
	 HL_OPTION_COUNT, &row_limit, NULL},
	{"format", 0, "FORMAT", "text, svg or csv (default: as FILE is named, else text)",
	 HL_OPTION_CHOICE, &format, format_words},
	{0},
};

static int run_timeline(int argc, char **argv)
{
	if (key_limit < 1 || key_limit > HL_TIMELINE_KEYS_MAX)
		return hl_cli_usage_error(&hl_verb_timeline,
					  "bad value '%llu' of option '--heaviest': not 1 to %d",
					  (unsigned long long)key_limit, HL_TIMELINE_KEYS_MAX);
	bool format_given = format >= 0;
	if (!format_given)
		format = hl_view_options_format_of(hl_view_options_parse_output().path,
						   format_words);
	if (format < 0)
		format = HL_VIEW_TIMELINE_TEXT;
	const struct hl_view_command command = {.history_view = hl_view_timeline,
						.pages = format == HL_VIEW_TIMELINE_TEXT,
						.binary = format == HL_VIEW_TIMELINE_SVG,
						.formats = format_words,
						.format_given = format_given};
	return hl_view_run(&hl_verb_timeline, argc, argv, &command,
			   (struct hl_view_options){.by = by_keys[by],
						    .key_limit = key_limit,
						    .row_limit = row_limit,
						    .timeline = (enum hl_view_timeline)format});
}

const struct hl_verb hl_verb_timeline = {
	.name = "timeline",
	.group = HL_GROUP_LOOK,
	.arguments = "[NAME.hl]",
	.summary = "show how much was in use over time",
	.options = options,
	.shared_options = {hl_view_history_options, hl_view_plumbing_options, hl_view_json_options,
			   hl_view_color_options, hl_view_output_options},
	.run = run_timeline,
};
