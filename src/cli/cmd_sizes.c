/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline sizes: how large the blocks are, and which stacks allocated those of each size. */
#include "cli/view_options.h"

static uint64_t stack_limit = 3;
static bool full;

static const struct hl_option options[] = {
	{"stacks", 'n', "N", "show N stacks of each size; 0: all (default: 3)", HL_OPTION_COUNT,
	 &stack_limit, NULL},
	{"full", 0, NULL, "show stacks with all their frames", HL_OPTION_FLAG, &full, NULL},
	{0},
};

static int run_sizes(int argc, char **argv)
{
	const struct hl_view_command command = {.view = hl_view_sizes, .pages = true};
	return hl_view_run(&hl_verb_sizes, argc, argv, &command,
			   (struct hl_view_options){.stack_limit = stack_limit, .full = full});
}

const struct hl_verb hl_verb_sizes = {
	.name = "sizes",
	.group = HL_GROUP_LOOK,
	.arguments = "[NAME.hl]",
	.summary = "show how large blocks are, and who allocates each size",
	.options = options,
	.shared_options = {hl_view_value_options, hl_view_selection_options, hl_view_filter_options,
			   hl_view_plumbing_options, hl_view_json_options, hl_view_color_options,
			   hl_view_output_options},
	.run = run_sizes,
};
