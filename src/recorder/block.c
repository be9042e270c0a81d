/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The array form of the block table, and the choice between the two; see block.h.
 *
 * The owner of a block is the only one who may touch its entry (a block is set by the thread that
 * got it and taken by the one that gives it back), so relaxed accesses are enough; the program's
 * own hand-over of the block orders them.
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

static hl_block_entry *leaf_of(const struct hl_block_array *array, uintptr_t address)
{
	return atomic_load_explicit(&array->leaves[address >> HL_BLOCK_LEAF_BITS],
				    memory_order_acquire);
}

static hl_block_entry *make_leaf(struct hl_block_array *array, uintptr_t address)
{
	struct hl_block_leaf *leaf = hl_private_map_new_whole(sizeof(*leaf));

	if (!leaf)
		return NULL;
	hl_block_entry *other = NULL;
	if (!atomic_compare_exchange_strong(&array->leaves[address >> HL_BLOCK_LEAF_BITS], &other,
					    leaf->entries)) {
		hl_private_map_free_whole(leaf, sizeof(*leaf));
		return other;
	}
	leaf->older = atomic_load_explicit(&array->newest, memory_order_relaxed);
	while (!atomic_compare_exchange_weak(&array->newest, &leaf->older, leaf))
		;
	return leaf->entries;
}

bool hl_block_array_set(struct hl_block_array *array, uintptr_t address, uint32_t entry)
{
	hl_block_entry *leaf = leaf_of(array, address);

	if (HL_UNLIKELY(!leaf)) {
		leaf = make_leaf(array, address);
		if (!leaf)
			return false;
	}
	atomic_store_explicit(&leaf[hl_block_place_in_leaf(address)], entry, memory_order_relaxed);
	return true;
}

uint32_t hl_block_array_get(const struct hl_block_array *array, uintptr_t address)
{
	hl_block_entry *leaf = leaf_of(array, address);

	return leaf ? atomic_load_explicit(&leaf[hl_block_place_in_leaf(address)],
					   memory_order_relaxed)
		    : 0;
}

uint32_t hl_block_array_take(struct hl_block_array *array, uintptr_t address)
{
	hl_block_entry *leaf = leaf_of(array, address);

	if (HL_UNLIKELY(!leaf))
		return 0;
	hl_block_entry *entry = &leaf[hl_block_place_in_leaf(address)];
	uint32_t value = atomic_load_explicit(entry, memory_order_relaxed);
	/* A store to an entry that was never set would back a page for a block that was never seen.
	 */
	if (value)
		atomic_store_explicit(entry, 0, memory_order_relaxed);
	return value;
}

/* ---- both forms ---- */

bool hl_block_table_init(struct hl_block_table *table)
{
	table->hash = hl_block_hash_new();
	atomic_init(&table->array, NULL);
	atomic_init(&table->dropped, NULL);
	for (uint32_t i = 0; i <= HL_RULE_POOLS_MAX; i++)
		atomic_init(&table->pieces[i], NULL);
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
		if (hl_sys_madvise(leaf->entries, sizeof(leaf->entries), MADV_REMOVE) < 0)
			hl_sys_madvise(leaf->entries, sizeof(leaf->entries), MADV_DONTNEED);
		leaf = atomic_load(&array->newest);
	}
}

/* The array if the block can be in it, or NULL. */
static struct hl_block_array *array_for(const struct hl_block_table *table, uintptr_t address)
{
	return address & 15 || address >> HL_BLOCK_ADDRESS_BITS
		       ? NULL
		       : atomic_load_explicit(&table->array, memory_order_acquire);
}

/* Takes what the array has at ${at}: it would be found first, whatever is there now. */
static void take_stale(struct hl_block_table *table, struct hl_block_array *array, uintptr_t at,
		       struct hl_block_stale *stale)
{
	hl_block_entry *leaf = leaf_of(array, at);

	if (!leaf)
		return;
	hl_block_entry *entry = &leaf[hl_block_place_in_leaf(at)];
	uint32_t value = atomic_load_explicit(entry, memory_order_relaxed);
	if (HL_LIKELY(!value))
		return;
	uint32_t slack = value & HL_BLOCK_SLACK_IN_HASH;
	*stale =
		(struct hl_block_stale){{value >> HL_BLOCK_SLACK_BITS, 0, HL_BLOCK_UNKNOWN}, slack};
	if (hl_block_entry_is_object(value)) {
		stale->block = hl_block_object_take(entry, value);
		stale->slack &= HL_BLOCK_OBJECT_SLACK_MASK;
		return;
	}
	atomic_store_explicit(entry, 0, memory_order_relaxed);
	if (slack == HL_BLOCK_SLACK_IN_HASH) {
		stale->block.node = 0;
		hl_block_hash_take(table->hash, at, &stale->block, NULL);
		stale->slack = HL_BLOCK_UNKNOWN;
	}
}

