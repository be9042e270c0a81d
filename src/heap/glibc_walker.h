/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Walks runs of chunks, one after the other, and reports what each is.
 *
 * The process may run on meanwhile. Chunks are reported in batches, when all of a batch fitted to
 * each other; else the batch is read again, and on the third failure the walk goes on at the next
 * chunk that is known from a list, and calls what lies between unscanned.
 */
#pragma once

#include "heap/glibc.h"

enum hl_chunk_kind {
	HL_CHUNK_LIVE,
	HL_CHUNK_TCACHE,
	HL_CHUNK_FASTBIN,
	HL_CHUNK_FREE,
	HL_CHUNK_TOP,
	HL_CHUNK_OWN, /* the allocator's own: structs, guards, or not its memory at all */
	HL_CHUNK_UNSCANNED,
};

struct hl_chunk {
	uint64_t address, size; /* without gaps to the next one */
	uint64_t last_word;	/* of a live block */
	enum hl_chunk_kind kind;
};

/* A stretch of memory that begins with a chunk. */
struct hl_run {
	uint64_t own_start; /* the allocator's own structs before it, reported first */
	uint64_t start, end;
	uint64_t limit; /* how far the end may be at most: it may have moved */
	uint64_t top;	/* the arena's top, when that lies here; then it reaches to the end; or 0 */
	uint64_t arena; /* the address of its malloc_state */
	bool is_main;	/* of main_arena: two guards of 16 bytes end it where there is no top */
};

struct hl_glibc_walker_settings {
	uint64_t tcache_key;	   /* second word of chunks in a tcache; 0: not known */
	uint64_t tcache_max_bytes; /* user bytes of the largest block in one */
	const struct hl_addresses *tcache_chunks; /* that are known to be cached, sorted; or NULL */
	bool is_strict;				  /* -EBADMSG where chunks do not fit, at once */
	/* Gets all chunks in order; may be NULL. Non-zero ends the walk and is its result. */
	int (*chunks)(void *context, const struct hl_chunk *chunks, size_t count);
	/* Gets the pages of the run before any chunk of them; optional */
	void (*pages)(void *context, const struct hl_pages *pages);
	void *context;
};

struct hl_glibc_walker_counts {
	uint64_t chunks, rereads, abandoned;
	uint64_t first_abandoned; /* address of the first; 0: none */
};

struct hl_glibc_walker;

int hl_glibc_walker_new(struct hl_memory *memory, const struct hl_glibc *glibc,
			const struct hl_glibc_walker_settings *settings,
			struct hl_glibc_walker **ret_walker);

/* Walks ${run}; all of [own_start, *${ret_end}) was reported, where ${ret_end} is the end of the
 * run, or of the guards that ended it before. 0, a negative errno, or what the visitor said. */
int hl_glibc_walker_run(struct hl_glibc_walker *walker, const struct hl_run *run,
			uint64_t *ret_end);

const struct hl_glibc_walker_counts *hl_glibc_walker_counts(const struct hl_glibc_walker *walker);
void hl_glibc_walker_free(struct hl_glibc_walker *walker); /* NULL is fine */
