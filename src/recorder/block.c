/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The array form of the block table, and the choice between the two; see block.h.
 *
 * Whose block begins where an entry says is the only one who clears it, and who writes it once it is not 0: a block is
 * set by the thread that got it and taken by the one that gives it back. Of two blocks that begin in one granule each
 * fills the first plane's entry by compare-and-swap from 0, and the other one goes into the second plane's, which no
 * third can want. Where a word is follows from its half, in the first plane or else in the second. So the order of
 * changes of one entry is enough, and relaxed accesses give that; the program's own hand-over of the block orders set
 * and take. An allocator whose blocks begin at least a granule apart has one owner for each entry: a plain store does.
 */
#include "recorder/block.h"

#include "base/compiler.h"
#include "recorder/private_map.h"
#include "recorder/sys.h"
#include "region/block_format.h"

/* ---- the array: two levels, both backed by memory only where blocks are ---- */

struct hl_block_array *hl_block_array_new(void)
{
	return hl_private_map_new_whole(sizeof(struct hl_block_array));
}

static void make_leaf(struct hl_block_array *array, uint32_t plane, uintptr_t address)
{
	struct hl_block_leaf *leaf = hl_private_map_new_whole(sizeof(*leaf));
	hl_block_entry *other = NULL;

	if (!leaf)
		return;
	if (!atomic_compare_exchange_strong(&array->leaves[plane][address >> HL_BLOCK_LEAF_BITS],
					    &other, leaf->entries)) {
		hl_private_map_free_whole(leaf, sizeof(*leaf));
		return;
	}
	leaf->older = atomic_load_explicit(&array->newest, memory_order_relaxed);
	while (!atomic_compare_exchange_weak(&array->newest, &leaf->older, leaf))
		;
}

hl_block_entry *hl_block_array_make(struct hl_block_array *array, uint32_t plane, uintptr_t address)
{
	hl_block_entry *entry = hl_block_array_at(array, plane, address);

	if (HL_LIKELY(entry))
		return entry;
	make_leaf(array, plane, address);
	return hl_block_array_at(array, plane, address);
}

/* The second plane's entry for ${address}, made if need be; NULL without memory, or without a number: one is lost when two threads make
 * a page's run at once. */
static hl_block_entry *make_second(struct hl_block_array *array, uintptr_t address)
{
	hl_block_entry *entry = hl_block_second_at(array, address);
	uint16_t none = 0;

	if (HL_LIKELY(entry))
		return entry;
	if (!hl_block_array_make(array, 1, address))
		return NULL;
	struct hl_block_leaf *leaf = (struct hl_block_leaf *)(void *)atomic_load(
		&array->leaves[1][address >> HL_BLOCK_LEAF_BITS]);
	/* Looked at first: a count that went on rising would begin again. */
	uint32_t run = atomic_load(&leaf->run_count);
	if (run < HL_BLOCK_LEAF_RUNS)
		run = atomic_fetch_add(&leaf->run_count, 1);
	if (run++ < HL_BLOCK_LEAF_RUNS)
		atomic_compare_exchange_strong(&leaf->runs[hl_block_run_place(address)], &none,
					       (uint16_t)run);
	return hl_block_second_at(array, address);
}

bool hl_block_array_set(struct hl_block_array *array, uintptr_t address, uint32_t word)
{
	hl_block_entry *entry = hl_block_array_make(array, 0, address);
	uint32_t before = 0;

	if (HL_UNLIKELY(!entry))
		return false;
	word |= hl_block_half(address);
	if (HL_LIKELY(atomic_compare_exchange_strong_explicit(
		    entry, &before, word, memory_order_relaxed, memory_order_relaxed)))
		return true;
	if ((before ^ word) & HL_BLOCK_HALF)
		entry = make_second(array, address);
	if (HL_UNLIKELY(!entry))
		return false;
	atomic_store_explicit(entry, word, memory_order_relaxed);
	return true;
}

uint32_t hl_block_array_take(struct hl_block_array *array, uintptr_t address)
{
	uint32_t word = 0;
	hl_block_entry *entry = hl_block_array_find(array, address, &word);

	/* A store to an entry that was never set would back a page for a block that was never seen.
	 */
	if (entry)
		atomic_store_explicit(entry, 0, memory_order_relaxed);
	return word;
}

/* ---- both forms ---- */

