/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A block table from outside; see owner_table.h. The process goes on meanwhile: an entry of the
 * array is one word and so always whole; a shard of the hash is read again while it was changed.
 */
#include "heap/owners/owner_table.h"

#include "base/array.h"
#include "base/index.h"
#include "region/block_format.h"

#define PAGE_ENTRIES   1024u /* entries of the array that are read at once: 16 KiB of heap */
#define SHARD_TRIES    8
#define SHARD_BITS_MAX 32

/* A block of the hash, by its address. */
struct kept_block {
	uint64_t address;
	struct hl_block block;
};

struct hl_block_reader {
	pid_t pid;
	uint64_t array;
	struct kept_block *blocks;
	size_t count, capacity;
	struct hl_index index;
	/* Where the last entry was. */
	uint64_t leaf_number, leaf; /* UINT64_MAX: none yet; 0: there is no such leaf */
	uint64_t page;		    /* address of entries[0] in the process; 0: none */
	uint32_t entries[PAGE_ENTRIES];
};

/* ---- hash ---- */

static int keep_slots(struct hl_block_reader *reader, const struct hl_block_slot *slots,
		      uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		if (!slots[i].address)
			continue;
		uint64_t address = slots[i].address & HL_BLOCK_ADDRESS_MASK;
		int r = HL_ARRAY_RESERVE(reader->blocks, reader->capacity, reader->count + 1);
		if (r == 0)
			r = hl_index_add(&reader->index, hl_hash_pair(address, 0),
					 (uint32_t)reader->count + 1);
		if (r < 0)
			return r;
		reader->blocks[reader->count++] =
			(struct kept_block){address, hl_block_of_slot(slots[i])};
	}
	return 0;
}

/* The slots of ${shard}, as they were when its ${used} was read twice alike; the caller's to free.
 * Blocks that come and go leave ${used} as it was: reading again would not find them more surely.
 */
static int read_slots(struct hl_block_reader *reader, uint64_t place,
		      struct hl_block_slot **ret_slots, uint64_t *ret_count)
{
	for (int tries = 0; tries < SHARD_TRIES; tries++) {
		struct hl_block_shard before, after;
		int r = hl_owners_read_memory(reader->pid, place, &before, sizeof(before));
		if (r < 0)
			return r;
		if (before.bits > SHARD_BITS_MAX)
			return -EBADMSG;
		uint64_t count = before.slots ? UINT64_C(1) << before.bits : 0;
		struct hl_block_slot *slots = malloc(count * sizeof(*slots) + 1);
		if (!slots)
			return -ENOMEM;
		r = count ? hl_owners_read_memory(reader->pid, (uintptr_t)before.slots, slots,
						  count * sizeof(*slots))
			  : 0;
		if (r == 0)
			r = hl_owners_read_memory(reader->pid, place, &after, sizeof(after));
		if (r == 0 && after.slots == before.slots && after.used == before.used) {
			*ret_slots = slots;
			*ret_count = count;
			return 0;
		}
		free(slots);
		if (r < 0 && r != -EFAULT) /* -EFAULT: it has moved */
			return r;
	}
	return -EBUSY;
}

static int read_hash(struct hl_block_reader *reader, uint64_t hash)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < HL_BLOCK_SHARDS; i++) {
		struct hl_block_slot *slots;
		uint64_t count;
		r = read_slots(reader, hash + i * sizeof(struct hl_block_shard), &slots, &count);
		if (r < 0)
			break;
		r = keep_slots(reader, slots, count);
		free(slots);
	}
	return r;
}

static bool find_in_hash(const struct hl_block_reader *reader, uint64_t address,
			 struct hl_block *ret_block)
{
	uint32_t hash = hl_hash_pair(address, 0), at = hash, id;

	while ((id = hl_index_next(&reader->index, hash, &at)))
		if (reader->blocks[id - 1].address == address) {
			*ret_block = reader->blocks[id - 1].block;
			return true;
		}
	return false;
}

/* ---- array ---- */

/* Moves to the page of entries that holds ${address}'s. False when there is none. */
static bool move_to(struct hl_block_reader *reader, uint64_t address)
{
	uint64_t number = address >> HL_BLOCK_LEAF_BITS;
	uint64_t place = hl_block_place_in_leaf(address) & ~(uint64_t)(PAGE_ENTRIES - 1);

	if (number != reader->leaf_number) {
		reader->leaf_number = number;
		if (hl_owners_read_memory(reader->pid, reader->array + number * sizeof(uint64_t),
					  &reader->leaf, sizeof(reader->leaf)) < 0)
			reader->leaf = 0;
	}
	if (!reader->leaf)
		return false;
	uint64_t page = reader->leaf + place * sizeof(uint32_t);
	if (page == reader->page)
		return true;
	reader->page = page;
	if (hl_owners_read_memory(reader->pid, page, reader->entries, sizeof(reader->entries)) == 0)
		return true;
	reader->page = 0;
	return false;
}

bool hl_block_reader_find(struct hl_block_reader *reader, uint64_t address, uint64_t usable,
			  struct hl_block *ret_block)
{
	bool in_array = reader->array && !(address & 15) && !(address >> HL_BLOCK_ADDRESS_BITS) &&
			move_to(reader, address);
	uint32_t entry =
		in_array ? reader->entries[hl_block_place_in_leaf(address) & (PAGE_ENTRIES - 1)]
			 : 0;
	uint32_t slack = entry & HL_BLOCK_SLACK_IN_HASH;

	if (!entry || slack == HL_BLOCK_SLACK_IN_HASH)
		return find_in_hash(reader, address, ret_block);
	*ret_block = (struct hl_block){.node = entry >> HL_BLOCK_SLACK_BITS,
				       .requested = usable > slack ? usable - slack : 0};
	return true;
}

/* ---- the whole ---- */

int hl_block_reader_new(pid_t pid, uint64_t array, uint64_t hash,
			struct hl_block_reader **ret_reader)
{
	struct hl_block_reader *reader = calloc(1, sizeof(*reader));

	if (!reader)
		return -ENOMEM;
	reader->pid = pid;
	reader->array = array;
	reader->leaf_number = UINT64_MAX;
	int r = hash ? read_hash(reader, hash) : -EBADMSG;
	if (r < 0) {
		hl_block_reader_free(reader);
		return r;
	}
	*ret_reader = reader;
	return 0;
}

bool hl_block_reader_has_array(const struct hl_block_reader *reader)
{
	return reader->array;
}

int hl_block_reader_each(const struct hl_block_reader *reader,
			 int (*visit)(void *context, struct hl_block block), void *context)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < reader->count; i++)
		r = visit(context, reader->blocks[i].block);
	return r;
}

void hl_block_reader_free(struct hl_block_reader *reader)
{
	if (!reader)
		return;
	hl_index_release(&reader->index);
	free(reader->blocks);
	free(reader);
}
