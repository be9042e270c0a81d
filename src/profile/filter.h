/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Chooses stacks by their frames, and frames within stacks, as pprof does. A frame matches where
 * the extended regular expression is found in its function's name, its file's path or its module's.
 */
#pragma once

#include "profile/retree.h"

#define HL_FILTER_EXPRESSIONS_MAX 8 /* in each role */

/* Expressions; of each role, those that are not used are NULL and come last. */
struct hl_filter {
	/* Keep only stacks in which each of these matches some frame. */
	const char *focus[HL_FILTER_EXPRESSIONS_MAX];
	/* Leave out stacks with a frame that one of these matches. */
	const char *ignore[HL_FILTER_EXPRESSIONS_MAX];
	/* Leave frames out that one of these matches; what they hold is their caller's. */
	const char *hide[HL_FILTER_EXPRESSIONS_MAX];
	/* What is left has its allocation plumbing folded, see plumbing.h. */
	bool fold_plumbing;
};

/* Whether ${filter} chooses stacks or frames, folding aside. */
bool hl_filter_has_expressions(const struct hl_filter *filter);

/*
 * Whether all expressions of ${filter} are good. 0; -EINVAL with a sentence that names the one that
 * is not; -ENOMEM.
 */
int hl_filter_check(const struct hl_filter *filter, struct hl_error *err);

/*
 * Applies ${filter} to ${profile}: its nodes, counters, rows, sizes and totals are then those of
 * what is left, and the ids of ${follow}, unless NULL, those of its new nodes. 0; as
 * hl_filter_check(); -ENOMEM, after which the profile is good for hl_profile_free() alone.
 */
int hl_filter_apply(const struct hl_filter *filter, struct hl_profile *profile,
		    const struct hl_node_ids *follow, struct hl_error *err);