bool hl_block_table_init(struct hl_block_table *table)
{
	table->hash = hl_block_hash_new();
	atomic_init(&table->array, NULL);
	atomic_init(&table->dropped, NULL);
	for (uint32_t i = 0; i <= HL_RULE_POOLS_MAX; i++) {
		atomic_init(&table->pieces[i], NULL);
		atomic_init(&table->piece_arrays[i], NULL);
	}
	atomic_init(&table->newest_piece_array, NULL);
	atomic_init(&table->has_piece_stores, false);
	return table->hash;
}

struct hl_block_array *hl_block_table_add_array(struct hl_block_table *table)
{
	struct hl_block_array *array = hl_block_array_new(), *other = NULL;

	if (!array || atomic_compare_exchange_strong(&table->array, &other, array))
		return array;
	hl_private_map_free_whole(array, sizeof(*array));
	return other;
}

void hl_block_table_drop_array(struct hl_block_table *table)
{
	struct hl_block_array *array = atomic_exchange(&table->array, NULL);

	if (array)
		atomic_store(&table->dropped, array);
	else
		array = atomic_load(&table->dropped);
	struct hl_block_leaf *leaf = array ? atomic_load(&array->newest) : NULL;
	while (leaf) {
		if (!atomic_compare_exchange_weak(&array->newest, &leaf, leaf->older))
			continue;
		/* It stays mapped, as other threads may still use what they have found. Shared mappings need the
		 * one advice, private ones the other; where the program has locked its memory, both fail. */
		size_t bytes = offsetof(struct hl_block_leaf, older);
		if (hl_sys_madvise(leaf, bytes, MADV_REMOVE) < 0)
			hl_sys_madvise(leaf, bytes, MADV_DONTNEED);
		leaf = atomic_load(&array->newest);
	}
}

/* The steps of the object at ${at}, of which ${entry} is. */
static uint32_t steps_of(const struct hl_block_array *array, hl_block_entry *entry, uintptr_t at)
{
	return entry == hl_block_array_at(array, 0, at)
		       ? atomic_load_explicit(hl_block_steps_of(entry, (const void *)at),
					      memory_order_relaxed)
		       : 1;
}

/* Takes the block at ${at} out of ${entry}, which has ${word} without the half. False where that says only that it is in the hash. */
static bool take_entry(const struct hl_block_array *array, hl_block_entry *entry, uintptr_t at,
		       uint32_t word, uint64_t usable, struct hl_block *ret_block)
{
	uint32_t slack = word & HL_BLOCK_SLACK_IN_HASH;

	if (hl_block_word_is_object(word)) {
		*ret_block = hl_block_object_take(entry, word, steps_of(array, entry, at));
		return true;
	}
	atomic_store_explicit(entry, 0, memory_order_relaxed);
	if (slack == HL_BLOCK_SLACK_IN_HASH)
		return false;
	*ret_block = (struct hl_block){word >> HL_BLOCK_NODE_SHIFT, 0, usable - slack};
	return true;
}

/* Takes what the array has at ${at}: it would be found first, whatever is there now. */
static void take_stale(struct hl_block_table *table, struct hl_block_array *array, uintptr_t at,
		       struct hl_block_stale *stale)
{
	uint32_t word = 0;
	hl_block_entry *entry;

	if (HL_LIKELY(!(entry = hl_block_array_find(array, at, &word))))
		return;
	if (!take_entry(array, entry, at, word, 0, &stale->block)) {
		hl_block_hash_take(table->hash, at, &stale->block, NULL);
	} else if (hl_block_word_is_object(word)) {
		stale->slack = (word & HL_BLOCK_SLACK_IN_HASH) - HL_BLOCK_OBJECT;
	} else {
		stale->block.requested = HL_BLOCK_UNKNOWN;
		stale->slack = word & HL_BLOCK_SLACK_IN_HASH;
	}
	hl_block_array_take(array, at); /* of one before it, in the other plane */
}

hl_block_entry *hl_block_entry_make(const struct hl_block_table *table, const void *address)
{
	struct hl_block_array *array = hl_block_array_for(table, (uintptr_t)address);

	return array ? hl_block_array_make(array, 0, (uintptr_t)address) : NULL;
}

hl_block_entry *hl_block_entry_find(const struct hl_block_table *table, const void *address)
{
	struct hl_block_array *array = hl_block_array_for(table, (uintptr_t)address);
	uint32_t word;

	return array ? hl_block_array_find(array, (uintptr_t)address, &word) : NULL;
}

bool hl_block_set_shared(struct hl_block_table *table, const void *address, uint32_t node,
			 uint64_t slack)
{
	uintptr_t at = (uintptr_t)address;
	struct hl_block_array *array = hl_block_array_for(table, at);

	return !array || hl_block_array_set(array, at, hl_block_word(0, node, slack));
}

