/* SPDX-License-Identifier: BSD-2-Clause */
/* What the shared options of views were set to, checked; between view_options.c and view_run.c. */
#pragma once

#include "cli/view_options.h"
#include "profile/filter.h"

/* HL_EXIT_DONE, or HL_EXIT_USAGE after a report. */
int hl_view_parse_selection(const struct hl_verb *verb, struct hl_profile_selection *selection);

struct hl_filter hl_view_parse_filter(void);

/* Fills value and unit of ${options}. 0, or -ENODATA when ${profile} does not know them. */
int hl_view_choose_value(const struct hl_profile *profile, struct hl_view_options *options,
			 struct hl_error *err);

/* Where a report goes, and how. */
struct hl_view_output {
	const char *path; /* NULL: standard output */
	bool force, json, no_pager, color;
};

struct hl_view_output hl_view_parse_output(void);
