/* SPDX-License-Identifier: BSD-2-Clause */
/* Stacks of a call tree as names. */
#pragma once

#include "profile/calltree.h"

/* Room for the names of any one stack. Release in any case. */
struct hl_stack_path {
	const struct hl_profile *profile;
	const struct hl_calltree *tree;
	const char **names; /* of the stack that was filled in last, from the root */
};

/* 0 or -ENOMEM. */
int hl_stack_path_init(struct hl_stack_path *path, const struct hl_profile *profile,
		       const struct hl_calltree *tree);
void hl_stack_path_release(struct hl_stack_path *path);

/* Fills in the stack of ${node}; returns how many names it has. */
size_t hl_stack_path_fill(struct hl_stack_path *path, uint32_t node);

/* The first ${depth} names filled in, as "leaf < caller < caller"; to be freed, or NULL. */
char *hl_stack_path_join(const struct hl_stack_path *path, size_t depth);