bool hl_block_object_set_beside(struct hl_block_table *table, const void *address, uint32_t word)
{
	struct hl_block_array *array = hl_block_array_for(table, (uintptr_t)address);
	hl_block_entry *entry = array ? make_second(array, (uintptr_t)address) : NULL;

	if (HL_LIKELY(entry))
		atomic_store_explicit(entry, word, memory_order_relaxed);
	return entry || !array;
}

bool hl_block_take_object(struct hl_block_table *table, const void *address,
			  struct hl_block *ret_block)
{
	uintptr_t at = (uintptr_t)address;
	struct hl_block_array *array = hl_block_array_for(table, at);
	uint32_t word;

	hl_block_entry *entry = array ? hl_block_array_find(array, at, &word) : NULL;
	return entry && hl_block_word_is_object(word) &&
	       take_entry(array, entry, at, word, 0, ret_block);
}

/* Not inline, for the registers of the usual ways. */
static __attribute__((noinline)) bool set_with_array(struct hl_block_table *table,
						     struct hl_block_array *array, bool in_array,
						     uintptr_t at, struct hl_block block,
						     uint64_t usable, struct hl_block_stale *stale)
{
	uint64_t slack = usable - block.requested;
	bool fits = slack <= HL_BLOCK_SLACK_MAX && !block.draw;

	take_stale(table, array, at, stale);
	if (!(in_array && fits) && !hl_block_hash_set(table->hash, at, block, &stale->block))
		return false;
	bool is_set = in_array &&
		      hl_block_array_set(
			      array, at,
			      hl_block_word(0, block.node, fits ? slack : HL_BLOCK_SLACK_IN_HASH));
	/* Where there is no memory for an entry that says so, the hash has the block all the same. */
	return is_set || !in_array || !fits;
}

bool hl_block_set(struct hl_block_table *table, bool in_array, const void *address,
		  struct hl_block block, uint64_t usable, struct hl_block_stale *stale)
{
	uintptr_t at = (uintptr_t)address;

	struct hl_block_array *array = hl_block_array_for(table, at);
	return array ? set_with_array(table, array, in_array, at, block, usable, stale)
		     : hl_block_hash_set(table->hash, at, block, &stale->block);
}

uint32_t hl_block_mark(struct hl_block_table *table, const void *address, hl_block_entry *entry,
		       uint64_t usable)
{
	uint32_t word = atomic_load_explicit(entry, memory_order_relaxed);
	uint32_t slack = word & HL_BLOCK_SLACK_IN_HASH;

	if (!word || slack > HL_BLOCK_SLACK_MAX || slack > usable)
		return word;
	const struct hl_block block = {.node = word >> HL_BLOCK_NODE_SHIFT,
				       .requested = usable - slack};
	if (hl_block_hash_set(table->hash, (uintptr_t)address, block, NULL)) {
		word |= HL_BLOCK_SLACK_IN_HASH;
		atomic_store_explicit(entry, word, memory_order_relaxed);
	}
	return word;
}

static bool take(struct hl_block_table *table, uintptr_t at, uint64_t usable,
		 struct hl_block *ret_block, bool *ret_busy)
{
	struct hl_block_array *array = hl_block_array_for(table, at);
	uint32_t word;

	hl_block_entry *entry = HL_LIKELY(array) ? hl_block_array_find(array, at, &word) : NULL;
	if (HL_LIKELY(entry) && HL_LIKELY(take_entry(array, entry, at, word, usable, ret_block)))
		return true;
	if (HL_UNLIKELY(hl_piece_arrays(table)) &&
	    hl_piece_array_take_at(table, (uintptr_t)hl_block_ruled_key((const void *)at),
				   ret_block))
		return true;
	return hl_block_hash_may_hold(table->hash, at) &&
	       hl_block_hash_take(table->hash, at, ret_block, ret_busy);
}

bool hl_block_take(struct hl_block_table *table, const void *address, uint64_t usable,
		   struct hl_block *ret_block)
{
	return take(table, (uintptr_t)address, usable, ret_block, NULL);
}

bool hl_block_try_take(struct hl_block_table *table, const void *address, uint64_t usable,
		       struct hl_block *ret_block, bool *ret_busy)
{
	*ret_busy = false;
	return take(table, (uintptr_t)address, usable, ret_block, ret_busy);
}

static struct hl_piece_map *pieces_of(const struct hl_block_table *table, uint32_t pool)
{
	return atomic_load_explicit(&table->pieces[pool], memory_order_acquire);
}

static struct hl_piece_map *make_pieces(struct hl_block_table *table, uint32_t pool)
{
	struct hl_piece_map *map = pieces_of(table, pool), *other = NULL;

