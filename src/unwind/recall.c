/* SPDX-License-Identifier: BSD-2-Clause */
/* Keeps stacks for recall; see recall.h. */
#include "unwind/recall.h"

#include <string.h>

/* ---- where slots lie ---- */

struct table {
	struct hl_recall_slot (*slots)[HL_RECALL_WAYS];
	uint16_t (*checks)[HL_RECALL_WAYS];
	unsigned set_bits,
		second_shift; /* of a hash, for the two sets that may hold a slot; one set among the slots of stacks */
};

static inline struct hl_recall_slot *slot_at(const struct table *table, size_t at)
{
	return (struct hl_recall_slot *)table->slots + at;
}

static inline struct table table_of_stacks(struct hl_recall *recall)
{
	return (struct table){recall->slots, recall->checks, HL_RECALL_SET_BITS,
			      64 - HL_RECALL_SET_BITS};
}

/* Sets of four overflow long before a table is full, and a stack of many parts is lost with one of them: in a room each has a choice of two. */
static inline struct table table_of_parts(struct hl_recall *recall)
{
	return HL_LIKELY(recall->room)
		       ? (struct table){recall->room, recall->room_checks, HL_RECALL_ROOM_BITS, 32}
		       : table_of_stacks(recall);
}

/* The place that can hold a stack of this hash. Asks for its memory, as hl_recall_slot_at() does. */
static inline struct hl_recall_slot *slot_in(const struct table *table, uint64_t hash)
{
	uint64_t set = hash >> (64 - table->set_bits);
	uint32_t way = hl_recall_way_of(table->checks[set], hash);

	if (HL_UNLIKELY(table->checks[set][way] != hl_recall_check_of(hash))) {
		set = hash >> table->second_shift & ((UINT64_C(1) << table->set_bits) - 1);
		way = hl_recall_way_of(table->checks[set], hash);
	}
	struct hl_recall_slot *slot = &table->slots[set][way];
	__builtin_prefetch(slot);
	__builtin_prefetch(slot->value);
	return slot;
}

static inline uint16_t *outward_of(struct hl_recall *recall, const struct hl_recall_slot *slot)
{
	uintptr_t place = ((uintptr_t)slot - (uintptr_t)recall->slots) / sizeof(*slot);

	return place < HL_COUNT_OF(recall->outward)
		       ? &recall->outward[place]
		       : &recall->room_outward[slot - (const struct hl_recall_slot *)recall->room];
}

/* ---- finding stacks of several parts ---- */

/* Whether the join of the slot is in walk->frames, with whatever node. Without a return address
 * that would say where it is, it must be the node that is known. */
static bool has_join(const struct hl_recall_slot *slot, const struct hl_walk *walk)
{
	const struct hl_walk_frame *join = &walk->frames[slot->join];

	if (slot->join >= walk->depth ||
	    join->sp != slot->sp + slot->join_offset * sizeof(uint64_t) ||
	    (join->flags & HL_FRAME_NEEDS_BP &&
	     (!slot->knows_bp || join->bp != slot->value[slot->join_bp])))
		return false;
	return join->node == slot->join_node ||
	       (slot->join_ra < HL_RECALL_WORDS &&
		(join->key & HL_FRAME_PC_MASK) + 1 == slot->value[slot->join_ra]);
}

static struct hl_recall_result *results_of(struct hl_recall *recall, uint32_t serial,
					   uint32_t join_node)
{
	uint64_t key = (uint64_t)serial << 32 | join_node;

	return recall->results[key * HL_RECALL_MIX >> (64 - HL_RECALL_RESULT_BITS)];
}

/* What the frames of the slot make of the node at their join; 0: not known. */
static uint64_t result_of(struct hl_recall *recall, const struct hl_recall_slot *slot,
			  uint32_t join_node)
{
	if (HL_LIKELY(slot->join_node == join_node))
		return slot->tag;
	const struct hl_recall_result *kept = results_of(recall, slot->serial, join_node);
	if (kept->serial != slot->serial || kept->join_node != join_node)
		kept++;
	return kept->serial == slot->serial && kept->join_node == join_node ? kept->tag : 0;
}

/* Marks the pc of a part: that is a return address, where another's is one, too. */
#define PART_MARK (UINT64_C(1) << 63)

