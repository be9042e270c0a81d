/* SPDX-License-Identifier: BSD-2-Clause */
/* The options, operands and output that all views share: their tables, and the request that they fill in. */
#pragma once

#include "cli/cli.h"
#include "open/history.h"
#include "profile/filter.h"
#include "view/view.h"

/* For the shared_options of a view's verb. */
extern const struct hl_option hl_view_value_options[];	   /* --value --unit */
extern const struct hl_option hl_view_unit_options[];	   /* --unit, where there is one value */
extern const struct hl_option hl_view_selection_options[]; /* --process --thread --at --jobs */
extern const struct hl_option hl_view_history_options[];   /* --process --between --jobs */
extern const struct hl_option hl_view_filter_options[];	   /* --focus --ignore --hide */
extern const struct hl_option hl_view_stack_options[];	   /* --stack --root --type --service */
/* --plumbing; verbs that lack it show whole stacks, for other programs. */
extern const struct hl_option hl_view_plumbing_options[];
extern const struct hl_option hl_view_json_options[];	/* --json */
extern const struct hl_option hl_view_color_options[];	/* --color --no-pager */
extern const struct hl_option hl_view_output_options[]; /* --output --force */

/* The tables of a view of a profile that is a table, and of one that is a picture or a page. */
#define HL_VIEW_TABLE_OPTIONS                                                          \
	hl_view_value_options, hl_view_selection_options, hl_view_filter_options,      \
		hl_view_stack_options, hl_view_plumbing_options, hl_view_json_options, \
		hl_view_color_options, hl_view_output_options
#define HL_VIEW_PICTURE_OPTIONS                                                        \
	hl_view_value_options, hl_view_selection_options, hl_view_filter_options,      \
		hl_view_stack_options, hl_view_plumbing_options, hl_view_json_options, \
		hl_view_output_options

/* Where a report goes, and how. The request of a verb with such options begins with it. */
struct hl_view_output {
	const char *path; /* NULL: standard output */
	bool force, json, no_pager;
	int color; /* what --color says; see hl_view_output_has_color() */
	uint64_t
		row_limit; /* what --rows of the verb says, where it does not view a profile; 0: all */
};

/*
 * What the options of a view were set to, and how its verb runs it. The request of a verb with options of views begins
 * with it; HL_VIEW_DEFAULTS begins its defaults, and zero is the common case of all else.
 */
struct hl_view_request {
	struct hl_view_output output;
	int value, unit; /* enum hl_value, enum hl_unit; -1: whichever the profile knows */
	int stack;	 /* enum hl_stack_kind */
	int root;	 /* what --root says */
	const char *process, *thread;
	struct hl_option_texts at, focus, ignore, hide, type, service, plumbing_also;
	struct hl_option_range between;
	uint64_t jobs, survived;
	bool plumbing;

	hl_view *view;
	hl_history_view *history_view; /* instead of view: of a recording's log */
	int profiles_max;   /* how many operands; 0: 1. A second one is compared with the first: the
			       view gets the joined profile. Two moments of one recording are
			       compared likewise */
	uint64_t pid;	    /* of the process that is shown; 0: what --process says */
	const char *called; /* the recording's name in the report; NULL: its path */
	bool compares;	    /* the view is nothing without two profiles */
	bool reads_stdin;   /* without an operand standard input is read, unless it is a terminal */
	bool binary;	    /* not to be written to a terminal */
	bool pages;	    /* text for people: through a pager on a terminal */
	bool keep_rows;	    /* the view needs profile->rows */
	bool normalize;	    /* scale the first profile by the ratio of durations */
	bool advises;	    /* the view says what would give better symbols */
	bool tells_history; /* the view takes options.report.history, where there is one */
	const char *const *formats;	/* that it writes where the output is named after one, .json
				       aside; NULL: none */
	int format;			/* the one of them that an option gave; -1: none did */
	struct hl_view_options options; /* of the view itself; the shared ones are filled in */
};

#define HL_VIEW_DEFAULTS .value = -1, .unit = -1, .format = -1

/* For an option that sets ${member} of it. */
#define HL_VIEW_AT(member) offsetof(struct hl_view_request, member)

/*
 * Loads what ${argv} names, and writes the view to --output or standard output. Returns the exit status; what went wrong was reported.
 */
int hl_view_run(const struct hl_verb *verb, int argc, char **argv, struct hl_view_request *request);

/* ---- what the shared options were set to, checked: HL_EXIT_DONE, or HL_EXIT_USAGE after a report ---- */

int hl_view_options_parse_selection(const struct hl_verb *verb,
				    const struct hl_view_request *request,
				    struct hl_profile_selection *selection);

/* The moments of --at, ${most} of them at most, and how many there are. */
int hl_view_options_parse_moments(const struct hl_verb *verb, const struct hl_view_request *request,
				  size_t most, struct hl_moment *moments, size_t *ret_count);

/* The range of --between; unchanged when there is none. */
int hl_view_options_parse_between(const struct hl_verb *verb, const struct hl_view_request *request,
				  struct hl_history_range *range);

/* --focus, --ignore and --hide, in a zeroed ${filter}. */
int hl_view_options_parse_filter(const struct hl_verb *verb, const struct hl_view_request *request,
				 struct hl_filter *filter);

/* Fills value and unit of ${options}; ${flame}: for a flame graph, whose unit is pages where they
 * were traced. 0, or -ENODATA when ${profile} does not know them. */
int hl_view_options_choose_value(const struct hl_view_request *request,
				 const struct hl_profile *profile, bool flame,
				 struct hl_view_options *options, struct hl_error *err);

/* Whether --value names a figure of pages, which only running processes and snapshots know. */
bool hl_view_options_ask_pages(const struct hl_view_request *request);

/* ---- where it goes ---- */

/* Whether escape sequences that color it are wanted there. */
bool hl_view_output_has_color(const struct hl_view_output *output);

/* Index of the one of the NULL-terminated ${words} after which ${path} is named ("x.svg": svg), or
 * -1. ${path} may be NULL. */
int hl_view_output_format_of(const char *path, const char *const *words);

/*
 * The one of request->formats that a view writes: what an option gave; else that after which the output is
 * named, if it is named after one; else ${otherwise}.
 */
int hl_view_options_choose_format(const struct hl_view_request *request, int otherwise);

/*
 * Chooses JSON where the output is named so and ${verb} writes it. HL_EXIT_DONE; or HL_EXIT_USAGE
 * after a report, where the name promises a format that is not one of ${formats} (NULL: none), which the
 * verb writes. ${is_given}: the format was given, whatever the output is named.
 */
int hl_view_output_obey_name(const struct hl_verb *verb, struct hl_view_output *output,
			     const char *const *formats, bool is_given);
