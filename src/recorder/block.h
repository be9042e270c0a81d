/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Block tables: live block -> (stack node, requested size). Two forms, chosen for each block by the
 * mode in which it is allocated:
 *
 *   array  4 bytes for each 32 bytes of heap: node id, which half of these the block begins in, and slack. One
 *	    load or store an event; costs an eighth of the pages that hold blocks.
 *   hash   16 bytes a live block in sharded open-addressing tables; also takes what the array
 *	    cannot express: blocks not aligned to 16, slack above HL_BLOCK_SLACK_MAX.
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
	struct hl_piece_bounds bounds;
};

#define HL_PIECES_SHARED UINTPTR_MAX

/* ${user} cuts pieces, beside others or alone. */
void hl_piece_bounds_use(struct hl_piece_bounds *bounds, uintptr_t user);

/* Pieces lie in the 2^${bits} bytes in which ${address} does. */
void hl_piece_bounds_add(struct hl_piece_bounds *bounds, uintptr_t address, uint32_t bits);

/* NULL without memory. */
struct hl_piece_map *hl_piece_map_new(void);
/* For a map that nobody has seen. */
void hl_piece_map_free(struct hl_piece_map *map);

/* A piece begins at ${address}. False without memory. */
bool hl_piece_map_note(struct hl_piece_map *map, uintptr_t address);

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
	/* Pieces of pools that are reset, but for those that only the hash can take. NULL: there have been none. */
	_Atomic(struct hl_piece_array *) piece_arrays[1 + HL_RULE_POOLS_MAX], newest_piece_array;
	/* A piece may lie where one begins that is known elsewhere: in the hash, or by another pool's array. */
	_Atomic bool has_piece_stores;
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

/* The array, if the block at ${address} can be in it, or NULL. */
static inline struct hl_block_array *hl_block_array_for(const struct hl_block_table *table,
							uintptr_t address)
{
	/* Rotated, so that the bits that must be 0 are together. */
	uint64_t at = address >> 4 | address << (64 - 4);
	struct hl_block_array *array = atomic_load_explicit(&table->array, memory_order_acquire);

	return HL_UNLIKELY(at >> (HL_BLOCK_ADDRESS_BITS - 4)) ? NULL : array;
}

/* The entry of the array's ${plane}, one that has an entry for each granule, for ${address}, which can have one; NULL: it has none so
 * far. */
static inline hl_block_entry *hl_block_array_at(const struct hl_block_array *array, uint32_t plane,
						uintptr_t address)
{
	hl_block_entry *leaf = atomic_load_explicit(
		&array->leaves[plane][address >> HL_BLOCK_LEAF_BITS], memory_order_acquire);

	return HL_LIKELY(leaf) ? &leaf[hl_block_place_in_leaf(address)] : NULL;
}

/* The entry in ${run}, a number, of a leaf of the second plane. */
static inline hl_block_entry *hl_block_entry_in_run(hl_block_entry *leaf, uint32_t run,
						    uintptr_t address)
{
	return &leaf[(run - 1) * HL_BLOCK_RUN_ENTRIES +
		     hl_block_place_in_leaf(address) % HL_BLOCK_RUN_ENTRIES];
}

/* The second plane's entry for ${address}; NULL: it has none so far. */
static inline hl_block_entry *hl_block_second_at(const struct hl_block_array *array,
						 uintptr_t address)
{
	hl_block_entry *leaf = atomic_load_explicit(
		&array->leaves[1][address >> HL_BLOCK_LEAF_BITS], memory_order_acquire);

	if (HL_LIKELY(!leaf))
		return NULL;
	uint32_t run = atomic_load_explicit(
		&((struct hl_block_leaf *)(void *)leaf)->runs[hl_block_run_place(address)],
		memory_order_relaxed);
	return run ? hl_block_entry_in_run(leaf, run, address) : NULL;
}

/*
 * The entry that has the word of the block at ${address}, which without its half is *${ret_word}; or NULL. Where the first
 * plane's is 0, the other half's block may have gone since this one went into the second.
 */
