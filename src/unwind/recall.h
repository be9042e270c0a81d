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
 *		walk that is unchanged. Parts lie among the slots of stacks, and in a room, a table
 *		of their own, once they crowd them.
 *	result	what a slot's frames make of the node at their join: the node of the innermost of
 *		them, or the tag of the stack. The last one is in the slot, those before it in a
 *		table.
 *
 * Head and shape are guesses, so what they point at is read on the thread's own stack only
 * (walk->own_low), which stays mapped, whatever lies there now. Elsewhere, on stacks of coroutines
 * and of signal handlers, (pc, sp) alone leads to the slot.
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
#define HL_RECALL_RENEWAL     256u /* one of 256 stacks that parts lead to is walked all the same */
#define HL_RECALL_WAYS	      4u
#define HL_RECALL_SET_BITS    8
#define HL_RECALL_ROOM_BITS   9	    /* sets of a room */
#define HL_RECALL_CROWD	      1024u /* parts that took the place of something before there is a room */
#define HL_RECALL_HEAD_BITS   12
#define HL_RECALL_SHAPE_BITS  12
#define HL_RECALL_RESULT_BITS 11 /* pairs */
#define HL_RECALL_RECENT_BITS 8
#define HL_RECALL_PROBE	      128u
#define HL_RECALL_CREDIT      64u /* at most; a hit gives HL_RECALL_GAIN, a miss takes one */
#define HL_RECALL_GAIN	      2u

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
	uint8_t join_bp : 4;  /* where in value its bp can be read, if that is known */
	uint8_t join_ra : 4; /* where its return address is; HL_RECALL_WORDS: no part begins there */
	bool bp_matters;
	bool knows_bp; /* at the join; if not, no frame from there outward may need it */
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
	uint32_t credit;     /* hits raise it, misses lower it; at 0 only probes are made */
	uint32_t hits;	     /* that are not in it yet */
	uint32_t skipped;    /* captures since the last probe */
	uint32_t next;	     /* the way to replace next */
	uint32_t by_parts;   /* stacks found by parts, which wraps */
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
	/* By its number, the part that began last at the join of each slot: a guess. */
	uint16_t outward[HL_RECALL_WAYS << HL_RECALL_SET_BITS];
	/* NULL: there is no room. */
	struct hl_recall_slot (*room)[HL_RECALL_WAYS];
	uint32_t crowd;
	_Alignas(8) uint16_t room_checks[1u << HL_RECALL_ROOM_BITS][HL_RECALL_WAYS];
	uint16_t room_outward[HL_RECALL_WAYS << HL_RECALL_ROOM_BITS];
	/* By pc and sp, the slot of the last stack that hl_recall_guess() was asked for. */
	uint16_t recent[1u << HL_RECALL_RECENT_BITS];
};

/*
 * Keeps the stack for recall that hl_walk_capture(unwind, walk, at) has just returned, with
 * ${kept}. All its frames have their nodes: two stacks have one node where all frames from there
 * outward are alike. Returns where its tag, which is not 0, is to be written before anything is
 * recalled, or hl_recall_drop() to be called. NULL for stacks that cannot be: truncated, of one frame,
 * or with words far from sp.
 */
struct hl_recall_slot *hl_recall_keep(struct hl_recall *recall, const struct hl_walk *walk,
				      uint32_t kept, const struct hl_registers *at);

/* Whether parts take each other's places, and those of stacks. */
static inline bool hl_recall_wants_room(const struct hl_recall *recall)
{
	return recall->crowd >= HL_RECALL_CROWD;
}

/* Gives parts a room: HL_RECALL_ROOM_BYTES, which are zero and stay; NULL: there is no memory, and it is wanted again later. */
#define HL_RECALL_ROOM_BYTES \
	((HL_RECALL_WAYS << HL_RECALL_ROOM_BITS) * sizeof(struct hl_recall_slot))
static inline void hl_recall_give_room(struct hl_recall *recall, void *room)
{
	recall->room = room;
	recall->crowd = 0;
}

/* Its stack has no tag. */
static inline void hl_recall_drop(struct hl_recall_slot *slot)
{
	slot->serial = 0;
}

/* Gives the credit for the hits since the last time. */
static inline void hl_recall_settle(struct hl_recall *recall)
{
	uint32_t room = HL_RECALL_CREDIT - recall->credit;

	recall->credit +=
		recall->hits < room / HL_RECALL_GAIN ? recall->hits * HL_RECALL_GAIN : room;
	recall->hits = 0;
}

/* Whether this capture should try to recall, and keep the stack that it finds. */
static inline bool hl_recall_wants(struct hl_recall *recall)
{
	if (HL_LIKELY(recall->credit))
		return true;
	hl_recall_settle(recall);
	return recall->credit || ++recall->skipped % HL_RECALL_PROBE == 0;
}

/* ---- the way to a slot ---- */

