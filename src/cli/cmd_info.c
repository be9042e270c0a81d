/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline info: what was recorded, how, and what is missing. */
#include "cli/view_options.h"

static const struct hl_view_request defaults = {HL_VIEW_DEFAULTS, .view = hl_info_view,
						.pages = true, .advises = true};

static const struct hl_option options[] = {
	{"stacks", 0, NULL, "list functions with addresses, and the counters of each stack",
	 HL_OPTION_FLAG, HL_VIEW_AT(options.info.stacks), NULL},
	{0},
};

const struct hl_verb hl_verb_info = {
	.name = "info",
	.group = HL_GROUP_LOOK,
	.arguments = "[NAME.hl]",
	.summary = "show what was recorded, how, and what is missing",
	.options = options,
	.shared_options = {hl_view_selection_options, hl_view_filter_options, hl_view_stack_options,
			   hl_view_plumbing_options, hl_view_json_options, hl_view_color_options,
			   hl_view_output_options},
	HL_REQUEST(defaults),
};