static inline hl_block_entry *hl_block_array_find(const struct hl_block_array *array,
						  uintptr_t address, uint32_t *ret_word)
{
	hl_block_entry *entry = hl_block_array_at(array, 0, address);

	if (HL_UNLIKELY(!entry))
		return NULL; /* nor has the second plane any */
	*ret_word = hl_block_word_of(atomic_load_explicit(entry, memory_order_relaxed), address);
	if (HL_LIKELY(*ret_word))
		return entry;
	entry = hl_block_second_at(array, address);
	if (HL_LIKELY(!entry))
		return NULL;
	*ret_word = hl_block_word_of(atomic_load_explicit(entry, memory_order_relaxed), address);
	return *ret_word ? entry : NULL;
}

/*
 * The entry of the first plane for ${address}, where it has one by now: whatever does not is for the
 * functions above. It may hold another block's word, and nobody but that one's owner may change it then.
 */
static inline hl_block_entry *hl_block_entry_at(const struct hl_block_table *table,
						const void *address)
{
	const struct hl_block_array *array = hl_block_array_for(table, (uintptr_t)address);

	return HL_LIKELY(array) ? hl_block_array_at(array, 0, (uintptr_t)address) : NULL;
}

/* The same for a chunk of glibc's, which is aligned to 16. */
static inline hl_block_entry *hl_block_entry_of_chunk(const struct hl_block_table *table,
						      const void *address)
{
	const struct hl_block_array *array =
		atomic_load_explicit(&table->array, memory_order_acquire);
	bool fits = (uintptr_t)address >> HL_BLOCK_LEAF_BITS < HL_BLOCK_LEAVES;

	return HL_LIKELY(array && fits) ? hl_block_array_at(array, 0, (uintptr_t)address) : NULL;
}

/* The same, made if need be; NULL where the address has none, or without memory. */
hl_block_entry *hl_block_entry_make(const struct hl_block_table *table, const void *address);

/* The entry in either plane that has the word of the block at ${address}; NULL: none has. */
hl_block_entry *hl_block_entry_find(const struct hl_block_table *table, const void *address);

/* What hl_block_set() does for a block that fits into the array, has no draw, and is not there, of an allocator that may begin another
 * one in its granule. Where the array has been dropped meanwhile, it is lost with the others. False without memory. */
bool hl_block_set_shared(struct hl_block_table *table, const void *address, uint32_t node,
			 uint64_t slack);

/*
 * Moves the block at ${address}, of which ${entry} is and which nobody frees meanwhile, into the hash, if it is in the array. Then
 * its entry, which is returned, differs from that of any block of this size that is allocated there later.
 */
uint32_t hl_block_mark(struct hl_block_table *table, const void *address, hl_block_entry *entry,
		       uint64_t usable);

/* ---- objects, as in region/block_format.h ---- */

static inline uint64_t hl_block_object_usable(uint64_t requested)
{
	return (requested + 15) & ~UINT64_C(15);
}

/* Whether an object of ${requested} bytes, for which there is an entry, may be in the array. */
static inline bool hl_block_holds_object(uint64_t requested)
{
	return requested - 1 < HL_BLOCK_OBJECT_BYTES_MAX;
}

/* The steps of an object of which ${entry} is, that of the first plane for ${address}. */
static inline _Atomic uint8_t *hl_block_steps_of(hl_block_entry *entry, const void *address)
{
	uint64_t place = hl_block_place_in_leaf((uintptr_t)address);
	struct hl_block_leaf *leaf = (struct hl_block_leaf *)(void *)(entry - place);

	return &leaf->steps[place];
}

/* The same in the second plane for an object of one step. Where the array has been dropped meanwhile, it is lost with the others.
 * False without memory. */
bool hl_block_object_set_beside(struct hl_block_table *table, const void *address, uint32_t word);

/*
 * Remembers the object at ${address}, of which ${entry} is that of the first plane; false without memory. Objects of more than a
 * step are alone in their granule: the allocators that they are of cut those of one size from a run of pages, or begin them 32
 * bytes apart. Others may have a neighbour that another thread writes. Release: who reads the word from outside
 * reads the steps that it has, and not those of the object that comes next.
 */
