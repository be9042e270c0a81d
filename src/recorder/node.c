/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Interns stack nodes; see node.h and the description of the node index in region.h.
 *
 * Growth: when the newest table is half full, one thread backs the next one with memory and raises
 * index_bits. Nothing is moved at that moment: each new node takes some of the table before along
 * into the newest. Until all are there, a key that is not in the newest table is looked up in the
 * older ones, newest first, and entered into the newest when found.
 */
#include "recorder/node.h"

#include "recorder/self.h"

#define TAG_SHIFT HL_NODE_BITS

/* Of the slots of the table before the newest: all are moved when the newest has got a quarter of
 * the nodes that it is made for. */
#define MOVED_AT_ONCE 8u

struct key {
	uint64_t frame;
	uint32_t parent;
	uint32_t hash;
};

/* Of a path, from the hash of the path without its innermost frame. */
static inline uint32_t hash_path(uint32_t outer, uint64_t frame)
{
	uint64_t hash = (frame ^ ((uint64_t)outer << 40) ^ outer) * UINT64_C(0x9e3779b97f4a7c15);

	hash ^= hash >> 29;
	hash *= UINT64_C(0xbf58476d1ce4e5b9);
	return (uint32_t)(hash >> 32);
}

static uint64_t table_start(uint32_t bits)
{
	return (UINT64_C(1) << bits) - (UINT64_C(1) << HL_INDEX_BITS_MIN);
}

/* The tag is taken from the hash bits that choose a place only in the largest tables. */
static uint32_t slot_of(const struct key *key, uint32_t id)
{
	return (key->hash & UINT32_C(0xff000000)) | id;
}

static bool commit_table(struct hl_region_map *region, uint32_t bits)
{
	if (!hl_region_map_commit(region, HL_AREA_INDEX, table_start(bits + 1) * sizeof(uint32_t)))
		return false;
	uint32_t seen = atomic_load_explicit(&region->index_bits, memory_order_relaxed);
	while (seen < bits && !atomic_compare_exchange_weak(&region->index_bits, &seen, bits))
		;
	return true;
}

bool hl_node_init(struct hl_region_map *region)
{
	atomic_store(&region->index_bits, 0);
	if (!commit_table(region, HL_INDEX_BITS_MIN) ||
	    !hl_region_map_commit(region, HL_AREA_NODES, sizeof(struct hl_region_node)))
		return false;
	for (uint32_t bits = 0; bits <= HL_INDEX_BITS_MAX; bits++)
		atomic_store(&region->moved[bits], 0);
	atomic_store(&region->header->index_bits, HL_INDEX_BITS_MIN);
	return true;
}

/* The program can write over the index. */
static bool has_node(const struct hl_region_map *region, uint32_t id)
{
	return hl_region_map_has(region, HL_AREA_NODES,
				 (id + UINT64_C(1)) * sizeof(struct hl_region_node));
}

static bool is_node(const struct hl_region_map *region, uint32_t id, const struct key *key)
{
	const struct hl_region_node *node = &region->nodes[id];

	return has_node(region, id) &&
	       atomic_load_explicit(&node->frame, memory_order_relaxed) == key->frame &&
	       node->parent == key->parent;
}

/*
 * Walks the key's probe sequence from *${place} in the table of 2^bits slots. Returns the node's
 * id, or 0 with *${place} at the empty slot that ended the search; HL_NODE_NONE when there is no
 * empty slot, as the program has written over the table. Acquire pairs with the release in enter():
 * a slot seen is a node written.
 */
static uint32_t probe(const struct hl_region_map *region, uint32_t bits, const struct key *key,
		      uint32_t *place)
{
	_Atomic uint32_t *table = region->index + table_start(bits);
	uint32_t mask = (UINT32_C(1) << bits) - 1;

	for (uint32_t at = *place, left = mask;; at = (at + 1) & mask) {
		uint32_t slot = atomic_load_explicit(&table[at], memory_order_acquire);
		if (!slot) {
			*place = at;
			return 0;
		}
		if (((slot ^ key->hash) >> TAG_SHIFT) == 0 &&
		    is_node(region, slot & HL_NODE_MAX, key))
			return slot & HL_NODE_MAX;
		if (HL_UNLIKELY(!left--))
			return HL_NODE_NONE;
	}
}

/* Enters ${id} for the key at *${place} or after it; returns the id that stands there in the end.
 */
static uint32_t enter(struct hl_region_map *region, uint32_t bits, const struct key *key,
		      uint32_t place, uint32_t id)
{
	_Atomic uint32_t *table = region->index + table_start(bits);

	for (;;) {
		uint32_t empty = 0;
		if (atomic_compare_exchange_strong_explicit(&table[place], &empty, slot_of(key, id),
							    memory_order_release,
							    memory_order_acquire))
			return id;
		uint32_t other = probe(region, bits, key, &place);
		if (other)
			return other;
	}
}

/*
 * Whether the table has, or is about to have, all nodes that older ones have. Relaxed: who sees it
 * before the last node has come makes that node once more, as in all races of growth.
 */
