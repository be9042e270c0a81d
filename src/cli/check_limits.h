/* SPDX-License-Identifier: BSD-2-Clause */
/* Limits of `heapline check` as people write them: on the command line, and in files. */
#pragma once

#include "view/check.h"

#define HL_CHECK_LIMITS_MAX 64u

/* All zero: none. Release in any case. */
struct hl_check_limits {
	struct hl_check_limit limits[HL_CHECK_LIMITS_MAX];
	size_t count;
	char *text; /* of the file, to which titles and expressions of limits point */
	const char *baseline;
	double allow_percent;
};

/*
 * Adds a limit of ${kind} that ${text} states: "200M", "1e6", "1M/min". ${title} and ${focus} must live as long
 * as ${limits}. 0; -EINVAL when it is not such a number; -E2BIG when there are too many.
 */
int hl_check_limits_add(struct hl_check_limits *limits, enum hl_check_kind kind, const char *text,
			const char *title, const char *focus);

/* Sets how far a baseline may be exceeded: "5%", "5". 0 or -EINVAL. */
int hl_check_limits_allow(struct hl_check_limits *limits, const char *text);

/* Adds those of a comparison with limits->baseline. 0 or -E2BIG. */
int hl_check_limits_add_baseline(struct hl_check_limits *limits, const char *title,
				 const char *focus);

/*
 * Adds what the file ${path} says:
 *
 *	[check]			    # limits of the whole program
 *	peak = "200M"
 *	allocs = 1e6
 *	baseline = "main.hl"
 *	allow = "5%"
 *	[check.parser]		    # limits of the stacks that pass through the parser
 *	focus = "^parse_"
 *	inuse-at-end = 0
 *
 * These are lines of TOML, of which no more is understood; other tables than [check] are passed
 * over. 0 or a negative errno with a sentence that names the line.
 */
int hl_check_limits_read(struct hl_check_limits *limits, const char *path, struct hl_error *err);

void hl_check_limits_release(struct hl_check_limits *limits);
