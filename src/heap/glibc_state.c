/* SPDX-License-Identifier: BSD-2-Clause */
/* Where fields lie in each version, and what they say: arenas, mp_ and the lists of chunks; see glibc.h. Nothing that is read
 * is trusted. */
#include "heap/glibc.h"

#include "base/array.h"
#include "base/compiler.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- layouts, from malloc/malloc.c and malloc/arena.c of each release of glibc ---- */

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

/* ---- arenas and mp_ ---- */

#define ARENA_FLAGS   4u /* in all versions, after the lock, with which an arena begins */
#define NONCONTIGUOUS 2u

#define HUGE_PAGE_MAX  (UINT64_C(16) << 30) /* of aarch64; of x86-64 1 GiB */
#define HEAP_MAX_BYTES (UINT64_C(64) << 20)

#define PAGE_BYTES     UINT64_C(4096)
#define KEY_CHUNKS_MAX 256u /* among which a tcache is looked for; without one, a walk finds all */

static uint64_t int_at(const uint8_t *bytes)
{
	int32_t number;

	memcpy(&number, bytes, sizeof(number));
	return number < 0 ? 0 : (uint64_t)number;
}

int hl_glibc_state_common(struct hl_memory *memory, const struct hl_glibc *glibc,
			  struct hl_glibc_common *ret_common)
{
	const struct hl_glibc_layout *at = glibc->layout;
	uint8_t bytes[256];
	int r = hl_memory_read(memory, glibc->mp, bytes, at->mp.bytes);

	if (r < 0)
		return r;
	*ret_common = (struct hl_glibc_common){
		.trim_threshold = hl_glibc_word(bytes + at->mp.trim_threshold),
		.mmap_threshold = hl_glibc_word(bytes + at->mp.mmap_threshold),
		.arena_max = hl_glibc_word(bytes + at->mp.arena_max),
		.mmapped_blocks = int_at(bytes + at->mp.n_mmaps),
		.mmapped_bytes = hl_glibc_word(bytes + at->mp.mmapped_mem),
		.sbrk_base = hl_glibc_word(bytes + at->mp.sbrk_base),
		.tcache_max_bytes = hl_glibc_word(bytes + at->mp.tcache_max_bytes),
		.tcache_count = hl_glibc_word(bytes + at->mp.tcache_count),
	};
	if (at->mp.hp_pagesize) {
		ret_common->thp_page_bytes = hl_glibc_word(bytes + at->mp.thp_pagesize);
		ret_common->hp_page_bytes = hl_glibc_word(bytes + at->mp.hp_pagesize);
	}
	if (at->mmapped_lack) /* mappings are whole pages, the rest was counted too many */
		ret_common->mmapped_bytes &= ~(memory->page_bytes - 1);
	return 0;
}

int hl_glibc_state_arena(struct hl_memory *memory, const struct hl_glibc *glibc, uint64_t address,
			 struct hl_glibc_arena *ret_arena)
{
	const struct hl_glibc_layout *at = glibc->layout;
	struct hl_glibc_arena arena = {.address = address};
	uint8_t bytes[2304];
	uint64_t head = 0;
	int r = hl_memory_read(memory, address, bytes, at->arena.bytes);

	if (r < 0)
		return r;
	arena.is_locked = int_at(bytes);
	arena.is_contiguous = !(int_at(bytes + ARENA_FLAGS) & NONCONTIGUOUS);
	arena.top = hl_glibc_word(bytes + at->arena.top);
	arena.next = hl_glibc_word(bytes + at->arena.next);
	arena.threads = hl_glibc_word(bytes + at->arena.attached_threads);
	arena.system_bytes = hl_glibc_word(bytes + at->arena.system_mem);
	arena.max_system_bytes = hl_glibc_word(bytes + at->arena.max_system_mem);
	if (at->arena.fastbins)
		memcpy(arena.fastbins, bytes + at->arena.fastbins, sizeof(arena.fastbins));
	memcpy(arena.bins, bytes + at->arena.bins, sizeof(arena.bins));
	if (!arena.top || arena.top - address < at->arena.bytes) {
		arena.top = 0; /* the top of an arena without memory is its bins */
	} else if (arena.top & 15 ||
		   hl_memory_read(memory, arena.top + 8, &head, sizeof(head)) < 0) {
		arena.top = 0;
		arena.is_damaged = true;
	}
	arena.top_bytes = head & ~UINT64_C(7);
	*ret_arena = arena;
	return 0;
}

