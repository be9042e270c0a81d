/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline export: the profile as a file for other programs. */
#include "cli/view_options.h"

enum format {
	FORMAT_PPROF,
	FORMAT_GPERFTOOLS,
	FORMAT_FOLDED,
	FORMAT_SPEEDSCOPE,
	FORMAT_PERFETTO,
	FORMAT_FIREFOX,
	FORMAT_DHAT,
	FORMAT_HEAPTRACK_FOLDED,
	FORMAT_CSV,
	FORMAT_JSON,
};

static const char *const format_words[] = {"pprof",    "gperftools", "folded", "speedscope",
					   "perfetto", "firefox",    "dhat",   "heaptrack-folded",
					   "csv",      "json",	     NULL};

static hl_view *const views[] = {
	[FORMAT_PPROF] = hl_pprof_view,	      [FORMAT_GPERFTOOLS] = hl_gperftools_view,
	[FORMAT_FOLDED] = hl_folded_view,     [FORMAT_SPEEDSCOPE] = hl_speedscope_view,
	[FORMAT_PERFETTO] = hl_perfetto_view, [FORMAT_FIREFOX] = hl_firefox_view,
	[FORMAT_DHAT] = hl_dhat_view,	      [FORMAT_HEAPTRACK_FOLDED] = hl_heaptrack_view,
	[FORMAT_CSV] = hl_csv_view,	      [FORMAT_JSON] = hl_export_json_view,
};

static const struct hl_view_request defaults = {HL_VIEW_DEFAULTS, .formats = format_words};

static const struct hl_option options[] = {
	{"format", 0, "FORMAT",
	 "pprof, gperftools, folded, speedscope, perfetto, firefox, dhat, heaptrack-folded, csv or "
	 "json (default: as FILE is named, else pprof)",
	 HL_OPTION_CHOICE, HL_VIEW_AT(format), format_words},
	{0},
};

static int run_export(void *parsed, int argc, char **argv)
{
	struct hl_view_request *request = parsed;

	int format = hl_view_options_choose_format(request, FORMAT_PPROF);
	request->view = views[format];
	request->profiles_max = format == FORMAT_PPROF ? 2 : 1;
	request->binary = format == FORMAT_PPROF || format == FORMAT_PERFETTO;
	/* These have counters over time. */
	request->tells_history =
		format == FORMAT_PERFETTO || format == FORMAT_FIREFOX || format == FORMAT_DHAT;
	request->keep_rows = format == FORMAT_JSON;
	return hl_view_run(&hl_verb_export, argc, argv, request);
}

const struct hl_verb hl_verb_export = {
	.name = "export",
	.group = HL_GROUP_FILES,
	.arguments = "[[BEFORE] NAME.hl]",
	.summary = "write a file for other tools, such as pprof or speedscope",
	.options = options,
	.shared_options = {hl_view_value_options, hl_view_selection_options, hl_view_filter_options,
			   hl_view_stack_options, hl_view_output_options},
	HL_REQUEST(defaults),
	.run = run_export,
};
