/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline tree: the call tree as text. */
#include "cli/view_options.h"

static double threshold = 1;
static uint64_t depth_limit;
static bool reversed;

static const struct hl_option options[] = {
	{"threshold", 0, "PERCENT", "fold branches below PERCENT of the total (default: 1)",
	 HL_OPTION_PERCENT, &threshold, NULL},
	{"depth", 'd', "N", "fold calls more than N deep; 0: none (default: 0)", HL_OPTION_COUNT,
	 &depth_limit, NULL},
	{"reversed", 'r', NULL, "begin with the functions that allocated, then callers",
	 HL_OPTION_FLAG, &reversed, NULL},
	{0},
};

static int run_tree(int argc, char **argv)
{
	const struct hl_view_command command = {.view = hl_view_tree, .pages = true};
	return hl_view_run(&hl_verb_tree, argc, argv, &command,
			   (struct hl_view_options){.threshold = threshold,
						    .depth_limit = depth_limit,
						    .reversed = reversed});
}

const struct hl_verb hl_verb_tree = {
	.name = "tree",
	.group = HL_GROUP_LOOK,
	.arguments = "[NAME.hl]",
	.summary = "show the call tree, heaviest branches first",
	.options = options,
	.shared_options = {hl_view_value_options, hl_view_selection_options, hl_view_filter_options,
			   hl_view_plumbing_options, hl_view_json_options, hl_view_color_options,
			   hl_view_output_options},
	.run = run_tree,
};
