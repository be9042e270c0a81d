/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline tree: the call tree as text. */
#include "cli/view_options.h"

static const struct hl_view_request defaults = {
	HL_VIEW_DEFAULTS,
	.view = hl_tree_view,
	.pages = true,
	.options.tree.threshold = 1,
};

static const struct hl_option options[] = {
	{"threshold", 0, "PERCENT", "fold branches below PERCENT of the total (default: 1)",
	 HL_OPTION_PERCENT, HL_VIEW_AT(options.tree.threshold), NULL},
	{"rows", 'n', "N", "show the N heaviest branches, and as heavy ones; 0: all (default: 0)",
	 HL_OPTION_COUNT, HL_VIEW_AT(options.row_limit), NULL},
	{"depth", 'd', "N", "fold calls more than N deep; 0: none (default: 0)", HL_OPTION_COUNT,
	 HL_VIEW_AT(options.tree.depth_limit), NULL},
	{"reversed", 'r', NULL, "begin with the functions that allocated, then callers",
	 HL_OPTION_FLAG, HL_VIEW_AT(options.reversed), NULL},
	{0},
};

const struct hl_verb hl_verb_tree = {
	.name = "tree",
	.group = HL_GROUP_LOOK,
	.arguments = "[NAME.hl]",
	.summary = "show the call tree, heaviest branches first",
	.options = options,
	.shared_options = {HL_VIEW_TABLE_OPTIONS},
	HL_REQUEST(defaults),
};
