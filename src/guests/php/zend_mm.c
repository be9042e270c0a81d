/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads PHP's memory manager in another process; see zend_mm.h. */
#include "guests/php/zend_mm.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- what chunks look like ---- */

#define CHUNK_BYTES HL_PHP_CHUNK_BYTES
#define PAGE_BYTES  UINT64_C(4096)
#define PAGES	    512u /* of a chunk */

/* How a chunk begins. */
struct chunk {
	uint64_t heap, next, previous;
	uint32_t free_pages, free_tail, number;
	uint8_t unused[28];
};

#define HEAP_AT sizeof(struct chunk) /* in the first chunk of a heap */

/* The page map of a chunk: a bit for each page that is used, then a word for each. */
#define MAP_BYTES    (PAGES * 4 + PAGES / 8)
#define ITSELF	     0x40000001u /* the chunk's own page: large, of one page */
#define IS_LARGE     0x40000000u
#define IS_BIN	     0x80000000u
#define IS_CONTINUED 0xc0000000u /* not the first page of a bin's */
#define KIND_MASK    0xc0000000u
#define LARGE_PAGES  0x3ffu
#define BIN_MASK     0x1fu

/* Of a heap, from the word that leads to its first chunk on; in bytes. */
#define HUGE_LIST     (-8)
#define CACHED_CHUNKS 8
#define CHUNK_COUNT   16
#define CACHED_COUNT  24
#define MAPPED	      (-56) /* before it are lists of free blocks, a word for each bin */
#define MAPPED_PEAK   (-48)
/* From its beginning on. */
#define USED  16
#define PEAK  24
#define LISTS 32 /* at least */

/* An element of the list of huge blocks. */
struct huge {
	uint64_t block, bytes, next;
};

/* Of lists in memory that may be damaged. */
#define HUGE_MAX   (UINT64_C(1) << 20)
#define CHUNKS_MAX (UINT64_C(1) << 20)

static const struct bin_layout {
	uint16_t block_bytes, blocks, pages;
} bins[HL_PHP_BINS] = {
	{8, 512, 1},   {16, 256, 1}, {24, 170, 1},  {32, 128, 1}, {40, 102, 1}, {48, 85, 1},
	{56, 73, 1},   {64, 64, 1},  {80, 51, 1},   {96, 42, 1},  {112, 36, 1}, {128, 32, 1},
	{160, 25, 1},  {192, 21, 1}, {224, 18, 1},  {256, 16, 1}, {320, 64, 5}, {384, 32, 3},
	{448, 9, 1},   {512, 8, 1},  {640, 32, 5},  {768, 16, 3}, {896, 9, 2},	{1024, 8, 2},
	{1280, 16, 5}, {1536, 8, 3}, {1792, 16, 7}, {2048, 8, 4}, {2560, 8, 5}, {3072, 4, 3},
};

uint32_t hl_php_block_bytes(uint32_t bin)
{
	return bins[bin].block_bytes;
}

/* ---- memory ---- */

#define PAGE_CACHE 256u

struct reading {
	struct hl_memory *memory;
	struct hl_php_memory *php;
	uint64_t heap, chunk_word; /* where the word lies that leads to the first chunk */
	uint32_t map_at;	   /* in each chunk: where its page map begins */
	uint64_t mapped;	   /* what was counted, in bytes */
	uint64_t used;
	/* Pages in which blocks on lists lie, by the lowest bits of their number. */
	uint64_t cached[PAGE_CACHE];
	uint8_t pages[PAGE_CACHE][PAGE_BYTES];
};

static uint64_t word_of(const uint8_t *bytes, uint64_t at)
{
	uint64_t word;

	memcpy(&word, bytes + at, sizeof(word));
	return word;
}

static uint32_t number_of(const uint8_t *bytes, uint64_t at)
{
	uint32_t number;

	memcpy(&number, bytes + at, sizeof(number));
	return number;
}

/* *${ret_page}: the page with ${address}. 0; -EFAULT if it is not in memory; -ESRCH, -EACCES, -ENOMEM. */
static int read_page(struct reading *reading, uint64_t address, const uint8_t **ret_page)
{
	uint64_t page = address & ~(PAGE_BYTES - 1);
	size_t place = page / PAGE_BYTES % PAGE_CACHE;
	int r = 0;

	if (reading->cached[place] != page) {
		reading->cached[place] = 0;
		r = hl_memory_read_present(reading->memory, page, reading->pages[place],
					   PAGE_BYTES);
		if (r == 0)
			reading->cached[place] = page;
	}
	*ret_page = reading->pages[place];
	return r;
}