	if (HL_LIKELY(map))
		return map;
	map = hl_piece_map_new();
	if (!map || atomic_compare_exchange_strong(&table->pieces[pool], &other, map))
		return map;
	hl_piece_map_free(map);
	return other;
}

bool hl_block_note_piece(struct hl_block_table *table, const void *address, uint32_t pool,
			 uintptr_t user)
{
	uintptr_t at = (uintptr_t)address;

	atomic_store(&table->has_piece_stores, true);
	struct hl_piece_map *all = make_pieces(table, 0);
	struct hl_piece_map *own = pool ? make_pieces(table, pool) : NULL;

	/* The memory of another pool may have become this one's. */
	for (uint32_t i = 1; i <= HL_RULE_POOLS_MAX; i++)
		if (i != pool && pieces_of(table, i))
			hl_piece_map_clear(pieces_of(table, i), at);
	if (own) {
		hl_piece_bounds_use(&own->bounds, user);
		hl_piece_map_note(own, at);
	}
	return all && hl_piece_map_note(all, at);
}

static bool take_piece(struct hl_block_table *table, struct hl_piece_map *map, uintptr_t *at,
		       uintptr_t end, uintptr_t *ret_address, struct hl_block *ret_block)
{
	uintptr_t start = *at;

	while (map && hl_piece_map_find(map, at, end)) {
		uintptr_t granule = *at, next = granule + (1u << HL_PIECE_GRANULE_BITS);
		uintptr_t from = granule < start ? start : granule, to = next < end ? next : end;
		uintptr_t key = (uintptr_t)hl_block_ruled_key((const void *)from);
		if (hl_block_hash_take_in(table->hash, key, key + (to - from), &key, ret_block)) {
			*ret_address = (uintptr_t)hl_block_ruled_key((const void *)key);
			*at = from; /* more may begin in these bytes */
			return true;
		}
		if (from == granule && to == next)
			hl_piece_map_clear(map, granule);
		*at = next;
	}
	return false;
}

bool hl_block_take_piece(struct hl_block_table *table, uintptr_t *at, uintptr_t end,
			 uintptr_t *ret_address, struct hl_block *ret_block)
{
	return take_piece(table, pieces_of(table, 0), at, end, ret_address, ret_block);
}

/* Whether ${user}, who resets a pool, is the only one who has cut pieces; then *${at} becomes where they begin, if it is 0. */
static bool goes_on(const struct hl_piece_bounds *bounds, uintptr_t user, uintptr_t *at)
{
	if (atomic_load(&bounds->user) != user)
		return false;
	if (!*at)
		*at = ~atomic_load(&bounds->inverted_start);
	return true;
}

static bool ends(struct hl_piece_bounds *bounds, uintptr_t user)
{
	atomic_compare_exchange_strong(&bounds->user, &user, 0);
	return false;
}

bool hl_block_take_piece_of_array(struct hl_block_table *table, uint32_t pool, uintptr_t user,
				  uintptr_t *at, uintptr_t *ret_address, struct hl_block *ret_block)
{
	struct hl_piece_array *array = hl_piece_array_of(table, pool);

	return array && goes_on(&array->bounds, user, at) &&
	       (hl_piece_array_next(array, true, at, atomic_load(&array->bounds.end), ret_address,
				    ret_block) ||
		ends(&array->bounds, user));
}

bool hl_block_take_piece_of_pool(struct hl_block_table *table, uint32_t pool, uintptr_t user,
				 uintptr_t *at, uintptr_t *ret_address, struct hl_block *ret_block)
{
	struct hl_piece_map *map = pieces_of(table, pool);

	return map && goes_on(&map->bounds, user, at) &&
	       (take_piece(table, map, at, atomic_load(&map->bounds.end), ret_address, ret_block) ||
		ends(&map->bounds, user));
}

uint32_t hl_block_node(const struct hl_block_table *table, const void *address)
{
	struct hl_block_array *array = hl_block_array_for(table, (uintptr_t)address);
	uint32_t word, node;

	if (array && hl_block_array_find(array, (uintptr_t)address, &word) &&
	    (word & HL_BLOCK_SLACK_IN_HASH) != HL_BLOCK_SLACK_IN_HASH)
		return word >> HL_BLOCK_NODE_SHIFT;
	node = hl_piece_array_node(table, (uintptr_t)address);
	if (!node)
		node = hl_block_hash_node(table->hash, (uintptr_t)address);
	return node ? node
		    : hl_block_hash_node(table->hash, (uintptr_t)hl_block_ruled_key(address));
}
