/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline export: the profile as a file for other programs. */
#include "cli/view_options.h"

enum format {
	FORMAT_PPROF,
	FORMAT_FOLDED,
	FORMAT_SPEEDSCOPE,
	FORMAT_HEAPTRACK_FOLDED,
	FORMAT_CSV,
	FORMAT_JSON,
};

static int format = -1; /* -1: what the name of the output says, else pprof */

static const char *const format_words[] = {"pprof", "folded", "speedscope", "heaptrack-folded",
					   "csv",   "json",   NULL};

static hl_view *const views[] = {
	[FORMAT_PPROF] = hl_view_pprof,
	[FORMAT_FOLDED] = hl_view_folded,
	[FORMAT_SPEEDSCOPE] = hl_view_speedscope,
	[FORMAT_HEAPTRACK_FOLDED] = hl_view_heaptrack,
	[FORMAT_CSV] = hl_view_csv,
	[FORMAT_JSON] = hl_view_json,
};

static const struct hl_option options[] = {
	{"format", 0, "FORMAT",
	 "pprof, folded, speedscope, heaptrack-folded, csv or json (default: as FILE is named, "
	 "else pprof)",
	 HL_OPTION_CHOICE, &format, format_words},
	{0},
};

static int run_export(int argc, char **argv)
{
	bool format_given = format >= 0;
	if (!format_given)
		format = hl_view_options_format_of(hl_view_options_parse_output().path,
						   format_words);
	if (format < 0)
		format = FORMAT_PPROF;
	const struct hl_view_command command = {
		.view = views[format],
		.binary = format == FORMAT_PPROF,
		.keep_rows = format == FORMAT_JSON,
		.formats = format_words,
		.format_given = format_given,
	};
	return hl_view_run(&hl_verb_export, argc, argv, &command, (struct hl_view_options){0});
}

const struct hl_verb hl_verb_export = {
	.name = "export",
	.group = HL_GROUP_FILES,
	.arguments = "[NAME.hl]",
	.summary = "write a file for other programs: pprof, speedscope, CSV, ...",
	.options = options,
	.shared_options = {hl_view_value_options, hl_view_selection_options, hl_view_filter_options,
			   hl_view_output_options},
	.run = run_export,
};