/* The state at the join of a slot whose frames are those from ${at} on. */
static struct hl_registers join_of(const struct hl_recall_slot *slot, const struct hl_registers *at)
{
	return (struct hl_registers){
		.pc = slot->value[slot->join_ra] | PART_MARK,
		.sp = slot->sp + slot->join_offset * sizeof(uint64_t),
		.bp = slot->join_bp == HL_RECALL_WORDS ? at->bp : slot->value[slot->join_bp],
	};
}

/* The part that begins at the join of ${slot}, in the state ${from}; NULL: none is known. */
static inline const struct hl_recall_slot *part_at(struct hl_recall *recall,
						   const struct hl_walk *walk,
						   const struct hl_recall_slot *slot,
						   const struct hl_registers *from)
{
	const struct table table = table_of_parts(recall);
	uint16_t *outward = outward_of(recall, slot);

	const struct hl_recall_slot *part = slot_at(&table, *outward);
	if (HL_UNLIKELY(!hl_recall_has_frames(recall, part, from))) {
		part = slot_in(&table,
			       hl_recall_hash(recall, hl_recall_room(walk, from->sp), from));
		if (!hl_recall_has_frames(recall, part, from))
			return NULL;
		*outward = (uint16_t)(part - slot_at(&table, 0));
	}
	return part->bp_matters && !slot->knows_bp ? NULL : part;
}

uint64_t hl_recall_by_parts(struct hl_recall *recall, const struct hl_recall_slot *slot,
			    const struct hl_walk *walk, const struct hl_registers *at)
{
	const struct hl_recall_slot *parts[HL_RECALL_PARTS];
	uint32_t count = 0;
	struct hl_registers from = *at;

	while (!has_join(slot, walk) || !hl_walk_is_unchanged(walk, slot->join + 1u)) {
		if (count == HL_RECALL_PARTS || slot->join_ra == HL_RECALL_WORDS)
			return 0;
		parts[count++] = slot;
		from = join_of(slot, &from);
		slot = part_at(recall, walk, slot, &from);
		if (!slot)
			return 0;
	}
	uint64_t tag = result_of(recall, slot, walk->frames[slot->join].node);
	while (count && tag)
		tag = result_of(recall, parts[--count], (uint32_t)tag);
	return ++recall->by_parts % HL_RECALL_RENEWAL ? tag : 0;
}

/* ---- keeping ---- */

/* What the inner frames of a stack read. */
struct words {
	uint32_t count;
	uint16_t offset[HL_RECALL_WORDS];
	uint64_t value[HL_RECALL_WORDS];
};

/* In words from ${sp}; false when that is too far, or not outward of it. */
static bool find_offset(uint64_t address, uint64_t sp, uint16_t *ret_offset)
{
	uint64_t offset = (address - sp) / sizeof(uint64_t);

	if (address < sp || (address - sp) % sizeof(uint64_t) || offset > UINT16_MAX)
		return false;
	*ret_offset = (uint16_t)offset;
	return true;
}

/* False, and nothing has happened, when the frame's words are too far away or too many. */
static bool add_words(struct words *words, uint64_t sp, const struct hl_walk_frame *frame)
{
	uint32_t distinct = frame->word[0] == frame->word[1] ? 1 : 2;
	uint16_t offset[2];

	if (words->count + distinct > HL_RECALL_WORDS)
		return false;
	for (uint32_t k = 0; k < distinct; k++)
		if (!find_offset((uint64_t)frame->word[k], sp, &offset[k]))
			return false;
	for (uint32_t k = 0; k < distinct; k++, words->count++) {
		words->offset[words->count] = offset[k];
		words->value[words->count] = frame->value[k];
	}
	return true;
}

/* Guesses for the next stack; what they lead to is the hash of this one. ${frame} is the innermost
 * of ${inner}, whose words are ${words}. */