static bool has_all(const struct hl_region_map *region, uint32_t bits)
{
	return bits == HL_INDEX_BITS_MIN ||
	       atomic_load_explicit(&region->moved[bits], memory_order_relaxed) >> (bits - 1);
}

static uint32_t find_in_older_tables(struct hl_region_map *region, uint32_t newest,
				     const struct key *key)
{
	for (uint32_t bits = newest; !has_all(region, bits);) {
		uint32_t place = key->hash & ((UINT32_C(1) << --bits) - 1);
		uint32_t id = probe(region, bits, key, &place);
		if (id)
			return id;
	}
	return 0;
}

/* Enters some of the nodes of the table before into this one. Acquire as in probe(). */
static void move_some(struct hl_region_map *region, uint32_t bits)
{
	if (HL_LIKELY(has_all(region, bits)))
		return;
	uint32_t at = atomic_fetch_add_explicit(&region->moved[bits], MOVED_AT_ONCE,
						memory_order_relaxed);
	const _Atomic uint32_t *older = region->index + table_start(bits - 1) + at;
	uint32_t ids[MOVED_AT_ONCE], count = 0;
	for (uint32_t i = 0; i < MOVED_AT_ONCE && !(at >> (bits - 1)); i++) {
		uint32_t id = atomic_load_explicit(&older[i], memory_order_acquire) & HL_NODE_MAX;
		if (!id || !has_node(region, id))
			continue;
		__builtin_prefetch(&region->nodes[id]);
		ids[count++] = id;
	}
	for (uint32_t i = 0; i < count; i++) {
		const struct hl_region_node *node = &region->nodes[ids[i]];
		struct key key = {atomic_load_explicit(&node->frame, memory_order_relaxed),
				  node->parent, node->path_hash};
		uint32_t place = key.hash & ((UINT32_C(1) << bits) - 1);
		if (!probe(region, bits, &key, &place))
			enter(region, bits, &key, place, ids[i]);
	}
}

/* An unused id whose node has memory, or 0. */
static uint32_t take_id(struct hl_region_map *region, struct hl_node_cache *cache)
{
	uint32_t id = cache->spare;

	cache->spare = 0;
	if (id)
		return id;
	struct hl_region_header *header = region->header;
	uint64_t size = sizeof(struct hl_region_node);
	uint32_t count = atomic_load_explicit(&header->node_count, memory_order_relaxed);
	do {
		uint64_t end = (count + UINT64_C(2)) * size;
		if (count >= HL_NODE_MAX || (!hl_region_map_has(region, HL_AREA_NODES, end) &&
					     !hl_region_map_commit(region, HL_AREA_NODES, end)))
			return 0;
	} while (!atomic_compare_exchange_weak_explicit(&header->node_count, &count, count + 1,
							memory_order_relaxed,
							memory_order_relaxed));
	return count + 1;
}

/* True when the newest table may take one more entry; a table is never filled above seven eighths.
 */
static bool make_room(struct hl_region_map *region, uint32_t bits)
{
	struct hl_region_header *header = region->header;
	uint32_t count = atomic_load_explicit(&header->node_count, memory_order_relaxed);

	uint32_t slots = UINT32_C(1) << bits;
	if (HL_LIKELY(count < slots / 2))
		return true;
	if (bits < HL_INDEX_BITS_MAX && commit_table(region, bits + 1))
		atomic_compare_exchange_strong(&header->index_bits, &bits, bits + 1);
	return count < slots / 8 * 7;
}

static uint32_t make_node(struct hl_region_map *region, struct hl_node_cache *cache, uint32_t bits,
			  const struct key *key, uint32_t place)
{
	if (!make_room(region, bits))
		return HL_NODE_NONE;
	uint32_t id = take_id(region, cache);
	if (!id)
		return HL_NODE_NONE;
	region->nodes[id].parent = key->parent;
	region->nodes[id].path_hash = key->hash;
	atomic_store_explicit(&region->nodes[id].frame, key->frame, memory_order_release);
	uint32_t entered = enter(region, bits, key, place, id);
	if (entered != id) {
		atomic_store_explicit(&region->nodes[id].frame, 0, memory_order_release);
		cache->spare = id;
	}
	move_some(region, bits);
	return entered;
}

/* Of the newest table that may be touched; the program can write over the number. */
static uint32_t newest_bits(struct hl_region_map *region)
{
	uint32_t bits = atomic_load_explicit(&region->header->index_bits, memory_order_acquire);
	uint32_t last = atomic_load_explicit(&region->index_bits, memory_order_relaxed);

	if (HL_LIKELY(bits - HL_INDEX_BITS_MIN <= last - HL_INDEX_BITS_MIN))
		return bits;
	if (bits - HL_INDEX_BITS_MIN > HL_INDEX_BITS_MAX - HL_INDEX_BITS_MIN)
		return HL_INDEX_BITS_MIN;
	return commit_table(region, bits) ? bits : last;
}

