/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline report: one page of HTML with every view. */
#include "cli/view_options.h"

static const struct hl_view_request defaults = {
	HL_VIEW_DEFAULTS,  .view = hl_report_view, .profiles_max = 2,	  .binary = true,
	.keep_rows = true, .advises = true,	   .tells_history = true,
};

static const struct hl_option options[] = {
	{"normalize", 0, NULL, "scale BEFORE by the ratio of the durations", HL_OPTION_FLAG,
	 HL_VIEW_AT(normalize), NULL},
	{0},
};

const struct hl_verb hl_verb_report = {
	.name = "report",
	.group = HL_GROUP_LOOK,
	.arguments = "[[BEFORE] NAME.hl]",
	.summary = "write one page of HTML with every view",
	.options = options,
	.shared_options = {HL_VIEW_PICTURE_OPTIONS},
	HL_REQUEST(defaults),
};
