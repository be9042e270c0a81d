/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline top: functions, lines, threads and what else rows stand for, heaviest first. */
#include "cli/view_options.h"

static const struct hl_view_request defaults = {
	HL_VIEW_DEFAULTS,
	.view = hl_top_view,
	.pages = true,
	.options.row_limit = HL_EMIT_ROWS_DEFAULT,
};

/* In the order of enum hl_view_key and enum hl_view_sort. */
static const char *const by_words[] = {"function", "line", "address", "module",
				       "thread",   "type", "service", NULL};
static const char *const sort_words[] = {"flat", "cum", NULL};

static const struct hl_option options[] = {
	{"by", 'b', "KEY",
	 "what a row is: function, line, address, module, thread, type or service",
	 HL_OPTION_CHOICE, HL_VIEW_AT(options.by), by_words},
	{"sort", 's', "KEY", "flat (own) or cum (with callees) first (default: flat)",
	 HL_OPTION_CHOICE, HL_VIEW_AT(options.sort), sort_words},
	{"rows", 'n', "N", "show N rows; 0: all (default: 30, with --json all)", HL_OPTION_COUNT,
	 HL_VIEW_AT(options.row_limit), NULL},
	{0},
};

static int run_top(void *parsed, int argc, char **argv)
{
	struct hl_view_request *request = parsed;

	request->keep_rows = request->options.by == HL_VIEW_BY_THREAD;
	return hl_view_run(&hl_verb_top, argc, argv, request);
}

const struct hl_verb hl_verb_top = {
	.name = "top",
	.group = HL_GROUP_LOOK,
	.arguments = "[NAME.hl]",
	.summary = "show functions, heaviest first",
	.options = options,
	.shared_options = {HL_VIEW_TABLE_OPTIONS},
	HL_REQUEST(defaults),
	.run = run_top,
};
