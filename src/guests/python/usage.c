/* SPDX-License-Identifier: BSD-2-Clause */
/* Python's objects by type; see usage.h. */
#include "guests/python/usage.h"

#include "base/array.h"
#include "base/compiler.h"
#include "guests/python/arenas.h"
#include "heap/glibc.h"
#include "heap/memory.h"

/* Of a part the first bytes alone are searched for words that lead to others: what is larger has objects. */
#define SEARCHED_MAX 1024u

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
		r = hl_python_pool_read(usage->types.memory, address, bytes, &pool);
	if (r == -EAGAIN || r == -EFAULT) {
		usage->unscanned_bytes += bytes;
		return 0;
	}
	return r == 0 && pool.used ? add_used(usage, address, &pool) : r;
}

/* ---- reading ---- */

/*
 * Points *${ret_words} to up to ${bytes} at ${address}, valid until the next call, and returns how many words
 * there are: fewer where the next page is not in memory. One read serves the blocks of a page.
 */
static size_t read_words(struct hl_python_usage *usage, uint64_t address, uint64_t bytes,
			 const uint64_t **ret_words)
{
	struct hl_memory *memory = usage->types.memory;
	uint64_t page_end = (address & ~UINT64_C(4095)) + 4096;

	if (bytes > SEARCHED_MAX)
		bytes = SEARCHED_MAX;
	if (address < usage->window_start || address + bytes > usage->window_end) {
		uint64_t end = address + bytes > page_end ? address + bytes : page_end;
		int r = hl_memory_read_present(memory, address, usage->window, end - address);
		if (r < 0 && end > page_end) {
			end = page_end;
			r = hl_memory_read_present(memory, address, usage->window, end - address);
		}
		usage->window_start = r < 0 ? 0 : address;
		usage->window_end = r < 0 ? 0 : end;
		if (r < 0)
			return 0;
	}
	if (bytes > usage->window_end - address)
		bytes = usage->window_end - address;
	*ret_words = &usage->window[(address - usage->window_start) / 8];
	return bytes / 8;
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