hl_block_entry *hl_block_entry_make(const struct hl_block_table *table, const void *address)
{
	struct hl_block_array *array = array_for(table, (uintptr_t)address);

	if (array && !leaf_of(array, (uintptr_t)address))
		make_leaf(array, (uintptr_t)address);
	return hl_block_entry_at(table, address);
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
			      hl_block_entry_of(block.node, fits ? slack : HL_BLOCK_SLACK_IN_HASH));
	/* Where there is no memory for an entry that says so, the hash has the block all the same. */
	return is_set || !in_array || !fits;
}

bool hl_block_set(struct hl_block_table *table, bool in_array, const void *address,
		  struct hl_block block, uint64_t usable, struct hl_block_stale *stale)
{
	uintptr_t at = (uintptr_t)address;

	struct hl_block_array *array = array_for(table, at);
	return array ? set_with_array(table, array, in_array, at, block, usable, stale)
		     : hl_block_hash_set(table->hash, at, block, &stale->block);
}

uint32_t hl_block_mark(struct hl_block_table *table, const void *address, hl_block_entry *entry,
		       uint64_t usable)
{
	uint32_t value = atomic_load_explicit(entry, memory_order_relaxed);
	uint32_t slack = value & HL_BLOCK_SLACK_IN_HASH;

	if (!value || slack > HL_BLOCK_SLACK_MAX || slack > usable)
		return value;
	const struct hl_block block = {.node = value >> HL_BLOCK_SLACK_BITS,
				       .requested = usable - slack};
	if (hl_block_hash_set(table->hash, (uintptr_t)address, block, NULL)) {
		value = hl_block_entry_of(block.node, HL_BLOCK_SLACK_IN_HASH);
		atomic_store_explicit(entry, value, memory_order_relaxed);
	}
	return value;
}

static bool take(struct hl_block_table *table, uintptr_t at, uint64_t usable,
		 struct hl_block *ret_block, bool *ret_busy)
{
	struct hl_block_array *array = array_for(table, at);

	uint32_t entry = HL_LIKELY(array) ? hl_block_array_take(array, at) : 0;
	if (HL_UNLIKELY(!entry || hl_block_entry_is_size(entry)))
		return hl_block_hash_may_hold(table->hash, at) &&
		       hl_block_hash_take(table->hash, at, ret_block, ret_busy);
	uint32_t slack = entry & HL_BLOCK_SLACK_IN_HASH;
	if (HL_UNLIKELY(slack == HL_BLOCK_SLACK_IN_HASH))
		return hl_block_hash_take(table->hash, at, ret_block, ret_busy);
	ret_block->node = entry >> HL_BLOCK_SLACK_BITS;
	ret_block->draw = 0;
	ret_block->requested = usable - slack;
	return true;
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
	struct hl_piece_map *all = make_pieces(table, 0);
	struct hl_piece_map *own = pool ? make_pieces(table, pool) : NULL;

	/* The memory of another pool may have become this one's. */
	for (uint32_t i = 1; i <= HL_RULE_POOLS_MAX; i++)
		if (i != pool && pieces_of(table, i))
			hl_piece_map_clear(pieces_of(table, i), at);
	if (own) {
		hl_piece_map_use(own, user);
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

bool hl_block_take_piece_of_pool(struct hl_block_table *table, uint32_t pool, uintptr_t user,
				 uintptr_t *at, uintptr_t *ret_address, struct hl_block *ret_block)
{
	struct hl_piece_map *map = pieces_of(table, pool);

	if (!map || atomic_load(&map->user) != user)
		return false;
	if (!*at)
		*at = ~atomic_load(&map->inverted_start);
	if (take_piece(table, map, at, atomic_load(&map->end), ret_address, ret_block))
		return true;
	atomic_compare_exchange_strong(&map->user, &user, 0);
	return false;
}

uint32_t hl_block_node(const struct hl_block_table *table, const void *address)
{
	const hl_block_entry *entry = hl_block_entry_at(table, address);
	uint32_t value = entry ? atomic_load_explicit(entry, memory_order_relaxed) : 0, node;

	if (value && (value & HL_BLOCK_SLACK_IN_HASH) != HL_BLOCK_SLACK_IN_HASH)
		return value >> HL_BLOCK_SLACK_BITS;
	node = hl_block_hash_node(table->hash, (uintptr_t)address);
	return node ? node
		    : hl_block_hash_node(table->hash, (uintptr_t)hl_block_ruled_key(address));
}
