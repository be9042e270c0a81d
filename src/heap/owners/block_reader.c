/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A block table from outside; see owner_table.h. The process goes on meanwhile: an entry of the
 * array is one word and so always whole; a page with objects is read once more after their steps, and
 * a shard of the hash again while it was changed.
 */
#include "heap/owners/owner_table.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "heap/extents.h"
#include "process/maps.h"
#include "region/block_format.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE_ENTRIES   HL_BLOCK_PAGE_ENTRIES /* that are read at once: 32 KiB of heap */
#define TABLE_PAGE     ((uint64_t)sysconf(_SC_PAGESIZE))
#define SHARD_TRIES    8
#define SHARD_BITS_MAX 32

/* A block of the hash. */
struct kept_block {
	uint64_t address;
	bool is_ruled;
	struct hl_block block;
};

/* Where the last entry of a plane was. */
struct plane {
	uint64_t leaves;	    /* address of their addresses in the process */
	uint64_t leaf_number, leaf; /* UINT64_MAX: none yet; 0: there is no such leaf */
	struct hl_pages pages;	    /* of its entries, present */
	uint64_t page; /* address of entries[0] in the process; 0: none, and all are 0 */
	uint32_t entries[PAGE_ENTRIES];
	uint8_t steps[PAGE_ENTRIES]; /* of those that are objects */
	uint16_t *runs;		     /* of the second plane: of all pages of the leaf; else NULL */
};

struct hl_block_reader {
	pid_t pid;
	struct hl_pagemap *pagemap;
	struct hl_pages pages; /* of the hash, present: of what was asked for last */
	uint64_t array;
	struct kept_block *blocks; /* by address */
	size_t count, capacity;
	size_t found; /* where a block was found last */
	struct plane planes[HL_BLOCK_PLANES];
};

/* ---- memory ---- */

/* The table is shared memory without a file: to read a page of it that is not there would give the
 * process one. ${start} lies on a page's start. */
static int find_pages(struct hl_block_reader *reader, uint64_t start, uint64_t bytes,
		      struct hl_pages *ret_pages)
{
	uint64_t end = (start + bytes + TABLE_PAGE - 1) & ~(TABLE_PAGE - 1);

	ret_pages->count = 0;
	ret_pages->page_count = 0;
	return hl_pagemap_scan(reader->pagemap, start, end, ret_pages);
}

/* Copies the pages of [${start}, ${start} + ${bytes}) that are in memory to ${ret_bytes}, which the
 * caller has zeroed. Other pages are not written, so a table that claims to be huge takes no memory. */
static int read_present(struct hl_block_reader *reader, uint64_t start, void *ret_bytes,
			uint64_t bytes)
{
	int r = find_pages(reader, start & ~(TABLE_PAGE - 1), bytes + start % TABLE_PAGE,
			   &reader->pages);

	for (size_t i = 0; i < reader->pages.count && r == 0; i++) {
		const struct hl_page_run *run = &reader->pages.runs[i];
		uint64_t from = run->start > start ? run->start : start;
		uint64_t to = run->end < start + bytes ? run->end : start + bytes;
		r = hl_owners_read_memory(reader->pid, from, (char *)ret_bytes + (from - start),
					  to - from);
	}
	return r;
}

/* ---- hash ---- */

/* Blocks of functions that rules name have keys where nothing is mapped; see recorder/block.h. */
static uint64_t address_of_key(const struct hl_maps *maps, uint64_t key)
{
	uint64_t other = key ^ UINT64_C(1) << (HL_BLOCK_ADDRESS_BITS - 1);

	return maps && !hl_maps_find(maps, key) && hl_maps_find(maps, other) ? other : key;
}

