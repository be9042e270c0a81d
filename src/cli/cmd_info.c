/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline info: what was recorded, how, and what is missing. */
#include "cli/view_options.h"

static bool stacks;

static const struct hl_option options[] = {
	{"stacks", 0, NULL, "list functions with addresses, and the counters of each stack",
	 HL_OPTION_FLAG, &stacks, NULL},
	{0},
};

static int run_info(int argc, char **argv)
{
	const struct hl_view_command command = {
		.view = hl_view_info, .pages = true, .advises = true};
	return hl_view_run(&hl_verb_info, argc, argv, &command,
			   (struct hl_view_options){.stacks = stacks});
}

const struct hl_verb hl_verb_info = {
	.name = "info",
	.group = HL_GROUP_LOOK,
	.arguments = "[NAME.hl]",
	.summary = "show what was recorded, how, and what is missing",
	.options = options,
	.shared_options = {hl_view_selection_options, hl_view_filter_options,
			   hl_view_plumbing_options, hl_view_json_options, hl_view_color_options,
			   hl_view_output_options},
	.run = run_info,
};