static int read_word(struct reading *reading, uint64_t address, uint64_t *ret_word)
{
	const uint8_t *page;
	int r = address & 7 ? -EFAULT : read_page(reading, address, &page);

	if (r == 0)
		*ret_word = word_of(page, address & (PAGE_BYTES - 1));
	return r;
}

static bool is_chunk(const struct chunk *chunk)
{
	return chunk->heap && chunk->heap % CHUNK_BYTES == HEAP_AT && chunk->next &&
	       chunk->next % CHUNK_BYTES == 0 && chunk->previous &&
	       chunk->previous % CHUNK_BYTES == 0 && chunk->free_pages < PAGES &&
	       chunk->free_tail <= PAGES;
}

/* ---- where the heap has its fields ---- */

/* In the first page of the heap's first chunk: the word that leads to that chunk, and the map of its pages. */
static bool find_fields(struct reading *reading, const uint8_t *page, uint64_t chunk)
{
	uint32_t free_pages = ((const struct chunk *)page)->free_pages, used = 0;
	uint64_t at = HEAP_AT + LISTS + 8 * HL_PHP_BINS;

	while (at < PAGE_BYTES - MAP_BYTES && word_of(page, at) != chunk)
		at += 8;
	reading->chunk_word = chunk + at;
	for (; at < PAGE_BYTES - PAGES * 4; at += 4)
		if (number_of(page, at) == ITSELF)
			break;
	if (at >= PAGE_BYTES - PAGES * 4 || at < MAP_BYTES - PAGES * 4)
		return false;
	reading->map_at = (uint32_t)at - PAGES / 8;
	for (uint32_t i = 0; i < PAGES / 64; i++)
		used += (uint32_t)__builtin_popcountll(word_of(page, reading->map_at + 8 * i));
	return used == PAGES - free_pages;
}

/* ---- chunks ---- */

static void count_pages(struct reading *reading, const uint8_t *map)
{
	struct hl_php_memory *php = reading->php;

	for (uint32_t page = 1, step; page < PAGES; page += step) {
		uint32_t word = number_of(map, PAGES / 8 + 4 * page), bin = word & BIN_MASK;
		step = 1;
		if ((word & KIND_MASK) == IS_LARGE) {
			step = word & LARGE_PAGES ? word & LARGE_PAGES : 1;
			php->large_blocks++;
			php->large_bytes += step * PAGE_BYTES;
			reading->used += step * PAGE_BYTES;
		} else if ((word & KIND_MASK) == IS_BIN && bin < HL_PHP_BINS) {
			step = bins[bin].pages;
			php->bins[bin].pages += step;
			php->bins[bin].blocks += bins[bin].blocks;
			reading->used += (uint64_t)bins[bin].blocks * bins[bin].block_bytes;
		}
	}
}

static int read_chunks(struct reading *reading, uint64_t first, uint64_t count)
{
	uint64_t chunk = first, seen = 0;
	const uint8_t *page;

	do {
		int r = read_page(reading, chunk, &page);
		if (r < 0)
			return r;
		const struct chunk *head = (const struct chunk *)page;
		if (!is_chunk(head) || head->heap != reading->heap)
			return -EFAULT;
		reading->php->chunks++;
		reading->php->free_pages += head->free_pages;
		reading->mapped += CHUNK_BYTES;
		count_pages(reading, page + reading->map_at);
		chunk = head->next;
	} while (chunk != first && ++seen <= count && seen < CHUNKS_MAX);
	return 0;
}

/* ---- lists ---- */

/* Counts the free blocks of each bin of one heap, which has at most ${most} of each. */
static int read_free_blocks(struct reading *reading, const uint64_t most[HL_PHP_BINS])
{
	uint64_t lists = reading->chunk_word + MAPPED - 8 * HL_PHP_BINS;

	for (uint32_t bin = 0; bin < HL_PHP_BINS; bin++) {
		uint64_t block = 0, count = 0;
		int r = read_word(reading, lists + 8 * bin, &block);
		for (; r == 0 && block && count < most[bin]; count++)
			r = read_word(reading, block, &block);
		if (r < 0)
			return r;
		reading->php->has_changed |= block != 0;
		reading->php->bins[bin].free_blocks += count;
		reading->used -= count * bins[bin].block_bytes;
	}
	return 0;
}

