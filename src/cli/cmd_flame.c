/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline flame: an interactive flame graph. */
#include "cli/view_options.h"

static const char *const formats[] = {"svg", NULL};

static const struct hl_view_request defaults = {
	HL_VIEW_DEFAULTS,    .view = hl_flame_view, .profiles_max = 2,
	.reads_stdin = true, .binary = true,	    .formats = formats,
};

/* By enum hl_view_palette. */
static const char *const palette_words[] = {"auto", "diff", "module", NULL};

static const struct hl_option options[] = {
	{"title", 0, "TEXT", "head of the picture (default: name, value and unit)", HL_OPTION_TEXT,
	 HL_VIEW_AT(options.flame.title), NULL},
	{"countname", 0, "TEXT", "what the value counts (default: its unit)", HL_OPTION_TEXT,
	 HL_VIEW_AT(options.flame.countname), NULL},
	{"color", 0, "PALETTE", "palette", HL_OPTION_RENAMED, 0, NULL},
	{"palette", 0, "PALETTE",
	 "module or diff (default: diff when two are compared, else module)", HL_OPTION_CHOICE,
	 HL_VIEW_AT(options.flame.palette), palette_words},
	{"flames-up", 0, NULL, "draw the outermost function at the bottom", HL_OPTION_FLAG,
	 HL_VIEW_AT(options.flame.flames_up), NULL},
	{"reversed", 0, NULL, "begin with the functions that allocated; callers below them",
	 HL_OPTION_FLAG, HL_VIEW_AT(options.reversed), NULL},
	{"normalize", 0, NULL, "scale BEFORE by the ratio of the durations", HL_OPTION_FLAG,
	 HL_VIEW_AT(normalize), NULL},
	{0},
};

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
	.shared_options = {HL_VIEW_PICTURE_OPTIONS},
	HL_REQUEST(defaults),
	.hints = hints,
};
