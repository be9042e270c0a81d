/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline sizes: how large the blocks are, and which stacks allocated those of each size. */
#include "cli/view_options.h"

static const struct hl_view_request defaults = {
	HL_VIEW_DEFAULTS,
	.view = hl_sizes_view,
	.pages = true,
	.options.stack_limit = 3,
};

static const struct hl_option options[] = {
	{"stacks", 'n', "N", "show N stacks of each size; 0: all (default: 3)", HL_OPTION_COUNT,
	 HL_VIEW_AT(options.stack_limit), NULL},
	{"full", 0, NULL, "show stacks with all their frames", HL_OPTION_FLAG,
	 HL_VIEW_AT(options.full), NULL},
	{0},
};

const struct hl_verb hl_verb_sizes = {
	.name = "sizes",
	.group = HL_GROUP_LOOK,
	.arguments = "[NAME.hl]",
	.summary = "show how large blocks are, and who allocates each size",
	.options = options,
	.shared_options = {HL_VIEW_TABLE_OPTIONS},
	HL_REQUEST(defaults),
};
