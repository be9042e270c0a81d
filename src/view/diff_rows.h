/* SPDX-License-Identifier: BSD-2-Clause */
/* What differs between a profile and its base, as rows: functions, lines, modules or stacks. */
#pragma once

#include "profile/aggregate.h"
#include "profile/calltree.h"
#include "view/keys.h"

struct hl_diff_row {
	struct hl_keys_label label; /* by stack, of its leaf */
	uint32_t id;		    /* the key; by stack, the node of the call tree */
	struct hl_aggregate_figures before, after;
};

struct hl_diff_rows {
	struct hl_diff_row *rows; /* those that differ */
	size_t count;
	size_t shrunk_from; /* by growth: from here on rows shrank */
	struct hl_aggregate_figures before, after;
	struct hl_keys keys;	 /* none by stack */
	struct hl_calltree tree; /* by stack */
};

/*
 * Rows by options->by, of what was allocated right there. Sorted by growth, what grew most comes
 * first and what shrank most last; by size, the largest comes first. 0 or -ENOMEM.
 */
int hl_diff_rows_init(struct hl_diff_rows *rows, const struct hl_profile *profile,
		      const struct hl_view_options *options);

void hl_diff_rows_release(struct hl_diff_rows *rows);

static inline struct hl_aggregate_figures hl_diff_delta(struct hl_aggregate_figures before,
							struct hl_aggregate_figures after)
{
	return (struct hl_aggregate_figures){after.bytes - before.bytes,
					     after.objects - before.objects};
}
