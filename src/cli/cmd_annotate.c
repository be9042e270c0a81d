/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline annotate: the source of functions, with figures beside its lines. */
#include "cli/view_options.h"

#include <unistd.h>

static const struct hl_view_request defaults = {
	HL_VIEW_DEFAULTS,
	.view = hl_annotate_view,
	.pages = true,
	.advises = true,
	.options.row_limit = HL_EMIT_ROWS_DEFAULT,
};

static const struct hl_option options[] = {
	{"source-path", 0, "FOLDER", "where the sources are, if not where they were compiled",
	 HL_OPTION_TEXT, HL_VIEW_AT(options.annotate.source_path), NULL},
	{"functions", 'n', "N", "show the N heaviest functions; 0: all (default: 10)",
	 HL_OPTION_COUNT, HL_VIEW_AT(options.row_limit), NULL},
	{0},
};

static int run_annotate(void *parsed, int argc, char **argv)
{
	struct hl_view_request *request = parsed;

	if (argc == 0 || (argc == 1 && access(argv[0], F_OK) == 0))
		return hl_cli_usage_error(&hl_verb_annotate,
					  "'annotate' needs a FUNCTION before the recording");
	request->options.annotate.function = argv[0];
	return hl_view_run(&hl_verb_annotate, argc - 1, argv + 1, request);
}

const struct hl_verb hl_verb_annotate = {
	.name = "annotate",
	.group = HL_GROUP_LOOK,
	.arguments = "FUNCTION [NAME.hl]",
	.summary = "show the source of functions with figures beside its lines",
	.options = options,
	.shared_options = {HL_VIEW_TABLE_OPTIONS},
	HL_REQUEST(defaults),
	.run = run_annotate,
};
