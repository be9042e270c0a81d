/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Block tables: live block -> (stack node, requested size). Two forms, chosen for each block by the
 * mode in which it is allocated:
 *
 *   array  4 bytes for each 16 bytes of heap: 24 bits of node id, 8 bits of slack. One load or
 *	    store an event; costs a quarter of the pages that hold blocks.
 *   hash   16 bytes a live block in sharded open-addressing tables; also takes what the array
 *	    cannot express: blocks not aligned to 16, slack of 255 bytes and more.
 *
 * Where there are both, a block is looked for in the array and then in the hash. So the mode may
 * change while blocks live.
 *
 * All functions: thread-safe; async-signal-safe where said; errno is kept.
 */
#pragma once

#include "base/compiler.h"
#include "region/attached.h"
#include "region/block_format.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- piece map ---- */

/*
 * Where pieces begin, so that those in a block that is freed are found: a bit for each 8 bytes, and above
 * that a bit for each page of bits. A free of a block that lies where no piece ever began reads one of
 * the latter.
 *
 *	piece	what a pool, or another allocator above malloc(), has cut from a larger block
 *
 * A bit may remain where a piece has ended. Pieces themselves are in the block table.
 * All functions: thread-safe; async-signal-safe; errno is kept.
 */

#define HL_PIECE_GRANULE_BITS 3
#define HL_PIECE_PAGE_BITS    18 /* 256 KiB, whose bits fill a page of 4096 bytes */
#define HL_PIECE_LEAF_BITS    30
#define HL_PIECE_LEAVES	      (UINT64_C(1) << (HL_BLOCK_ADDRESS_BITS - HL_PIECE_LEAF_BITS))
#define HL_PIECE_WORD_BITS    (HL_PIECE_GRANULE_BITS + 6) /* what a word of bits covers */

struct hl_piece_leaf {
	_Alignas(4096) _Atomic uint64_t
		pages[UINT64_C(1) << (HL_PIECE_LEAF_BITS - HL_PIECE_PAGE_BITS - 6)];
	_Alignas(4096) _Atomic uint64_t
		words[UINT64_C(1) << (HL_PIECE_LEAF_BITS - HL_PIECE_WORD_BITS)];
};

struct hl_piece_map {
	_Atomic(struct hl_piece_leaf *) leaves[HL_PIECE_LEAVES];
	/* All leaves lie in [~inverted_start, end); 0, 0: there are none. */
	_Atomic uintptr_t inverted_start, end;
	_Atomic uintptr_t user; /* the thread that cuts pieces, HL_PIECE_MAP_SHARED, or 0: nobody */
};

#define HL_PIECE_MAP_SHARED UINTPTR_MAX

/* NULL without memory. */
struct hl_piece_map *hl_piece_map_new(void);
/* For a map that nobody has seen. */
void hl_piece_map_free(struct hl_piece_map *map);

/* A piece begins at ${address}. False without memory. */
bool hl_piece_map_note(struct hl_piece_map *map, uintptr_t address);

/* ${user} cuts pieces, beside others or alone. */
void hl_piece_map_use(struct hl_piece_map *map, uintptr_t user);

/* The first granule that ends after *${at} and begins before ${end}, where pieces may begin: *${at} becomes its
 * start. False when there are no more. */
bool hl_piece_map_find(struct hl_piece_map *map, uintptr_t *at, uintptr_t end);

/* No piece begins in the granule at ${address}. */
void hl_piece_map_clear(struct hl_piece_map *map, uintptr_t address);

/* ---- block ---- */

struct hl_block_table {
	/* NULL: hash only, so far. A thread that frees a block in the array got it from one that
	 * saw the array, and so sees it, too. */
	_Atomic(struct hl_block_array *) array;
	_Atomic(struct hl_block_array *)
		dropped; /* what that was, while its memory is given back */
	struct hl_block_hash *hash;
	/* Of all pieces; and, from 1 on, of those of each pool that is reset. NULL: there have been none. */
	_Atomic(struct hl_piece_map *) pieces[1 + HL_RULE_POOLS_MAX];
};

/* Makes an empty table without an array. False without memory. */
bool hl_block_table_init(struct hl_block_table *table);

/* Gives the table its array, if it has none; the array, or NULL without memory. */
struct hl_block_array *hl_block_table_add_array(struct hl_block_table *table);

/* Empties the array, gives its memory back to the system, and uses it no more: its blocks are unknown from here on. An entry that
 * another thread writes meanwhile may be lost, too. Threads that call it at once share the work. */
void hl_block_table_drop_array(struct hl_block_table *table);

#define HL_BLOCK_UNKNOWN UINT64_MAX