uint64_t hl_glibc_state_heap_alignment(const struct hl_glibc *glibc,
				       const struct hl_glibc_common *common)
{
	uint64_t page = glibc->layout->has_huge_heaps ? common->hp_page_bytes : 0;

	return page >= 4096 && page <= HUGE_PAGE_MAX && !(page & (page - 1)) ? 4 * page
									     : HEAP_MAX_BYTES;
}

/* ---- lists ---- */

/* A list of chunks in the memory of a process. */
struct list {
	struct hl_memory *memory;
	uint64_t head;	     /* where it ends, too, when it is a ring */
	uint32_t link_to;    /* where in a chunk links point */
	bool has_safe_links; /* xored with their own address >> 12 */
};

/* Appends ${chunk} and those after it, up to the end or to where the list is damaged. Links are the
 * first words of blocks. Loops are found by Brent's algorithm: a marked chunk comes again. */
static int list_collect(const struct list *list, uint64_t chunk, struct hl_addresses *chunks)
{
	uint64_t marked = 0, steps = 0, next_mark = 1;

	while (chunk && chunk != marked && !(chunk & 15)) {
		uint64_t at = chunk + HL_CHUNK_BLOCK, link;
		if (HL_ARRAY_APPEND(chunks->addresses, chunks->count, chunks->capacity, chunk) < 0)
			return -ENOMEM;
		if (++steps == next_mark) {
			next_mark *= 2;
			marked = chunk;
		}
		if (hl_memory_read(list->memory, at, &link, sizeof(link)) < 0)
			break;
		if (list->has_safe_links)
			link ^= at >> 12;
		if (!link || link & 15 || link == list->head)
			break;
		chunk = link - list->link_to;
	}
	return 0;
}

int hl_glibc_state_fastbins(struct hl_memory *memory, const struct hl_glibc *glibc,
			    const struct hl_glibc_arena *arena, struct hl_addresses *chunks)
{
	const struct list list = {memory, 0, 0, glibc->layout->safe_linking};

	for (uint32_t i = 0; i < HL_GLIBC_FASTBINS; i++)
		if (list_collect(&list, arena->fastbins[i], chunks) < 0)
			return -ENOMEM;
	hl_addresses_sort(chunks);
	return 0;
}

int hl_glibc_state_bins(struct hl_memory *memory, const struct hl_glibc *glibc,
			const struct hl_glibc_arena *arena, struct hl_addresses *chunks)
{
	for (uint32_t i = 0; i < HL_GLIBC_BINS; i += 2) {
		/* a bin poses as a chunk whose links are its two words */
		uint64_t bin = arena->address + glibc->layout->arena.bins + i * 8 - HL_CHUNK_BLOCK;
		const struct list list = {memory, bin, 0, false};
		if (arena->bins[i] != bin && list_collect(&list, arena->bins[i], chunks) < 0)
			return -ENOMEM;
	}
	hl_addresses_sort(chunks);
	return 0;
}

#define TCACHE_BYTES_MAX 1024u

/* The same for the chunks in the lists of the tcache of ${bytes}. */
static int read_tcache(struct hl_memory *memory, const struct hl_glibc *glibc, const uint8_t *bytes,
		       struct hl_addresses *chunks)
{
	const struct list list = {memory, 0, HL_CHUNK_BLOCK, glibc->layout->safe_linking};
	const uint8_t *heads = bytes + glibc->layout->tcache_bytes - 8 * glibc->layout->tcaches;

	for (uint32_t i = 0; i < glibc->layout->tcaches; i++) {
		uint64_t head = hl_glibc_word(heads + i * 8);
		if (head && !(head & 15) && list_collect(&list, head - HL_CHUNK_BLOCK, chunks) < 0)
			return -ENOMEM;
	}
	return 0;
}

/* ---- thread caches ---- */

uint64_t hl_glibc_state_tcache_size(const struct hl_glibc_layout *layout)
{
	return (layout->tcache_bytes + HL_CHUNK_HEADER + 15) & ~UINT64_C(15);
}

/* Whether the block at ${address}, whose ${bytes} are read, can be a tcache: lists are empty where they hold no chunks by
 * their count, and nowhere else. */
