/* SPDX-License-Identifier: BSD-2-Clause */
/* What the parts of reading a glibc heap share: the account of chunks, arenas, main_arena's memory, mapped blocks. */
#pragma once

#include "base/index.h"
#include "heap/glibc.h"
#include "heap/heap.h"

/* ---- account.c: adds up the chunks that a walk reports, by arena, by carrier and by page ---- */

/*
 * Pages in memory that a few live bytes keep there: a page is pinned when it holds only free memory
 * and small live blocks that add up to at most an eighth of a page. If these blocks were freed,
 * malloc_trim could return the page, unless it holds the first bytes of the free chunk that results.
 */

/* The page whose chunks are being reported, and the pinned pages in a row before it. */
struct hl_pins {
	uint64_t page, page_bytes;
	uint64_t first_chunk; /* that lies on the page */
	uint64_t live_bytes, live_blocks;
	uint64_t block, block_bytes; /* the largest */
	bool is_blocked;	     /* a chunk that is large or not the program's keeps it */
	bool straddles;		     /* a live block began on the page before */
	struct hl_heap_pin run;	     /* end 0 if there is none */
	uint64_t run_first_chunk;
};

/* A chunk that was counted as cached by a thread. */
struct hl_cached_chunk {
	struct hl_chunk chunk;
	uint64_t in_memory; /* bytes of it */
	size_t carrier;
	uint32_t arena;
};

/* The state of accounting. The members at the end belong to the current carrier. */
struct hl_account {
	struct hl_heap *heap;
	const struct hl_heap_settings *settings;
	struct hl_log2_shape free_shape;
	uint64_t cache_size; /* of the chunk that is a thread's cache, at least: a rest of at most a
				small chunk may be added */
	struct hl_addresses cache_blocks; /* live blocks of that size */
	struct hl_cached_chunk *cached;	  /* all of them, in rising order by carrier */
	size_t cached_count, cached_capacity;
	uint32_t arena; /* index; UINT32_MAX: none */
	size_t carrier; /* index */
	uint64_t page_bytes;
	uint64_t trim_unit; /* the top shrinks in units of this size; 0: it does not shrink */
	const struct hl_pages *pages;
	size_t page_run; /* cursor */
	struct hl_pins pins;
	uint64_t free_start; /* start of the current row of free chunks; 0: none */
};

/* Begins a carrier of ${type} from ${start} to about ${end}, of ${arena} (index, or UINT32_MAX). 0
 * or -ENOMEM. */
int hl_account_begin(struct hl_account *account, const char *type, uint64_t start, uint64_t end,
		     uint32_t arena);

/* Ends it; its last byte is before ${end}. */
void hl_account_end(struct hl_account *account, uint64_t end);

/* Callbacks for struct hl_glibc_walker_settings; ${context} is the account. */
int hl_account_chunks(void *context, const struct hl_chunk *chunks, size_t count);
void hl_account_pages(void *context, const struct hl_pages *pages);

/* Counts ${cached}, one of account->cached, as live after all. Returns what the visitor of blocks
 * said. */
int hl_account_revive(struct hl_account *account, const struct hl_cached_chunk *cached);

void hl_account_release(struct hl_account *account);

/* A carrier that is one block: [${start}, ${end}), with ${usable_bytes} at ${block}. */
int hl_account_mmapped(struct hl_account *account, uint64_t start, uint64_t end, uint64_t block,
		       uint64_t usable_bytes, uint64_t last_word);

/* ---- glibc_heap.c ---- */

/* Walks the heap of ${glibc} and fills ${heap}: arenas, carriers, and their share of RSS. 0, a
 * negative errno with a sentence, or what the visitor of blocks returned. */
int hl_glibc_heap_read(struct hl_memory *memory, const struct hl_glibc *glibc,
		       const struct hl_heap_settings *settings, struct hl_heap *heap,
		       struct hl_error *err);

/* How far a heap agrees with a layout. */
enum hl_glibc_agreement {
	HL_GLIBC_DISAGREES,
	HL_GLIBC_AGREES_BUT_CACHES, /* in all but thread caches, of which none with chunks was found */
	HL_GLIBC_AGREES,
};

/*
 * Walks the heap of ${glibc} with its layout, which may be wrong. The heap agrees if all chunks are
 * consistent, each arena's memory was found to the byte, free chunks in lists are free by their
 * neighbours, there are as many mapped blocks as glibc counts, and a thread cache holds what it
 * counts. A running process may change meanwhile: a heap that disagrees is walked again. -ENOMEM,
 * -ESRCH.
 */
int hl_glibc_heap_agreement(struct hl_memory *memory, const struct hl_glibc *glibc);

struct hl_glibc_reader {
	struct hl_memory *memory;
	const struct hl_glibc *glibc;
	struct hl_heap *heap;
	struct hl_error *err;
	bool wants_stop;
	struct hl_glibc_common common;
	struct hl_glibc_arena *arenas; /* as heap->arenas */
	size_t arena_count, arena_capacity;
	struct hl_index heaps; /* of arenas by address: index of the carrier + 1 */
	uint64_t main_bytes;   /* found so far of main_arena's memory */
	uint32_t tries;	       /* to find more of it */
	struct hl_account account;
	struct hl_glibc_walker_settings walk;
	struct hl_glibc_walker *walker;
	struct hl_glibc_walker *strict; /* reports nothing, and stops where chunks do not fit */
};

/* Walks the memory that main_arena has from the break. Like all functions below that walk, returns
 * 0, a negative errno, or what the visitor of blocks returned. */
int hl_glibc_main_read_break(struct hl_glibc_reader *reader);

/* Whether memory of main_arena is still missing. */
bool hl_glibc_main_lacks_pieces(const struct hl_glibc_reader *reader);

/* Finds blocks that have mappings of their own, and pieces of main_arena that are not from the
 * break. */
int hl_glibc_mmapped_read(struct hl_glibc_reader *reader);
