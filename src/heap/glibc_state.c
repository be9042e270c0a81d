/* SPDX-License-Identifier: BSD-2-Clause */
/* Arenas, mp_ and the lists of chunks; see glibc_state.h. Nothing that is read is trusted. */
#include "heap/glibc_state.h"

#include "base/array.h"
#include "base/search.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_FLAGS   4u /* in all versions, behind the lock */
#define NONCONTIGUOUS 2u

#define HUGE_PAGE_MAX  (UINT64_C(1) << 30) /* of x86-64 */
#define HEAP_MAX_BYTES (UINT64_C(64) << 20)

/* User memory of a chunk begins after two words; its links are the first of it. */
#define CHUNK_LINK 16u

static uint64_t word_at(const uint8_t *bytes)
{
	uint64_t word;

	memcpy(&word, bytes, sizeof(word));
	return word;
}

static uint64_t int_at(const uint8_t *bytes)
{
	int32_t number;

	memcpy(&number, bytes, sizeof(number));
	return number < 0 ? 0 : (uint64_t)number;
}

int hl_glibc_read_common(struct hl_memory *memory, const struct hl_glibc *glibc,
			 struct hl_glibc_common *ret_common)
{
	const struct hl_glibc_layout *at = glibc->layout;
	uint8_t bytes[256];
	int r = hl_memory_read(memory, glibc->mp, bytes, at->mp.bytes);

	if (r < 0)
		return r;
	*ret_common = (struct hl_glibc_common){
		.trim_threshold = word_at(bytes + at->mp.trim_threshold),
		.mmap_threshold = word_at(bytes + at->mp.mmap_threshold),
		.arena_max = word_at(bytes + at->mp.arena_max),
		.mmapped_blocks = int_at(bytes + at->mp.n_mmaps),
		.mmapped_bytes = word_at(bytes + at->mp.mmapped_mem),
		.sbrk_base = word_at(bytes + at->mp.sbrk_base),
		.tcache_max_bytes = word_at(bytes + at->mp.tcache_max_bytes),
		.tcache_count = word_at(bytes + at->mp.tcache_count),
	};
	if (at->mp.hp_pagesize) {
		ret_common->thp_page_bytes = word_at(bytes + at->mp.thp_pagesize);
		ret_common->hp_page_bytes = word_at(bytes + at->mp.hp_pagesize);
	}
	return 0;
}

/* An arena without memory has the bins for its top. */
static bool has_memory(const struct hl_glibc_arena *arena, const struct hl_glibc_layout *layout)
{
	return arena->top && arena->top - arena->address >= layout->arena.bytes;
}

int hl_glibc_read_arena(struct hl_memory *memory, const struct hl_glibc *glibc, uint64_t address,
			struct hl_glibc_arena *ret_arena)
{
	const struct hl_glibc_layout *at = glibc->layout;
	struct hl_glibc_arena arena = {.address = address};
	uint8_t bytes[2304];
	uint64_t head = 0;
	int r = hl_memory_read(memory, address, bytes, at->arena.bytes);

	if (r < 0)
		return r;
	arena.is_contiguous = !(int_at(bytes + ARENA_FLAGS) & NONCONTIGUOUS);
	arena.top = word_at(bytes + at->arena.top);
	arena.next = word_at(bytes + at->arena.next);
	arena.threads = word_at(bytes + at->arena.attached_threads);
	arena.system_bytes = word_at(bytes + at->arena.system_mem);
	arena.max_system_bytes = word_at(bytes + at->arena.max_system_mem);
	memcpy(arena.fastbins, bytes + at->arena.fastbins, sizeof(arena.fastbins));
	memcpy(arena.bins, bytes + at->arena.bins, sizeof(arena.bins));
	if (!has_memory(&arena, at)) {
		arena.top = 0;
	} else if (arena.top & 15 ||
		   hl_memory_read(memory, arena.top + 8, &head, sizeof(head)) < 0) {
		arena.top = 0;
		arena.is_damaged = true;
	}
	arena.top_bytes = head & ~UINT64_C(7);
	*ret_arena = arena;
	return 0;
}

