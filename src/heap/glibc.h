/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * glibc's allocator in the memory of a process, and in the file of a libc or of a static program:
 * where its fields lie, where its roots are, and what they say. Nothing that is read is trusted.
 *
 * Words of glibc: an arena (malloc_state) owns heaps, from which it cuts chunks; mp_ (malloc_par)
 * has what is common to all arenas; each thread keeps freed chunks in its tcache.
 *
 * A chunk begins with two words: the size of the one before, when that one is free (else the word
 * belongs to the block before: its last one), and its own size with three flags. Whether it is in
 * use, its successor says. Blocks begin after the two words.
 */
#pragma once

#include "elf/elf.h"
#include "heap/extents.h"
#include "heap/memory.h"

#include <string.h>

#define HL_CHUNK_MIN	32u
#define HL_CHUNK_HEADER 8u  /* bytes of a chunk that the program may not use */
#define HL_CHUNK_BLOCK	16u /* from the chunk to its block */

#define HL_CHUNK_IN_USE_BEFORE UINT64_C(1) /* flags of a size */
#define HL_CHUNK_MMAPPED       UINT64_C(2)
#define HL_CHUNK_FLAGS	       UINT64_C(7)

/* A word of what was read. */
static inline uint64_t hl_glibc_word(const uint8_t *bytes)
{
	uint64_t word;

	memcpy(&word, bytes, sizeof(word));
	return word;
}

/* ---- where fields lie, by version, on 64-bit machines ---- */

#define HL_GLIBC_FASTBINS 10u
#define HL_GLIBC_BINS	  254u /* words: 127 lists with two ends */
#define HL_GLIBC_TCACHES  76u  /* lists of a tcache, at most */

/* What distinguishes a chunk in a tcache from one in use. */
enum hl_tcache_key {
	HL_TCACHE_KEY_NONE,    /* only by following the lists */
	HL_TCACHE_KEY_POINTER, /* its second word is the address of the tcache */
	HL_TCACHE_KEY_RANDOM,  /* its second word is a random number, one for the process */
};

/* Offsets in bytes. */
struct hl_glibc_layout {
	uint32_t first_minor, last_minor; /* of 2.x, for which it holds */
	struct {
		uint32_t fastbins; /* 0: this version has none */
		uint32_t top, bins, next, attached_threads, system_mem, max_system_mem;
		uint32_t bytes; /* of the whole struct */
	} arena;
	struct {
		uint32_t trim_threshold, top_pad, mmap_threshold, arena_test, arena_max;
		uint32_t thp_pagesize, hp_pagesize; /* 0: this version has none */
		uint32_t n_mmaps, n_mmaps_max, mmapped_mem, sbrk_base;
		uint32_t tcache_bins, tcache_max_bytes, tcache_count;
		uint32_t bytes;
	} mp;
	uint32_t heap_info_bytes;
	bool has_huge_heaps;	     /* heaps are larger where huge pages are used */
	uint32_t tcache_bytes;	     /* of the whole struct; the lists' heads are its end */
	uint32_t tcache_count_bytes; /* of one counter: 1 or 2 */
	uint32_t tcaches;	     /* lists of a tcache */
	bool tcache_counts_down;     /* a counter is that of the places left */
	uint64_t tcache_max_bytes, tcache_count; /* of mp_, unless a tunable changes them */
	enum hl_tcache_key tcache_key;
	bool safe_linking; /* links in tcache and fastbins are xored with their address >> 12 */
	/*
	 * Of the header of a block with a mapping of its own: what its size lacks of the mapping
	 * behind it. Where that is not 0, the first word is the way back to the mapping's start,
	 * and its lowest bit marks huge pages; the block ends a word before the mapping does; and
	 * mmapped_mem counts as much too many for each time that realloc() moved a mapping.
	 */
	uint32_t mmapped_lack;
	bool is_mixed; /* put together from layouts of other versions: only where a heap agrees */
};

/* The layout of glibc 2.${minor}; NULL when it is not known. Never a mixed one. */
const struct hl_glibc_layout *hl_glibc_layout(uint32_t minor);

/* All layouts, newest first; NULL after the last. */
const struct hl_glibc_layout *hl_glibc_layout_at(uint32_t index);

/* The versions of ${layout}, as "2.35-2.41". */
void hl_glibc_layout_name(const struct hl_glibc_layout *layout, char *ret_name, size_t size);

#define HL_GLIBC_KNOWN "2.26 to 2.41 and 2.43"

/* ---- glibc_roots.c: which glibc it is, and its main_arena and mp_ ---- */

/* Virtual addresses of the file; 0: not found. */
struct hl_glibc_symbols {
	uint64_t main_arena, mp;
};

/* Finds main_arena and mp_ in the symbol table of the file, or of its separate debug file below
 * ${debug_directory}. */
struct hl_glibc_symbols hl_glibc_file_symbols(Elf *elf, const char *debug_directory);

/* mp_ by its initial values; 0 unless exactly one place fits. */
uint64_t hl_glibc_file_mp(Elf *elf, const struct hl_glibc_layout *layout);

struct hl_glibc {
	const struct hl_glibc_layout *layout;
	uint32_t minor; /* of 2.x; 0: not stated, any version of ${layout} */
	char name[64];	/* "glibc 2.36" */
	uint64_t main_arena, mp;
	bool is_confirmed; /* two ways gave the same */
	bool is_unknown;   /* the version is not known; the heap agrees with ${layout} */
};