static int read_huge_blocks(struct reading *reading)
{
	uint64_t at, count = 0;
	struct huge huge;

	int r = read_word(reading, reading->chunk_word + HUGE_LIST, &at);
	for (; r == 0 && at && count < HUGE_MAX; count++, at = huge.next) {
		r = hl_memory_read_present(reading->memory, at, &huge, sizeof(huge));
		if (r < 0)
			return r;
		reading->php->huge_blocks++;
		reading->php->huge_bytes += huge.bytes;
		reading->mapped += huge.bytes;
		reading->used += huge.bytes;
	}
	return r;
}

/* ---- a heap ---- */

/* The heap whose first chunk is ${chunk}, which begins with ${page}; that has all that the heap says of itself. */
static int read_heap(struct reading *reading, uint64_t chunk, const uint8_t *page)
{
	uint64_t most[HL_PHP_BINS];
	struct hl_php_memory *php = reading->php, before = *php;

	reading->heap = chunk + HEAP_AT;
	if (!find_fields(reading, page, chunk))
		return 0; /* something else begins as a chunk does */
	uint64_t fields = reading->chunk_word - chunk,
		 cached = number_of(page, fields + CACHED_COUNT);
	uint64_t used = word_of(page, HEAP_AT + USED), mapped = word_of(page, fields + MAPPED);
	php->heaps++;
	php->used_bytes += used;
	php->peak_bytes += word_of(page, HEAP_AT + PEAK);
	php->mapped_bytes += mapped;
	php->mapped_peak_bytes += word_of(page, fields + MAPPED_PEAK);
	php->cached_chunks += cached;
	reading->used = 0;
	reading->mapped = cached * CHUNK_BYTES;
	int r = read_chunks(reading, chunk, number_of(page, fields + CHUNK_COUNT));
	for (uint32_t bin = 0; bin < HL_PHP_BINS; bin++)
		most[bin] = php->bins[bin].blocks - before.bins[bin].blocks;
	if (r == 0)
		r = read_free_blocks(reading, most);
	if (r == 0)
		r = read_huge_blocks(reading);
	php->has_changed |= r == -EFAULT || reading->used != used || reading->mapped != mapped;
	return r == -EFAULT ? 0 : r;
}

static bool may_have_chunks(const struct hl_map *map)
{
	return !map->inode && map->flags & HL_MAP_WRITE &&
	       !(map->flags & (HL_MAP_SHARED | HL_MAP_EXEC | HL_MAP_RECORDER));
}

/* Looks for first chunks of heaps. */
static int read_map(struct reading *reading, const struct hl_map *map)
{
	uint8_t page[PAGE_BYTES];
	int r = 0;

	for (uint64_t at = (map->start + CHUNK_BYTES - 1) & ~(CHUNK_BYTES - 1);
	     at < map->end && map->end - at >= CHUNK_BYTES && r == 0; at += CHUNK_BYTES) {
		int error = hl_memory_read_present(reading->memory, at, page, sizeof(page));
		if (error < 0 && error != -EFAULT)
			return error;
		const struct chunk *chunk = (const struct chunk *)page;
		if (error == 0 && is_chunk(chunk) && chunk->heap == at + HEAP_AT)
			r = read_heap(reading, at, page);
	}
	return r;
}

/* ---- opcache ---- */

/* How opcache's shared memory begins. */
struct shared {
	uint64_t segments;
	uint32_t count, unused;
	uint64_t free_bytes, wasted_bytes, is_exhausted, positions, free_at_start, globals;
};

static int read_shared(struct hl_memory *memory, const struct hl_map *map,
		       struct hl_php_memory *php)
{
	uint64_t bytes = map->end - map->start;
	struct shared shared;

