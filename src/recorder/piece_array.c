/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pieces of pools that are reset; see block.h.
 *
 * Who cuts a piece is the only one who writes its words until it is given back, so relaxed stores do. What a range has is looked for
 * by its owner, or by the only user of the pool.
 */
#include "recorder/block.h"

#include "recorder/private_map.h"

#define LEAF_BYTES (UINT64_C(1) << HL_PIECE_ARRAY_LEAF_BITS)
#define WORD_BYTES (UINT64_C(1) << HL_PIECE_ARRAY_GRANULE_BITS)

static_assert(HL_PIECE_ARRAYS_MAX == HL_RULE_POOLS_MAX, "one for each pool");

static struct hl_piece_array_leaf *leaf_of(const struct hl_piece_array *array, uintptr_t address)
{
	return atomic_load_explicit(&array->leaves[address >> HL_PIECE_ARRAY_LEAF_BITS],
				    memory_order_acquire);
}

static _Atomic uint8_t *begun_of(struct hl_piece_array_leaf *leaf, uintptr_t address)
{
	return &leaf->begun[(address >> HL_PIECE_ARRAY_PAGE_BITS) % HL_PIECE_ARRAY_PAGES];
}

/* ---- making ---- */

static struct hl_piece_array *make_array(struct hl_block_table *table, uint32_t pool)
{
	struct hl_piece_array *array = hl_private_map_new_whole(sizeof(*array)), *other = NULL;

	if (!array)
		return NULL;
	array->older = atomic_load(&table->newest_piece_array);
	if (!atomic_compare_exchange_strong(&table->piece_arrays[pool], &other, array)) {
		hl_private_map_free_whole(array, sizeof(*array));
		return other;
	}
	while (!atomic_compare_exchange_weak(&table->newest_piece_array, &array->older, array))
		;
	if (array->older)
		atomic_store(&table->has_piece_stores, true);
	return array;
}

static struct hl_piece_array_leaf *make_leaf(struct hl_piece_array *array, uintptr_t address)
{
	struct hl_piece_array_leaf *leaf = hl_private_map_new_whole(sizeof(*leaf)), *other = NULL;

	hl_piece_bounds_add(&array->bounds, address, HL_PIECE_ARRAY_LEAF_BITS);
	if (!leaf || atomic_compare_exchange_strong(
			     &array->leaves[address >> HL_PIECE_ARRAY_LEAF_BITS], &other, leaf))
		return leaf;
	hl_private_map_free_whole(leaf, sizeof(*leaf));
	return other;
}

hl_block_entry *hl_piece_array_make(struct hl_block_table *table, uint32_t pool, uintptr_t address,
				    uint64_t bytes, uintptr_t user)
{
	struct hl_piece_array *array = hl_piece_array_of(table, pool);

	/* The words of a size are in one leaf. */
	bool is_split = bytes >= HL_PIECE_HUGE - 1 &&
			(address + 2 * WORD_BYTES) % LEAF_BYTES < 2 * WORD_BYTES;
	if (is_split || address % WORD_BYTES || address >> HL_BLOCK_ADDRESS_BITS ||
	    bytes >> 2 * HL_PIECE_BYTES_BITS)
		return NULL;
	if (!array)
		array = make_array(table, pool);
	struct hl_piece_array_leaf *leaf = array ? leaf_of(array, address) : NULL;
	if (array && !leaf)
		leaf = make_leaf(array, address);
	if (!leaf)
		return NULL;
	hl_piece_bounds_use(&array->bounds, user);
	atomic_store_explicit(begun_of(leaf, address), 1, memory_order_relaxed);
	return hl_piece_array_at(array, address);
}

/* ---- finding ---- */