static uint64_t learn_shape(struct hl_recall *recall, const struct hl_registers *at, uint64_t room,
			    const struct hl_walk_frame *frame, uint32_t inner)
{
	uint16_t last;

	if (find_offset((uint64_t)frame->word[0], at->sp, &last) && last < room) {
		*hl_recall_head_of(recall, at->pc) = last;
		struct hl_recall_shape *shape =
			hl_recall_shape_of(recall, hl_recall_sum_with_head(at, frame->value[0]));
		shape->reach = last;
		for (uint32_t i = 0; i < HL_RECALL_FRAMES - 1; i++) {
			if (i + 1 < inner)
				find_offset((uint64_t)(--frame)->word[0], at->sp, &last);
			shape->offset[i] = last;
			shape->reach = last > shape->reach ? last : shape->reach;
		}
	}
	return hl_recall_hash(recall, room, at);
}

static bool has_same_frames(const struct hl_recall_slot *a, const struct hl_recall_slot *b)
{
	return a->pc == b->pc && a->sp == b->sp && a->join_offset == b->join_offset &&
	       a->bp_matters == b->bp_matters && a->knows_bp == b->knows_bp &&
	       a->join_bp == b->join_bp && a->join_ra == b->join_ra &&
	       memcmp(a->offset, b->offset, sizeof(a->offset)) == 0 &&
	       memcmp(a->value, b->value, HL_RECALL_WORDS * sizeof(a->value[0])) == 0 &&
	       (!a->bp_matters || a->value[HL_RECALL_WORDS] == b->value[HL_RECALL_WORDS]);
}

/* A serial that no slot has that may be used. */
static uint32_t next_serial(struct hl_recall *recall)
{
	if (++recall->serial == 0) {
		memset(recall->slots, 0, sizeof(recall->slots));
		if (recall->room)
			memset(recall->room, 0, HL_RECALL_ROOM_BYTES);
		memset(recall->results, 0, sizeof(recall->results));
		recall->outdated = 0;
		recall->serial = 1;
	}
	return recall->serial;
}

/* Keeps what the slot says of its join, which is about to be another. */
static void put_result(struct hl_recall *recall, const struct hl_recall_slot *slot)
{
	struct hl_recall_result *results = results_of(recall, slot->serial, slot->join_node);

	if (results[0].serial != slot->serial || results[0].join_node != slot->join_node)
		results[1] = results[0];
	results[0] = (struct hl_recall_result){slot->serial, slot->join_node, slot->tag};
}

static uint16_t *check_of(const struct table *table, const struct hl_recall_slot *place)
{
	size_t at = (size_t)(place - slot_at(table, 0));

	return &table->checks[at / HL_RECALL_WAYS][at % HL_RECALL_WAYS];
}

/* For a slot that is not there yet: a place that was never used, or the next one. */
static struct hl_recall_slot *choose_place(struct hl_recall *recall, const struct table *table,
					   uint64_t hash)
{
	const uint64_t sets[] = {hash >> (64 - table->set_bits),
				 hash >> table->second_shift &
					 ((UINT64_C(1) << table->set_bits) - 1)};
	uint32_t next = recall->next++;

	for (uint32_t i = 0; i < HL_COUNT_OF(sets); i++)
		for (uint32_t way = 0; way < HL_RECALL_WAYS; way++)
			if (!table->checks[sets[i]][way])
				return &table->slots[sets[i]][way];
	return &table->slots[sets[next / HL_RECALL_WAYS % HL_COUNT_OF(sets)]]
			    [next % HL_RECALL_WAYS];
}

/* Keeps the slot, whose serial follows from what was in its place. Whether its frames were.
 * *${ret_place}: where it is kept. */
static bool put_slot(struct hl_recall *recall, const struct table *table, uint64_t hash,
		     struct hl_recall_slot *slot, struct hl_recall_slot **ret_place)
{
	struct hl_recall_slot *place = slot_in(table, hash);

	uint16_t *check = check_of(table, place);
	if (*check != hl_recall_check_of(hash)) {
		place = choose_place(recall, table, hash);
		check = check_of(table, place);
	}
	*check = hl_recall_check_of(hash);
	bool is_used = place->serial > recall->outdated;
	bool is_known = is_used && has_same_frames(place, slot);
	/* The pc of a part is marked. */
	recall->crowd += is_used && !is_known && !recall->room && slot->pc & PART_MARK;
	slot->serial = is_known ? place->serial : next_serial(recall);
	if (is_known && place->join_node != slot->join_node)
		put_result(recall, place);
	*place = *slot;
	*ret_place = place;
	return is_known;
}

