/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline lines: source lines, heaviest first. */
#include "cli/view_options.h"

static const struct hl_view_request defaults = {
	HL_VIEW_DEFAULTS,
	.view = hl_lines_view,
	.pages = true,
	.options.row_limit = HL_EMIT_ROWS_DEFAULT,
};

static const struct hl_option options[] = {
	{"rows", 'n', "N", "show N lines; 0: all (default: 30; with --plain and --json all)",
	 HL_OPTION_COUNT, HL_VIEW_AT(options.row_limit), NULL},
	{"plain", 0, NULL, "write 'FILE line:N size:BYTES' and a total, for scripts",
	 HL_OPTION_FLAG, HL_VIEW_AT(options.lines.plain), NULL},
	{"freed", 0, NULL, "show lines whose memory was all freed, too, with 0 bytes",
	 HL_OPTION_FLAG, HL_VIEW_AT(options.lines.freed), NULL},
	{0},
};

const struct hl_verb hl_verb_lines = {
	.name = "lines",
	.group = HL_GROUP_LOOK,
	.arguments = "[NAME.hl]",
	.summary = "show source lines and what was allocated there, heaviest first",
	.options = options,
	.shared_options = {HL_VIEW_TABLE_OPTIONS},
	HL_REQUEST(defaults),
};