static int keep_slots(struct hl_block_reader *reader, const struct hl_maps *maps,
		      const struct hl_block_slot *slots, uint64_t count)
{
	int r = 0;

	for (uint64_t i = 0; i < count && r == 0; i++) {
		uint64_t key = slots[i].address & HL_BLOCK_ADDRESS_MASK;
		uint64_t address = address_of_key(maps, key);
		const struct kept_block kept = {address, address != key,
						hl_block_of_slot(slots[i])};
		if (slots[i].address)
			r = HL_ARRAY_APPEND(reader->blocks, reader->count, reader->capacity, kept);
	}
	return r;
}

/* The slots of a shard, as they were when its `used` was read twice alike, if it ever was; the
 * caller's to free. Blocks that come and go leave `used` as it was: reading again would not find
 * them more surely. */
static int read_slots(struct hl_block_reader *reader, uint64_t place,
		      struct hl_block_slot **ret_slots, uint64_t *ret_count)
{
	for (int tries = 0; tries < SHARD_TRIES; tries++) {
		struct hl_block_shard before, after = {0};
		int r = hl_owners_read_memory(reader->pid, place, &before, sizeof(before));
		if (r < 0)
			return r;
		if (before.bits > SHARD_BITS_MAX)
			return -EBADMSG;
		uint64_t count = before.slots ? UINT64_C(1) << before.bits : 0;
		struct hl_block_slot *slots = calloc(count + 1, sizeof(*slots));
		if (!slots)
			return -ENOMEM;
		r = count ? read_present(reader, (uintptr_t)before.slots, slots,
					 count * sizeof(*slots))
			  : 0;
		if (r == 0)
			r = hl_owners_read_memory(reader->pid, place, &after, sizeof(after));
		/* A shard that never rests is taken as it was while it stayed in its place. */
		bool is_same = after.used == before.used || tries == SHARD_TRIES - 1;
		if (r == 0 && after.slots == before.slots && is_same) {
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

/* Puts blocks in order. One that moved within its shard meanwhile was read twice. */
static void settle(struct hl_block_reader *reader)
{
	size_t kept = 0;

	if (reader->count)
		qsort(reader->blocks, reader->count, sizeof(*reader->blocks), hl_addresses_compare);
	for (size_t i = 0; i < reader->count; i++)
		if (!kept || reader->blocks[i].address != reader->blocks[kept - 1].address)
			reader->blocks[kept++] = reader->blocks[i];
	reader->count = kept;
}

static int read_hash(struct hl_block_reader *reader, const struct hl_maps *maps, uint64_t hash)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < HL_BLOCK_SHARDS; i++) {
		struct hl_block_slot *slots;
		uint64_t count;
		r = read_slots(reader, hash + i * sizeof(struct hl_block_shard), &slots, &count);
		if (r < 0)
			break;
		r = keep_slots(reader, maps, slots, count);
		free(slots);
	}
	settle(reader);
	return r;
}

/* ---- arrays of pieces ---- */

/* Those that begin in the page of heap at ${page}, whose words are at ${place}. */
static int keep_pieces(struct hl_block_reader *reader, uint64_t page, uint64_t place)
{
	hl_block_entry words[HL_PIECE_ARRAY_PAGE_WORDS + 2] = {0};
	const hl_block_entry *last = &words[HL_PIECE_ARRAY_PAGE_WORDS];
	const uint64_t bytes = HL_PIECE_ARRAY_PAGE_WORDS * sizeof(*words);
	int r = hl_owners_read_memory(reader->pid, place, words, bytes);

	/* A size may go on in the next page. */
	if (r == 0 && ((last[-1] & HL_PIECE_TAG) >= HL_PIECE_HUGE ||
		       (last[-2] & HL_PIECE_TAG) == HL_PIECE_HUGE))
		r = hl_owners_read_memory(reader->pid, place + bytes,
					  &words[HL_PIECE_ARRAY_PAGE_WORDS], 2 * sizeof(*words));
	for (uint64_t i = 0; i < HL_PIECE_ARRAY_PAGE_WORDS && r == 0; i++) {
		struct kept_block kept = {page + (i << HL_PIECE_ARRAY_GRANULE_BITS),
					  .is_ruled = true};
		if (!(words[i] & HL_PIECE_TAG))
			continue;
		kept.block.node = words[i] >> HL_BLOCK_NODE_SHIFT;
		kept.block.requested = hl_piece_bytes(&words[i], words[i]);
		r = HL_ARRAY_APPEND(reader->blocks, reader->count, reader->capacity, kept);
	}
	return r;
}

static int read_piece_leaf(struct hl_block_reader *reader, uint64_t start, uint64_t leaf)
{
	const uint64_t page_bytes = HL_PIECE_ARRAY_PAGE_WORDS * sizeof(hl_block_entry);
	uint8_t begun[HL_PIECE_ARRAY_PAGES] = {0};
	int r = read_present(reader, leaf + offsetof(struct hl_piece_array_leaf, begun), begun,
			     sizeof(begun));

	for (uint64_t i = 0; i < HL_PIECE_ARRAY_PAGES && r == 0; i++)
		if (begun[i])
			r = keep_pieces(reader, start + (i << HL_PIECE_ARRAY_PAGE_BITS),
					leaf + i * page_bytes);
	return r;
}

static int read_piece_arrays(struct hl_block_reader *reader, uint64_t array)
{
	HL_FREED uint64_t *leaves = malloc(HL_PIECE_ARRAY_LEAVES * sizeof(*leaves));
	int r = leaves ? 0 : -ENOMEM;

	for (uint32_t count = 0; array && count < HL_PIECE_ARRAYS_MAX && r == 0; count++) {
		memset(leaves, 0, HL_PIECE_ARRAY_LEAVES * sizeof(*leaves));
		r = read_present(reader, array, leaves, HL_PIECE_ARRAY_LEAVES * sizeof(*leaves));
		for (uint64_t i = 0; i < HL_PIECE_ARRAY_LEAVES && r == 0; i++)
			if (leaves[i])
				r = read_piece_leaf(reader, i << HL_PIECE_ARRAY_LEAF_BITS,
						    leaves[i]);
		if (r == 0)
			r = hl_owners_read_memory(reader->pid,
						  array + offsetof(struct hl_piece_array, older),
						  &array, sizeof(array));
	}
	settle(reader);
	return r;
}

struct hl_block_sum hl_block_reader_sum_ruled(const struct hl_block_reader *reader)
{
	struct hl_block_sum sum = {0};

