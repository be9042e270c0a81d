/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A profile by the size of its blocks: what each size class holds of a value, and which stacks
 * allocated it.
 *
 * Where a recording tells sizes apart (record --sizes) each block counts in the class of its own
 * size. All else, that is other recordings, other tools' files, and mappings, counts in the class
 * of the mean size of its stack, taken for each call site before stacks of equal names are merged.
 * So the classes add up to the profile's totals in any case.
 */
#pragma once

#include "base/frame_key.h"
#include "profile/calltree.h"

struct hl_histogram_figures {
	int64_t bytes, objects;		  /* of the chosen value */
	int64_t inuse_bytes, slack_bytes; /* of what is in use, whatever the value */
};

struct hl_histogram_stack {
	uint32_t size_class;
	uint32_t leaf; /* node of the call tree */
	struct hl_histogram_figures figures;
};

struct hl_histogram_class {
	uint32_t size_class;
	struct hl_histogram_figures figures;
	const struct hl_histogram_stack *stacks; /* heaviest first */
	size_t stack_count;
};

struct hl_histogram {
	struct hl_histogram_class classes[HL_SIZE_CLASS_COUNT]; /* those with any figure */
	size_t class_count;
	struct hl_histogram_figures total;
	struct hl_histogram_stack *stacks; /* of all classes */
	size_t stack_count;
	bool exact; /* nothing counts by a mean size */
};

/*
 * Sorts ${profile} into size classes. ${tree} is its call tree (hl_calltree_init()), in whose terms
 * stacks are told; ${unit} says what makes a stack heavy. 0 or -ENOMEM.
 */
int hl_histogram_init(struct hl_histogram *histogram, const struct hl_profile *profile,
		      const struct hl_calltree *tree, enum hl_value value, enum hl_unit unit);

void hl_histogram_release(struct hl_histogram *histogram);

/* The value that tells how large the blocks of ${value} are: one with bytes and objects. */
enum hl_value hl_histogram_size_value(enum hl_value value);