/* The words of the piece at ${address}, of which *${ret_word} is the first; NULL: there is none. */
static hl_block_entry *find(const struct hl_block_table *table, uintptr_t address,
			    uint32_t *ret_word)
{
	const struct hl_piece_array *array = hl_piece_arrays(table);

	for (; array; array = array->older) {
		hl_block_entry *words = hl_piece_array_at(array, address);
		*ret_word = words ? atomic_load_explicit(words, memory_order_relaxed) : 0;
		if (*ret_word & HL_PIECE_TAG)
			return words;
	}
	return NULL;
}

bool hl_piece_array_take_at(const struct hl_block_table *table, uintptr_t address,
			    struct hl_block *ret_block)
{
	uint32_t word;
	hl_block_entry *words = find(table, address, &word);

	if (words)
		*ret_block = hl_piece_array_take(words, word);
	return words;
}

uint32_t hl_piece_array_node(const struct hl_block_table *table, uintptr_t address)
{
	uint32_t word;

	return find(table, address, &word) ? word >> HL_BLOCK_NODE_SHIFT : 0;
}

/* ---- ranges ---- */

/* The place of the first word of a piece that has a word in [*${at}, ${end}), which are places in ${words} and lie in one page;
 * *${at} becomes that of the word. False: none has. */
static bool find_in_page(const hl_block_entry *words, uint64_t *at, uint64_t end,
			 uint64_t *ret_first)
{
	uint32_t word = 0;

	while (*at < end && !(word = atomic_load_explicit(&words[*at], memory_order_relaxed)))
		++*at;
	if (*at >= end)
		return false;
	*ret_first = *at;
	for (int back = 0; back < 2 && *ret_first && !(word & HL_PIECE_TAG); back++)
		word = atomic_load_explicit(&words[--*ret_first], memory_order_relaxed);
	return true;
}

static uintptr_t end_of(uintptr_t address, uint32_t bits)
{
	return ((address >> bits) + 1) << bits;
}

/* Like hl_piece_array_next(), within a page of ${leaf} that ends at ${end} at the latest. */
static bool take_in_page(struct hl_piece_array_leaf *leaf, uintptr_t *at, uintptr_t end,
			 uintptr_t *ret_address, struct hl_block *ret_block)
{
	uintptr_t base = *at & ~(LEAF_BYTES - 1);
	uint64_t place = (*at - base + WORD_BYTES - 1) / WORD_BYTES, first;

	while (find_in_page(leaf->words, &place, (end - base + WORD_BYTES - 1) / WORD_BYTES,
			    &first)) {
		uint32_t word = atomic_load_explicit(&leaf->words[first], memory_order_relaxed);
		*at = base + (place + 1) * WORD_BYTES;
		if (word & HL_PIECE_TAG) {
			*ret_address = base + first * WORD_BYTES;
			*ret_block = hl_piece_array_take(&leaf->words[first], word);
			return true;
		}
		/* The program has written there. */
		atomic_store_explicit(&leaf->words[place++], 0, memory_order_relaxed);
	}
	return false;
}

bool hl_piece_array_next(struct hl_piece_array *array, bool resets, uintptr_t *at, uintptr_t end,
			 uintptr_t *ret_address, struct hl_block *ret_block)
{
	if (end > UINT64_C(1) << HL_BLOCK_ADDRESS_BITS)
		return false;
	while (*at < end) {
		struct hl_piece_array_leaf *leaf = leaf_of(array, *at);
		if (!leaf) {
			*at = end_of(*at, HL_PIECE_ARRAY_LEAF_BITS);
			continue;
		}
		uintptr_t page_end = end_of(*at, HL_PIECE_ARRAY_PAGE_BITS);
		_Atomic uint8_t *begun = begun_of(leaf, *at);
		if (atomic_load_explicit(begun, memory_order_relaxed)) {
			if (take_in_page(leaf, at, page_end < end ? page_end : end, ret_address,
					 ret_block))
				return true;
			if (resets)
				atomic_store_explicit(begun, 0, memory_order_relaxed);
		}
		*at = page_end;
	}
	return false;
}