static bool is_tcache(struct hl_memory *memory, const struct hl_glibc *glibc,
		      const struct hl_glibc_common *common, uint64_t address, uint8_t *bytes)
{
	const struct hl_glibc_layout *layout = glibc->layout;
	const uint8_t *heads = bytes + layout->tcache_bytes - 8 * layout->tcaches;

	if (hl_memory_read(memory, address, bytes, layout->tcache_bytes) < 0)
		return false;
	for (uint32_t i = 0; i < layout->tcaches; i++) {
		uint64_t head;
		uint16_t count = 0;
		memcpy(&count, bytes + i * layout->tcache_count_bytes, layout->tcache_count_bytes);
		memcpy(&head, heads + i * 8, sizeof(head));
		if (layout->tcache_counts_down)
			count = (uint16_t)(common->tcache_count - count);
		if (!head != !count || head & 15)
			return false;
	}
	return true;
}

/* The number that the chunks in the tcache of ${bytes} have; 0: they have none in common. */
static uint64_t common_key(struct hl_memory *memory, const struct hl_glibc *glibc,
			   const uint8_t *bytes)
{
	HL_CLEANUP(hl_addresses_release) struct hl_addresses chunks = {0};
	uint64_t word, key = 0;

	if (read_tcache(memory, glibc, bytes, &chunks) < 0)
		return 0;
	/* It is the second word of most chunks: the program may have taken others meanwhile. By Boyer
	 * and Moore's vote. */
	size_t agreed = 0;
	int votes = 0;
	for (size_t i = 0; i < chunks.count; i++) {
		uint64_t at = chunks.addresses[i] + HL_CHUNK_BLOCK + 8;
		if (hl_memory_read(memory, at, &word, sizeof(word)) < 0)
			continue;
		if (!votes)
			key = word;
		votes += word == key ? 1 : -1;
	}
	for (size_t i = 0; i < chunks.count; i++)
		agreed += hl_glibc_state_has_key(memory, chunks.addresses[i], key);
	return 2 * agreed > chunks.count ? key : 0;
}

uint64_t hl_glibc_state_tcache_key(struct hl_memory *memory, const struct hl_glibc *glibc,
				   uint64_t address)
{
	uint64_t cache_size = hl_glibc_state_tcache_size(glibc->layout), page = 1, head, size;
	uint8_t bytes[TCACHE_BYTES_MAX], heads[PAGE_BYTES];
	struct hl_glibc_common common;

	if (hl_glibc_state_common(memory, glibc, &common) < 0)
		return 0;
	for (unsigned i = 0; i < KEY_CHUNKS_MAX; i++, address += size) {
		uint64_t at = address + 8;
		if (page != (at & ~(PAGE_BYTES - 1)) &&
		    hl_memory_read(memory, page = at & ~(PAGE_BYTES - 1), heads, PAGE_BYTES) < 0)
			return 0;
		memcpy(&head, heads + (at - page), sizeof(head));
		size = head & ~HL_CHUNK_FLAGS;
		if (size < HL_CHUNK_MIN || size & 8)
			return 0;
		uint64_t key = size == cache_size && is_tcache(memory, glibc, &common,
							       address + HL_CHUNK_BLOCK, bytes)
				       ? common_key(memory, glibc, bytes)
				       : 0;
		if (key)
			return key;
	}
	return 0;
}

int hl_glibc_state_cached(struct hl_memory *memory, const struct hl_glibc *glibc,
			  const struct hl_addresses *blocks, struct hl_addresses *chunks)
{
	uint8_t bytes[TCACHE_BYTES_MAX];
	struct hl_glibc_common common;

	if (blocks->count && hl_glibc_state_common(memory, glibc, &common) < 0)
		return 0;
	for (size_t i = 0; i < blocks->count; i++)
		if (is_tcache(memory, glibc, &common, blocks->addresses[i], bytes) &&
		    read_tcache(memory, glibc, bytes, chunks) < 0)
			return -ENOMEM;
	hl_addresses_sort(chunks);
	return 0;
}

bool hl_glibc_state_has_key(struct hl_memory *memory, uint64_t address, uint64_t key)
{
	uint64_t word;

	return hl_memory_read(memory, address + HL_CHUNK_BLOCK + 8, &word, sizeof(word)) == 0 &&
	       word == key;
}
