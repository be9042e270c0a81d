/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline growth: what rises steadily, as leaks do. */
#include "cli/view_options.h"

static struct hl_view_command command = {
	.history_view = hl_growth_view,
	.pages = true,
	.options.row_limit = HL_EMIT_ROWS_DEFAULT,
};

static int by;

static const char *const by_words[] = {"stack", "function", "line", NULL};
static const enum hl_view_key by_keys[] = {HL_VIEW_BY_STACK, HL_VIEW_BY_FUNCTION, HL_VIEW_BY_LINE};

static const struct hl_option options[] = {
	{"by", 'b', "KEY", "stack, function or line (default: stack)", HL_OPTION_CHOICE, &by,
	 by_words},
	{"rows", 'n', "N", "show N rows; 0: all (default: 20, with --json all)", HL_OPTION_COUNT,
	 &command.options.row_limit, NULL},
	{"full", 0, NULL, "show stacks with all their frames", HL_OPTION_FLAG,
	 &command.options.full, NULL},
	{0},
};

static int run_growth(int argc, char **argv)
{
	command.options.by = by_keys[by];
	return hl_view_run(&hl_verb_growth, argc, argv, &command);
}

const struct hl_verb hl_verb_growth = {
	.name = "growth",
	.group = HL_GROUP_LOOK,
	.arguments = "[NAME.hl]",
	.summary = "show what rises steadily, as leaks do",
	.options = options,
	.shared_options = {hl_view_history_options, hl_view_filter_options, hl_view_stack_options,
			   hl_view_plumbing_options, hl_view_json_options, hl_view_color_options,
			   hl_view_output_options},
	.run = run_growth,
};
