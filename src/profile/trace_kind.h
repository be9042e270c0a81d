/* SPDX-License-Identifier: BSD-2-Clause */
/* Recordings that are results of traces from outside, by their mode: what they know, and in which
 * words it is told. */
#pragma once

#include "profile/profile.h"

struct hl_trace_kind {
	const char *mode;
	const char *verb; /* that makes such ones */
	enum hl_value
		value; /* the only one that is known: HL_VALUE_INUSE where what went is left out */
	const char *noun;      /* of one object: "block", "page" */
	const char *nouns;     /* of several */
	const char *word;      /* for the value: "not freed" */
	const char *no_object; /* when there is nothing: "nothing was allocated ..." */
	const char *no_stack;  /* when not even a stack was seen; NULL: says no more */
	const char *negative;  /* why a figure can be less than nothing; NULL: it cannot */
};

/* The kind of ${mode}; NULL when that is not a trace's mode. */
const struct hl_trace_kind *hl_trace_kind_of(const char *mode);

/* The kind of ${profile}, unless it was imported. */
const struct hl_trace_kind *hl_trace_kind_of_profile(const struct hl_profile *profile);

/* Whether its objects are pages. */
bool hl_trace_kind_counts_pages(const struct hl_trace_kind *kind);