uint64_t hl_glibc_heap_alignment(const struct hl_glibc_common *common)
{
	uint64_t page = common->hp_page_bytes;

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

/* The chunk after ${chunk}; 0 at the end, or where the list cannot be followed. */
static uint64_t list_next(const struct list *list, uint64_t chunk)
{
	uint64_t at = chunk + CHUNK_LINK, link;

	if (hl_memory_read(list->memory, at, &link, sizeof(link)) < 0)
		return 0;
	if (list->has_safe_links)
		link ^= at >> 12;
	if (!link || link & 15 || link == list->head)
		return 0;
	return link - list->link_to;
}

/* Appends ${chunk} and those after it. Brent's way of finding loops: a marked chunk that comes
 * again. */
static int list_collect(const struct list *list, uint64_t chunk, struct hl_addresses *chunks)
{
	uint64_t marked = 0, steps = 0, next_mark = 1;

	for (; chunk && chunk != marked && !(chunk & 15); chunk = list_next(list, chunk)) {
		if (HL_ARRAY_APPEND(chunks->addresses, chunks->count, chunks->capacity, chunk) < 0)
			return -ENOMEM;
		if (++steps == next_mark) {
			next_mark *= 2;
			marked = chunk;
		}
	}
	return 0;
}

int hl_glibc_fastbin_chunks(struct hl_memory *memory, const struct hl_glibc *glibc,
			    const struct hl_glibc_arena *arena, struct hl_addresses *chunks)
{
	const struct list list = {memory, 0, 0, glibc->layout->safe_linking};

	for (uint32_t i = 0; i < HL_GLIBC_FASTBINS; i++)
		if (list_collect(&list, arena->fastbins[i], chunks) < 0)
			return -ENOMEM;
	hl_addresses_sort(chunks);
	return 0;
}

int hl_glibc_bin_chunks(struct hl_memory *memory, const struct hl_glibc *glibc,
			const struct hl_glibc_arena *arena, struct hl_addresses *chunks)
{
	for (uint32_t i = 0; i < HL_GLIBC_BINS; i += 2) {
		/* a bin poses as a chunk whose links are its two words */
		uint64_t bin = arena->address + glibc->layout->arena.bins + i * 8 - CHUNK_LINK;
		const struct list list = {memory, bin, 0, false};
		if (arena->bins[i] != bin && list_collect(&list, arena->bins[i], chunks) < 0)
			return -ENOMEM;
	}
	hl_addresses_sort(chunks);
	return 0;
}

int hl_glibc_tcache_chunks(struct hl_memory *memory, const struct hl_glibc *glibc, uint64_t address,
			   struct hl_addresses *chunks)
{
	const struct list list = {memory, 0, CHUNK_LINK, glibc->layout->safe_linking};
	uint8_t bytes[1024];
	const uint8_t *heads = bytes + glibc->layout->tcache_bytes - 8 * HL_GLIBC_TCACHES;

	if (hl_memory_read(memory, address, bytes, glibc->layout->tcache_bytes) < 0)
		return 0;
	for (uint32_t i = 0; i < HL_GLIBC_TCACHES; i++) {
		uint64_t head = word_at(heads + i * 8);
		if (head && !(head & 15) && list_collect(&list, head - CHUNK_LINK, chunks) < 0)
			return -ENOMEM;
	}
	hl_addresses_sort(chunks);
	return 0;
}

/* ---- addresses ---- */

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

void hl_addresses_sort(struct hl_addresses *addresses)
{
	size_t kept = 0;

	if (!addresses->count)
		return;
	qsort(addresses->addresses, addresses->count, sizeof(*addresses->addresses), compare);
	for (size_t i = 1; i < addresses->count; i++)
		if (addresses->addresses[i] != addresses->addresses[kept])
			addresses->addresses[++kept] = addresses->addresses[i];
	addresses->count = kept + 1;
}

void hl_addresses_release(struct hl_addresses *addresses)
{
	free(addresses->addresses);
	*addresses = (struct hl_addresses){0};
}

size_t hl_addresses_at(const struct hl_addresses *addresses, uint64_t address)
{
	return HL_LOWER_BOUND(i, addresses->count, addresses->addresses[i] < address);
}
