/* SPDX-License-Identifier: BSD-2-Clause */
/* What the search for holders shares among its files; see holders.h. */
#pragma once

#include "heap/glibc.h"
#include "heap/graph/block_edges.h"
#include "heap/graph/holders.h"
#include "heap/owners/block_owners.h"

#define HL_HOLDER_REGISTERS (sizeof(struct user_regs_struct) / 8)

/* A word of a root that leads to a block. */
struct hl_root_word {
	uint64_t
		address; /* of a register: thread * HL_HOLDER_REGISTERS + its number, less than any address */
	uint32_t node;
	uint32_t holder;
};

/* What was seen of the roots at one moment. */
struct hl_holder_look {
	struct hl_root_thread *threads;
	size_t thread_count, thread_capacity;
	struct hl_root_word *words;
	size_t word_count, word_capacity;
};

/* A stack or tag, and whether its blocks are asked for. */
struct hl_asked_owner {
	uint64_t number;
	bool matches;
};

/* A process that runs on is looked at before and after its heap is read: a pointer may move meanwhile. */
#define HL_HOLDER_LOOKS_MAX 2u

struct hl_holder_finder {
	pid_t pid; /* 0: a core file */
	const struct hl_holders_settings *settings;
	struct hl_holders *holders;
	struct hl_error *err;
	struct hl_memory *memory;
	struct hl_glibc glibc;
	struct hl_extents heap, foreign;
	struct hl_graph graph;
	struct hl_class_names classes;
	struct hl_block_edges edges;
	struct hl_holder_look looks[HL_HOLDER_LOOKS_MAX], *look;
	unsigned look_count;
	struct hl_root_names *names;
	struct hl_index holder_index;
	struct hl_digraph digraph;
	struct hl_dominators dominators;
	struct hl_block_owners *owners; /* NULL: stacks are not asked for */
	struct hl_asked_owner *asked;	/* owners of the blocks visited */
	size_t asked_count, asked_capacity;
	struct hl_index asked_index; /* by number */
	bool has_table;		     /* blocks come from a recorder's table, too */
	struct hl_error cannot_stop;
};

/* Whether a word of a look lies at ${address} in memory: else it is a register, or the kernel has it. */
bool hl_holder_is_in_memory(const struct hl_holder_finder *finder, uint64_t address);

/* ---- holder_chain.c ---- */

/* Fills in the chain to the block at the address that is asked for, if one is; its words are named by the types that are declared
 * for them. 0; -ENODATA when no live block is there, -ENOMEM, and err is set. */
int hl_holder_follow(struct hl_holder_finder *finder);

/* Names the first word of each variable, if that is asked for. 0; -ENOMEM. */
int hl_holder_name_words(struct hl_holder_finder *finder);

/* ---- holder_sums.c: from blocks, edges and dominators to who holds how much ---- */

/*
 * Fills in holders->branches and the sums of holders->holders, which has one element for each holder of
 * ${edges}, in their order; adds those that are shared, and what is lost. Only blocks count
 * for which ${is_selected} (NULL: all) returns 1; a negative errno ends the work. 0 or a negative errno.
 */
int hl_holder_sums_make(struct hl_holders *holders, struct hl_block_edges *edges,
			const struct hl_digraph *graph, const struct hl_dominators *dominators,
			int (*is_selected)(void *context, uint32_t node, uint64_t block,
					   uint64_t usable_bytes),
			void *context);
