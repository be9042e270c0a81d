/* SPDX-License-Identifier: BSD-2-Clause */
/* Two profiles as one, to be compared stack by stack. */
#pragma once

#include "profile/profile.h"

/*
 * A profile with the stacks of both: `counters` are those of ${after}, `base` those of ${before}.
 * Frames are equal when function, file, line and the module's file name are, whatever their
 * addresses, so that two builds of a program can be compared. The rest (name, processes, lost,
 * warnings of both) is said of ${after}. ${normalize}: the base is scaled by the ratio of the
 * durations. 0 or a negative errno with a sentence.
 */
int hl_profile_join(const struct hl_profile *before, const struct hl_profile *after, bool normalize,
		    struct hl_profile **ret_profile, struct hl_error *err);

/*
 * ${profile} with the stacks of ${more} too, whose figures are left out: *${ret_nodes}, to be freed
 * by the caller, says which node each node of ${more} is. Both are of one recording, so that
 * modules are equal when path and build id are; else frames are equal as above. Nothing else of
 * what ${profile} says has changed. 0 or a negative errno with a sentence.
 */
int hl_profile_join_stacks(const struct hl_profile *profile, const struct hl_profile *more,
			   struct hl_profile **ret_profile, uint32_t **ret_nodes,
			   struct hl_error *err);