	int r = hl_memory_read_present(memory, map->start, &shared, sizeof(shared));
	if (r < 0)
		return r == -EFAULT ? 0 : r;
	if (shared.segments - map->start >= bytes || shared.positions - map->start >= bytes ||
	    shared.globals - map->start >= bytes || shared.count != 1 ||
	    shared.free_bytes > bytes || shared.wasted_bytes > bytes)
		return 0;
	php->shared_bytes += bytes;
	php->shared_free_bytes += shared.free_bytes;
	php->shared_wasted_bytes += shared.wasted_bytes;
	return 0;
}

int hl_php_memory_read(struct hl_memory *memory, struct hl_php_memory *ret_php)
{
	struct hl_php_memory php = {0};
	HL_FREED struct reading *reading = calloc(1, sizeof(*reading));
	int r = reading ? 0 : -ENOMEM;

	if (r == 0)
		*reading = (struct reading){.memory = memory, .php = &php};
	for (size_t i = 0; i < memory->maps.count && r == 0; i++) {
		const struct hl_map *map = &memory->maps.maps[i];
		if (may_have_chunks(map))
			r = read_map(reading, map);
		else if (map->flags & HL_MAP_SHARED && map->flags & HL_MAP_WRITE && map->inode &&
			 strncmp(map->path, "/dev/zero", 9) == 0)
			r = read_shared(memory, map, &php);
	}
	if (r == 0)
		*ret_php = php;
	return r;
}

/* ---- whose a mapping is ---- */

/* A cached chunk is empty but for the address of the next one, once a request has ended. */
static bool may_be_cached(const struct chunk *chunk)
{
	const struct chunk empty = {.next = chunk->next};

	return chunk->next % CHUNK_BYTES == 0 && memcmp(chunk, &empty, sizeof(empty)) == 0;
}

/* Whether a heap that begins in ${map} has ${wanted} among its cached chunks. */
static bool caches(struct reading *reading, const struct hl_map *map, uint64_t wanted)
{
	uint8_t page[PAGE_BYTES];
	uint64_t cached = 0, count;

	for (uint64_t at = (map->start + CHUNK_BYTES - 1) & ~(CHUNK_BYTES - 1);
	     at < map->end && map->end - at >= CHUNK_BYTES; at += CHUNK_BYTES) {
		const struct chunk *chunk = (const struct chunk *)page;
		if (hl_memory_read_present(reading->memory, at, page, sizeof(page)) < 0 ||
		    !is_chunk(chunk) || chunk->heap != at + HEAP_AT ||
		    !find_fields(reading, page, at) ||
		    read_word(reading, reading->chunk_word + CACHED_CHUNKS, &cached) < 0)
			continue;
		for (count = 0; cached && count < CHUNKS_MAX; count++)
			if (cached == wanted)
				return true;
			else if (read_word(reading, cached + offsetof(struct chunk, next),
					   &cached) < 0)
				break;
	}
	return false;
}

/* The last cached chunk is empty as any memory: asked of heaps where a module of PHP is loaded. */
static bool is_last_cached(struct hl_memory *memory, uint64_t address)
{
	HL_FREED struct reading *reading = NULL;
	bool is_php = false;

	for (size_t i = 0; i < memory->maps.count && !is_php; i++)
		is_php = memory->maps.maps[i].inode && strstr(memory->maps.maps[i].path, "php");
	if (is_php && (reading = calloc(1, sizeof(*reading))))
		reading->memory = memory;
	for (size_t i = 0; reading && i < memory->maps.count; i++)
		if (may_have_chunks(&memory->maps.maps[i]) &&
		    caches(reading, &memory->maps.maps[i], address))
			return true;
	return false;
}

uint64_t hl_php_chunk_bytes(struct hl_memory *memory, uint64_t start, uint64_t end,
			    const struct hl_pages *pages)
{
	uint64_t asked = 0, found = 0;
	struct chunk chunk;

	for (uint64_t at = (start + CHUNK_BYTES - 1) & ~(CHUNK_BYTES - 1);
	     at < end && end - at >= CHUNK_BYTES; at += CHUNK_BYTES) {
		if (!hl_pages_contain(pages, at) ||
		    hl_memory_read(memory, at, &chunk, sizeof(chunk)) < 0)
			continue;
		asked++;
		found += is_chunk(&chunk) ||
			 (may_be_cached(&chunk) && (chunk.next || is_last_cached(memory, at)));
	}
	return found && found >= asked / 2 ? CHUNK_BYTES : 0;
}
