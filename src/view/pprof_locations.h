/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The locations of pprof: an address with all functions that were inlined there, where the profile
 * has a node for each function.
 */
#pragma once

#include "profile/profile.h"

struct hl_pprof_location {
	uint32_t frame;
	uint32_t outer; /* location that this one is inlined into: the same without ${frame}; or 0
			 */
	bool used;	/* part of some stack */
};

struct hl_pprof_locations {
	struct hl_pprof_location *all; /* [0] is unused */
	uint32_t *of_node;	       /* the location that ends with the node's frame */
	size_t count, capacity;
	struct hl_index index;
};

/* The locations of ${profile}, used being those of stacks with figures. 0 or -ENOMEM; release in
 * any case. */
int hl_pprof_locations_init(struct hl_pprof_locations *locations, const struct hl_profile *profile);

void hl_pprof_locations_release(struct hl_pprof_locations *locations);

/* The node that the location of ${node} was called from; 0: none. */
uint32_t hl_pprof_locations_caller(const struct hl_pprof_locations *locations,
				   const struct hl_profile *profile, uint32_t node);