/* Where the slot has ${value}, or HL_RECALL_WORDS. */
static uint32_t find_value(const struct hl_recall_slot *slot, uint64_t value)
{
	uint32_t at = 0;

	while (at < HL_RECALL_WORDS && slot->value[at] != value)
		at++;
	return at;
}

/* Keeps the stack, or part of one, that begins with ${innermost} in the state ${at}. Returns its
 * join, or NULL if it cannot be recalled. *${ret_place}: where it is kept. *${ret_part}: what begins at
 * the join is to be kept as a part, as the frames up to there were known already and yet the stack was
 * not recalled. */
static const struct hl_walk_frame *keep_slot(struct hl_recall *recall, const struct hl_walk *walk,
					     const struct hl_walk_frame *innermost,
					     const struct hl_registers *at, uint64_t tag,
					     struct hl_recall_slot **ret_place, bool *ret_part)
{
	struct words words = {.count = 0};
	uint32_t inner = 0;

	while (inner < HL_RECALL_FRAMES && innermost - inner > walk->frames &&
	       add_words(&words, at->sp, innermost - inner))
		inner++;
	const struct hl_walk_frame *join = innermost - inner;
	uint16_t join_offset;
	if (!inner || !find_offset(join->sp, at->sp, &join_offset))
		return NULL;
	const struct table table =
		at->pc & PART_MARK ? table_of_parts(recall) : table_of_stacks(recall);
	uint64_t hash = learn_shape(recall, at, hl_recall_room(walk, at->sp), innermost, inner);
	slot_in(&table, hash); /* its memory comes while the rest is done */
	struct hl_recall_slot slot = {
		.pc = at->pc,
		.sp = at->sp,
		.tag = tag,
		.join_node = join->node,
		.join = (uint16_t)(join - walk->frames),
		.join_offset = join_offset,
		.bp_matters = innermost->flags & HL_FRAME_NEEDS_BP,
		.value[HL_RECALL_WORDS] = at->bp,
	};
	for (uint32_t i = 0; i < HL_RECALL_WORDS; i++) {
		slot.offset[i] = words.offset[i < words.count ? i : 0];
		slot.value[i] = words.value[i < words.count ? i : 0];
	}
	slot.join_bp = find_value(&slot, join->bp) & 15u;
	slot.knows_bp = slot.value[slot.join_bp] == join->bp;
	if (join->flags & HL_FRAME_NEEDS_BP && !slot.knows_bp)
		return NULL;
	/* In a frame that a signal interrupted, the lookup pc is not a return address minus one. */
	uint64_t return_address = (join->key & HL_FRAME_PC_MASK) + 1;
	slot.join_ra = find_value(&slot, return_address) & 15u;
	*ret_part =
		put_slot(recall, &table, hash, &slot, ret_place) && slot.join_ra < HL_RECALL_WORDS;
	return join;
}

struct hl_recall_slot *hl_recall_keep(struct hl_recall *recall, const struct hl_walk *walk,
				      uint32_t kept, const struct hl_registers *at)
{
	struct hl_registers from = *at;
	struct hl_recall_slot *whole = NULL, *place = NULL;
	uint32_t serial = 0;
	uint64_t tag = 0;

	if (recall->generation != walk->generation) {
		recall->generation = walk->generation;
		recall->outdated = recall->serial;
	}
	bool goes_on = !walk->truncated && walk->depth >= 2;
	const struct hl_walk_frame *frame = &walk->frames[walk->depth - 1];
	for (uint32_t parts = 0; goes_on && parts <= HL_RECALL_PARTS; parts++) {
		frame = keep_slot(recall, walk, frame, &from, tag, &place, &goes_on);
		if (!frame)
			break;
		if (!whole) {
			whole = place;
			serial = place->serial;
		}
		if (frame < &walk->frames[kept])
			break;
		from = (struct hl_registers){
			.pc = ((frame->key & HL_FRAME_PC_MASK) + 1) | PART_MARK,
			.sp = frame->sp,
			.bp = frame->bp,
		};
		tag = frame->node;
	}
	/* A part may have taken its place. */
	return whole && whole->serial == serial ? whole : NULL;
}
