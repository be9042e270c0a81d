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

#include <stdatomic.h>

#define ADDRESS_BITS 47
#define LEAF_BITS    26 /* a leaf covers 64 MiB of heap with 16 MiB */
#define GRANULE_BITS 4
#define LEAVES	     (UINT64_C(1) << (ADDRESS_BITS - LEAF_BITS))
#define LEAF_ENTRIES (UINT64_C(1) << (LEAF_BITS - GRANULE_BITS))

typedef _Atomic uint32_t entry_t;

struct hl_block_array {
	_Atomic(entry_t *) leaves[LEAVES];
};

struct hl_block_array *hl_block_array_new(void)
{
	return hl_private_map(sizeof(struct hl_block_array));
}

static entry_t *leaf_of(const struct hl_block_array *array, uintptr_t address)
{
	return atomic_load_explicit(&array->leaves[address >> LEAF_BITS], memory_order_acquire);
}

static uint64_t place_in_leaf(uintptr_t address)
{
	return (address >> GRANULE_BITS) & (LEAF_ENTRIES - 1);
}

static entry_t *make_leaf(struct hl_block_array *array, uintptr_t address)
{
	entry_t *leaf = hl_private_map(LEAF_ENTRIES * sizeof(entry_t));
	if (!leaf)
		return NULL;
	entry_t *other = NULL;
	if (atomic_compare_exchange_strong(&array->leaves[address >> LEAF_BITS], &other, leaf))
		return leaf;
	hl_private_unmap(leaf, LEAF_ENTRIES * sizeof(entry_t));
	return other;
}

bool hl_block_array_set(struct hl_block_array *array, uintptr_t address, uint32_t entry)
{
	entry_t *leaf = leaf_of(array, address);
	if (HL_UNLIKELY(!leaf)) {
		leaf = make_leaf(array, address);
		if (!leaf)
			return false;
	}
	atomic_store_explicit(&leaf[place_in_leaf(address)], entry, memory_order_relaxed);
	return true;
}

uint32_t hl_block_array_get(const struct hl_block_array *array, uintptr_t address)
{
	entry_t *leaf = leaf_of(array, address);
	return leaf ? atomic_load_explicit(&leaf[place_in_leaf(address)], memory_order_relaxed) : 0;
}

uint32_t hl_block_array_take(struct hl_block_array *array, uintptr_t address)
{
	entry_t *leaf = leaf_of(array, address);
	if (HL_UNLIKELY(!leaf))
		return 0;
	entry_t *entry = &leaf[place_in_leaf(address)];
	uint32_t value = atomic_load_explicit(entry, memory_order_relaxed);
	/* A store to an entry that was never set would back a page for a block that was never seen.
	 */
	if (value)
		atomic_store_explicit(entry, 0, memory_order_relaxed);
	return value;
}