static inline bool hl_block_object_set(struct hl_block_table *table, hl_block_entry *entry,
				       const void *address, uint32_t node, uint64_t requested)
{
	uint64_t usable = hl_block_object_usable(requested);
	uint32_t word =
		hl_block_word((uintptr_t)address, node, HL_BLOCK_OBJECT + (usable - requested));
	uint32_t before = 0;

	if (HL_LIKELY(usable > 1u << HL_BLOCK_STEP_BITS)) {
		atomic_store_explicit(hl_block_steps_of(entry, address),
				      (uint8_t)(usable >> HL_BLOCK_STEP_BITS),
				      memory_order_release);
		atomic_store_explicit(entry, word, memory_order_release);
		return true;
	}
	before = atomic_load_explicit(entry, memory_order_relaxed);
	if (before && (before ^ word) & HL_BLOCK_HALF)
		return hl_block_object_set_beside(table, address, word);
	atomic_store_explicit(hl_block_steps_of(entry, address), 1, memory_order_release);
	if (HL_LIKELY(atomic_compare_exchange_strong(entry, &before, word)))
		return true;
	return hl_block_object_set_beside(table, address, word);
}

/* Takes the object of which ${entry} is, and holds ${word}; its steps have been read before. */
static inline struct hl_block hl_block_object_take(hl_block_entry *entry, uint32_t word,
						   uint32_t steps)
{
	atomic_store_explicit(entry, 0, memory_order_release);
	return (struct hl_block){
		.node = word >> HL_BLOCK_NODE_SHIFT,
		.requested = hl_block_object_requested(word, steps),
	};
}

/* Takes the object at ${address}, in either plane. False where none is. */
bool hl_block_take_object(struct hl_block_table *table, const void *address,
			  struct hl_block *ret_block);

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
/* The same of those that are in the pool's array. */
bool hl_block_take_piece_of_array(struct hl_block_table *table, uint32_t pool, uintptr_t user,
				  uintptr_t *at, uintptr_t *ret_address,
				  struct hl_block *ret_block);

/* ---- arrays of pieces: piece_array.c ---- */

static inline struct hl_piece_array *hl_piece_array_of(const struct hl_block_table *table,
						       uint32_t pool)
{
	return atomic_load_explicit(&table->piece_arrays[pool], memory_order_acquire);
}

/* All of them; NULL: there are none. */
static inline struct hl_piece_array *hl_piece_arrays(const struct hl_block_table *table)
{
	return atomic_load_explicit(&table->newest_piece_array, memory_order_acquire);
}

/* The word for a piece at ${address}; NULL: it can have none, or has none so far. */
static inline hl_block_entry *hl_piece_array_at(const struct hl_piece_array *array,
						uintptr_t address)
{
	uint64_t place = address >> HL_PIECE_ARRAY_GRANULE_BITS |
			 address << (64 - HL_PIECE_ARRAY_GRANULE_BITS);

	if (HL_UNLIKELY(!array || place >> (HL_BLOCK_ADDRESS_BITS - HL_PIECE_ARRAY_GRANULE_BITS)))
		return NULL;
	struct hl_piece_array_leaf *leaf = atomic_load_explicit(
		&array->leaves[address >> HL_PIECE_ARRAY_LEAF_BITS], memory_order_acquire);
	return HL_LIKELY(leaf) ? &leaf->words[place % HL_PIECE_ARRAY_WORDS] : NULL;
}

/*
 * The word for a new piece of ${pool}, which ${user} cuts, where nothing else is to be done for it: it lies in a page in which pieces
 * have begun, and none begins where it is. NULL: ask hl_piece_array_make().
 */
static inline hl_block_entry *hl_piece_array_room(const struct hl_block_table *table, uint32_t pool,
						  uintptr_t address, uint64_t bytes, uintptr_t user)
{
	const struct hl_piece_array *array = hl_piece_array_of(table, pool);
	const uint64_t rest = (UINT64_C(1) << HL_PIECE_ARRAY_PAGE_BITS) -
			      (address & ((1u << HL_PIECE_ARRAY_PAGE_BITS) - 1));
	hl_block_entry *words = hl_piece_array_at(array, address);
	uint64_t any;

	if (HL_UNLIKELY(!words || bytes > rest ||
			atomic_load_explicit(&array->bounds.user, memory_order_relaxed) != user ||
			atomic_load_explicit(&table->has_piece_stores, memory_order_relaxed)))
		return NULL;
	const struct hl_piece_array_leaf *leaf = atomic_load_explicit(
		&array->leaves[address >> HL_PIECE_ARRAY_LEAF_BITS], memory_order_relaxed);
	any = !atomic_load_explicit(
		&leaf->begun[(address >> HL_PIECE_ARRAY_PAGE_BITS) % HL_PIECE_ARRAY_PAGES],
		memory_order_relaxed);
	/* Two words at a time, whose order does not matter. */
	const char *word = (const char *)words,
		   *last = word + (bytes ? (bytes - 1) / 8 : 0) * sizeof(*words);
	for (uint64_t two; word < last; word += sizeof(two), any |= two)
		__builtin_memcpy(&two, word, sizeof(two));
	any |= atomic_load_explicit((const hl_block_entry *)(const void *)last,
				    memory_order_relaxed);
	return HL_LIKELY(!any) ? words : NULL;
}

