/* SPDX-License-Identifier: BSD-2-Clause */
/* Replaces the call tree of a profile, and has every figure follow its node. */
#pragma once

#include "profile/profile.h"

/* Ids of nodes that somebody else keeps, and that follow the tree too. */
struct hl_node_ids {
	uint32_t *ids; /* HL_NODE_LEFT_OUT: of a stack that is not in the profile */
	size_t count;
};

#define HL_NODE_LEFT_OUT UINT32_MAX

/*
 * Gives ${profile} the ${count} nodes ${nodes}, which it takes over. ${new_node} says what each old
 * node has become; ${chosen}, by old node, whose figures are left (NULL: all). ${follow} may be
 * NULL. 0; or -ENOMEM, and nothing has changed but that ${nodes} are freed.
 */
int hl_retree(struct hl_profile *profile, struct hl_profile_node *nodes, size_t count,
	      const uint32_t *new_node, const bool *chosen, const struct hl_node_ids *follow);
