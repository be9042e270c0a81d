/* SPDX-License-Identifier: BSD-2-Clause */
/* A profile as rows, heaviest first: functions, lines, addresses, modules or threads. */
#pragma once

#include "profile/aggregate.h"
#include "view/keys.h"

struct hl_row {
	struct hl_keys_label label;
	uint32_t id; /* the key; by thread, the index of profile->threads */
	struct hl_aggregate_figures flat, cum;
	bool leaf; /* something was allocated right there, freed since or not */
};

struct hl_rows {
	struct hl_row *rows; /* without those that have nothing of the value */
	size_t count;
	struct hl_aggregate_figures total; /* what flat adds up to */
	struct hl_keys keys;		   /* none by thread */
};

/*
 * Rows by options->by, of options->value, in the order of options->sort and options->unit. By flat,
 * what is never a leaf comes after all leaves, by cum. 0 or -ENOMEM; -EINVAL by stack.
 */
int hl_rows_init(struct hl_rows *rows, const struct hl_profile *profile,
		 const struct hl_view_options *options);

void hl_rows_release(struct hl_rows *rows);

/* How many rows to show: options->row_limit, of which ${row_default} is the default for people. */
size_t hl_rows_shown(const struct hl_rows *rows, const struct hl_view_options *options,
		     uint64_t row_default);

#define HL_ROWS_HEAVIEST 5

/*
 * How the row at ${rank}, of ${figure} out of ${whole}, stands out: for hl_emit_row(). The five
 * heaviest do, and whatever makes up a tenth.
 */
unsigned hl_rows_emphasis(size_t rank, int64_t figure, int64_t whole);