/* The same of any piece, once those that lay there have ended; NULL: it cannot be in the array, or there is no memory. */
hl_block_entry *hl_piece_array_make(struct hl_block_table *table, uint32_t pool, uintptr_t address,
				    uint64_t bytes, uintptr_t user);

/* Release: who reads the word from outside reads the size that it has. */
static inline void hl_piece_array_set(hl_block_entry *words, uint32_t node, uint64_t bytes)
{
	uint32_t tag = (uint32_t)bytes + 1;

	if (HL_UNLIKELY(bytes >= HL_PIECE_HUGE - 1)) {
		tag = bytes >> HL_PIECE_BYTES_BITS ? HL_PIECE_HUGE : HL_PIECE_LARGE;
		atomic_store_explicit(&words[1], hl_piece_size_word(bytes, 0),
				      memory_order_relaxed);
		if (tag == HL_PIECE_HUGE)
			atomic_store_explicit(&words[2], hl_piece_size_word(bytes, 1),
					      memory_order_relaxed);
	}
	atomic_store_explicit(words, node << HL_BLOCK_NODE_SHIFT | tag, memory_order_release);
}

/* Takes the piece that begins with ${words}, the first of which is ${word}. */
static inline struct hl_block hl_piece_array_take(hl_block_entry *words, uint32_t word)
{
	struct hl_block block = {.node = word >> HL_BLOCK_NODE_SHIFT,
				 .requested = hl_piece_bytes(words, word)};

	atomic_store_explicit(words, 0, memory_order_relaxed);
	if (HL_UNLIKELY((word & HL_PIECE_TAG) >= HL_PIECE_HUGE)) {
		atomic_store_explicit(&words[1], 0, memory_order_relaxed);
		if ((word & HL_PIECE_TAG) == HL_PIECE_HUGE)
			atomic_store_explicit(&words[2], 0, memory_order_relaxed);
	}
	return block;
}

/* Takes the piece at ${address} out of any of the arrays. False where none has one. */
bool hl_piece_array_take_at(const struct hl_block_table *table, uintptr_t address,
			    struct hl_block *ret_block);

/* Its node; 0: none has one. */
uint32_t hl_piece_array_node(const struct hl_block_table *table, uintptr_t address);

/*
 * Takes the first piece that has one of its words in [*${at}, ${end}); *${at} becomes where to go on. False when there are no more.
 * ${resets}: all of the array is gone through, and no page of it has a piece then.
 */
bool hl_piece_array_next(struct hl_piece_array *array, bool resets, uintptr_t *at, uintptr_t end,
			 uintptr_t *ret_address, struct hl_block *ret_block);

/* The node of the block at ${address}, by whichever key it is known; 0: it is not. A look that nobody waits for. */
uint32_t hl_block_node(const struct hl_block_table *table, const void *address);

/* The two forms, for hl_block_* and for tests. ${word}: without the half, which the address adds. */
struct hl_block_array *hl_block_array_new(void);
bool hl_block_array_set(struct hl_block_array *array, uintptr_t address, uint32_t word);
uint32_t hl_block_array_take(struct hl_block_array *array, uintptr_t address); /* 0 = none */
/* Like hl_block_array_at(), made if need be; NULL without memory. */
hl_block_entry *hl_block_array_make(struct hl_block_array *array, uint32_t plane,
				    uintptr_t address);

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

/* True when the array certainly, or the hash possibly, holds the block. */
static inline bool hl_block_may_hold(const struct hl_block_table *table, const void *address)
{
	const struct hl_block_array *array = hl_block_array_for(table, (uintptr_t)address);
	uint32_t word;

	return (HL_UNLIKELY(array) && hl_block_array_find(array, (uintptr_t)address, &word)) ||
	       hl_block_hash_may_hold(table->hash, (uintptr_t)address) ||
	       (hl_piece_arrays(table) &&
		hl_piece_array_node(table, (uintptr_t)hl_block_ruled_key(address)));
}
