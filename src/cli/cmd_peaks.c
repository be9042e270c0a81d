/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline peaks: when most was in use, and what made it so. */
#include "cli/view_options.h"

static const struct hl_view_request defaults = {
	HL_VIEW_DEFAULTS,
	.history_view = hl_peaks_view,
	.pages = true,
	.options = {.row_limit = 5, .stack_limit = 3, .peaks.valley = 5},
};

static const struct hl_option options[] = {
	{"rows", 'n', "N", "show the N highest hills; 0: all (default: 5)", HL_OPTION_COUNT,
	 HL_VIEW_AT(options.row_limit), NULL},
	{"stacks", 0, "N", "show N stacks of each; 0: all (default: 3)", HL_OPTION_COUNT,
	 HL_VIEW_AT(options.stack_limit), NULL},
	{"full", 0, NULL, "show stacks with all their frames", HL_OPTION_FLAG,
	 HL_VIEW_AT(options.full), NULL},
	{"valley", 0, "PERCENT", "a hill falls by PERCENT of its height on both sides (default: 5)",
	 HL_OPTION_PERCENT, HL_VIEW_AT(options.peaks.valley), NULL},
	{0},
};

const struct hl_verb hl_verb_peaks = {
	.name = "peaks",
	.group = HL_GROUP_LOOK,
	.arguments = "[NAME.hl]",
	.summary = "show when most was in use, and which stacks made it so",
	.options = options,
	.shared_options = {hl_view_history_options, hl_view_filter_options, hl_view_stack_options,
			   hl_view_plumbing_options, hl_view_json_options, hl_view_color_options,
			   hl_view_output_options},
	HL_REQUEST(defaults),
};
