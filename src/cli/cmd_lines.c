/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline lines: source lines, heaviest first. */
#include "cli/view_options.h"

static uint64_t row_limit = HL_EMIT_ROWS_DEFAULT;

static const struct hl_option options[] = {
	{"rows", 'n', "N", "show N lines and the sum of the rest; 0: all (default: all)",
	 HL_OPTION_COUNT, &row_limit, NULL},
	{0},
};

static int run_lines(int argc, char **argv)
{
	const struct hl_view_command command = {.view = hl_view_lines, .pages = true};
	return hl_view_run(&hl_verb_lines, argc, argv, &command,
			   (struct hl_view_options){.row_limit = row_limit});
}

const struct hl_verb hl_verb_lines = {
	.name = "lines",
	.group = HL_GROUP_LOOK,
	.arguments = "[NAME.hl]",
	.summary = "write source lines and what was allocated there, heaviest first",
	.options = options,
	.shared_options = {hl_view_value_options, hl_view_selection_options, hl_view_filter_options,
			   hl_view_plumbing_options, hl_view_json_options, hl_view_color_options,
			   hl_view_output_options},
	.run = run_lines,
};
