/* SPDX-License-Identifier: BSD-2-Clause */
/* Pools of pymalloc, known by their headers; see arenas.h. */
#include "guests/python/arenas.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/compiler.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Pools of pymalloc have POOL_MAX bytes since Python 3.10, and had POOL_MIN before; arenas at least
 * ARENA_MIN. */
#define POOL_MAX     ((uint64_t)HL_PYTHON_POOL_BYTES_MAX)
#define POOL_MIN     (UINT64_C(4) << 10)
#define POOL_SAMPLES 32u
#define ARENA_MIN    (UINT64_C(256) << 10)

/* How a pool of pymalloc begins (Objects/obmalloc.c, struct pool_header). */
struct pool {
	uint32_t used, padding;
	uint64_t free_block, next, previous;
	uint32_t arena, size_class, next_offset, max_next_offset;
};

static uint64_t capacity(const struct pool *pool, uint64_t bytes)
{
	return (bytes - sizeof(*pool)) / hl_python_block_bytes(pool->size_class);
}

/* Whether a pool of ${bytes} begins with ${pool}: its last block's offset says its size class. */
static bool is_pool(const struct pool *pool, uint64_t bytes)
{
	return pool->size_class < HL_PYTHON_CLASSES &&
	       pool->max_next_offset == bytes - hl_python_block_bytes(pool->size_class) &&
	       pool->next_offset <= bytes && pool->next_offset >= sizeof(*pool) &&
	       pool->used <= capacity(pool, bytes);
}

uint64_t hl_python_arenas_pool_bytes(struct hl_memory *memory, uint64_t start, uint64_t end,
				     const struct hl_pages *pages)
{
	uint64_t step = ((end - start) / POOL_SAMPLES + POOL_MAX) & ~(POOL_MAX - 1);
	unsigned asked = 0, large = 0, small = 0;
	struct pool pool;

	if (end - start < ARENA_MIN)
		return 0;
	for (uint64_t at = (start + POOL_MAX - 1) & ~(POOL_MAX - 1); at < end; at += step) {
		if (!hl_pages_contain(pages, at) ||
		    hl_memory_read(memory, at, &pool, sizeof(pool)) < 0)
			continue;
		asked++;
		large += is_pool(&pool, POOL_MAX);
		small += is_pool(&pool, POOL_MIN);
	}
	if (!(large + small) || large + small < asked / 2)
		return 0;
	return large >= small ? POOL_MAX : POOL_MIN;
}

/* ---- one pool ---- */

/* Reads the pages in memory of the first ${length} bytes, which ${ret_pages} then has. The others are zero. */
static int read_pages(struct hl_memory *memory, uint64_t address, uint64_t length, uint64_t *words,
		      struct hl_pages *ret_pages)
{
	uint64_t end = (address + length + memory->page_bytes - 1) & ~(memory->page_bytes - 1);

	memset(words, 0, end - address);
	int r = hl_memory_scan(memory, address, end, ret_pages);
	for (size_t i = 0; i < ret_pages->count && r == 0; i++) {
		const struct hl_page_run *run = &ret_pages->runs[i];
		r = hl_memory_read(memory, run->start, &words[(run->start - address) / 8],
				   run->end - run->start);
	}
	return r;
}

int hl_python_pool_read(struct hl_memory *memory, uint64_t address, uint64_t bytes,
			struct hl_python_pool *ret_pool)
{
	HL_CLEANUP(hl_pages_release) struct hl_pages pages = {0};
	struct pool pool;
	uint32_t free = 0;

	int r = hl_memory_read_present(memory, address, &pool, sizeof(pool));
	if (r < 0)
		return r;
	uint64_t length = pool.next_offset;
	if (!is_pool(&pool, bytes))
		return -EAGAIN;
	r = read_pages(memory, address, length, ret_pool->words, &pages);
	if (r < 0)
		return r;
	memcpy(&pool, ret_pool->words, sizeof(pool));
	ret_pool->block_bytes = (uint32_t)hl_python_block_bytes(pool.size_class);
	if (!is_pool(&pool, bytes) || pool.next_offset != length ||
	    (length - sizeof(pool)) % ret_pool->block_bytes)
		return -EAGAIN;
	ret_pool->first = sizeof(pool);
	ret_pool->blocks = (uint32_t)capacity(&pool, bytes);
	ret_pool->used = pool.used;
	/* Blocks from the offset on were never used. The others that are free are a list. Each but
	 * those has been written to at its start; its end may be in a page that is not there. */
	for (uint32_t i = 0; i < ret_pool->blocks; i++) {
		uint32_t offset = ret_pool->first + i * ret_pool->block_bytes;
		ret_pool->is_free[i] = offset >= length;
		free += ret_pool->is_free[i];
		if (offset < length && !hl_pages_contain(&pages, address + offset))
			return -EFAULT;
	}
	for (uint64_t at = pool.free_block; at; free++) {
		uint64_t offset = at - address - sizeof(pool);
		uint64_t number = offset / ret_pool->block_bytes;
		if (offset % ret_pool->block_bytes || number >= ret_pool->blocks ||
		    ret_pool->is_free[number])
			return -EAGAIN;
		ret_pool->is_free[number] = 1;
		at = ret_pool->words[(at - address) / 8];
	}
	return free + pool.used == ret_pool->blocks ? 0 : -EAGAIN;
}

