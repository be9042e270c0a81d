/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where the fields of glibc's allocator lie, by version, on 64-bit machines.
 *
 * Words of glibc: an arena (malloc_state) owns heaps, from which it cuts chunks; mp_ (malloc_par)
 * has what is common to all arenas; each thread keeps freed chunks in its tcache.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define HL_GLIBC_FASTBINS 10u
#define HL_GLIBC_BINS	  254u /* words: 127 lists with two ends */
#define HL_GLIBC_TCACHES  64u  /* lists of a tcache */

/* How a chunk in a tcache is told from one in use. */
enum hl_tcache_key {
	HL_TCACHE_KEY_NONE,    /* only by following the lists */
	HL_TCACHE_KEY_POINTER, /* its second word is the address of the tcache */
	HL_TCACHE_KEY_RANDOM,  /* its second word is a random number, one for the process */
};

/* Offsets in bytes. */
struct hl_glibc_layout {
	uint32_t first_minor, last_minor; /* of 2.x, for which it holds */
	struct {
		uint32_t fastbins, top, bins, next, attached_threads, system_mem, max_system_mem;
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
	uint32_t tcache_bytes;	     /* of the whole struct; the lists' heads are its end */
	uint32_t tcache_count_bytes; /* of one counter: 1 or 2 */
	enum hl_tcache_key tcache_key;
	bool safe_linking; /* links in tcache and fastbins are xored with their address >> 12 */
};

/* The layout of glibc 2.${minor}; NULL when it is not known. */
const struct hl_glibc_layout *hl_glibc_layout(uint32_t minor);

/* All layouts, newest first; NULL after the last. */
const struct hl_glibc_layout *hl_glibc_layout_at(uint32_t index);

#define HL_GLIBC_MINOR_FIRST 26u
#define HL_GLIBC_MINOR_LAST  41u
