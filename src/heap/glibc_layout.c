/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of layouts, from malloc/malloc.c and malloc/arena.c of each release of glibc. */
#include "heap/glibc.h"

#include "base/compiler.h"

#include <stddef.h>
#include <stdio.h>

/* clang-format off */

#define ARENA_2_26 {                                                                 \
	.fastbins = 8, .top = 88, .bins = 104, .next = 2152,                         \
	.attached_threads = 2168, .system_mem = 2176, .max_system_mem = 2184, .bytes = 2192}

/* have_fastchunks came before the fastbins */
#define ARENA_2_27 {                                                                 \
	.fastbins = 16, .top = 96, .bins = 112, .next = 2160,                        \
	.attached_threads = 2176, .system_mem = 2184, .max_system_mem = 2192, .bytes = 2200}

/* The fastbins have gone, and have_fastchunks. */
#define ARENA_2_43 {                                                                 \
	.top = 8, .bins = 24, .next = 2072,                                          \
	.attached_threads = 2088, .system_mem = 2096, .max_system_mem = 2104, .bytes = 2112}

#define MP_2_26 {                                                                    \
	.trim_threshold = 0, .top_pad = 8, .mmap_threshold = 16, .arena_test = 24,   \
	.arena_max = 32, .n_mmaps = 40, .n_mmaps_max = 44, .mmapped_mem = 56,        \
	.sbrk_base = 72, .tcache_bins = 80, .tcache_max_bytes = 88,                  \
	.tcache_count = 96, .bytes = 112}

/* The sizes of huge pages came before n_mmaps. */
#define MP_2_35 {                                                                    \
	.trim_threshold = 0, .top_pad = 8, .mmap_threshold = 16, .arena_test = 24,   \
	.arena_max = 32, .thp_pagesize = 40, .hp_pagesize = 48, .n_mmaps = 60,       \
	.n_mmaps_max = 64, .mmapped_mem = 80, .sbrk_base = 96, .tcache_bins = 104,   \
	.tcache_max_bytes = 112, .tcache_count = 120, .bytes = 136}

/* The mode of huge pages came before their sizes. */
#define MP_2_43 {                                                                    \
	.trim_threshold = 0, .top_pad = 8, .mmap_threshold = 16, .arena_test = 24,   \
	.arena_max = 32, .thp_pagesize = 48, .hp_pagesize = 56, .n_mmaps = 68,       \
	.n_mmaps_max = 72, .mmapped_mem = 88, .sbrk_base = 104, .tcache_bins = 112,  \
	.tcache_max_bytes = 120, .tcache_count = 128, .bytes = 144}

#define HEAP_2_26 .heap_info_bytes = 32
#define HEAP_2_35 .heap_info_bytes = 48, .has_huge_heaps = true
#define HEAP_2_43 .heap_info_bytes = 48

#define TCACHE_BYTE_COUNTS                                                           \
	.tcache_bytes = 64 + 512, .tcache_count_bytes = 1, .tcaches = 64,            \
	.tcache_max_bytes = 1032, .tcache_count = 7
#define TCACHE_SHORT_COUNTS                                                          \
	.tcache_bytes = 128 + 512, .tcache_count_bytes = 2, .tcaches = 64,           \
	.tcache_max_bytes = 1032, .tcache_count = 7
/* Twelve more lists are of large blocks, which only a tunable allows. */
#define TCACHE_PLACES                                                                \
	.tcache_bytes = 152 + 608, .tcache_count_bytes = 2, .tcaches = 76,           \
	.tcache_counts_down = true, .tcache_max_bytes = 1041, .tcache_count = 16

#define NO_KEY	    .tcache_key = HL_TCACHE_KEY_NONE
#define POINTER_KEY .tcache_key = HL_TCACHE_KEY_POINTER
#define RANDOM_KEY  .tcache_key = HL_TCACHE_KEY_RANDOM
#define SAFE_LINKS  .safe_linking = true

/* 2.42 has thread caches as 2.43; which of its other parts are those of 2.41 its heap shows. */
#define BETWEEN(MP, HEAP, LACK)                                                      \
	{42, 42, ARENA_2_27, MP, HEAP, TCACHE_PLACES, RANDOM_KEY, SAFE_LINKS,        \
	 .mmapped_lack = (LACK), .is_mixed = true}

static const struct hl_glibc_layout layouts[] = {
	{43, 43, ARENA_2_43, MP_2_43, HEAP_2_43, TCACHE_PLACES, RANDOM_KEY, SAFE_LINKS,
	 .mmapped_lack = 16},
	BETWEEN(MP_2_43, HEAP_2_43, 16),
	BETWEEN(MP_2_43, HEAP_2_43, 0),
	BETWEEN(MP_2_35, HEAP_2_35, 16),
	BETWEEN(MP_2_35, HEAP_2_35, 0),
	{35, 41, ARENA_2_27, MP_2_35, HEAP_2_35, TCACHE_SHORT_COUNTS, RANDOM_KEY, SAFE_LINKS},
	{34, 34, ARENA_2_27, MP_2_26, HEAP_2_26, TCACHE_SHORT_COUNTS, RANDOM_KEY, SAFE_LINKS},
	{32, 33, ARENA_2_27, MP_2_26, HEAP_2_26, TCACHE_SHORT_COUNTS, POINTER_KEY, SAFE_LINKS},
	{30, 31, ARENA_2_27, MP_2_26, HEAP_2_26, TCACHE_SHORT_COUNTS, POINTER_KEY},
	{29, 29, ARENA_2_27, MP_2_26, HEAP_2_26, TCACHE_BYTE_COUNTS, POINTER_KEY},
	{27, 28, ARENA_2_27, MP_2_26, HEAP_2_26, TCACHE_BYTE_COUNTS, NO_KEY},
	{26, 26, ARENA_2_26, MP_2_26, HEAP_2_26, TCACHE_BYTE_COUNTS, NO_KEY},
};
/* clang-format on */

const struct hl_glibc_layout *hl_glibc_layout(uint32_t minor)
{
	for (size_t i = 0; i < HL_COUNT_OF(layouts); i++)
		if (!layouts[i].is_mixed && minor >= layouts[i].first_minor &&
		    minor <= layouts[i].last_minor)
			return &layouts[i];
	return NULL;
}

const struct hl_glibc_layout *hl_glibc_layout_at(uint32_t index)
{
	return index < HL_COUNT_OF(layouts) ? &layouts[index] : NULL;
}

void hl_glibc_layout_name(const struct hl_glibc_layout *layout, char *ret_name, size_t size)
{
	snprintf(ret_name, size,
		 layout->is_mixed			     ? "2.41 in parts and 2.43 in others"
		 : layout->first_minor == layout->last_minor ? "2.%u"
							     : "2.%u-2.%u",
		 layout->first_minor, layout->last_minor);
}
