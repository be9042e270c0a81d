/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The hash form of the block table: shards of open addressing with linear probing and
 * backward-shift deletion, each under a spin lock that is held for tens of nanoseconds, or while
 * its shard doubles.
 */
#include "recorder/block.h"

#include "base/compiler.h"
#include "recorder/private_map.h"
#include "recorder/spin.h"
#include "region/block_format.h"

#include <assert.h>

#define SHARD_BITS 6
#define FIRST_BITS 8 /* 256 slots, 4 KiB */

static_assert(HL_BLOCK_SHARDS == 1u << SHARD_BITS, "the shard is chosen by bits of a hash");

static struct hl_block_shard *shard_of(struct hl_block_hash *hash, uint64_t h)
{
	return &hash->shards[h >> (64 - SHARD_BITS)];
}

static void filter_add(struct hl_block_hash *hash, uint64_t h)
{
	_Atomic uint8_t *count = hl_block_filter_of(hash, h);

	uint8_t seen = atomic_load_explicit(count, memory_order_relaxed);
	while (seen != UINT8_MAX &&
	       !atomic_compare_exchange_weak(count, &seen, (uint8_t)(seen + 1)))
		;
}

static void filter_remove(struct hl_block_hash *hash, uint64_t h)
{
	_Atomic uint8_t *count = hl_block_filter_of(hash, h);

	uint8_t seen = atomic_load_explicit(count, memory_order_relaxed);
	while (seen != UINT8_MAX &&
	       !atomic_compare_exchange_weak(count, &seen, (uint8_t)(seen - 1)))
		;
}

struct hl_block_hash *hl_block_hash_new(void)
{
	return hl_private_map_new_whole(sizeof(struct hl_block_hash));
}

static uint64_t mask_of(const struct hl_block_shard *shard)
{
	return (UINT64_C(1) << shard->bits) - 1;
}

/* The slot that holds the address, or the empty one where it would go. */
static uint64_t find(const struct hl_block_shard *shard, uintptr_t address)
{
	uint64_t mask = mask_of(shard);

	uint64_t at = hl_block_hash_address(address) & mask;
	while (shard->slots[at].address &&
	       (shard->slots[at].address & HL_BLOCK_ADDRESS_MASK) != address)
		at = (at + 1) & mask;
	return at;
}

static bool resize(struct hl_block_shard *shard, uint32_t bits)
{
	struct hl_block_shard old = *shard;

	struct hl_block_slot *slots =
		hl_private_map_new_whole(sizeof(struct hl_block_slot) << bits);
	if (!slots)
		return false;
	shard->slots = slots;
	shard->bits = bits;
	if (!old.slots)
		return true;
	for (uint64_t i = 0; i <= mask_of(&old); i++)
		if (old.slots[i].address)
			slots[find(shard, old.slots[i].address & HL_BLOCK_ADDRESS_MASK)] =
				old.slots[i];
	hl_private_map_free_whole(old.slots, sizeof(struct hl_block_slot) << old.bits);
	return true;
}

/* Room for one more below three quarters; without memory, for as long as one slot stays empty. */
static bool make_room(struct hl_block_shard *shard)
{
	if (!shard->slots)
		return resize(shard, FIRST_BITS);
	if (shard->used + 1 <= (mask_of(shard) + 1) / 4 * 3)
		return true;
	return resize(shard, shard->bits + 1) || shard->used + 1 <= mask_of(shard);
}

bool hl_block_hash_set(struct hl_block_hash *hash, uintptr_t address, struct hl_block block,
		       struct hl_block *ret_before)
{
	uint64_t h = hl_block_hash_address(address);
	struct hl_block_shard *shard = shard_of(hash, h);

	hl_spin_lock(&shard->lock);
	bool ok = make_room(shard);
	if (ok) {
		struct hl_block_slot *slot = &shard->slots[find(shard, address)];
		if (!slot->address) {
			shard->used++;
			filter_add(hash, h);
		} else if (ret_before) {
			*ret_before = hl_block_of_slot(*slot);
		}
		*slot = hl_block_slot_make(address, block);
	}
	hl_spin_unlock(&shard->lock);
	return ok;
}

/* Empties the slot and moves later members of its run back, so that no probe stops early
 * (Knuth 6.4, algorithm R). */
static inline __attribute__((always_inline)) void erase(struct hl_block_shard *shard, uint64_t hole)
{
	uint64_t mask = mask_of(shard);

	for (uint64_t at = (hole + 1) & mask; shard->slots[at].address; at = (at + 1) & mask) {
		uint64_t home =
			hl_block_hash_address(shard->slots[at].address & HL_BLOCK_ADDRESS_MASK) &
			mask;
		if (((at - home) & mask) < ((at - hole) & mask))
			continue;
		shard->slots[hole] = shard->slots[at];
		hole = at;
	}
	shard->slots[hole] = (struct hl_block_slot){0};
	shard->used--;
}

bool hl_block_hash_take(struct hl_block_hash *hash, uintptr_t address, struct hl_block *ret_block,
			bool *ret_busy)
{
	uint64_t h = hl_block_hash_address(address);
	struct hl_block_shard *shard = shard_of(hash, h);

	if (!ret_busy) {
		hl_spin_lock(&shard->lock);
	} else if (!hl_spin_try(&shard->lock)) {
		*ret_busy = true;
		return false;
	}
	bool found = false;
	if (shard->slots) {
		uint64_t at = find(shard, address);
		struct hl_block_slot slot = shard->slots[at];
		found = slot.address != 0;
		if (found) {
			*ret_block = hl_block_of_slot(slot);
			erase(shard, at);
			filter_remove(hash, h);
		}
	}
	hl_spin_unlock(&shard->lock);
	return found;
}

bool hl_block_hash_take_in(struct hl_block_hash *hash, uintptr_t start, uintptr_t end,
			   uintptr_t *ret_address, struct hl_block *ret_block)
{
	uint64_t h = hl_block_hash_address(start);
	struct hl_block_shard *shard = shard_of(hash, h);
	bool found = false;

	if (!hl_block_hash_may_hold(hash, start))
		return false;
	hl_spin_lock(&shard->lock);
	/* All of them have one hash, and are in one run. */
	for (uint64_t at = h & mask_of(shard); shard->slots && shard->slots[at].address && !found;
	     at = (at + 1) & mask_of(shard)) {
		uintptr_t address = shard->slots[at].address & HL_BLOCK_ADDRESS_MASK;
		if (address - start >= end - start)
			continue;
		*ret_address = address;
		*ret_block = hl_block_of_slot(shard->slots[at]);
		erase(shard, at);
		filter_remove(hash, h);
		found = true;
	}
	hl_spin_unlock(&shard->lock);
	return found;
}

uint32_t hl_block_hash_node(struct hl_block_hash *hash, uintptr_t address)
{
	struct hl_block_shard *shard = shard_of(hash, hl_block_hash_address(address));
	uint32_t node = 0;

	if (!hl_block_hash_may_hold(hash, address) || !hl_spin_try(&shard->lock))
		return 0;
	if (shard->slots) {
		struct hl_block_slot slot = shard->slots[find(shard, address)];
		if (slot.address)
			node = hl_block_of_slot(slot).node;
	}
	hl_spin_unlock(&shard->lock);
	return node;
}
