/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline flame: an interactive flame graph. */
#include "cli/view_options.h"

static const char *title, *countname;
static int palette = HL_VIEW_PALETTE_AUTO;
static bool flames_up, reversed, normalize;

static const char *const palette_words[] = {"auto", "diff", "module", NULL};

static const char *const formats[] = {"svg", NULL};

static const struct hl_option options[] = {
	{"title", 0, "TEXT", "head of the picture (default: name, value and unit)", HL_OPTION_TEXT,
	 &title, NULL},
	{"countname", 0, "TEXT", "what the value counts (default: its unit)", HL_OPTION_TEXT,
	 &countname, NULL},
	{"color", 0, "PALETTE", "palette", HL_OPTION_RENAMED, NULL, NULL},
	{"palette", 0, "PALETTE",
	 "module or diff (default: diff when two are compared, else module)", HL_OPTION_CHOICE,
	 &palette, palette_words},
	{"flames-up", 0, NULL, "draw the outermost function at the bottom", HL_OPTION_FLAG,
	 &flames_up, NULL},
	{"reversed", 0, NULL, "begin with the functions that allocated; callers below them",
	 HL_OPTION_FLAG, &reversed, NULL},
	{"normalize", 0, NULL, "scale BEFORE by the ratio of the durations", HL_OPTION_FLAG,
	 &normalize, NULL},
	{0},
};

static int run_flame(int argc, char **argv)
{
	const struct hl_view_command command = {
		.view = hl_view_flame,
		.profiles_max = 2,
		.reads_stdin = true,
		.binary = true,
		.normalize = normalize,
		.formats = formats,
	};
	return hl_view_run(&hl_verb_flame, argc, argv, &command,
			   (struct hl_view_options){
				   .title = title,
				   .countname = countname,
				   .palette = (enum hl_view_palette)palette,
				   .flames_up = flames_up,
				   .reversed = reversed,
			   });
}

static const struct hl_hint hints[] = {
	{"inverted", "the root is drawn on top by default, --flames-up turns the picture"},
	{0},
};

const struct hl_verb hl_verb_flame = {
	.name = "flame",
	.group = HL_GROUP_LOOK,
	.arguments = "[[BEFORE] NAME.hl]",
	.summary = "write an interactive flame graph as SVG",
	.options = options,
	.shared_options = {hl_view_value_options, hl_view_selection_options, hl_view_filter_options,
			   hl_view_plumbing_options, hl_view_json_options, hl_view_output_options},
	.run = run_flame,
	.hints = hints,
};