/* A block in whose place another was allocated: its free was not seen. */
struct hl_block_stale {
	struct hl_block block; /* node 0: there was none. Its size may be HL_BLOCK_UNKNOWN */
	uint64_t slack;	       /* or HL_BLOCK_UNKNOWN */
};

#define HL_BLOCK_NOT_STALE                \
	{                                 \
		.slack = HL_BLOCK_UNKNOWN \
	}

/* Whether a block at ${address} with ${slack} can be in the array. */
static inline bool hl_block_fits_array(const void *address, uint64_t slack)
{
	return !((uintptr_t)address & 15 || (uintptr_t)address >> HL_BLOCK_ADDRESS_BITS) &&
	       slack <= HL_BLOCK_SLACK_MAX;
}

/* Remembers a block that has just been allocated, in the array if ${in_array}, there is one, the
 * block fits, and has no draw. False when there was no memory for it. ${stale} is HL_BLOCK_NOT_STALE, and becomes
 * what was there before. */
bool hl_block_set(struct hl_block_table *table, bool in_array, const void *address,
		  struct hl_block block, uint64_t usable, struct hl_block_stale *stale);

/*
 * Forgets the block at ${address}, which must still belong to the caller. False when it is not in
 * the table.
 * ${usable} is the allocator's usable size of the block.
 */
bool hl_block_take(struct hl_block_table *table, const void *address, uint64_t usable,
		   struct hl_block *ret_block);

/* As hl_block_take, for a signal handler that may have interrupted a table operation of its own
 * thread: gives up on a busy shard, and says so in ${ret_busy}, which is false otherwise. */
bool hl_block_try_take(struct hl_block_table *table, const void *address, uint64_t usable,
		       struct hl_block *ret_block, bool *ret_busy);

/*
 * The entry of the array for ${address}, where it has one by now: whatever does not is for the
 * functions above. The owner of the block may read and write it.
 */
static inline hl_block_entry *hl_block_entry_at(const struct hl_block_table *table,
						const void *address)
{
	/* Rotated, so that the bits that must be 0 are together. */
	uint64_t granule = (uintptr_t)address >> HL_BLOCK_GRANULE_BITS |
			   (uintptr_t)address << (64 - HL_BLOCK_GRANULE_BITS);

	struct hl_block_array *array = atomic_load_explicit(&table->array, memory_order_acquire);
	if (HL_UNLIKELY(!array || granule >> (HL_BLOCK_ADDRESS_BITS - HL_BLOCK_GRANULE_BITS)))
		return NULL;
	hl_block_entry *leaf = atomic_load_explicit(&array->leaves[granule / HL_BLOCK_LEAF_ENTRIES],
						    memory_order_acquire);
	return HL_LIKELY(leaf) ? &leaf[granule % HL_BLOCK_LEAF_ENTRIES] : NULL;
}

/* The same, made if need be; NULL where the address has none, or without memory. */
hl_block_entry *hl_block_entry_make(const struct hl_block_table *table, const void *address);

/*
 * Moves the block at ${address}, of which ${entry} is and which nobody frees meanwhile, into the hash, if it is in the array. Then
 * its entry, which is returned, differs from that of any block of this size that is allocated there later.
 */
uint32_t hl_block_mark(struct hl_block_table *table, const void *address, hl_block_entry *entry,
		       uint64_t usable);

/*
 * An object as in region/block_format.h. ${entry} is that of its address, where an object of ${requested} bytes may
 * be; see hl_block_holds_object().
 */
static inline uint64_t hl_block_object_usable(uint64_t requested)
{
	return (requested + 15) & ~UINT64_C(15);
}

/* Tools read the second entry with the first one: both are in one page of the array. An object of
 * no bytes would be taken as one of a granule. */
static inline bool hl_block_holds_object(const void *address, uint64_t requested)
{
	return requested - 1 < HL_BLOCK_OBJECT_BYTES_MAX &&
	       (~hl_block_place_in_leaf((uintptr_t)address) & (HL_BLOCK_PAGE_ENTRIES - 1));
}

/* A stale size would make an object of one granule a larger one. */
static inline void hl_block_object_set(hl_block_entry *entry, uint32_t node, uint64_t requested)
{
	uint64_t usable = hl_block_object_usable(requested);
	uint32_t granules = (uint32_t)(usable >> HL_BLOCK_GRANULE_BITS);

	atomic_store_explicit(entry,
			      hl_block_entry_of(node, HL_BLOCK_OBJECT + (usable - requested)),
			      memory_order_relaxed);
	if (HL_LIKELY(granules > 1)) {
		atomic_store_explicit(entry + 1, granules, memory_order_relaxed);
		return;
	}
	uint32_t next = atomic_load_explicit(entry + 1, memory_order_relaxed);
	/* Another thread's block may begin there meanwhile. */
	if (HL_UNLIKELY(hl_block_entry_is_size(next)))
		atomic_compare_exchange_strong(entry + 1, &next, 0);
}

