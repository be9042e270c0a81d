/* SPDX-License-Identifier: BSD-2-Clause */
/* What the shared options of views were set to, checked; between view_options.c and view_run.c. */
#pragma once

#include "cli/view_options.h"
#include "open/history.h"
#include "profile/filter.h"

/* HL_EXIT_DONE, or HL_EXIT_USAGE after a report. */
int hl_view_parse_selection(const struct hl_verb *verb, struct hl_profile_selection *selection);

/*
 * The moments of --at, ${most} of them at most, and how many there are. HL_EXIT_DONE, or
 * HL_EXIT_USAGE after a report.
 */
int hl_view_parse_moments(const struct hl_verb *verb, size_t most, struct hl_moment *moments,
			  size_t *ret_count);

/* The range of --between; unchanged when there is none. As hl_view_parse_selection(). */
int hl_view_parse_between(const struct hl_verb *verb, struct hl_history_range *range);

/* --focus, --ignore and --hide, in a zeroed ${filter}. As hl_view_parse_selection(). */
int hl_view_parse_filter(const struct hl_verb *verb, struct hl_filter *filter);

/* Fills value and unit of ${options}; ${flame}: for a flame graph, whose unit is pages where they
 * were traced. 0, or -ENODATA when ${profile} does not know them. */
int hl_view_choose_value(const struct hl_profile *profile, bool flame,
			 struct hl_view_options *options, struct hl_error *err);

/* Where a report goes, and how. */
struct hl_view_output {
	const char *path; /* NULL: standard output */
	bool force, json, no_pager, color;
};

struct hl_view_output hl_view_parse_output(void);

/* As if --json had been given. */
void hl_view_choose_json(void);