static uint32_t intern_in(struct hl_region_map *region, struct hl_node_cache *cache, uint32_t bits,
			  const struct key *key)
{
	uint32_t place = key->hash & ((UINT32_C(1) << bits) - 1);

	uint32_t id = probe(region, bits, key, &place);
	if (HL_LIKELY(id))
		return id;
	id = find_in_older_tables(region, bits, key);
	return id ? enter(region, bits, key, place, id)
		  : make_node(region, cache, bits, key, place);
}

static struct hl_node_cache_slot *cache_slot(struct hl_node_cache *cache, uint32_t hash)
{
	return &cache->slots[hash % HL_NODE_CACHE_SLOTS];
}

static uint32_t intern_key(struct hl_region_map *region, struct hl_node_cache *cache,
			   const struct key *key)
{
	struct hl_node_cache_slot *slot = cache_slot(cache, key->hash);
	uint32_t id;

	if (slot->frame == key->frame && slot->parent == key->parent)
		return slot->node;
	uint32_t bits = newest_bits(region);
	/* What was the newest table when this thread was interrupted may be full by now, and
	 * another the newest. */
	while (HL_UNLIKELY((id = intern_in(region, cache, bits, key)) == HL_NODE_NONE)) {
		uint32_t tried = bits;
		bits = newest_bits(region);
		if (bits == tried)
			return HL_NODE_NONE;
	}
	*slot = (struct hl_node_cache_slot){key->frame, key->parent, id};
	return id;
}

uint32_t hl_node_intern(struct hl_region_map *region, struct hl_node_cache *cache, uint32_t parent,
			uint64_t frame)
{
	if (HL_UNLIKELY(!has_node(region, parent)))
		return HL_NODE_NONE;
	struct key key = {frame, parent, hash_path(region->nodes[parent].path_hash, frame)};
	return intern_key(region, cache, &key);
}

/* ---- paths ---- */

/* Frames that are looked for together: their memory is asked for before the first is needed. */
#define TOGETHER 16u

_Atomic uint64_t hl_node_generated_key;

/* Has the places in the index come of those frames that the cache hardly knows. */
static void prefetch(struct hl_region_map *region, struct hl_node_cache *cache,
		     const struct hl_walk_frame *frames, const uint32_t *hashes, uint32_t count)
{
	uint32_t bits = newest_bits(region), mask = (UINT32_C(1) << bits) - 1;
	const _Atomic uint32_t *table = region->index + table_start(bits);

	for (uint32_t i = 0; i < count; i++)
		if (cache_slot(cache, hashes[i])->frame != hl_node_key(&frames[i]))
			__builtin_prefetch((const void *)&table[hashes[i] & mask]);
	/* The node that the first place of each names is nearly always the one. */
	for (uint32_t i = 0; i < count; i++) {
		if (cache_slot(cache, hashes[i])->frame == hl_node_key(&frames[i]))
			continue;
		uint32_t slot =
			atomic_load_explicit(&table[hashes[i] & mask], memory_order_relaxed);
		__builtin_prefetch(&region->nodes[slot & HL_NODE_MAX]);
	}
}

/* hl_node_intern_path() for up to TOGETHER frames; *${hash} is that of the path to ${parent}, and
 * then to the last of them. */
static uint32_t intern_together(struct hl_region_map *region, struct hl_node_cache *cache,
				uint32_t parent, uint32_t *hash, struct hl_walk_frame *frames,
				uint32_t count)
{
	uint32_t hashes[TOGETHER];
	bool asked = false;

	for (uint32_t i = 0; i < count; i++) {
		if (!hl_self_is_own_code(hl_node_key(&frames[i])))
			*hash = hash_path(*hash, hl_node_key(&frames[i]));
		hashes[i] = *hash;
		__builtin_prefetch(cache_slot(cache, *hash));
	}
	for (uint32_t i = 0; i < count; i++) {
		const struct hl_node_cache_slot *slot = cache_slot(cache, hashes[i]);
		if (hl_self_is_own_code(hl_node_key(&frames[i]))) {
			/* its node is the parent's */
		} else if (slot->frame == hl_node_key(&frames[i]) && slot->parent == parent) {
			parent = slot->node;
		} else {
			struct key key = {hl_node_key(&frames[i]), parent, hashes[i]};
			if (!asked)
				prefetch(region, cache, frames + i, hashes + i, count - i);
			asked = true;
			parent = intern_key(region, cache, &key);
			if (HL_UNLIKELY(parent == HL_NODE_NONE))
				return i;
		}
		frames[i].node = parent;
	}
	return count;
}

uint32_t hl_node_intern_path(struct hl_region_map *region, struct hl_node_cache *cache,
			     uint32_t parent, struct hl_walk_frame *frames, uint32_t count)
{
	uint32_t done = 0;

	if (HL_UNLIKELY(!has_node(region, parent)))
		return 0;
	uint32_t hash = region->nodes[parent].path_hash;
	while (done < count) {
		uint32_t part = count - done < TOGETHER ? count - done : TOGETHER;
		uint32_t got = intern_together(region, cache, parent, &hash, frames + done, part);
		done += got;
		if (HL_UNLIKELY(got < part))
			break;
		parent = frames[done - 1].node;
	}
	return done;
}
