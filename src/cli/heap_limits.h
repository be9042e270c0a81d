/* SPDX-License-Identifier: BSD-2-Clause */
/* Limits on figures of a heap: --fail-above free-resident=1G. */
#pragma once

#include "cli/cli.h"
#include "heap/heap_figures.h"

struct hl_heap_limit {
	enum hl_heap_figure figure;
	uint64_t most;
};

/* Parses "FIGURE=NUMBER", a number with an optional suffix. 0 or -EINVAL. */
int hl_heap_limit_parse(const char *text, struct hl_heap_limit *ret_limit);

/* The same of all that were given; HL_EXIT_DONE, or HL_EXIT_USAGE after a report. */
int hl_heap_limits_parse(const struct hl_verb *verb, const struct hl_option_texts *texts,
			 struct hl_heap_limit limits[HL_OPTION_TEXTS_MAX]);

/*
 * Says on standard error which of ${count} ${limits} is crossed by what ${after} has (beyond
 * ${before}, if that is not NULL). HL_EXIT_LIMIT if any is, else HL_EXIT_DONE.
 */
int hl_heap_limits_check(const struct hl_heap_limit *limits, size_t count,
			 const struct hl_heap_figures *before, const struct hl_heap_figures *after);
