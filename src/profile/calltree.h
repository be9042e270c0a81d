/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The trees and rows that views make of a profile: by function, forwards and reversed, and by the size of
 * blocks.
 */
#pragma once

#include "base/frame_key.h"
#include "profile/profile.h"

/* ---- calltree ---- */

/*
 * The call tree as people read it: one child for each function name, whatever addresses its calls
 * came from, and children in order of name. Functions of scripts from different sources stay apart. Reversed it begins with the functions that allocated,
 * and their callers are the children.
 */

/* ---- sums of a profile by function, or by any other property of frames: flat and cum ---- */

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

/* ---- the tree ---- */

struct hl_calltree_node {
	uint32_t parent, end; /* preorder, as in hl_profile_node */
	uint32_t depth;	      /* of the root: 0 */
	uint32_t name;	      /* string id of the functions' label; of the root: 0 */
	uint32_t frame;	      /* of its frames in the profile one at its heaviest line; reversed, at
				 that of its heaviest stack: for module, file and line */
	bool several_lines;   /* it has frames at others */
	int64_t self, sum;    /* of the chosen value; without and with its descendants */
	int64_t base;	      /* as `sum`, of profile->base; 0 when there is none */
	int64_t other;	      /* as `sum`, in the other unit; 0 when the value has none */
};

struct hl_calltree {
	struct hl_calltree_node *nodes;
	uint32_t *node_of;  /* by node of the profile; NULL in a reversed tree */
	uint32_t *heaviest; /* by node: of the profile's nodes that it stands for that which has
			       most itself; NULL in a reversed tree */
	size_t count;
	uint32_t depth_max;
};

/* Merges the nodes of ${profile}; equal labels of different modules become one. 0 or -ENOMEM. */
int hl_calltree_init(struct hl_calltree *tree, const struct hl_profile *profile,
		     enum hl_value value, enum hl_unit unit);

/* The same, but calls from different lines of a function stay apart. */
int hl_calltree_init_by_line(struct hl_calltree *tree, const struct hl_profile *profile,
			     enum hl_value value, enum hl_unit unit);

/* Like hl_calltree_init(), reversed; stacks without any of the value, in either unit, are left out.
 */
int hl_calltree_init_reversed(struct hl_calltree *tree, const struct hl_profile *profile,
			      enum hl_value value, enum hl_unit unit);

void hl_calltree_release(struct hl_calltree *tree);

/* ---- histogram ---- */

/*
 * A profile by the size of its blocks: what each size class holds of a value, and which stacks
 * allocated it.
 *
 * Where a recording tells sizes apart (record --sizes) each block counts in the class of its own
 * size. All else, that is other recordings, other tools' files, and mappings, counts in the class
 * of the mean size of its stack, taken for each call site before stacks of equal names are merged.
 * So the classes add up to the profile's totals in any case.
 */

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
