/* SPDX-License-Identifier: BSD-2-Clause */
/* The options, operands and output that all views share. */
#pragma once

#include "cli/cli.h"
#include "view/view.h"

/* For the shared_options of a view's verb. */
extern const struct hl_option hl_view_value_options[];	   /* --value --unit */
extern const struct hl_option hl_view_unit_options[];	   /* --unit, where there is one value */
extern const struct hl_option hl_view_selection_options[]; /* --process --thread --at --jobs */
extern const struct hl_option hl_view_history_options[];   /* --process --between --jobs */
extern const struct hl_option hl_view_filter_options[];	   /* --focus --ignore --hide */
/* --plumbing; verbs that lack it show whole stacks, for other programs. */
extern const struct hl_option hl_view_plumbing_options[];
extern const struct hl_option hl_view_json_options[];	/* --json */
extern const struct hl_option hl_view_color_options[];	/* --color --no-pager */
extern const struct hl_option hl_view_output_options[]; /* --output --force */

/* How a verb runs its view; zero is the common case. */
struct hl_view_command {
	hl_view *view;
	hl_history_view *history_view; /* in place of view: of a recording's log */
	int profiles_max;   /* how many operands; 0: 1. A second one is compared with the first: the
			       view gets the joined profile. Two moments of one recording are
			       compared likewise */
	bool compares;	    /* the view is nothing without two profiles */
	bool reads_stdin;   /* without an operand standard input is read, unless it is a terminal */
	bool binary;	    /* not to be written to a terminal */
	bool pages;	    /* text for people: through a pager on a terminal */
	bool keep_rows;	    /* the view needs profile->rows */
	bool normalize;	    /* scale the first profile by the ratio of durations */
	bool advises;	    /* the view says what would give better symbols */
	bool tells_history; /* the view takes options->history, where there is one */
	const char *const *formats; /* that it writes where the output is named after one, .json
				       aside; NULL: none */
	bool format_given;	    /* by an option, whatever the output is named */
};

/*
 * Loads what ${argv} names, with the shared options filled into ${options}, and writes the view to
 * --output or standard output. Returns the exit status; what went wrong was reported.
 */
int hl_view_run(const struct hl_verb *verb, int argc, char **argv,
		const struct hl_view_command *command, struct hl_view_options options);