/* Takes the object of which ${entry} is, and holds ${value}. */
static inline struct hl_block hl_block_object_take(hl_block_entry *entry, uint32_t value)
{
	uint32_t next = atomic_load_explicit(entry + 1, memory_order_relaxed);

	atomic_store_explicit(entry, 0, memory_order_relaxed);
	if (HL_LIKELY(hl_block_entry_is_size(next)))
		atomic_store_explicit(entry + 1, 0, memory_order_relaxed);
	return (struct hl_block){
		.node = value >> HL_BLOCK_SLACK_BITS,
		.requested = hl_block_object_bytes(next) - (value & HL_BLOCK_OBJECT_SLACK_MASK),
	};
}

/* Where no memory is mapped beside what is at ${address}: half of the address space away. */
static inline const void *hl_block_ruled_key(const void *address)
{
	return (const void *)((uintptr_t)address ^ UINT64_C(1) << (HL_BLOCK_ADDRESS_BITS - 1));
}

/* Notes that a piece begins at ${address}. Its block is in the hash, by the key above. ${pool}: the number of its pool, of which
 * ${user} cuts pieces; 0: of one that is never reset. False without memory. */
bool hl_block_note_piece(struct hl_block_table *table, const void *address, uint32_t pool,
			 uintptr_t user);

/* Takes the first piece that begins in [*${at}, ${end}); *${at} becomes where to go on. False when there are no more. */
bool hl_block_take_piece(struct hl_block_table *table, uintptr_t *at, uintptr_t end,
			 uintptr_t *ret_address, struct hl_block *ret_block);

/* Takes a piece of ${pool}, not 0, which is being reset by its ${user}; *${at}, 0 at first, becomes where to go on. False when
 * there are no more, or others cut pieces of pools of this kind, so that whose they are is not known. */
bool hl_block_take_piece_of_pool(struct hl_block_table *table, uint32_t pool, uintptr_t user,
				 uintptr_t *at, uintptr_t *ret_address, struct hl_block *ret_block);

/* The node of the block at ${address}, by whichever key it is known; 0: it is not. A look that nobody waits for. */
uint32_t hl_block_node(const struct hl_block_table *table, const void *address);

/* The two forms, for hl_block_* and for tests. */
struct hl_block_array *hl_block_array_new(void);
bool hl_block_array_set(struct hl_block_array *array, uintptr_t address, uint32_t entry);
uint32_t hl_block_array_take(struct hl_block_array *array, uintptr_t address); /* 0 = none */
uint32_t hl_block_array_get(const struct hl_block_array *array, uintptr_t address);

struct hl_block_hash *hl_block_hash_new(void);
/* ${ret_before}: NULL, or what was there before; untouched when nothing was. */
bool hl_block_hash_set(struct hl_block_hash *hash, uintptr_t address, struct hl_block block,
		       struct hl_block *ret_before);
/* ${ret_busy}: NULL = wait for a locked shard; else give up on it and set this. */
bool hl_block_hash_take(struct hl_block_hash *hash, uintptr_t address, struct hl_block *ret_block,
			bool *ret_busy);

/* Takes a block that begins in [${start}, ${end}), which lie in the same 8 bytes that are aligned. */
bool hl_block_hash_take_in(struct hl_block_hash *hash, uintptr_t start, uintptr_t end,
			   uintptr_t *ret_address, struct hl_block *ret_block);

/* The node of the block at ${address}; 0: there is none, or its shard is busy. */
uint32_t hl_block_hash_node(struct hl_block_hash *hash, uintptr_t address);

static inline uint64_t hl_block_hash_address(uintptr_t address)
{
	uint64_t hash = (address >> 3) * UINT64_C(0x9e3779b97f4a7c15);

	return hash ^ (hash >> 32);
}

static inline _Atomic uint8_t *hl_block_filter_of(const struct hl_block_hash *hash, uint64_t h)
{
	return (_Atomic uint8_t *)&hash->filter[(h >> 24) & ((1u << HL_BLOCK_FILTER_BITS) - 1)];
}

static inline bool hl_block_hash_may_hold(const struct hl_block_hash *hash, uintptr_t address)
{
	return atomic_load_explicit(hl_block_filter_of(hash, hl_block_hash_address(address)),
				    memory_order_relaxed) != 0;
}

/* True when the array certainly, or the hash possibly, holds the block. One or two loads. */
static inline bool hl_block_may_hold(const struct hl_block_table *table, const void *address)
{
	hl_block_entry *entry = hl_block_entry_at(table, address);

	return (entry && atomic_load_explicit(entry, memory_order_relaxed)) ||
	       hl_block_hash_may_hold(table->hash, (uintptr_t)address);
}