	for (size_t i = 0; i < reader->count; i++) {
		if (!reader->blocks[i].is_ruled)
			continue;
		sum.blocks++;
		sum.bytes += (int64_t)reader->blocks[i].block.requested;
	}
	return sum;
}

bool hl_block_reader_has_ruled(const struct hl_block_reader *reader, uint64_t address)
{
	const struct kept_block *blocks = reader->blocks;
	size_t at = HL_LOWER_BOUND(i, reader->count, blocks[i].address < address);

	return at < reader->count && blocks[at].address == address && blocks[at].is_ruled;
}

static bool find_in_hash(struct hl_block_reader *reader, uint64_t address,
			 struct hl_block *ret_block)
{
	const struct kept_block *blocks = reader->blocks;
	size_t at = reader->found;

	bool is_near = at < reader->count && blocks[at].address >= address &&
		       (at == 0 || blocks[at - 1].address < address);
	if (!is_near)
		at = HL_LOWER_BOUND(i, reader->count, blocks[i].address < address);
	if (at == reader->count || blocks[at].address != address) {
		reader->found = at;
		return false;
	}
	reader->found = at + 1;
	*ret_block = blocks[at].block;
	return true;
}

/* ---- array ---- */

/*
 * Reads the steps of the objects in the entries that were read last, and these again: a word that was there before and after has
 * the steps that were read between. Another one is of an object that came meanwhile.
 */
static int read_steps(struct hl_block_reader *reader, struct plane *plane)
{
	uint64_t first = (plane->page - plane->leaf) / sizeof(uint32_t);
	uint32_t before[PAGE_ENTRIES];

	memcpy(before, plane->entries, sizeof(before));
	atomic_thread_fence(memory_order_acquire);
	int r = hl_owners_read_memory(reader->pid,
				      plane->leaf + offsetof(struct hl_block_leaf, steps) + first,
				      plane->steps, sizeof(plane->steps));
	atomic_thread_fence(memory_order_acquire);
	if (r == 0)
		r = hl_owners_read_memory(reader->pid, plane->page, plane->entries,
					  sizeof(plane->entries));
	for (size_t i = 0; i < PAGE_ENTRIES; i++)
		if (hl_block_word_is_object(plane->entries[i]) && plane->entries[i] != before[i])
			plane->entries[i] = 0;
	return r;
}

static int read_page(struct hl_block_reader *reader, struct plane *plane, uint64_t page)
{
	int r = hl_owners_read_memory(reader->pid, page, plane->entries, sizeof(plane->entries));
	bool has_objects = false;

	plane->page = page;
	for (size_t i = 0; i < PAGE_ENTRIES && r == 0; i++)
		has_objects |= hl_block_word_is_object(plane->entries[i]);
	if (has_objects)
		r = read_steps(reader, plane);
	return r;
}

/* The runs that the second plane has for the pages of heap whose entries of the first one are in a page, as if they were one. A newer
 * run is of blocks that came meanwhile. */
static int read_runs(struct hl_block_reader *reader, struct plane *plane, uint64_t page)
{
	const uint64_t run_bytes = HL_BLOCK_RUN_ENTRIES * sizeof(uint32_t);
	const uint16_t *runs = plane->runs + (page - plane->leaf) / run_bytes;
	int r = 0;

	plane->page = page;
	for (size_t i = 0; i < PAGE_ENTRIES / HL_BLOCK_RUN_ENTRIES && r == 0; i++) {
		uint32_t *entries = plane->entries + i * HL_BLOCK_RUN_ENTRIES;
		if (runs[i] && runs[i] <= HL_BLOCK_LEAF_RUNS)
			r = hl_owners_read_memory(reader->pid,
						  plane->leaf + (runs[i] - 1u) * run_bytes, entries,
						  run_bytes);
		else
			memset(entries, 0, run_bytes);
	}
	return r;
}

static void forget_page(struct plane *plane)
{
	if (plane->page)
		memset(plane->entries, 0, sizeof(plane->entries));
	plane->page = 0;
}

static bool has_page(const struct plane *plane, uint64_t page)
{
	if (!plane->leaf || !plane->runs)
		return plane->leaf && hl_pages_contain(&plane->pages, page);
	const uint16_t *runs =
		plane->runs + (page - plane->leaf) / (HL_BLOCK_RUN_ENTRIES * sizeof(uint32_t));
	bool has_run = false;
	for (size_t i = 0; i < PAGE_ENTRIES / HL_BLOCK_RUN_ENTRIES; i++)
		has_run |= runs[i];
	return has_run;
}

/* What there is of ${plane}'s leaf. */
static int read_leaf(struct hl_block_reader *reader, struct plane *plane)
{
	if (!plane->runs)
		return find_pages(reader, plane->leaf, HL_BLOCK_LEAF_ENTRIES * sizeof(uint32_t),
				  &plane->pages);
	memset(plane->runs, 0, HL_BLOCK_LEAF_RUNS * sizeof(*plane->runs));
	return read_present(reader, plane->leaf + offsetof(struct hl_block_leaf, runs), plane->runs,
			    HL_BLOCK_LEAF_RUNS * sizeof(*plane->runs));
}

/* Moves ${plane} to leaf ${number}, where it has one. */
static int move_to_leaf(struct hl_block_reader *reader, struct plane *plane, uint64_t number)
{
	if (number == plane->leaf_number)
		return 0;
	plane->leaf_number = number;
	plane->leaf = 0;
	forget_page(plane);
	int r = read_present(reader, plane->leaves + number * sizeof(uint64_t), &plane->leaf,
			     sizeof(plane->leaf));
	if (r == 0 && plane->leaf)
		r = read_leaf(reader, plane);
	if (r < 0)
		plane->leaf = 0;
	return r;
}

/* And to the page of entry ${place} there; all are 0 where it is not in memory. */
static int move_to_page(struct hl_block_reader *reader, struct plane *plane, uint64_t place)
{
	uint64_t page = plane->leaf + place / PAGE_ENTRIES * sizeof(plane->entries);

	if (page == plane->page)
		return 0;
	bool is_present = has_page(plane, page);
	int r = !is_present   ? 0
		: plane->runs ? read_runs(reader, plane, page)
			      : read_page(reader, plane, page);
	if (!is_present || r < 0)
		forget_page(plane);
	return r;
}

/* The word of the block at ${address}, in either plane; 0: there is none. */
static uint32_t find_in_array(struct hl_block_reader *reader, uint64_t address, uint32_t *ret_steps)
{
	uint64_t place = hl_block_place_in_leaf(address);

	for (size_t i = 0; i < HL_BLOCK_PLANES; i++) {
		struct plane *plane = &reader->planes[i];
		if (move_to_leaf(reader, plane, address >> HL_BLOCK_LEAF_BITS) < 0 ||
		    move_to_page(reader, plane, place) < 0)
			continue;
		uint32_t word = hl_block_word_of(plane->entries[place % PAGE_ENTRIES], address);
		*ret_steps = plane->steps[place % PAGE_ENTRIES];
		if (word)
			return word;
	}
	return 0;
}

bool hl_block_reader_find(struct hl_block_reader *reader, uint64_t address, uint64_t usable,
			  struct hl_block *ret_block)
{
	bool fits = reader->array && !(address & 15) && !(address >> HL_BLOCK_ADDRESS_BITS);
	uint32_t steps, word = fits ? find_in_array(reader, address, &steps) : 0;
	uint32_t slack = word & HL_BLOCK_SLACK_IN_HASH;

