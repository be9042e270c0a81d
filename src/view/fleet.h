/* SPDX-License-Identifier: BSD-2-Clause */
/* Reports of a fleet that are not by stack. */
#pragma once

#include "fleet/query.h"
#include "view/emit.h"

/* What a report is of, for its head. */
struct hl_fleet_head {
	const char *store;
	const struct hl_fleet_selection *selection; /* both times are set */
	const char *focus;			    /* only stacks with such a frame; NULL: all */
};

/* By ${label}. 0 or a negative errno. */
int hl_fleet_groups_view(const struct hl_fleet_head *head, const struct hl_fleet_groups *groups,
			 enum hl_fleet_label label, const struct hl_emit_options *options);

/* Over time. 0 or a negative errno. */
int hl_fleet_moments_view(const struct hl_fleet_head *head, const struct hl_fleet_moments *moments,
			  const struct hl_emit_options *options);
