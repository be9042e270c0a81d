/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Chooses stacks by their frames, and frames within stacks, as pprof does. A frame matches where
 * the extended regular expression is found in its function's name, its file's path or its module's.
 */
#pragma once

#include "profile/profile.h"

struct hl_filter {
	const char *focus;  /* keep only stacks with a matching frame */
	const char *ignore; /* leave out stacks with a matching frame */
	const char *hide;   /* leave matching frames out; what they hold is their caller's */
};

/*
 * Applies ${filter}, whose members may be NULL, to ${profile}: its nodes, counters, rows, sizes and
 * totals are then those of what is left. 0; -EINVAL for a bad expression, with a sentence; -ENOMEM,
 * after which the profile is good for hl_profile_free() alone.
 */
int hl_filter_apply(const struct hl_filter *filter, struct hl_profile *profile,
		    struct hl_error *err);
