/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Recalls whole stacks that a thread has captured before, without walking and without looking
 * anything up.
 *
 * hl_walk_capture() remembers one walk: after a call or two to elsewhere its innermost frames are
 * of no use. But a loop comes by the same places with the same stack pointer again and again, and
 * finds the same words there. So of a stack the words are kept that stepping out of its innermost
 * frames read, and the frame of walk->frames that they lead to, the join. This is memoization as in
 * walk.c: stepping out of a frame is a function of (pc, sp, bp) and the words that it reads; state
 * by state and word by word all are compared, so what is recalled is what a walk would find.
 *
 *	head	where the first return address lies, in words from sp: that of the last stack with
 *		the same pc
 *	shape	where the next ones lie: those of the last stack with the same pc, sp and first
 *		return address
 *	slot	a kept stack. A hash over pc, sp and the return addresses that head and shape point
 *		at leads to it. A wrong guess costs a walk, no more.
 *	part	a slot that begins at the join of another: it stands in for walk->frames where those
 *		are of another stack by now. Up to HL_RECALL_PARTS of them lead to a frame of the
 *		walk that is unchanged.
 *	result	what a slot's frames make of the node at their join: the node of the innermost of
 *		them, or the tag of the stack. The last one is in the slot.
 *
 * On the thread's own stack (walk->own_low) all words can be read at once, whatever lies there now:
 * that stack stays mapped. Elsewhere, on stacks of coroutines and of signal handlers, each word
 * is read after those inward of it have been found unchanged, as a walk would read it; there only
 * (pc, sp) leads to the slot.
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

#define HL_RECALL_FRAMES      6u /* inner frames of a kept stack, at most */
#define HL_RECALL_WORDS	      8u /* words that they read, at most */
#define HL_RECALL_PARTS	      8u
#define HL_RECALL_WAYS	      4u
#define HL_RECALL_SET_BITS    8
#define HL_RECALL_HEAD_BITS   12
#define HL_RECALL_SHAPE_BITS  12
#define HL_RECALL_RESULT_BITS 11 /* pairs */
#define HL_RECALL_PROBE	      128u
#define HL_RECALL_CREDIT      64 /* a hit gives HL_RECALL_GAIN of it, a miss takes one */
#define HL_RECALL_GAIN	      2

/* Offsets are in words from sp. */
struct hl_recall_slot {
	_Alignas(128) uint64_t pc;
	uint64_t sp;
	uint64_t tag;	 /* the caller's, for the whole stack; of a part the node of its innermost
			 frame; 0 = empty slot */
	uint32_t serial; /* another whenever the frames become others */
	uint32_t join_node; /* of walk->frames[join] then */
	uint16_t join;
	uint16_t join_offset; /* of its sp */
	uint16_t reach;	      /* the largest offset */
	uint8_t join_bp : 4;  /* where in value its bp can be read; counts if it needs bp */
	uint8_t join_ra : 4; /* where its return address is; HL_RECALL_WORDS: no part begins there */
	bool bp_matters;
	/* In the order in which the frames read them; places that are left over repeat the first. */
	uint16_t offset[HL_RECALL_WORDS];
	uint64_t value[HL_RECALL_WORDS + 1]; /* and bp at the point of capture */
};

static_assert(sizeof(struct hl_recall_slot) == 128, "two cache lines");

struct hl_recall_shape {
	_Alignas(16) uint16_t offset[HL_RECALL_FRAMES - 1];
	uint16_t reach; /* the largest of them */
};

struct hl_recall_result {
	uint32_t serial; /* of the slot; 0: none */
	uint32_t join_node;
	uint64_t tag;
};