/*
 * Finds main_arena and mp_ by three ways, each tested against another: in the live memory of libc's
 * variables an arena is known by its bins, which point at chunks or at themselves, and by the ring
 * of arenas, which closes; in the file, by a word that is to hold the address of the struct that it
 * ends; and by the symbols of a debug file. mp_ is known by its constants, of which tunables can
 * change some but hardly all.
 *
 * Where the version is not known, or not stated, layouts from 2.35 on are tried, newest first, each by a walk of the
 * heap: see hl_glibc_heap_agreement().
 *
 * 0; -ENOTSUP when ${memory} has no glibc, or one whose version is not known and whose heap agrees with no layout, or
 * the roots were not found; -ENOMEM. With a sentence. Takes well below a millisecond where the version is known, else
 * as long as some walks.
 */
int hl_glibc_roots_find(struct hl_memory *memory, struct hl_glibc *ret_glibc, struct hl_error *err);

/* ---- glibc_state.c: arenas, mp_ and the lists of chunks ---- */

struct hl_glibc_arena {
	uint64_t address, next;
	bool is_locked;		 /* a thread is changing it */
	bool is_contiguous;	 /* its memory comes from the break where possible */
	uint64_t top, top_bytes; /* 0: it has no memory yet, or is damaged */
	bool is_damaged;	 /* the top is nowhere */
	uint64_t threads;	 /* attached */
	uint64_t system_bytes, max_system_bytes;
	uint64_t fastbins[HL_GLIBC_FASTBINS];
	uint64_t bins[HL_GLIBC_BINS];
};

/* mp_: what all arenas share. */
struct hl_glibc_common {
	uint64_t trim_threshold, mmap_threshold, arena_max;
	uint64_t thp_page_bytes, hp_page_bytes; /* 0: not used */
	uint64_t mmapped_blocks, mmapped_bytes;
	uint64_t sbrk_base;
	uint64_t tcache_max_bytes, tcache_count;
};

/* 0, or what reading failed with. */
int hl_glibc_state_common(struct hl_memory *memory, const struct hl_glibc *glibc,
			  struct hl_glibc_common *ret_common);

/* 0, or what reading failed with. */
int hl_glibc_state_arena(struct hl_memory *memory, const struct hl_glibc *glibc, uint64_t address,
			 struct hl_glibc_arena *ret_arena);

/* Heaps of arenas begin at multiples of this; a power of two. */
uint64_t hl_glibc_state_heap_alignment(const struct hl_glibc *glibc,
				       const struct hl_glibc_common *common);

/* Appends the chunks in the fastbins of ${arena}, sorted. A list that is damaged, or changes
 * meanwhile, ends at that place. 0 or -ENOMEM. */
int hl_glibc_state_fastbins(struct hl_memory *memory, const struct hl_glibc *glibc,
			    const struct hl_glibc_arena *arena, struct hl_addresses *chunks);

/* The same for the free chunks in its bins. */
int hl_glibc_state_bins(struct hl_memory *memory, const struct hl_glibc *glibc,
			const struct hl_glibc_arena *arena, struct hl_addresses *chunks);

/*
 * Thread caches: freed chunks that threads keep, and whose neighbours mark them as used.
 *
 * From glibc 2.34 on such a chunk's second word is a random number, one for the process: all
 * threads' caches are found in passing. A chunk that was in a cache when its thread ended keeps the
 * word, though, until it is overwritten; so chunks with the word are compared with the lists
 * afterwards. Before 2.34 there is nothing but the lists: a first walk looks for the caches, which
 * are blocks of a size of their own.
 */

/* The size of the chunk that holds a tcache, if it is an exact fit. */
uint64_t hl_glibc_state_tcache_size(const struct hl_glibc_layout *layout);

/* The random number, read from the lists of the first tcache among the chunks from ${address} on:
 * from 2.43 on a thread makes its own when it first frees. 0 when none is near, or its lists are
 * empty. */
uint64_t hl_glibc_state_tcache_key(struct hl_memory *memory, const struct hl_glibc *glibc,
				   uint64_t address);

/* ${blocks} have the size of a tcache. Appends the chunks in the lists of those that are one,
 * sorted. 0 or -ENOMEM. */
int hl_glibc_state_cached(struct hl_memory *memory, const struct hl_glibc *glibc,
			  const struct hl_addresses *blocks, struct hl_addresses *chunks);

/* Whether the chunk at ${address} has ${key} where a cached one has it. */
bool hl_glibc_state_has_key(struct hl_memory *memory, uint64_t address, uint64_t key);

/* ---- glibc_walker.c: walks runs of chunks, and reports what each is ---- */

/*
 * The process may run on meanwhile. Chunks are reported in batches, once all chunks of a batch are
 * consistent. An inconsistent batch is read again; on the third failure the walk continues at the
 * next chunk that a list knows, and reports what lies between as unscanned.
 */

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
	uint64_t top;	/* the arena's top, which reaches to the end; 0: it lies elsewhere */
	uint64_t arena; /* the address of its malloc_state */
	bool is_main;	/* of main_arena: two guards of 16 bytes end it where there is no top */
};

struct hl_glibc_walker_settings {
	uint64_t tcache_key;	   /* second word of chunks in a tcache; 0: not known */
	uint64_t tcache_max_bytes; /* user bytes of the largest block in one */
	const struct hl_addresses *tcache_chunks; /* that are known to be cached, sorted; or NULL */
	bool is_strict;				  /* -EBADMSG where chunks do not fit, at once */
	/* Called with all chunks in order; may be NULL. Non-zero ends the walk and is its result.
	 * */
	int (*chunks)(void *context, const struct hl_chunk *chunks, size_t count);
	/* Called with the present pages of a run before its chunks; may be NULL. */
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
