/* SPDX-License-Identifier: BSD-2-Clause */
/* Chooses between the two forms of the block table; see block.h. */
#include "recorder/block.h"

#include "base/compiler.h"
#include "recorder/block_format.h"

bool hl_block_table_init(struct hl_block_table *table, bool with_array)
{
	table->hash = hl_block_hash_new();
	table->array = with_array ? hl_block_array_new() : NULL;
	return table->hash && (table->array || !with_array);
}

static bool fits_array(const struct hl_block_table *table, uintptr_t address)
{
	return table->array && !(address & 15) && !(address >> HL_BLOCK_ADDRESS_BITS);
}

bool hl_block_set(struct hl_block_table *table, const void *address, struct hl_block block,
		  uint64_t usable)
{
	uintptr_t at = (uintptr_t)address;
	if (HL_UNLIKELY(!fits_array(table, at)))
		return hl_block_hash_set(table->hash, at, block);
	uint64_t slack = usable - block.requested;
	if (HL_LIKELY(slack < HL_BLOCK_SLACK_IN_HASH))
		return hl_block_array_set(table->array, at,
					  block.node << HL_BLOCK_SLACK_BITS | (uint32_t)slack);
	return hl_block_hash_set(table->hash, at, block) &&
	       hl_block_array_set(table->array, at,
				  block.node << HL_BLOCK_SLACK_BITS | HL_BLOCK_SLACK_IN_HASH);
}

static bool take(struct hl_block_table *table, uintptr_t at, uint64_t usable,
		 struct hl_block *ret_block, bool *ret_busy)
{
	if (HL_UNLIKELY(!fits_array(table, at)))
		return hl_block_hash_may_hold(table->hash, at) &&
		       hl_block_hash_take(table->hash, at, ret_block, ret_busy);
	uint32_t entry = hl_block_array_take(table->array, at);
	if (!entry)
		return false;
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

bool hl_block_may_hold(const struct hl_block_table *table, const void *address)
{
	uintptr_t at = (uintptr_t)address;
	if (fits_array(table, at))
		return hl_block_array_get(table->array, at) != 0;
	return hl_block_hash_may_hold(table->hash, at);
}