	if (!word || slack == HL_BLOCK_SLACK_IN_HASH)
		return find_in_hash(reader, address, ret_block);
	ret_block->node = word >> HL_BLOCK_NODE_SHIFT;
	ret_block->draw = 0;
	ret_block->requested = hl_block_word_is_object(word)
				       ? hl_block_object_requested(word, steps)
			       : usable > slack ? usable - slack
						: 0;
	return true;
}

/* ---- all blocks ---- */

struct listing {
	struct hl_block_reader *reader;
	hl_listed_block_visit *visit;
	void *context;
	size_t hashed;		     /* the next one of the hash */
	struct hl_listed_block last; /* address 0: none yet */
};

/* The one before is complete now. */
static int list(struct listing *listing, struct hl_listed_block block)
{
	struct hl_listed_block last = listing->last;

	listing->last = block;
	last.most_bytes = block.address - last.address;
	return last.address ? listing->visit(listing->context, &last) : 0;
}

static int list_hashed(struct listing *listing)
{
	const struct kept_block *kept = &listing->reader->blocks[listing->hashed++];

	return list(listing, (struct hl_listed_block){.address = kept->address,
						      .node = kept->block.node,
						      .has_size = true,
						      .is_ruled = kept->is_ruled,
						      .requested = kept->block.requested});
}

/* ${word} is of the granule at ${granule}. */
static int list_word(struct listing *listing, uint64_t granule, uint32_t word, uint32_t steps)
{
	const struct hl_block_reader *reader = listing->reader;
	uint32_t slack = word & HL_BLOCK_SLACK_IN_HASH;
	uint64_t address = granule + (word & HL_BLOCK_HALF ? 16 : 0);
	int r = 0;

	while (listing->hashed < reader->count &&
	       reader->blocks[listing->hashed].address < address && r == 0)
		r = list_hashed(listing);
	bool in_hash = listing->hashed < reader->count &&
		       reader->blocks[listing->hashed].address == address;
	if (r != 0 || slack == HL_BLOCK_SLACK_IN_HASH)
		return r == 0 && in_hash ? list_hashed(listing) : r;
	listing->hashed += in_hash;
	struct hl_listed_block block = {.address = address, .node = word >> HL_BLOCK_NODE_SHIFT};
	block.has_size = hl_block_word_is_object(word);
	if (block.has_size)
		block.requested = hl_block_object_requested(word, steps);
	else
		block.slack = slack;
	return list(listing, block);
}

/* The blocks of both planes in one granule, by address. Of two words for one address the second plane's is of a block whose free was
 * not seen. */
static int list_granule(struct listing *listing, uint64_t granule, size_t at)
{
	const struct plane *planes = listing->reader->planes;
	uint32_t words[HL_BLOCK_PLANES] = {planes[0].entries[at], planes[1].entries[at]};
	size_t lower = words[0] & HL_BLOCK_HALF ? 1 : 0;
	int r = 0;

	if (!(words[0] >> HL_BLOCK_NODE_SHIFT))
		words[0] = 0;
	if (!(words[1] >> HL_BLOCK_NODE_SHIFT) ||
	    (words[0] && !((words[0] ^ words[1]) & HL_BLOCK_HALF)))
		words[1] = 0;
	for (size_t i = 0; i < HL_BLOCK_PLANES && r == 0; i++)
		if (words[lower ^ i])
			r = list_word(listing, granule, words[lower ^ i],
				      planes[lower ^ i].steps[at]);
	return r;
}

static int list_leaf(struct listing *listing, uint64_t number)
{
	struct hl_block_reader *reader = listing->reader;
	struct plane *planes = reader->planes;
	uint64_t base = number << HL_BLOCK_LEAF_BITS;
	int r = 0;

	for (size_t i = 0; i < HL_BLOCK_PLANES && r == 0; i++)
		r = move_to_leaf(reader, &planes[i], number);
	for (uint64_t first = 0; first < HL_BLOCK_LEAF_ENTRIES && r == 0; first += PAGE_ENTRIES) {
		for (size_t i = 0; i < HL_BLOCK_PLANES && r == 0; i++)
			r = move_to_page(reader, &planes[i], first);
		if (!planes[0].page && !planes[1].page)
			continue;
		for (size_t k = 0; k < PAGE_ENTRIES && r == 0; k++)
			if (planes[0].entries[k] | planes[1].entries[k])
				r = list_granule(listing,
						 base + ((first + k) << HL_BLOCK_GRANULE_BITS), k);
	}
	return r;
}

static int list_array(struct listing *listing)
{
	struct hl_block_reader *reader = listing->reader;
	uint64_t *leaves = calloc(HL_BLOCK_LEAVES, sizeof(*leaves));

	if (!leaves)
		return -ENOMEM;
	/* Where the second plane has a leaf, the first one has. */
	int r = read_present(reader, reader->planes[0].leaves, leaves,
			     HL_BLOCK_LEAVES * sizeof(*leaves));
	for (size_t i = 0; i < HL_BLOCK_PLANES; i++)
		reader->planes[i].leaf_number = UINT64_MAX; /* it is read again */
	for (uint64_t i = 0; i < HL_BLOCK_LEAVES && r == 0; i++)
		if (leaves[i])
			r = list_leaf(listing, i);
	free(leaves);
	return r;
}

int hl_block_reader_each(struct hl_block_reader *reader, hl_listed_block_visit *visit,
			 void *context)
{
	struct listing listing = {.reader = reader, .visit = visit, .context = context};
	int r = reader->array ? list_array(&listing) : 0;

	while (listing.hashed < reader->count && r == 0)
		r = list_hashed(&listing);
	listing.last.most_bytes = UINT64_MAX;
	return r == 0 && listing.last.address ? visit(context, &listing.last) : r;
}

/* ---- the whole ---- */

int hl_block_reader_new(pid_t pid, const struct hl_maps *maps, uint64_t array, uint64_t hash,
			struct hl_block_reader **ret_reader)
{
	struct hl_block_reader *reader = calloc(1, sizeof(*reader));

