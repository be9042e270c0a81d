/* SPDX-License-Identifier: BSD-2-Clause */
/* The totals of a profile at the head of a report, which may be sums over several processes. */
#pragma once

#include "profile/profile.h"
#include "view/emit.h"

/* JSON members of what the sums of several processes would else hide; none for one process. */
void hl_summary_process_members(struct hl_emit *emit, const struct hl_profile *profile);

/* Whether ${profile} knows ${value} in any unit. */
bool hl_summary_knows(const struct hl_profile *profile, enum hl_value value);

/* One line, behind ${begin}, of the ${total} of ${profile} or of what it is compared with. */
void hl_summary_totals_line(struct hl_emit *emit, const struct hl_profile *profile,
			    const char *begin, const struct hl_profile_counters *total);
