/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The call tree as people read it: one child for each function name, whatever addresses its calls
 * came from, and children in order of name.
 */
#pragma once

#include "profile/profile.h"

struct hl_calltree_node {
	uint32_t parent, end; /* preorder, as in hl_profile_node */
	uint32_t depth;	      /* of the root: 0 */
	uint32_t name;	      /* string id; of the root: 0 */
	int64_t self, sum;    /* of the chosen value; without and with its descendants */
};

struct hl_calltree {
	struct hl_calltree_node *nodes;
	size_t count;
	uint32_t depth_max;
};

/* Merges the nodes of ${profile}; equal names of different modules become one. 0 or -ENOMEM. */
int hl_calltree_init(struct hl_calltree *tree, const struct hl_profile *profile,
		     enum hl_value value, enum hl_unit unit);

void hl_calltree_release(struct hl_calltree *tree);
