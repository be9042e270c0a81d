/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The array form of the block table: two levels, both backed by memory only where blocks are.
 *
 * The owner of a block is the only one who may touch its entry (a block is set by the thread that
 * got it and taken by the one that gives it back), so relaxed accesses are enough; the program's
 * own hand-over of the block orders them.
 */
#include "recorder/block.h"

#include "base/compiler.h"
#include "recorder/private.h"
#include "region/block_format.h"

struct hl_block_array *hl_block_array_new(void)
{
	return hl_private_map(sizeof(struct hl_block_array));
}

static hl_block_entry *leaf_of(const struct hl_block_array *array, uintptr_t address)
{
	return atomic_load_explicit(&array->leaves[address >> HL_BLOCK_LEAF_BITS],
				    memory_order_acquire);
}

static hl_block_entry *make_leaf(struct hl_block_array *array, uintptr_t address)
{
	hl_block_entry *leaf = hl_private_map(HL_BLOCK_LEAF_ENTRIES * sizeof(hl_block_entry));
	if (!leaf)
		return NULL;
	hl_block_entry *other = NULL;
	if (atomic_compare_exchange_strong(&array->leaves[address >> HL_BLOCK_LEAF_BITS], &other,
					   leaf))
		return leaf;
	hl_private_unmap(leaf, HL_BLOCK_LEAF_ENTRIES * sizeof(hl_block_entry));
	return other;
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
