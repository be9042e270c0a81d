/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline annotate: the source of functions, with figures beside its lines. */
#include "cli/view_options.h"

#include <unistd.h>

static uint64_t function_limit = HL_EMIT_ROWS_DEFAULT;
static const char *source_path;

static const struct hl_option options[] = {
	{"source-path", 0, "FOLDER", "where the sources are, if not where they were compiled",
	 HL_OPTION_TEXT, &source_path, NULL},
	{"functions", 'n', "N", "show the N heaviest functions; 0: all (default: 10)",
	 HL_OPTION_COUNT, &function_limit, NULL},
	{0},
};

static int run_annotate(int argc, char **argv)
{
	const struct hl_view_command command = {
		.view = hl_view_annotate, .pages = true, .advises = true};

	if (argc == 0 || (argc == 1 && access(argv[0], F_OK) == 0))
		return hl_cli_usage_error(&hl_verb_annotate,
					  "'annotate' needs a FUNCTION before the recording");
	const struct hl_view_options view_options = {
		.function = argv[0],
		.source_path = source_path,
		.row_limit = function_limit,
	};
	return hl_view_run(&hl_verb_annotate, argc - 1, argv + 1, &command, view_options);
}

const struct hl_verb hl_verb_annotate = {
	.name = "annotate",
	.group = HL_GROUP_LOOK,
	.arguments = "FUNCTION [NAME.hl]",
	.summary = "show the source of functions with figures beside its lines",
	.options = options,
	.shared_options = {hl_view_value_options, hl_view_selection_options, hl_view_filter_options,
			   hl_view_plumbing_options, hl_view_json_options, hl_view_color_options,
			   hl_view_output_options},
	.run = run_annotate,
};
