/* SPDX-License-Identifier: BSD-2-Clause */
/* The stacks of a profile as files have them that keep frames in a table; calls from different lines of a function are different frames. */
#pragma once

#include "base/index.h"
#include "profile/calltree.h"
#include "view/view.h"

/* String ids, 0: unknown. */
struct hl_export_frame {
	uint32_t name, file, line;
	uint32_t frame; /* one of those of the profile that it stands for */
};

/* Zero-initialized ones are empty. */
struct hl_stack_table {
	struct hl_calltree tree;	  /* [0] stands for blocks without a stack */
	struct hl_profile_counters *sums; /* own figures, by node of the tree */
	uint32_t *frame_of;		  /* by node of the tree */
	struct hl_export_frame *frames;	  /* [0]: of node 0, without a name */
	size_t frame_count, frame_capacity;
	struct hl_index index;
};

/* 0 or -ENOMEM; to be released in any case. */
int hl_stack_table_init(struct hl_stack_table *table, const struct hl_profile *profile,
			const struct hl_view_options *options);

void hl_stack_table_release(struct hl_stack_table *table);

const char *hl_stack_table_name(const struct hl_stack_table *table,
				const struct hl_profile *profile, size_t frame);

/* A figure of node ${node}; 0 where it is not known, or negative as in damaged files alone. */
int64_t hl_stack_table_figure(const struct hl_stack_table *table, const struct hl_profile *profile,
			      size_t node, enum hl_value value, enum hl_unit unit);

/* What was allocated, or of profiles that do not know it, what is in use. */
int64_t hl_stack_table_allocated(const struct hl_stack_table *table,
				 const struct hl_profile *profile, size_t node, enum hl_unit unit);