/* Sums of products, of which none waits for another. Factors of 31 bits fit into instructions. */
#define HL_RECALL_PC_FACTOR UINT64_C(0x4cf5ad43)
#define HL_RECALL_MIX	    UINT64_C(0x9e3779b97f4a7c15)

static inline uint16_t *hl_recall_head_of(struct hl_recall *recall, uint64_t pc)
{
	return &recall->heads[(pc * HL_RECALL_PC_FACTOR >> 32) % HL_COUNT_OF(recall->heads)];
}

static inline uint64_t hl_recall_sum_of_place(const struct hl_registers *at)
{
	return at->pc * HL_RECALL_PC_FACTOR + at->sp * UINT64_C(0x5ed558cd);
}

static inline uint64_t hl_recall_sum_with_head(const struct hl_registers *at,
					       uint64_t return_address)
{
	return hl_recall_sum_of_place(at) + return_address * UINT64_C(0x1a85ec53);
}

static inline struct hl_recall_shape *hl_recall_shape_of(struct hl_recall *recall,
							 uint64_t sum_with_head)
{
	return &recall->shapes[sum_with_head * HL_RECALL_MIX >> (64 - HL_RECALL_SHAPE_BITS)];
}

HL_READS_STACK static inline uint64_t hl_recall_sum_of_words(const uint64_t *sp,
							     const struct hl_recall_shape *shape)
{
	static_assert(HL_RECALL_FRAMES == 6, "five offsets");
	return (sp[shape->offset[0]] * UINT64_C(0x51afd7ed) +
		sp[shape->offset[1]] * UINT64_C(0x2745937f)) +
	       (sp[shape->offset[2]] * UINT64_C(0x1ce4e5b9) +
		sp[shape->offset[3]] * UINT64_C(0x133111eb)) +
	       sp[shape->offset[4]] * UINT64_C(0x78bd642f);
}

static inline uint64_t hl_recall_set_of(uint64_t hash)
{
	return hash >> (64 - HL_RECALL_SET_BITS);
}

static inline uint16_t hl_recall_check_of(uint64_t hash)
{
	return (uint16_t)(hash >> 16);
}

/* The way of the set with these ${checks} that can hold a stack of this hash. */
static inline uint32_t hl_recall_way_of(const uint16_t checks[HL_RECALL_WAYS], uint64_t hash)
{
	static_assert(HL_RECALL_WAYS == 4, "three comparisons");
	uint16_t check = hl_recall_check_of(hash);
	uint32_t first = checks[1] == check, second = checks[2] == check,
		 third = checks[3] == check;
	return (first | third) | (second | third) << 1;
}

/* Words from ${sp} to the end of the thread's own stack; 0: it is not on it. */
static inline uint64_t hl_recall_room(const struct hl_walk *walk, uint64_t sp)
{
	return HL_LIKELY(hl_walk_is_own(walk, sp)) ? (walk->own_high - sp) / sizeof(uint64_t) : 0;
}

/* The sum over what head and shape point at, as far as that is on the thread's own stack. */
HL_READS_STACK static inline uint64_t hl_recall_sum(struct hl_recall *recall, uint64_t room,
						    const struct hl_registers *at)
{
	const uint64_t *sp = (const uint64_t *)at->sp;
	uint64_t head = *hl_recall_head_of(recall, at->pc);

	if (HL_UNLIKELY(head >= room))
		return hl_recall_sum_of_place(at);
	uint64_t sum = hl_recall_sum_with_head(at, sp[head]);
	const struct hl_recall_shape *shape = hl_recall_shape_of(recall, sum);
	return HL_LIKELY(shape->reach < room) ? sum + hl_recall_sum_of_words(sp, shape) : sum;
}

static inline uint64_t hl_recall_hash(struct hl_recall *recall, uint64_t room,
				      const struct hl_registers *at)
{
	uint64_t sum = hl_recall_sum(recall, room, at);

	return (sum ^ sum >> 32) * HL_RECALL_MIX;
}

/* The slot that can hold a stack of this hash; asks for its memory. */
static inline const struct hl_recall_slot *hl_recall_slot_at(const struct hl_recall *recall,
							     uint64_t hash)
{
	uint64_t set = hl_recall_set_of(hash);
	const struct hl_recall_slot *slot =
		&recall->slots[set][hl_recall_way_of(recall->checks[set], hash)];

	__builtin_prefetch(slot);
	__builtin_prefetch(slot->value);
	return slot;
}

/* The slot at which a capture at ${at} looks. */
static inline const struct hl_recall_slot *hl_recall_locate(struct hl_recall *recall,
							    const struct hl_walk *walk,
							    const struct hl_registers *at)
{
	return hl_recall_slot_at(recall, hl_recall_hash(recall, hl_recall_room(walk, at->sp), at));
}

/* Where hl_recall_guess() has its number. */
static inline uint16_t *hl_recall_recent_of(struct hl_recall *recall, const struct hl_registers *at)
{
	return &recall->recent[hl_recall_sum_of_place(at) * HL_RECALL_MIX >>
			       (64 - HL_RECALL_RECENT_BITS)];
}

