/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline report: one page of HTML with every view. */
#include "cli/view_options.h"

static bool normalize;

static const struct hl_option options[] = {
	{"normalize", 0, NULL, "scale BEFORE by the ratio of the durations", HL_OPTION_FLAG,
	 &normalize, NULL},
	{0},
};

static int run_report(int argc, char **argv)
{
	const struct hl_view_command command = {.view = hl_view_report,
						.profiles_max = 2,
						.binary = true,
						.normalize = normalize,
						.keep_rows = true,
						.advises = true,
						.tells_history = true};
	return hl_view_run(&hl_verb_report, argc, argv, &command, (struct hl_view_options){0});
}

const struct hl_verb hl_verb_report = {
	.name = "report",
	.group = HL_GROUP_LOOK,
	.arguments = "[[BEFORE] NAME.hl]",
	.summary = "write one page of HTML with every view",
	.options = options,
	.shared_options = {hl_view_value_options, hl_view_selection_options, hl_view_filter_options,
			   hl_view_plumbing_options, hl_view_json_options, hl_view_output_options},
	.run = run_report,
};
