/* SPDX-License-Identifier: BSD-2-Clause */
/* The options and operands that all views of a recording share. */
#pragma once

#include "cli/cli.h"
#include "view/view.h"

/* For the shared_options of a view's verb. */
extern const struct hl_option hl_view_value_options[];	   /* --value --unit */
extern const struct hl_option hl_view_selection_options[]; /* --process --thread --json */
extern const struct hl_option hl_view_color_options[];	   /* --color */

/* A view: writes a report of ${profile}. */
typedef int hl_view(const struct hl_profile *profile, const struct hl_view_options *options,
		    struct hl_error *err);

/*
 * Loads the one recording that ${argv} names and writes ${view} of it to standard output, with the
 * shared options filled into ${options}. Returns the exit status; what went wrong was reported.
 */
int hl_view_run(const struct hl_verb *verb, int argc, char **argv, hl_view *view,
		struct hl_view_options options);
