/* SPDX-License-Identifier: BSD-2-Clause */
/* Stacks of a call tree as names. */
#pragma once

#include "profile/calltree.h"
#include "view/rows.h"
#include "view/table.h"

/* Room for the frames of any one stack. Release in any case. */
struct hl_stack_path {
	const struct hl_profile *profile;
	const struct hl_calltree *tree;
	/* Of the stack that was filled in last, from the root. */
	const char **names;
	struct hl_keys_label *labels;
	struct hl_emit_frame *frames;
	bool full;	 /* lines have all frames */
	uint32_t *table; /* nodes: the stacks that stand in one table */
	size_t table_count, table_capacity;
};

/* 0 or -ENOMEM. */
int hl_stack_path_init(struct hl_stack_path *path, const struct hl_profile *profile,
		       const struct hl_calltree *tree);
void hl_stack_path_release(struct hl_stack_path *path);

/* Fills in the stack of ${node}, which must not be of a reversed tree; returns how many frames it
 * has. Where it stands for several, their lines are those of the heaviest. */
size_t hl_stack_path_fill(const struct hl_stack_path *path, uint32_t node);

/* Begins a table of stacks that shall be told apart; adds the stack of ${node} to it. Of very many
 * the first ones are compared. 0 or -ENOMEM. */
void hl_stack_path_begin_table(struct hl_stack_path *path);
int hl_stack_path_add(struct hl_stack_path *path, uint32_t node);

/*
 * The stack of ${node} in one line, "leaf < caller < ... < caller < ..."; to be freed, or NULL.
 * Unless path->full only the leaf and the next few callers and, where others of the table begin
 * with the same, the first caller that is not theirs.
 */
char *hl_stack_path_line(const struct hl_stack_path *path, uint32_t node);

/* Cells of the stack of ${node}, a uint32_t: its line, its names, its frames. The context of the
 * table is the path. */
hl_cell hl_stack_path_cell_line, hl_stack_path_cell_names, hl_stack_path_cell_frames;