struct hl_recall {
	int32_t credit;	  /* hits raise it, misses lower it; at 0 and below only probes are made */
	uint32_t skipped; /* captures since the last probe */
	uint32_t next;	  /* the way to replace next */
	uint32_t generation; /* of slots whose serial is above ${outdated}; others are not used */
	uint32_t outdated;
	uint32_t serial;			   /* the last */
	uint16_t heads[1u << HL_RECALL_HEAD_BITS]; /* by pc */
	struct hl_recall_shape shapes[1u << HL_RECALL_SHAPE_BITS];
	struct hl_recall_result results[1u << HL_RECALL_RESULT_BITS][2];
	/* A part of the hash of each slot: one slot of a set is looked at, without a branch that
	 * cannot be predicted. */
	_Alignas(8) uint16_t checks[1u << HL_RECALL_SET_BITS][HL_RECALL_WAYS];
	struct hl_recall_slot slots[1u << HL_RECALL_SET_BITS][HL_RECALL_WAYS];
};

/*
 * Keeps the stack for recall that hl_walk_capture(unwind, walk, at) has just returned, with
 * ${kept}. All its frames have their nodes: two stacks have one node where all frames from there
 * outward are alike. ${tag} is not 0. Does nothing for stacks that cannot be recalled: truncated,
 * of one frame, or with words far from sp.
 */
void hl_recall_keep(struct hl_recall *recall, const struct hl_walk *walk, uint32_t kept,
		    const struct hl_registers *at, uint64_t tag);

/* Whether this capture should try to recall, and keep the stack that it finds. */
static inline bool hl_recall_wants(struct hl_recall *recall)
{
	if (HL_LIKELY(recall->credit > 0))
		return true;
	return ++recall->skipped % HL_RECALL_PROBE == 0;
}

/* ---- the way to a slot ---- */

#define HL_RECALL_MIX UINT64_C(0x9e3779b97f4a7c15)

static inline uint16_t *hl_recall_head_of(struct hl_recall *recall, uint64_t pc)
{
	return &recall->heads[pc * HL_RECALL_MIX >> (64 - HL_RECALL_HEAD_BITS)];
}

static inline struct hl_recall_shape *
hl_recall_shape_of(struct hl_recall *recall, const struct hl_registers *at, uint64_t return_address)
{
	uint64_t key = at->pc ^ return_address << 13 ^ at->sp << 29;

	return &recall->shapes[key * HL_RECALL_MIX >> (64 - HL_RECALL_SHAPE_BITS)];
}

static inline uint64_t hl_recall_hash_of_place(const struct hl_registers *at)
{
	return (at->pc ^ at->sp << 17) * UINT64_C(0xff51afd7ed558ccd);
}

/* A sum of products: none waits for another. Factors of 31 bits fit into the instructions. */
HL_READS_STACK static inline uint64_t hl_recall_hash(const struct hl_registers *at,
						     uint64_t return_address,
						     const struct hl_recall_shape *shape)
{
	static_assert(HL_RECALL_FRAMES == 6, "five offsets");
	const uint64_t *sp = (const uint64_t *)at->sp;
	uint64_t a = hl_recall_hash_of_place(at) + return_address * UINT64_C(0x4cf5ad43);
	uint64_t b = sp[shape->offset[0]] * UINT64_C(0x51afd7ed) +
		     sp[shape->offset[1]] * UINT64_C(0x2745937f);
	uint64_t c = sp[shape->offset[2]] * UINT64_C(0x1ce4e5b9) +
		     sp[shape->offset[3]] * UINT64_C(0x133111eb);
	uint64_t d = sp[shape->offset[4]] * UINT64_C(0x78bd642f);
	uint64_t hash = (a + b) + (c + d);
	return (hash ^ hash >> 32) * HL_RECALL_MIX;
}

static inline uint64_t hl_recall_set_of(uint64_t hash)
{
	return hash >> (64 - HL_RECALL_SET_BITS);
}

static inline uint16_t hl_recall_check_of(uint64_t hash)
{
	return (uint16_t)(hash >> 16);
}

/* The way of the set that can hold a stack of this hash. */
static inline uint32_t hl_recall_way_of(const struct hl_recall *recall, uint64_t hash)
{
	static_assert(HL_RECALL_WAYS == 4, "three comparisons");
	const uint16_t *checks = recall->checks[hl_recall_set_of(hash)];
	uint16_t check = hl_recall_check_of(hash);
	uint32_t way = (uint32_t)(checks[1] == check) | (uint32_t)(checks[2] == check) << 1;
	return way | (checks[3] == check ? 3u : 0u);
}

