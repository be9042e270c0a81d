/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline folded: one line for each stack, for flame graph programs. */
#include "cli/view_options.h"

static const struct hl_view_request defaults = {HL_VIEW_DEFAULTS, .view = hl_folded_view};

const struct hl_verb hl_verb_folded = {
	.name = "folded",
	.group = HL_GROUP_FILES,
	.arguments = "[NAME.hl]",
	.summary = "write stacks as folded lines, for flame graph programs",
	.shared_options = {hl_view_value_options, hl_view_selection_options, hl_view_filter_options,
			   hl_view_stack_options, hl_view_json_options, hl_view_output_options},
	HL_REQUEST(defaults),
};
