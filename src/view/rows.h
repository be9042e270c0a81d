/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A profile as rows: functions, lines, addresses, modules, threads or stacks, heaviest first; or
 * what differs between a profile and its base.
 */
#pragma once

#include "profile/aggregate.h"
#include "view/keys.h"

struct hl_row {
	struct hl_keys_label label; /* by stack, of its leaf */
	uint32_t rank;		    /* in a table, from 1; the view's */
	uint32_t id;		    /* the key; by thread, the index of profile->threads */
	struct hl_aggregate_figures flat, cum;
	bool leaf; /* something was allocated right there, freed since or not */
	struct hl_aggregate_figures before, delta; /* compared: of the base, and flat - before */
};

struct hl_rows {
	struct hl_row *rows; /* without those that have nothing of the value, or do not differ */
	size_t count;
	struct hl_aggregate_figures total, before; /* what flat and before add up to */
	size_t shrunk_from;			   /* by growth: from here on rows shrank */
	struct hl_keys keys;			   /* none by thread */
};

/*
 * Rows by options->by, of options->value, in the order of options->sort and options->unit. By flat,
 * what is never a leaf comes after all leaves, by cum. By growth, what grew most comes first and
 * what shrank most last; by size, the largest comes first: these two compare with profile->base and
 * have no cum. 0 or -ENOMEM.
 */
int hl_rows_init(struct hl_rows *rows, const struct hl_profile *profile,
		 const struct hl_view_options *options);

void hl_rows_release(struct hl_rows *rows);

#define HL_ROWS_HEAVIEST 5

/*
 * How the row at ${rank}, of ${figure} out of ${whole}, stands out: for hl_table_row(). The five
 * heaviest do, and whatever makes up a tenth.
 */
unsigned hl_rows_emphasis(size_t rank, int64_t figure, int64_t whole);
