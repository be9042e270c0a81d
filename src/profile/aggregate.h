/* SPDX-License-Identifier: BSD-2-Clause */
/* Sums of a profile by function, or by any other property of frames: flat and cum. */
#pragma once

#include "profile/profile.h"

struct hl_aggregate_figures {
	int64_t bytes, objects;
};

static inline int64_t hl_aggregate_figure(struct hl_aggregate_figures figures, enum hl_unit unit)
{
	return unit == HL_UNIT_BYTES ? figures.bytes : figures.objects;
}

static inline void hl_aggregate_add(struct hl_aggregate_figures *sum,
				    struct hl_aggregate_figures more)
{
	sum->bytes += more.bytes;
	sum->objects += more.objects;
}

static inline struct hl_aggregate_figures
hl_aggregate_difference(struct hl_aggregate_figures before, struct hl_aggregate_figures after)
{
	return (struct hl_aggregate_figures){after.bytes - before.bytes,
					     after.objects - before.objects};
}

/* Whether ${figures} are not both zero. */
static inline bool hl_aggregate_any(struct hl_aggregate_figures figures)
{
	return figures.bytes || figures.objects;
}

/* ${value} out of ${counters}. */
struct hl_aggregate_figures hl_aggregate_figures_of(const struct hl_profile_counters *counters,
						    enum hl_value value);

struct hl_aggregate {
	struct hl_aggregate_figures *flat; /* by key: what was allocated there */
	struct hl_aggregate_figures *cum;  /* by key: and in all that it called; a key that recurs
					      in one stack counts once */
	struct hl_aggregate_figures total;
	size_t key_count;
};

/*
 * Sums ${value} by ${keys}, which gives each frame of the profile a key below ${key_count}; NULL:
 * by function. One pass over the nodes. 0 or -ENOMEM.
 */
int hl_aggregate_init(struct hl_aggregate *aggregate, const struct hl_profile *profile,
		      enum hl_value value, const uint32_t *keys, size_t key_count);

void hl_aggregate_release(struct hl_aggregate *aggregate);
