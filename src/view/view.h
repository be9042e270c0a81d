/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The views: each writes one report about a profile. All take what to show and how from one set of
 * options, write to options->out, and return 0 or a negative errno with a sentence.
 */
#pragma once

#include "profile/profile.h"
#include "view/emit.h"

enum hl_view_sort {
	HL_VIEW_SORT_FLAT,
	HL_VIEW_SORT_CUM,
};

/* As many rows as one reads; all in JSON. */
#define HL_VIEW_ROWS_DEFAULT UINT64_MAX

struct hl_view_options {
	FILE *out;
	FILE *notes; /* for what must be said beside plain lines */
	enum hl_value value;
	enum hl_unit unit;
	bool json, color;
	enum hl_view_sort sort;
	uint64_t row_limit; /* 0: all; or HL_VIEW_ROWS_DEFAULT */
	bool stacks;	    /* info: list them */
};

/* Functions, heaviest first. */
int hl_view_top(const struct hl_profile *profile, const struct hl_view_options *options,
		struct hl_error *err);

/* One line for each stack: frames from the root, joined by ';', a space, the value. */
int hl_view_folded(const struct hl_profile *profile, const struct hl_view_options *options,
		   struct hl_error *err);

/* What was recorded, how, and what is missing; with options->stacks the counters of each stack. */
int hl_view_info(const struct hl_profile *profile, const struct hl_view_options *options,
		 struct hl_error *err);
