/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the reader of mimalloc's heaps knows of its pages, whichever release they are of.
 *
 *	slice	64 KiB, aligned
 *	page	some slices with blocks of one size, cut as they are needed: ${capacity} of ${reserved}. `used` counts blocks that
 *		the program has, and those that other threads have freed
 *	lists	of free blocks, linked by their first words: `free`, from which the owner allocates; `local_free`, which it has
 *		freed; `remote_free`, which other threads have freed and the owner has not taken back yet
 *
 * Releases 2 keep pages in segments, whose headers have them (mimalloc_segments.c); releases 3 in arenas, and find them by a
 * map of addresses, or since 3.6 by a table at the start of each 256 MiB (mimalloc_arenas.c).
 */
#pragma once

#include "heap/slab_heap.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HL_MI_SLICE 65536u

/* How a page says where its first block is. */
enum hl_mi_start {
	HL_MI_START_AFTER_384, /* it does not: 384 bytes after its slice where blocks have 8 to 1024 */
	HL_MI_START_AFTER_BLOCK, /* it does not: after 3 blocks up to 64 bytes, or one up to 512 */
	HL_MI_START_POINTER,
	HL_MI_START_WORDS, /* after itself: 32 bits */
	HL_MI_START_BYTES, /* after itself: 64 bits */
};

/* A block of the page was aligned by more than its size asks for: it begins inside of its place. */
#define HL_MI_ALIGNED 2u

/* Offsets in the struct of a page. */
struct hl_mi_page_layout {
	enum hl_mi_start start_is;
	uint8_t bytes;
	uint8_t free, local_free, remote_free;
	uint8_t used, capacity, reserved; /* 16 bits each */
	uint8_t block_size; /* 32 bits if ${start_is} is one of the first two; else 64 */
	uint8_t start;
	uint8_t heap;
	uint8_t thread; /* releases 3 */
	uint8_t own_thread; /* of pages with what the allocator has for its threads; 0: there are none */
	uint8_t memid;	    /* releases 3: whose memory it is */
	uint8_t arena_kind; /* in it: of an arena; from ${os_kind} on of the system */
	uint8_t os_kind;
	uint8_t remote_flags; /* low bits of ${remote_free} */
	uint8_t flags;	      /* 8 bits, of which HL_MI_ALIGNED is one */
	bool is_encoded;      /* lists are: a secure build, or one for debugging */
};

struct hl_mi_page {
	uint64_t at;	    /* of its struct */
	uint64_t area, end; /* its slices */
	uint64_t start;	    /* of its first block */
	uint64_t block_bytes;
	uint64_t free, local_free, remote_free;
	uint64_t heap, thread;
	uint32_t used, capacity, reserved;
	bool has_aligned, is_own;
};

struct hl_mi_thread {
	uint64_t id; /* its thread pointer; 0: pages without an owner */
	uint32_t arena;
};

struct hl_mi_walker {
	struct hl_slab_heap slabs;
	struct hl_memory *memory;
	const struct hl_mi_page_layout *layout;
	struct hl_mi_thread *threads; /* by id */
	size_t thread_count, thread_capacity;
	uint64_t *delayed; /* blocks that are free and in no list of their page, by address */
	size_t delayed_count, delayed_capacity;
	uint64_t aligned_blocks; /* live ones that may begin inside of their places */
	uint8_t *places;	 /* of a page: enum hl_slab_state */
	uint8_t *blocks;	 /* of a page: what is in memory */
	/* Pages in memory around what is being read. */
	struct hl_pages near;
	uint64_t near_start, near_end;
	/* What hl_mi_copy() read last. */
	uint64_t window;
	uint8_t *window_bytes;
};

static inline uint64_t hl_mi_word(const uint8_t *bytes)
{
	uint64_t word;

	memcpy(&word, bytes, sizeof(word));
	return word;
}

static inline uint32_t hl_mi_half(const uint8_t *bytes)
{
	uint32_t half;

	memcpy(&half, bytes, sizeof(half));
	return half;
}

static inline uint16_t hl_mi_quarter(const uint8_t *bytes)
{
	uint16_t quarter;

	memcpy(&quarter, bytes, sizeof(quarter));
	return quarter;
}

/* ---- mimalloc_heap.c ---- */

/* Why such a heap is not read. */
extern const char hl_mi_encoded[];

/* Frees what it keeps, but for the slab heap. */
void hl_mi_walker_release(struct hl_mi_walker *walker);

/* In rising order; ${at} is to be freed. */
struct hl_mi_addresses {
	uint64_t *at;
	size_t count, capacity;
};

/* Lists the multiples of ${alignment} in memory that the allocator may have mapped for itself, after which some of ${bytes} are
 * present. 0 or a negative errno. */
int hl_mi_find_present(struct hl_memory *memory, uint64_t alignment, uint64_t bytes,
		       struct hl_mi_addresses *addresses);

/* Copies what is in memory of [${address}, + ${length}); the rest becomes 0. 0 or a negative errno. */
int hl_mi_read(struct hl_memory *memory, uint64_t address, uint8_t *bytes, size_t length);

/* The same of up to 256 bytes, for callers that read in rising order: keeps what lies around them. */
int hl_mi_copy(struct hl_mi_walker *walker, uint64_t address, uint8_t *bytes, size_t length);

/* Forgets what hl_mi_copy() keeps: the process has run on. */
void hl_mi_copy_anew(struct hl_mi_walker *walker);

/* Fills ${page} from ${bytes} of its struct; `at`, `area` and `end` are set already. False: that is not a page. */
bool hl_mi_page_decode(const struct hl_mi_page_layout *layout, const uint8_t *bytes,
		       struct hl_mi_page *page);

/* The arena of the slab heap that thread ${id} has; adds it. */
int hl_mi_arena_of(struct hl_mi_walker *walker, uint64_t id, uint32_t *ret_arena);

/* Reports a page, whose struct may have changed meanwhile. ${empty}: what a purge does with it if no block is live. */
int hl_mi_page_report(struct hl_mi_walker *walker, const struct hl_mi_page *page, uint32_t arena,
		      enum hl_slab_free empty);

/* Adds what is to be said of blocks that were reported. 0 or -ENOMEM. */
int hl_mi_add_notes(struct hl_mi_walker *walker);

/* Whether none of its blocks is live, as far as its counts tell. */
bool hl_mi_page_is_empty(struct hl_mi_walker *walker, const struct hl_mi_page *page);

/* ---- mimalloc_segments.c, mimalloc_arenas.c ---- */

/* Reads the heap of releases 2, or 3. 0; -ENOTSUP without a sentence: there is none; as hl_heap_reader. */
int hl_mi_segments_read(struct hl_memory *memory, const struct hl_allocator_traits *allocator,
			const struct hl_heap_settings *settings, struct hl_heap *heap,
			struct hl_error *err);
int hl_mi_arenas_read(struct hl_memory *memory, const struct hl_allocator_traits *allocator,
		      const struct hl_heap_settings *settings, struct hl_heap *heap,
		      struct hl_error *err);
