/* SPDX-License-Identifier: BSD-2-Clause */
/* Sums of a store that are not by stack: by a label of sessions, and by time. */
#pragma once

#include "fleet/query.h"

/* Sessions with the same text of one label. */
struct hl_fleet_group {
	const char *name;
	uint64_t processes;   /* watched at at_ms */
	int64_t inuse_bytes;  /* then */
	int64_t before_bytes; /* in use at since_ms */
	int64_t growth_bytes;
	int64_t alloc_bytes; /* between them */
};

struct hl_fleet_groups {
	struct hl_fleet_sessions sessions; /* whose texts names are */
	struct hl_fleet_group *all;
	size_t count, capacity;
	struct hl_fleet_group total; /* named "sum" */
};

/*
 * What the sessions of ${selection}, whose times are both set, have and had in use by ${label}; of ${stacks} alone, as in hl_fleet_levels_read(). Those
 * that grew most come first, or, when ${by_size}, those that are largest. To be released in any case. As hl_fleet_ask().
 */
int hl_fleet_groups_read(struct hl_fleet_store *store, const struct hl_fleet_selection *selection,
			 enum hl_fleet_label label, const char *stacks, bool by_size,
			 struct hl_fleet_groups *groups, struct hl_error *err);
void hl_fleet_groups_release(struct hl_fleet_groups *groups);

/* One step of time. */
struct hl_fleet_moment {
	char time[32];	     /* of its end, local time */
	int64_t ms;	     /* the same */
	uint64_t processes;  /* watched then */
	int64_t inuse_bytes; /* then */
	int64_t alloc_bytes; /* during the step */
};

struct hl_fleet_moments {
	struct hl_fleet_moment *all; /* in order */
	size_t count, capacity;
};

#define HL_FLEET_STEPS_MAX 10000

/*
 * The steps, ${step_ms} long, from since_ms to at_ms, HL_FLEET_STEPS_MAX at most. moments->all is to be freed. As
 * hl_fleet_groups_read().
 */
int hl_fleet_moments_read(struct hl_fleet_store *store, const struct hl_fleet_selection *selection,
			  int64_t step_ms, const char *stacks, struct hl_fleet_moments *moments,
			  struct hl_error *err);

/*
 * The stacks of ${selection} that have a frame in which ${expression} is found, as a list for the functions above, to be freed; "0", which is
 * none, when there are none. 0 or a negative errno with a sentence.
 */
int hl_fleet_stacks_find(struct hl_fleet_store *store, const struct hl_fleet_selection *selection,
			 const char *expression, char **ret_stacks, struct hl_error *err);