/* Where a capture at ${at} looks, found before it is needed. */
struct hl_recall_place {
	const struct hl_recall_slot *slot;
	uint64_t room; /* words from sp to the end of the thread's own stack; 0: sp is not on it */
};

static inline uint64_t hl_recall_room(const struct hl_walk *walk, uint64_t sp)
{
	return HL_LIKELY(hl_walk_is_own(walk, sp)) ? (walk->own_high - sp) / sizeof(uint64_t) : 0;
}

/* Reads words of the thread's own stack only. */
HL_READS_STACK static inline uint64_t hl_recall_find_hash(struct hl_recall *recall, uint64_t room,
							  const struct hl_registers *at)
{
	uint64_t head = *hl_recall_head_of(recall, at->pc);

	if (HL_UNLIKELY(head >= room))
		return hl_recall_hash_of_place(at);
	uint64_t return_address = ((const uint64_t *)at->sp)[head];
	const struct hl_recall_shape *shape = hl_recall_shape_of(recall, at, return_address);
	if (HL_UNLIKELY(shape->reach >= room))
		return hl_recall_hash_of_place(at);
	return hl_recall_hash(at, return_address, shape);
}

static inline struct hl_recall_place hl_recall_locate(struct hl_recall *recall,
						      const struct hl_walk *walk,
						      const struct hl_registers *at)
{
	struct hl_recall_place place = {.room = hl_recall_room(walk, at->sp)};
	uint64_t hash = hl_recall_find_hash(recall, place.room, at);

	place.slot = &recall->slots[hl_recall_set_of(hash)][hl_recall_way_of(recall, hash)];
	__builtin_prefetch(place.slot);
	__builtin_prefetch(place.slot->value);
	return place;
}

/* ---- what is recalled ---- */

HL_READS_STACK static inline bool hl_recall_same_words(const struct hl_recall_slot *slot,
						       uint64_t room)
{
	const uint64_t *sp = (const uint64_t *)slot->sp;

	if (HL_UNLIKELY(slot->reach >= room)) {
		for (uint32_t i = 0; i < HL_RECALL_WORDS; i++)
			if (sp[slot->offset[i]] != slot->value[i])
				return false;
		return true;
	}
	static_assert(HL_RECALL_WORDS == 8, "eight words");
	const uint16_t *offset = slot->offset;
	const uint64_t *value = slot->value;
	return !((sp[offset[0]] ^ value[0]) | (sp[offset[1]] ^ value[1]) |
		 (sp[offset[2]] ^ value[2]) | (sp[offset[3]] ^ value[3]) |
		 (sp[offset[4]] ^ value[4]) | (sp[offset[5]] ^ value[5]) |
		 (sp[offset[6]] ^ value[6]) | (sp[offset[7]] ^ value[7]));
}

/* Whether the frames of the slot are those from ${at} to its join. */
static inline bool hl_recall_has_frames(const struct hl_recall *recall,
					const struct hl_recall_slot *slot, uint64_t room,
					const struct hl_registers *at)
{
	if ((slot->pc ^ at->pc) | (slot->sp ^ at->sp) || slot->serial <= recall->outdated)
		return false;
	if (HL_UNLIKELY(slot->bp_matters) && slot->value[HL_RECALL_WORDS] != at->bp)
		return false;
	return hl_recall_same_words(slot, room);
}

/* Whether the join of the slot is in walk->frames, with whatever node. Without a return address
 * that would say where it is, it must be the node that is known. */
static inline bool hl_recall_has_join(const struct hl_recall_slot *slot, const struct hl_walk *walk)
{
	const struct hl_walk_frame *join = &walk->frames[slot->join];

	if (slot->join >= walk->depth ||
	    join->sp != slot->sp + slot->join_offset * sizeof(uint64_t) ||
	    (join->flags & HL_FRAME_NEEDS_BP && join->bp != slot->value[slot->join_bp]))
		return false;
	return join->node == slot->join_node ||
	       (slot->join_ra < HL_RECALL_WORDS &&
		(join->key & HL_FRAME_PC_MASK) + 1 == slot->value[slot->join_ra]);
}

