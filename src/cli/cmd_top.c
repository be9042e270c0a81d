/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline top: functions, lines, addresses, modules or threads, heaviest first. */
#include "cli/view_options.h"

static int by = HL_VIEW_BY_FUNCTION;
static int sort = HL_VIEW_SORT_FLAT;
static uint64_t row_limit = HL_EMIT_ROWS_DEFAULT;

/* In the order of enum hl_view_key. */
static const char *const by_words[] = {"function", "line", "address", "module", "thread", NULL};
static const char *const sort_words[] = {"flat", "cum", NULL};

static const struct hl_option options[] = {
	{"by", 'b', "KEY", "what a row is: function, line, address, module or thread",
	 HL_OPTION_CHOICE, &by, by_words},
	{"sort", 's', "KEY", "flat (own) or cum (with callees) first (default: flat)",
	 HL_OPTION_CHOICE, &sort, sort_words},
	{"rows", 'n', "N", "show N rows; 0: all (default: 30, with --json all)", HL_OPTION_COUNT,
	 &row_limit, NULL},
	{0},
};

static int run_top(int argc, char **argv)
{
	const struct hl_view_command command = {
		.view = hl_view_top, .pages = true, .keep_rows = by == HL_VIEW_BY_THREAD};
	const struct hl_view_options view_options = {
		.by = (enum hl_view_key)by,
		.sort = (enum hl_view_sort)sort,
		.row_limit = row_limit,
	};
	return hl_view_run(&hl_verb_top, argc, argv, &command, view_options);
}

const struct hl_verb hl_verb_top = {
	.name = "top",
	.group = HL_GROUP_LOOK,
	.arguments = "[NAME.hl]",
	.summary = "show functions, heaviest first",
	.options = options,
	.shared_options = {hl_view_value_options, hl_view_selection_options, hl_view_filter_options,
			   hl_view_plumbing_options, hl_view_json_options, hl_view_color_options,
			   hl_view_output_options},
	.run = run_top,
};