/* Where a program has few stacks for each pc and sp, as an interpreter has, the slot of the last one is that of the next one: what
 * hl_recall_locate() reads need not be. Whether it is, hl_recall_begins() says; if not, the function below finds the slot. */
static inline const struct hl_recall_slot *hl_recall_guess(struct hl_recall *recall,
							   const struct hl_registers *at)
{
	return &recall->slots[0][0] + *hl_recall_recent_of(recall, at);
}

static inline const struct hl_recall_slot *
hl_recall_locate_after_guess(struct hl_recall *recall, const struct hl_walk *walk,
			     const struct hl_registers *at)
{
	const struct hl_recall_slot *slot = hl_recall_locate(recall, walk, at);

	*hl_recall_recent_of(recall, at) = (uint16_t)(slot - &recall->slots[0][0]);
	return slot;
}

/* ---- what is recalled ---- */

/* Each word is read after those inward of it have been found unchanged, as a walk would read it. */
HL_READS_STACK static inline bool hl_recall_same_words(const struct hl_recall_slot *slot)
{
	static_assert(HL_RECALL_WORDS == 8, "eight words");
	const uint64_t *sp = (const uint64_t *)slot->sp;
	const uint16_t *offset = slot->offset;
	const uint64_t *value = slot->value;
	return sp[offset[0]] == value[0] && sp[offset[1]] == value[1] &&
	       sp[offset[2]] == value[2] && sp[offset[3]] == value[3] &&
	       sp[offset[4]] == value[4] && sp[offset[5]] == value[5] &&
	       sp[offset[6]] == value[6] && sp[offset[7]] == value[7];
}

/* Whether the frames of the slot are those from ${at} to its join. */
static inline bool hl_recall_has_frames(const struct hl_recall *recall,
					const struct hl_recall_slot *slot,
					const struct hl_registers *at)
{
	if (slot->pc != at->pc || slot->sp != at->sp || slot->serial <= recall->outdated)
		return false;
	if (HL_UNLIKELY(slot->bp_matters) && slot->value[HL_RECALL_WORDS] != at->bp)
		return false;
	return hl_recall_same_words(slot);
}

/* Whether ${slot}, which hl_recall_locate() gave, has the innermost frames of the stack at ${at}. */
static inline bool hl_recall_begins(const struct hl_recall *recall, const struct hl_unwind *unwind,
				    const struct hl_walk *walk, const struct hl_registers *at,
				    const struct hl_recall_slot *slot)
{
	uint32_t generation = atomic_load_explicit(&unwind->generation, memory_order_acquire);

	return walk->generation == generation && recall->generation == generation &&
	       hl_recall_has_frames(recall, slot, at);
}

/* Whether the frames outward of a slot that hl_recall_begins() are those with which it was kept, so
 * that its tag is that of the stack. If not, hl_recall_by_parts() may know. */
static inline bool hl_recall_ends(const struct hl_recall_slot *slot, const struct hl_walk *walk)
{
	const struct hl_walk_frame *join = &walk->frames[slot->join];

	return slot->join < walk->listed &&
	       join->sp == slot->sp + slot->join_offset * sizeof(uint64_t) &&
	       join->node == slot->join_node &&
	       !(join->flags & HL_FRAME_NEEDS_BP && join->bp != slot->value[slot->join_bp]) &&
	       hl_walk_is_unchanged(walk, slot->join + 1u);
}

/* The tag of the stack that begins with the frames of ${slot}, from ${at} on; 0: not known, or one
 * to be walked, so that walk->frames are of a stack that comes often. */
uint64_t hl_recall_by_parts(struct hl_recall *recall, const struct hl_recall_slot *slot,
			    const struct hl_walk *walk, const struct hl_registers *at);

/* Each try is counted, with the tag that it found or 0. */
static inline void hl_recall_count_hit(struct hl_recall *recall)
{
	recall->hits++;
}

static inline void hl_recall_count(struct hl_recall *recall, uint64_t tag)
{
	if (HL_LIKELY(tag)) {
		hl_recall_count_hit(recall);
		return;
	}
	hl_recall_settle(recall);
	recall->credit -= recall->credit > 0;
}

/*
 * The tag of the stack at ${at}, when it was kept before and everything that decides it is
 * unchanged; else 0. ${slot}: as hl_recall_locate() gave it. The walk, its frames and its flags stay
 * as they are.
 */
static inline uint64_t hl_recall_find(struct hl_recall *recall, const struct hl_unwind *unwind,
				      const struct hl_walk *walk, const struct hl_registers *at,
				      const struct hl_recall_slot *slot)
{
	uint64_t tag = 0;

	if (HL_LIKELY(hl_recall_begins(recall, unwind, walk, at, slot)))
		tag = HL_LIKELY(hl_recall_ends(slot, walk))
			      ? slot->tag
			      : hl_recall_by_parts(recall, slot, walk, at);
	hl_recall_count(recall, tag);
	return tag;
}