	if (!reader)
		return -ENOMEM;
	reader->pid = pid;
	reader->array = array;
	for (size_t i = 0; i < HL_BLOCK_PLANES; i++) {
		reader->planes[i].leaves = array + offsetof(struct hl_block_array, leaves[i]);
		reader->planes[i].leaf_number = UINT64_MAX;
	}
	memset(reader->planes[1].steps, 1, sizeof(reader->planes[1].steps));
	reader->planes[1].runs = calloc(HL_BLOCK_LEAF_RUNS, sizeof(*reader->planes[1].runs));
	int r = reader->planes[1].runs ? hl_pagemap_open(pid, &reader->pagemap, NULL) : -ENOMEM;
	if (r == 0)
		r = hash ? read_hash(reader, maps, hash) : -EBADMSG;
	if (r < 0) {
		hl_block_reader_free(reader);
		return r;
	}
	*ret_reader = reader;
	return 0;
}

int hl_block_reader_open(pid_t pid, const struct hl_maps *maps,
			 const struct hl_region_header *header, struct hl_block_reader **ret_reader)
{
	struct hl_block_reader *reader;
	int r = hl_block_reader_new(pid, maps, header->block_array, header->block_hash, &reader);

	if (r == 0 && header->piece_arrays &&
	    (r = read_piece_arrays(reader, header->piece_arrays)) < 0)
		hl_block_reader_free(reader);
	if (r == 0)
		*ret_reader = reader;
	return r;
}

bool hl_block_reader_has_array(const struct hl_block_reader *reader)
{
	return reader->array;
}

void hl_block_reader_free(struct hl_block_reader *reader)
{
	if (!reader)
		return;
	hl_pagemap_free(reader->pagemap);
	hl_pages_release(&reader->pages);
	for (size_t i = 0; i < HL_BLOCK_PLANES; i++)
		hl_pages_release(&reader->planes[i].pages);
	free(reader->planes[1].runs);
	free(reader->blocks);
	free(reader);
}

/* ---- stamps ---- */

uint64_t hl_guest_table_address(const struct hl_open_region *region, uint32_t id)
{
	uint64_t table = region ? hl_open_region_header(region)->guest_table : 0;

	return (table & HL_GUEST_TABLE_ID_MASK) == id ? table & ~HL_GUEST_TABLE_ID_MASK : 0;
}

/* What is not there was never stamped. */
uint32_t hl_stamp_read(struct hl_stamp_reader *reader, uint64_t address)
{
	uint64_t number = (address >> HL_BLOCK_LEAF_BITS) + 1;
	uint64_t place = hl_block_place_in_leaf(address), page = place / HL_BLOCK_PAGE_ENTRIES + 1;
	uint32_t plane = hl_block_stamp_plane(address);
	struct hl_stamp_plane *it = &reader->planes[plane];

	if (address & 15 || address >> HL_BLOCK_ADDRESS_BITS)
		return 0;
	if (number != it->leaf_number) {
		it->leaf_number = number;
		it->page = 0;
		if (hl_owners_read_memory(reader->pid,
					  reader->array + offsetof(struct hl_block_array, leaves) +
						  (plane * HL_BLOCK_LEAVES + number - 1) *
							  sizeof(uint64_t),
					  &it->leaf, sizeof(it->leaf)) < 0)
			it->leaf = 0;
	}
	if (!it->leaf)
		return 0;
	if (page != it->page) {
		it->page = page;
		if (hl_owners_read_memory(reader->pid, it->leaf + (page - 1) * sizeof(it->stamps),
					  it->stamps, sizeof(it->stamps)) < 0)
			memset(it->stamps, 0, sizeof(it->stamps));
	}
	return it->stamps[place % HL_BLOCK_PAGE_ENTRIES];
}