static inline struct hl_recall_result *hl_recall_results_of(struct hl_recall *recall,
							    uint32_t serial, uint32_t join_node)
{
	uint64_t key = (uint64_t)serial << 32 | join_node;

	return recall->results[key * HL_RECALL_MIX >> (64 - HL_RECALL_RESULT_BITS)];
}

/* What the frames of the slot make of the node at their join; 0: not known. */
static inline uint64_t hl_recall_result_of(struct hl_recall *recall,
					   const struct hl_recall_slot *slot, uint32_t join_node)
{
	if (HL_LIKELY(slot->join_node == join_node))
		return slot->tag;
	const struct hl_recall_result *it = hl_recall_results_of(recall, slot->serial, join_node);
	if (it->serial != slot->serial || it->join_node != join_node)
		it++;
	return it->serial == slot->serial && it->join_node == join_node ? it->tag : 0;
}

/* Marks the pc of a part: that is a return address, where another's is one, too. */
#define HL_RECALL_PART (UINT64_C(1) << 63)

/* The state at the join of a slot whose frames are those from ${at} on. */
static inline struct hl_registers hl_recall_join_of(const struct hl_recall_slot *slot,
						    const struct hl_registers *at)
{
	return (struct hl_registers){
		.pc = slot->value[slot->join_ra] | HL_RECALL_PART,
		.sp = slot->sp + slot->join_offset * sizeof(uint64_t),
		.bp = slot->join_bp == HL_RECALL_WORDS ? at->bp : slot->value[slot->join_bp],
	};
}

/* The tag of the stack that begins with the frames of ${slot}, from ${at} on; 0: not known. */
static inline uint64_t hl_recall_tag(struct hl_recall *recall, const struct hl_recall_slot *slot,
				     const struct hl_walk *walk, const struct hl_registers *at)
{
	const struct hl_recall_slot *parts[HL_RECALL_PARTS];
	uint32_t count = 0;
	struct hl_registers from = *at;

	while (HL_UNLIKELY(!hl_recall_has_join(slot, walk) ||
			   !hl_walk_is_unchanged(walk, slot->join + 1u))) {
		if (count == HL_RECALL_PARTS || slot->join_ra == HL_RECALL_WORDS)
			return 0;
		parts[count++] = slot;
		from = hl_recall_join_of(slot, &from);
		struct hl_recall_place place = hl_recall_locate(recall, walk, &from);
		slot = place.slot;
		if (!hl_recall_has_frames(recall, slot, place.room, &from))
			return 0;
	}
	uint64_t tag = hl_recall_result_of(recall, slot, walk->frames[slot->join].node);
	while (HL_UNLIKELY(count) && tag)
		tag = hl_recall_result_of(recall, parts[--count], (uint32_t)tag);
	return tag;
}

/*
 * The tag of the stack at ${at}, when it was kept before and everything that decides it is
 * unchanged; else 0. ${place} is what hl_recall_locate() said of it. The walk, its frames and its
 * flags stay as they are.
 */
static inline uint64_t hl_recall_find(struct hl_recall *recall, const struct hl_unwind *unwind,
				      const struct hl_walk *walk, const struct hl_registers *at,
				      struct hl_recall_place place)
{
	uint32_t generation = atomic_load_explicit(&unwind->generation, memory_order_acquire);
	uint64_t tag = 0;

	if (HL_LIKELY(!((generation ^ walk->generation) | (generation ^ recall->generation)) &&
		      hl_recall_has_frames(recall, place.slot, place.room, at)))
		tag = hl_recall_tag(recall, place.slot, walk, at);
	if (HL_LIKELY(tag))
		recall->credit += recall->credit < HL_RECALL_CREDIT ? HL_RECALL_GAIN : 0;
	else
		recall->credit -= recall->credit > 0;
	return tag;
}