/* ---- all arenas ---- */

struct reading {
	struct hl_python_arenas *arenas;
	int (*pool)(void *context, uint64_t address, uint64_t bytes);
	void *context;
	uint32_t *numbers; /* of the arenas, one for each pool */
	size_t count, capacity;
};

/* A pool that is free now was used: what has never been has no header. */
static int count_pool(struct reading *reading, const struct pool *pool, uint64_t bytes)
{
	struct hl_python_class *class = &reading->arenas->classes[pool->size_class];
	const uint32_t arena = pool->arena;

	if (!pool->used) {
		reading->arenas->free_pools++;
	} else {
		class->pools++;
		class->used_blocks += pool->used;
		class->free_blocks += capacity(pool, bytes) - pool->used;
	}
	return HL_ARRAY_APPEND(reading->numbers, reading->count, reading->capacity, arena);
}

static int read_pools(struct hl_memory *memory, const struct hl_map *map, uint64_t bytes,
		      const struct hl_pages *pages, struct reading *reading)
{
	struct pool pool;
	int r = 0;

	for (uint64_t at = (map->start + bytes - 1) & ~(bytes - 1); at < map->end && r == 0;
	     at += bytes) {
		if (!hl_pages_contain(pages, at))
			continue;
		r = hl_memory_read(memory, at, &pool, sizeof(pool));
		bool is_used = r == 0 && is_pool(&pool, bytes) && pool.used;
		if (r == 0 && is_pool(&pool, bytes))
			r = count_pool(reading, &pool, bytes);
		if (r == 0 && is_used && reading->pool)
			r = reading->pool(reading->context, at, bytes);
		if (r == -EFAULT)
			r = 0; /* an arena that has gone meanwhile */
	}
	return r;
}

static int compare_numbers(const void *left, const void *right)
{
	const uint32_t *a = left, *b = right;

	return (*a > *b) - (*a < *b);
}

/* Each interpreter numbers its own, since Python 3.12: those of one number are in mappings apart. */
static uint64_t count_different(uint32_t *numbers, size_t count)
{
	uint64_t different = 0;

	if (count)
		qsort(numbers, count, sizeof(*numbers), compare_numbers);
	for (size_t i = 0; i < count; i++)
		different += i == 0 || numbers[i] != numbers[i - 1];
	return different;
}

static bool may_hold_arenas(const struct hl_map *map)
{
	return !map->inode && !map->path[0] && map->flags & HL_MAP_WRITE &&
	       !(map->flags & (HL_MAP_SHARED | HL_MAP_EXEC | HL_MAP_RECORDER));
}

int hl_python_arenas_read(struct hl_memory *memory,
			  int (*pool)(void *context, uint64_t address, uint64_t bytes),
			  void *context, struct hl_python_arenas *ret_arenas)
{
	struct hl_python_arenas arenas = {0};
	struct hl_pages pages = {0};
	int r = 0;

	for (size_t i = 0; i < memory->maps.count && r == 0; i++) {
		const struct hl_map *map = &memory->maps.maps[i];
		struct reading reading = {.arenas = &arenas, .pool = pool, .context = context};
		if (!may_hold_arenas(map))
			continue;
		pages.count = 0;
		pages.page_count = 0;
		r = hl_memory_scan(memory, map->start, map->end, &pages);
		uint64_t bytes =
			r == 0 ? hl_python_arenas_pool_bytes(memory, map->start, map->end, &pages)
			       : 0;
		if (bytes) {
			arenas.pool_bytes = bytes;
			r = read_pools(memory, map, bytes, &pages, &reading);
			arenas.arenas += count_different(reading.numbers, reading.count);
		}
		free(reading.numbers);
	}
	hl_pages_release(&pages);
	if (r == 0)
		*ret_arenas = arenas;
	return r;
}
