/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The tool's half of the stack walker: fills its maps with what target.h knows, and turns the
 * stacks that it sends into a tree. For any BPF object whose program includes walk.bpf.h. One
 * thread.
 *
 *	hl_target_new(pid, &target, err);
 *	skeleton = NAME_bpf__open();
 *	hl_walker_new(target, skeleton->obj, on_record, context, &walker, err);
 *	NAME_bpf__load(skeleton);
 *	hl_walker_start(walker, err);
 *	... attach ...
 *	while (...)
 *		hl_walker_poll(walker, 100, err);
 */
#pragma once

#include "base/index.h"
#include "bpf/target.h"
#include "bpf/walk_shared.h"
#include "recording/recording.h"

#include <stddef.h>
#include <stdint.h>

struct bpf_object;
struct hl_walker;

/* Receives a record of the including program: its kind is HL_RECORD_OWN or above. ${bytes} may be
 * more than was sent, up to the next multiple of 8. Negative ends the poll and is its result. */
typedef int hl_record_fn(void *context, const struct hl_record_header *record, size_t bytes);

/*
 * Before the object is loaded: sets sizes of maps and constants. ${target} and ${object} must live
 * as long as the walker. 0 or a negative errno with a sentence.
 */
int hl_walker_new(struct hl_target *target, struct bpf_object *object, hl_record_fn *on_record,
		  void *context, struct hl_walker **ret_walker, struct hl_error *err);

/* After it is loaded, before a program is attached: fills the maps and opens the ring. */
int hl_walker_start(struct hl_walker *walker, struct hl_error *err);

/*
 * Takes in all records that are there, after waiting up to ${timeout_ms} for some; a signal ends
 * the wait. Reads the target's mappings again when code ran that is in none, after a reload
 * (walk_shared.h), and once a second.
 * 0, -ESRCH when the target has ended (the records are taken in all the same), what on_record
 * returned, or another negative errno with a sentence.
 */
int hl_walker_poll(struct hl_walker *walker, int timeout_ms, struct hl_error *err);

/* Reads the target's mappings now. 0, -ESRCH when the target has ended, or another negative errno
 * with a sentence. */
int hl_walker_refresh(struct hl_walker *walker, struct hl_error *err);

/* The node of the innermost frame of a stack id; 0 when that stack was never received. */
uint32_t hl_walker_node(const struct hl_walker *walker, uint64_t stack);

/* All nodes so far: node id is nodes[id - 1], parents come before children. */
const struct hl_recording_node *hl_walker_nodes(const struct hl_walker *walker,
						uint32_t *ret_count);

struct hl_walker_losses {
	struct hl_walk_losses walk; /* by enum hl_walk_loss, summed over processors */
	uint64_t stacks_unnamed;    /* ended in code that was gone before it could be read */
	bool reloads_unseen;	    /* noticed within a second, not at once */
	uint64_t rows_full;	    /* files whose rows found no room */
	uint64_t mappings_full;	    /* mappings that found no room, of the last refresh */
	uint64_t files_lost;	    /* see target.h */
	uint64_t modules_lost;
};

/* What was lost so far. 0 or a negative errno. */
int hl_walker_losses(const struct hl_walker *walker, struct hl_walker_losses *ret_losses);

const struct hl_target *hl_walker_target(const struct hl_walker *walker);

void hl_walker_free(struct hl_walker *walker); /* NULL is fine */

/* ---- stacks by their ids, as a tree of nodes with common outer frames ---- */

/* Zero-initialize for an empty one. */
struct hl_stack_tree {
	struct hl_recording_node *nodes; /* ids 1 .. count; parents before children */
	size_t count, capacity;
	struct hl_index node_index;
	struct hl_stack_leaf {
		uint64_t stack;
		uint32_t node;
	} * leaves;
	size_t leaf_count, leaf_capacity;
	struct hl_index leaf_index;
};

/* The node of ${frame} below ${parent} (0: none); made if need be. 0, or -ENOMEM. */
int hl_stack_tree_node(struct hl_stack_tree *tree, uint32_t parent, uint64_t frame,
		       uint32_t *ret_node);

/* Says that ${stack} (not 0) is the stack of the ${count} frames ${keys}, innermost first. 0, or
 * -ENOMEM and the stack stays unknown. */
int hl_stack_tree_add(struct hl_stack_tree *tree, uint64_t stack, const uint64_t *keys,
		      size_t count);

/* The node of the innermost frame of ${stack}; 0 when it is unknown. */
uint32_t hl_stack_tree_find(const struct hl_stack_tree *tree, uint64_t stack);

void hl_stack_tree_release(struct hl_stack_tree *tree);
