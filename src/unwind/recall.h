/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Recalls whole stacks that a thread has captured before, without walking and without looking
 * anything up.
 *
 * hl_walk_capture() remembers one walk: after a call or two to elsewhere its innermost frames are
 * of no use. But a loop comes by the same places with the same stack pointer again and again, and
 * finds the same words there. So for each point of capture (pc, sp) the inner frames of its last
 * few walks are kept, up to the frame of walk->frames in which they met the remembered outer part.
 * This is memoization as in walk.c: stepping out of a frame is a function of (pc, sp, bp) and the
 * words that it reads; state by state and word by word all are compared, so what is recalled is
 * what a walk would find.
 *
 * A program that rarely repeats itself would pay for nothing: then only one capture in
 * HL_RECALL_PROBE tries.
 *
 * In-process code; each struct is used by one thread.
 */
#pragma once

#include "base/compiler.h"
#include "unwind/unwind.h"

#include <assert.h>

#define HL_RECALL_FRAMES   8u /* inner frames kept for a stack; with more it is not recalled */
#define HL_RECALL_WAYS	   4u /* stacks kept for a point of capture */
#define HL_RECALL_SET_BITS 7  /* points of capture, by hash */
#define HL_RECALL_PROBE	   128u
#define HL_RECALL_CREDIT   64 /* a hit gives HL_RECALL_GAIN of it, a miss takes one */
#define HL_RECALL_GAIN	   2
#define HL_RECALL_NO_JOIN  UINT16_MAX

struct hl_recall_slot {
	uint64_t pc, sp, bp;		     /* the point of capture; bp counts if bp_matters */
	uint64_t join_sp, join_bp, join_key; /* state of walk->frames[join] then */
	uint64_t tag;			     /* the caller's, for the whole stack; 0 = empty slot */
	uint32_t join_node;
	uint32_t generation;
	uint16_t join; /* HL_RECALL_NO_JOIN: the inner frames are the whole stack */
	uint8_t inner; /* frames in reads */
	bool bp_matters;
	/* What stepping out of each inner frame read, innermost first, as in hl_walk_frame. */
	struct hl_recall_reads {
		const uint64_t *word[2];
		uint64_t value[2];
	} reads[HL_RECALL_FRAMES];
};

struct hl_recall_set {
	uint32_t next; /* the way to replace next */
	struct hl_recall_slot ways[HL_RECALL_WAYS];
};

struct hl_recall {
	int32_t credit;	  /* hits raise it, misses lower it; at 0 and below only probes are made */
	uint32_t skipped; /* captures since the last probe */
	struct hl_recall_set sets[1u << HL_RECALL_SET_BITS];
};

/*
 * Keeps the stack that hl_walk_capture(unwind, walk, at) has just returned with ${kept}, for
 * recall. All its frames have their nodes. ${tag} is not 0. Does nothing for stacks that cannot be
 * recalled: truncated, or too many new frames.
 */
void hl_recall_keep(struct hl_recall *recall, const struct hl_walk *walk,
		    const struct hl_registers *at, uint32_t kept, uint64_t tag);

static inline struct hl_recall_set *hl_recall_set_of(struct hl_recall *recall,
						     const struct hl_registers *at)
{
	uint64_t hash = (at->pc ^ at->sp << 20) * UINT64_C(0x9e3779b97f4a7c15);
	return &recall->sets[hash >> (64 - HL_RECALL_SET_BITS)];
}

/* Whether this capture should try to recall, and keep the stack that it finds. */
static inline bool hl_recall_wants(struct hl_recall *recall)
{
	if (HL_LIKELY(recall->credit > 0))
		return true;
	return ++recall->skipped % HL_RECALL_PROBE == 0;
}

HL_READS_STACK static inline bool hl_recall_matches(const struct hl_recall_slot *slot,
						    const struct hl_walk *walk,
						    const struct hl_registers *at)
{
	if (slot->pc != at->pc || slot->sp != at->sp || slot->generation != walk->generation ||
	    (slot->bp_matters && slot->bp != at->bp))
		return false;
	for (uint32_t i = 0; i < slot->inner; i++) {
		const struct hl_recall_reads *reads = &slot->reads[i];
		if (*reads->word[0] != reads->value[0] || *reads->word[1] != reads->value[1])
			return false;
	}
	if (slot->join == HL_RECALL_NO_JOIN)
		return true;
	const struct hl_walk_frame *join = &walk->frames[slot->join];
	return slot->join < walk->depth && join->sp == slot->join_sp &&
	       join->key == slot->join_key && join->node == slot->join_node &&
	       (!(join->flags & HL_FRAME_NEEDS_BP) || join->bp == slot->join_bp) &&
	       !hl_walk_first_changed(walk, slot->join + 1u);
}

/*
 * The tag of the stack at ${at}, when it was kept before and everything that decides it is
 * unchanged; else 0. The walk, its frames and its flags stay as they are.
 */
static inline uint64_t hl_recall_find(struct hl_recall *recall, const struct hl_unwind *unwind,
				      const struct hl_walk *walk, const struct hl_registers *at)
{
	if (atomic_load_explicit(&unwind->generation, memory_order_acquire) != walk->generation)
		return 0;
	struct hl_recall_set *set = hl_recall_set_of(recall, at);
	for (uint32_t i = 0; i < HL_RECALL_WAYS; i++) {
		const struct hl_recall_slot *slot = &set->ways[i];
		if (slot->tag && hl_recall_matches(slot, walk, at)) {
			if (recall->credit < HL_RECALL_CREDIT)
				recall->credit += HL_RECALL_GAIN;
			return slot->tag;
		}
	}
	recall->credit -= recall->credit > 0;
	return 0;
}
