/* SPDX-License-Identifier: BSD-2-Clause */
/* Arenas, types and objects of Python, of another process; see usage.h. */
#include "guests/python/usage.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/compiler.h"
#include "heap/glibc.h"
#include "heap/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- arenas: pools of pymalloc, known by their headers ---- */

/* A pool as it was at one moment. Words of blocks that were never used are not read. */
#define HL_PYTHON_POOL_BYTES_MAX (16u << 10)

struct hl_python_pool {
	uint32_t block_bytes;
	uint32_t first,
		blocks; /* offset of the first block; how many there are, used ones and free ones */
	uint32_t used;
	uint8_t is_free[HL_PYTHON_POOL_BYTES_MAX / 16]; /* by block */
	uint64_t words[HL_PYTHON_POOL_BYTES_MAX / 8];
};

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

/* Reads the pool at ${address} of ${bytes}. 0; -EAGAIN if it changed meanwhile; -EFAULT if blocks of it are not in memory;
 * -ESRCH, -EACCES, -ENOMEM. */
static int python_pool_read(struct hl_memory *memory, uint64_t address, uint64_t bytes,
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

/* ---- types ---- */

/* How a type begins (Include/cpython/object.h, struct _typeobject). */
struct type_object {
	uint64_t references, type, size;
	uint64_t name;
	int64_t body_bytes, item_bytes;
	uint64_t functions[15];
	uint64_t flags;
};

/* The first two were not used before the versions that give them a meaning. */
#define FLAG_WEAK_HEAD (UINT64_C(1) << 3) /* 3.12 */
#define FLAG_DICT_HEAD (UINT64_C(1) << 4) /* 3.11 */
#define FLAG_READY     (UINT64_C(1) << 12)
#define FLAG_COLLECTED (UINT64_C(1) << 14)
#define FLAG_TYPE      (UINT64_C(1) << 31) /* its objects are types */

#define BODY_BYTES_MAX (INT64_C(1) << 20)
#define CHAIN_MAX      8u /* types of types */

static bool read_type(struct hl_memory *memory, uint64_t address, struct type_object *ret_type)
{
	const struct hl_map *map = address & 7 ? NULL : hl_maps_find(&memory->maps, address);

	/* Types are written to: their references are counted. Any word may be mistaken for a type's
	 * address. */
	if (!map || !(map->flags & HL_MAP_WRITE) ||
	    hl_memory_read_present(memory, address, ret_type, sizeof(*ret_type)) < 0)
		return false;
	return ret_type->flags & FLAG_READY && (uint32_t)ret_type->references &&
	       ret_type->body_bytes >= 16 && ret_type->body_bytes < BODY_BYTES_MAX &&
	       ret_type->item_bytes >= 0 && ret_type->item_bytes < BODY_BYTES_MAX;
}

/* By byte: the page behind the name may not be there. */
static bool read_name(struct hl_memory *memory, uint64_t address,
		      char ret_name[HL_PYTHON_NAME_BYTES])
{
	for (size_t i = 0; i < HL_PYTHON_NAME_BYTES; i++) {
		if (hl_memory_read(memory, address + i, &ret_name[i], 1) < 0)
			return false;
		if (!ret_name[i])
			return i > 0;
		if ((unsigned char)ret_name[i] <= ' ' || ret_name[i] == 0x7f)
			return false;
	}
	return false;
}

/* Whether the types of ${type} lead to that which is its own. */
static bool is_type_of_types(struct hl_memory *memory, uint64_t address)
{
	struct type_object type;
	char name[HL_PYTHON_NAME_BYTES];

	for (unsigned i = 0; i < CHAIN_MAX; i++) {
		if (!read_type(memory, address, &type) || !(type.flags & FLAG_TYPE))
			return false;
		if (type.type == address)
			return read_name(memory, type.name, name) && strcmp(name, "type") == 0;
		address = type.type;
	}
	return false;
}

static int examine(struct hl_python_types *types, struct hl_python_type *type)
{
	char name[HL_PYTHON_NAME_BYTES];
	struct type_object it;

	if (!read_type(types->memory, type->address, &it) ||
	    !is_type_of_types(types->memory, it.type) || !read_name(types->memory, it.name, name))
		return 0;
	type->head_bytes = (it.flags & FLAG_COLLECTED ? 16 : 0) +
			   (it.flags & (FLAG_WEAK_HEAD | FLAG_DICT_HEAD) ? 16 : 0);
	type->body_bytes = (uint32_t)it.body_bytes;
	return hl_strings_intern(types->names, name, &type->name);
}

static int find_type(struct hl_python_types *types, uint64_t address, uint32_t *ret_type)
{
	uint32_t hash = hl_hash_pair(address, 0), at = hash, id;
	struct hl_python_type type = {.address = address};

	while ((id = hl_index_next(&types->index, hash, &at)))
		if (types->types[id - 1].address == address) {
			*ret_type = id;
			return 0;
		}
	int r = examine(types, &type);
	if (r == 0)
		r = HL_ARRAY_APPEND(types->types, types->count, types->capacity, type);
	if (r == 0)
		r = hl_index_add(&types->index, hash, (uint32_t)types->count);
	*ret_type = (uint32_t)types->count;
	return r;
}

int hl_python_types_find(struct hl_python_types *types, const uint64_t *words, size_t count,
			 uint32_t *ret_type)
{
	int r = 0;

	*ret_type = 0;
	for (uint32_t head = 0; head / 8 + 2 <= count && head <= HL_PYTHON_HEAD_MAX && r == 0;
	     head += 16) {
		const uint64_t *object = words + head / 8;
		uint32_t id;
		/* More than 32 bits count no references of an object in a block. */
		if (!object[0] || object[0] >> 32)
			continue;
		r = find_type(types, object[1], &id);
		const struct hl_python_type *type = r == 0 ? &types->types[id - 1] : NULL;
		if (type && type->name && type->head_bytes == head) {
			*ret_type = id;
			break;
		}
	}
	return r;
}

void hl_python_types_release(struct hl_python_types *types)
{
	hl_index_release(&types->index);
	free(types->types);
	*types = (struct hl_python_types){0};
}

/* ---- objects by type ---- */

/* Of a part the first bytes alone are searched for words that lead to others: what is larger has objects. */
#define SEARCHED_MAX (HL_PYTHON_WINDOW_WORDS * 8)

/* What leads to a part may lead so far behind its start: tables of attributes have a head. */
#define PART_HEAD_MAX 64u

#define MOVED_BYTES_MAX (UINT64_C(64) << 20) /* what is larger has a mapping of its own */

#define READS_MAX 3u /* of a pool that changes */

struct hl_python_usage_block {
	uint64_t address, bytes;
	/* Of an object, or of that to which a part belongs, in hl_python_types.types from 1 on. */
	uint32_t type : 31;
	uint32_t is_part : 1;
	uint32_t pinned_bytes : 31;
	uint32_t is_of_pool : 1;
};

struct hl_python_usage *hl_python_usage_new(struct hl_memory *memory)
{
	struct hl_python_usage *usage = calloc(1, sizeof(*usage));

	if (usage)
		usage->types = (struct hl_python_types){.memory = memory, .names = &usage->names};
	return usage;
}

void hl_python_usage_free(struct hl_python_usage *usage)
{
	if (!usage)
		return;
	hl_python_types_release(&usage->types);
	hl_strings_release(&usage->names);
	free(usage->rows);
	free(usage->blocks);
	free(usage->parts);
	hl_extents_release(&usage->heap);
	free(usage);
}

/* ---- blocks ---- */

int hl_python_usage_add(struct hl_python_usage *usage, uint64_t address, uint64_t usable_bytes)
{
	return HL_ARRAY_APPEND(
		usage->blocks, usage->block_count, usage->block_capacity,
		(struct hl_python_usage_block){.address = address, .bytes = usable_bytes});
}

static int add_used(struct hl_python_usage *usage, uint64_t address,
		    const struct hl_python_pool *pool)
{
	uint32_t free_bytes = (pool->blocks - pool->used) * pool->block_bytes;
	uint32_t pinned = free_bytes / pool->used, rest = free_bytes % pool->used, type = 0;
	uint32_t words = pool->block_bytes / 8;
	int r = 0;

	words = words < HL_PYTHON_WORDS ? words : HL_PYTHON_WORDS;
	for (uint32_t i = 0; i < pool->blocks && r == 0; i++) {
		uint32_t offset = pool->first + i * pool->block_bytes;
		if (pool->is_free[i])
			continue;
		r = hl_python_types_find(&usage->types, &pool->words[offset / 8], words, &type);
		if (r < 0)
			break;
		const struct hl_python_usage_block block = {.address = address + offset,
							    .bytes = pool->block_bytes,
							    .type = type & INT32_MAX,
							    .pinned_bytes =
								    (pinned + rest) & INT32_MAX,
							    .is_of_pool = 1};
		rest = 0;
		r = HL_ARRAY_APPEND(usage->blocks, usage->block_count, usage->block_capacity,
				    block);
	}
	return r;
}

int hl_python_usage_add_pool(void *context, uint64_t address, uint64_t bytes)
{
	struct hl_python_usage *usage = context;
	struct hl_python_pool pool;
	int r = -EAGAIN;

	for (unsigned i = 0; i < READS_MAX && r == -EAGAIN; i++)
		r = python_pool_read(usage->types.memory, address, bytes, &pool);
	if (r == -EAGAIN || r == -EFAULT) {
		usage->unscanned_bytes += bytes;
		return 0;
	}
	return r == 0 && pool.used ? add_used(usage, address, &pool) : r;
}

/* ---- reading ---- */

/* What begins in the page of ${address}, which objects far apart lead to in turn. NULL: it is not in memory. */
static const uint64_t *read_page(struct hl_python_usage *usage, uint64_t address)
{
	uint64_t start = address & ~UINT64_C(4095);
	struct hl_python_page *page = &usage->pages[start / 4096 % HL_PYTHON_PAGES];

	if (page->start != start) {
		page->start = 0;
		if (hl_memory_read_present(usage->types.memory, start, page->words,
					   sizeof(page->words)) < 0)
			return NULL;
		page->start = start;
	}
	return &page->words[(address - start) / 8];
}

/*
 * Points *${ret_words} to up to ${bytes} at ${address}, valid until the next call, and returns how many words
 * there are: fewer where the next page is not in memory. One read serves the blocks of a page.
 */
static size_t read_words(struct hl_python_usage *usage, uint64_t address, uint64_t bytes,
			 const uint64_t **ret_words)
{
	uint64_t left = 4096 - (address & 4095);

	if (bytes > SEARCHED_MAX)
		bytes = SEARCHED_MAX;
	if (bytes > left &&
	    hl_memory_read_present(usage->types.memory, address, usage->window, bytes) == 0) {
		*ret_words = usage->window;
		return bytes / 8;
	}
	*ret_words = read_page(usage, address);
	return *ret_words ? (bytes < left ? bytes : left) / 8 : 0;
}

static int find_types(struct hl_python_usage *usage)
{
	const uint64_t *words = NULL;
	uint32_t type;
	int r = 0;

	for (size_t i = 0; i < usage->block_count && r == 0; i++) {
		struct hl_python_usage_block *block = &usage->blocks[i];
		if (block->is_of_pool)
			continue;
		uint64_t bytes = HL_PYTHON_WORDS * 8;
		size_t count = read_words(usage, block->address,
					  bytes < block->bytes ? bytes : block->bytes, &words);
		r = hl_python_types_find(&usage->types, words, count, &type);
		block->type = type & INT32_MAX;
	}
	return r;
}

/* ---- parts ---- */

/* Whether the sizes of a chunk of glibc and of the next one say that a block in use begins at ${address}. */
static bool is_block(struct hl_memory *memory, uint64_t address)
{
	uint64_t size, next;

	if (address % HL_CHUNK_BLOCK ||
	    hl_memory_read_present(memory, address - 8, &size, sizeof(size)) < 0 ||
	    size % HL_CHUNK_BLOCK > HL_CHUNK_FLAGS || size < HL_CHUNK_MIN || size > MOVED_BYTES_MAX)
		return false;
	return hl_memory_read_present(memory, address - 8 + (size & ~HL_CHUNK_FLAGS), &next,
				      sizeof(next)) == 0 &&
	       next & HL_CHUNK_IN_USE_BEFORE && next % HL_CHUNK_BLOCK <= HL_CHUNK_FLAGS &&
	       next >= HL_CHUNK_MIN;
}

/* The block that ${word} leads to has the type ${type} then, if it has none. */
static int lead_to(struct hl_python_usage *usage, uint64_t word, uint32_t type)
{
	word &= ~UINT64_C(7); /* the low bits may be marks */
	if (word < usage->blocks[0].address)
		return 0;
	size_t at = HL_LOWER_BOUND(i, usage->block_count, usage->blocks[i].address <= word) - 1;
	struct hl_python_usage_block *block = &usage->blocks[at];
	uint64_t offset = word - block->address;
	if (offset >= block->bytes && hl_extents_hold(&usage->heap, word) &&
	    is_block(usage->types.memory, word))
		usage->has_moved = true;
	if (block->type || offset >= PART_HEAD_MAX || offset >= block->bytes)
		return 0;
	block->type = type & INT32_MAX;
	block->is_part = 1;
	return HL_ARRAY_APPEND(usage->parts, usage->part_count, usage->part_capacity, at);
}

static int search(struct hl_python_usage *usage, uint64_t address, uint64_t bytes, uint32_t type)
{
	const uint64_t *words = NULL;
	size_t count = read_words(usage, address, bytes, &words);
	int r = 0;

	for (size_t i = 0; i < count && r == 0; i++)
		r = lead_to(usage, words[i], type);
	return r;
}

static int find_parts(struct hl_python_usage *usage)
{
	int r = 0;

	for (size_t i = 0; i < usage->block_count && r == 0; i++) {
		const struct hl_python_usage_block *block = &usage->blocks[i];
		if (!block->type || block->is_part)
			continue;
		const struct hl_python_type *type = &usage->types.types[block->type - 1];
		uint64_t bytes = type->head_bytes + type->body_bytes;
		usage->has_moved = false;
		r = search(usage, block->address, bytes < block->bytes ? bytes : block->bytes,
			   block->type);
		usage->moved_objects += usage->has_moved;
		while (usage->part_count && r == 0) {
			block = &usage->blocks[usage->parts[--usage->part_count]];
			r = search(usage, block->address, block->bytes, block->type);
		}
	}
	return r;
}

/* ---- rows ---- */

static void add_row(struct hl_python_usage_row *sum, const struct hl_python_usage_row *added)
{
	sum->objects += added->objects;
	sum->object_bytes += added->object_bytes;
	sum->part_bytes += added->part_bytes;
	sum->pinned_bytes += added->pinned_bytes;
}

static uint32_t name_of(const struct hl_python_usage *usage,
			const struct hl_python_usage_block *block)
{
	return block->type ? usage->types.types[block->type - 1].name : 0;
}

static int add_up(struct hl_python_usage *usage)
{
	for (size_t i = 0; i < usage->block_count; i++) {
		const struct hl_python_usage_block *block = &usage->blocks[i];
		bool is_object = block->type && !block->is_part;
		if (!block->type && !block->is_of_pool)
			continue;
		uint32_t name = name_of(usage, block);
		if (HL_ARRAY_RESERVE_ZEROED(usage->rows, usage->row_capacity, name + 1u) < 0)
			return -ENOMEM;
		if (usage->row_count <= name)
			usage->row_count = name + 1u;
		const struct hl_python_usage_row row = {
			.objects = is_object,
			.object_bytes = is_object ? block->bytes : 0,
			.part_bytes = is_object ? 0 : block->bytes,
			.pinned_bytes = block->pinned_bytes,
		};
		usage->rows[name].name = name;
		add_row(&usage->rows[name], &row);
		add_row(&usage->total, &row);
	}
	return 0;
}

static int compare_blocks(const void *left, const void *right)
{
	const struct hl_python_usage_block *a = left, *b = right;

	return (a->address > b->address) - (a->address < b->address);
}

static int compare_rows(const void *left, const void *right)
{
	const struct hl_python_usage_row *a = left, *b = right;
	uint64_t of_a = a->object_bytes + a->part_bytes, of_b = b->object_bytes + b->part_bytes;

	if (of_a != of_b)
		return of_a < of_b ? 1 : -1;
	return (a->name > b->name) - (a->name < b->name);
}

/* Names of types without an object have no row. */
static void sort_rows(struct hl_python_usage *usage)
{
	size_t kept = 0;

	for (size_t i = 0; i < usage->row_count; i++)
		if (usage->rows[i].object_bytes || usage->rows[i].part_bytes)
			usage->rows[kept++] = usage->rows[i];
	usage->row_count = kept;
	if (kept)
		qsort(usage->rows, kept, sizeof(*usage->rows), compare_rows);
}

static int find_all(struct hl_python_usage *usage)
{
	if (usage->block_count)
		qsort(usage->blocks, usage->block_count, sizeof(*usage->blocks), compare_blocks);
	int r = find_types(usage);
	return r == 0 ? find_parts(usage) : r;
}

int hl_python_usage_each(struct hl_python_usage *usage,
			 int (*visit)(void *context, uint32_t name, bool is_part), void *context)
{
	int r = find_all(usage);

	for (size_t i = 0; i < usage->block_count && r == 0; i++)
		r = visit(context, name_of(usage, &usage->blocks[i]), usage->blocks[i].is_part);
	return r;
}

int hl_python_usage_make(struct hl_python_usage *usage)
{
	int r = find_all(usage);

	if (r == 0)
		r = add_up(usage);
	sort_rows(usage);
	free(usage->blocks);
	usage->blocks = NULL;
	usage->block_count = usage->block_capacity = 0;
	return r;
}
