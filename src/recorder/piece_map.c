/* SPDX-License-Identifier: BSD-2-Clause */
/* Where pieces begin; see block.h. */
#include "recorder/block.h"

#include "base/compiler.h"
#include "recorder/private_map.h"

struct hl_piece_map *hl_piece_map_new(void)
{
	return hl_private_map_new_whole(sizeof(struct hl_piece_map));
}

void hl_piece_map_free(struct hl_piece_map *map)
{
	hl_private_map_free_whole(map, sizeof(*map));
}

static struct hl_piece_leaf *leaf_of(struct hl_piece_map *map, uintptr_t address)
{
	return atomic_load_explicit(&map->leaves[address >> HL_PIECE_LEAF_BITS],
				    memory_order_acquire);
}

void hl_piece_bounds_use(struct hl_piece_bounds *bounds, uintptr_t user)
{
	uintptr_t seen = atomic_load_explicit(&bounds->user, memory_order_relaxed);

	while (seen != user && seen != HL_PIECES_SHARED &&
	       !atomic_compare_exchange_weak(&bounds->user, &seen, seen ? HL_PIECES_SHARED : user))
		;
}

static void raise_to(_Atomic uintptr_t *mark, uintptr_t value)
{
	uintptr_t seen = atomic_load(mark);

	while (seen < value && !atomic_compare_exchange_weak(mark, &seen, value))
		;
}

void hl_piece_bounds_add(struct hl_piece_bounds *bounds, uintptr_t address, uint32_t bits)
{
	uintptr_t start = address >> bits << bits;

	raise_to(&bounds->inverted_start, ~start);
	raise_to(&bounds->end, start + (UINT64_C(1) << bits));
}

static struct hl_piece_leaf *make_leaf(struct hl_piece_map *map, uintptr_t address)
{
	struct hl_piece_leaf *leaf = hl_private_map_new_whole(sizeof(*leaf)), *other = NULL;

	hl_piece_bounds_add(&map->bounds, address, HL_PIECE_LEAF_BITS);
	if (!leaf || atomic_compare_exchange_strong(&map->leaves[address >> HL_PIECE_LEAF_BITS],
						    &other, leaf))
		return leaf;
	hl_private_map_free_whole(leaf, sizeof(*leaf));
	return other;
}

static _Atomic uint64_t *word_of(struct hl_piece_leaf *leaf, uintptr_t address)
{
	return &leaf->words[(address & ((UINT64_C(1) << HL_PIECE_LEAF_BITS) - 1)) >>
			    HL_PIECE_WORD_BITS];
}

static uint64_t bit_of(uintptr_t address)
{
	return UINT64_C(1) << ((address >> HL_PIECE_GRANULE_BITS) & 63);
}

static _Atomic uint64_t *pages_of(struct hl_piece_leaf *leaf, uintptr_t address)
{
	return &leaf->pages[(address & ((UINT64_C(1) << HL_PIECE_LEAF_BITS) - 1)) >>
			    (HL_PIECE_PAGE_BITS + 6)];
}

static uint64_t page_bit_of(uintptr_t address)
{
	return UINT64_C(1) << ((address >> HL_PIECE_PAGE_BITS) & 63);
}

static void set(_Atomic uint64_t *word, uint64_t bit)
{
	if (!(atomic_load_explicit(word, memory_order_relaxed) & bit))
		atomic_fetch_or_explicit(word, bit, memory_order_relaxed);
}

bool hl_piece_map_note(struct hl_piece_map *map, uintptr_t address)
{
	if (HL_UNLIKELY(address >> HL_BLOCK_ADDRESS_BITS))
		return false;
	struct hl_piece_leaf *leaf = leaf_of(map, address);
	if (HL_UNLIKELY(!leaf))
		leaf = make_leaf(map, address);
	if (HL_UNLIKELY(!leaf))
		return false;
	set(pages_of(leaf, address), page_bit_of(address));
	set(word_of(leaf, address), bit_of(address));
	return true;
}

/* The end of the 2^${bits} bytes in which ${address} lies. */
static uintptr_t end_of(uintptr_t address, uint32_t bits)
{
	return ((address >> bits) + 1) << bits;
}

/* Like hl_piece_map_find(), within what a word covers. */
static bool find_in_word(const _Atomic uint64_t *word, uintptr_t *at, uintptr_t end)
{
	uint64_t bits = atomic_load_explicit(word, memory_order_relaxed) & ~(bit_of(*at) - 1);

	if (!bits)
		return false;
	uintptr_t granule = (*at >> HL_PIECE_WORD_BITS << HL_PIECE_WORD_BITS) +
			    ((uintptr_t)__builtin_ctzll(bits) << HL_PIECE_GRANULE_BITS);
	if (granule >= end)
		return false;
	*at = granule;
	return true;
}

/* Skips words without a bit, four at a time, and the one that ${at} lies in; not beyond what one bit of pages stands for. A block of
 * a megabyte has 2048. */
static uintptr_t skip_words(const _Atomic uint64_t *word, uintptr_t at)
{
	uintptr_t end = end_of(at, HL_PIECE_PAGE_BITS), four = UINT64_C(4) << HL_PIECE_WORD_BITS;

	at = end_of(at, HL_PIECE_WORD_BITS);
	word++;
	while (end - at >= four && !(atomic_load_explicit(word, memory_order_relaxed) |
				     atomic_load_explicit(word + 1, memory_order_relaxed) |
				     atomic_load_explicit(word + 2, memory_order_relaxed) |
				     atomic_load_explicit(word + 3, memory_order_relaxed))) {
		at += four;
		word += 4;
	}
	return at;
}

bool hl_piece_map_find(struct hl_piece_map *map, uintptr_t *at, uintptr_t end)
{
	if (HL_UNLIKELY(end > UINT64_C(1) << HL_BLOCK_ADDRESS_BITS))
		return false;
	while (*at < end) {
		struct hl_piece_leaf *leaf = leaf_of(map, *at);
		if (!leaf)
			*at = end_of(*at, HL_PIECE_LEAF_BITS);
		else if (!(atomic_load_explicit(pages_of(leaf, *at), memory_order_relaxed) &
			   page_bit_of(*at)))
			*at = end_of(*at, HL_PIECE_PAGE_BITS);
		else if (find_in_word(word_of(leaf, *at), at, end))
			return true;
		else
			*at = skip_words(word_of(leaf, *at), *at);
	}
	return false;
}

void hl_piece_map_clear(struct hl_piece_map *map, uintptr_t address)
{
	struct hl_piece_leaf *leaf = leaf_of(map, address);
	_Atomic uint64_t *word = leaf ? word_of(leaf, address) : NULL;

	if (word && atomic_load_explicit(word, memory_order_relaxed) & bit_of(address))
		atomic_fetch_and_explicit(word, ~bit_of(address), memory_order_relaxed);
}
