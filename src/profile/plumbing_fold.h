/* SPDX-License-Identifier: BSD-2-Clause */
/* What allocation plumbing allocated goes to its callers; see symbols/plumbing.h. */
#pragma once

#include "profile/retree.h"

/*
 * Folds the plumbing of all stacks of ${profile}, sets profile->plumbing_folded where there was
 * some, and has ${follow}, unless NULL, follow. 0 or -ENOMEM, which changes nothing.
 */
int hl_plumbing_fold(struct hl_profile *profile, const struct hl_node_ids *follow);
