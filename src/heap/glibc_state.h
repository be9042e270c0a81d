/* SPDX-License-Identifier: BSD-2-Clause */
/* The fields of glibc's arenas and of mp_, read from a process by its layout. */
#pragma once

#include "heap/glibc_roots.h"

#include <stddef.h>

struct hl_glibc_arena {
	uint64_t address, next;
	bool is_contiguous;	 /* its memory comes from the break, as far as it can */
	uint64_t top, top_bytes; /* 0: it has no memory yet, or is damaged */
	bool is_damaged;	 /* the top is nowhere */
	uint64_t threads;	 /* attached */
	uint64_t system_bytes, max_system_bytes;
	uint64_t fastbins[HL_GLIBC_FASTBINS];
	uint64_t bins[HL_GLIBC_BINS];
};

/* What glibc has for all arenas: mp_. */
struct hl_glibc_common {
	uint64_t trim_threshold, mmap_threshold, arena_max;
	uint64_t thp_page_bytes, hp_page_bytes; /* 0: not used */
	uint64_t mmapped_blocks, mmapped_bytes;
	uint64_t sbrk_base;
	uint64_t tcache_max_bytes, tcache_count;
};

/* Addresses. Zero-initialize for an empty list. */
struct hl_addresses {
	uint64_t *addresses;
	size_t count, capacity;
};

/* 0, or what reading failed with. */
int hl_glibc_read_common(struct hl_memory *memory, const struct hl_glibc *glibc,
			 struct hl_glibc_common *ret_common);

/* 0, or what reading failed with. */
int hl_glibc_read_arena(struct hl_memory *memory, const struct hl_glibc *glibc, uint64_t address,
			struct hl_glibc_arena *ret_arena);

/* Heaps of arenas begin at multiples of this; a power of two. */
uint64_t hl_glibc_heap_alignment(const struct hl_glibc_common *common);

/* Appends the chunks in the fastbins of ${arena}, sorted. Lists that are damaged, or change
 * meanwhile, end where they do. 0 or -ENOMEM. */
int hl_glibc_fastbin_chunks(struct hl_memory *memory, const struct hl_glibc *glibc,
			    const struct hl_glibc_arena *arena, struct hl_addresses *chunks);

/* The same for the free chunks in its bins. */
int hl_glibc_bin_chunks(struct hl_memory *memory, const struct hl_glibc *glibc,
			const struct hl_glibc_arena *arena, struct hl_addresses *chunks);

/* The same for the chunks in the lists of the tcache at ${address}, as far as it is one. */
int hl_glibc_tcache_chunks(struct hl_memory *memory, const struct hl_glibc *glibc, uint64_t address,
			   struct hl_addresses *chunks);

void hl_addresses_sort(struct hl_addresses *addresses); /* each is kept once */
void hl_addresses_release(struct hl_addresses *addresses);

/* The first that is not below ${address}; ${addresses} are sorted. */
size_t hl_addresses_at(const struct hl_addresses *addresses, uint64_t address);
