/* SPDX-License-Identifier: BSD-2-Clause */
/* Adds up what a walk tells of chunks: for their arena, for their carrier, and of their pages. */
#pragma once

#include "heap/glibc_walk.h"
#include "heap/heap.h"
#include "heap/pins.h"

/* A chunk that was taken for one in a thread's cache. */
struct hl_cached_chunk {
	struct hl_chunk chunk;
	uint64_t in_memory; /* bytes of it */
	size_t carrier;
	uint32_t arena;
};

/* The state of accounting; the last part is one carrier's. */
struct hl_account {
	struct hl_heap *heap;
	const struct hl_heap_settings *settings;
	struct hl_log2_shape free_shape;
	uint64_t cache_size; /* of the chunk that is a thread's cache, at least: a rest that was
				too small for a chunk of its own may be added */
	struct hl_addresses cache_blocks; /* live blocks of that size */
	struct hl_cached_chunk *cached; /* all that were told as such, in rising order by carrier */
	size_t cached_count, cached_capacity;
	uint32_t arena; /* index; UINT32_MAX: none */
	size_t carrier; /* index */
	uint64_t page_bytes;
	uint64_t trim_unit; /* the top is given back in such pieces; 0: it is not given back */
	const struct hl_pages *pages;
	size_t page_run; /* cursor */
	struct hl_pins pins;
	uint64_t free_start; /* where the free chunks in a row begin that were told last; 0: none */
};

/* Begins a carrier of ${type} from ${start} to about ${end}, of ${arena} (index, or UINT32_MAX). 0
 * or -ENOMEM. */
int hl_account_begin(struct hl_account *account, const char *type, uint64_t start, uint64_t end,
		     uint32_t arena);

/* Ends it; its last byte is before ${end}. */
void hl_account_end(struct hl_account *account, uint64_t end);

/* As struct hl_glibc_walk_settings wants them; ${context} is the account. */
int hl_account_chunks(void *context, const struct hl_chunk *chunks, size_t count);
void hl_account_pages(void *context, const struct hl_pages *pages);

/* Has ${cached}, one of account->cached, be live after all. What the visitor of blocks said. */
int hl_account_revive(struct hl_account *account, const struct hl_cached_chunk *cached);

void hl_account_release(struct hl_account *account);

/* A carrier that is one block: [${start}, ${end}), with the block at ${block}. */
int hl_account_mmapped(struct hl_account *account, uint64_t start, uint64_t end, uint64_t block,
		       uint64_t last_word);
