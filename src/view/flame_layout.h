/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where the frames of a flame graph lie: a call tree whose widths add up, without what no picture
 * can show.
 */
#pragma once

#include "profile/calltree.h"
#include "view/view.h"

struct hl_flame_frame {
	uint32_t parent, end; /* preorder, as in hl_profile_node; frame 0 is the root */
	uint32_t depth;	      /* of the root: 0 */
	uint32_t function;    /* of the profile; of the root: 0 */
	uint32_t frame;	      /* of the profile, at its heaviest call site; of the root: 0 */
	int64_t start;	      /* left edge, in units of the value: siblings lie side by side */
	int64_t value, self;  /* width; and what of it no callee has */
	int64_t other;	      /* the value in the other unit */
	int64_t base;	      /* the earlier profile's value */
};

struct hl_flame_layout {
	struct hl_flame_frame *frames;
	size_t count;
	/* Too light to be kept, and the heaviest of them. */
	size_t light_count;
	int64_t light_max;
	/* Stacks with less than nothing, which have no width: more was freed there than is known to
	 * have been allocated. */
	size_t negative_count;
	int64_t negative_sum;
	/* Frames that only the earlier profile has; the sum is of the stacks through them. */
	size_t vanished_count;
	int64_t vanished_sum;
};

/*
 * Lays out ${profile} by options->value, unit and reversed. Of more than ${count_max} frames the
 * lightest are left out; what they hold stays in their callers. 0 or -ENOMEM, after which
 * ${layout} is all zero.
 */
int hl_flame_layout_init(struct hl_flame_layout *layout, const struct hl_profile *profile,
			 const struct hl_view_options *options, size_t count_max);

void hl_flame_layout_release(struct hl_flame_layout *layout);
