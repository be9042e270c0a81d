/* SPDX-License-Identifier: BSD-2-Clause */
/* What jemalloc has for itself: base blocks, arenas in them, and the caches of threads, which arenas list; see jemalloc.h. */
#include "allocators/outside/jemalloc.h"

#include "base/array.h"
#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>

#define READ_BYTES	  UINT64_C(4096)	/* at once: what follows may not be there */
#define STEPS_MAX	  4096u			/* down to the header of a base block */
#define BLOCKS_MAX	  (1u << 16)		/* of all arenas */
#define BASE_BYTES	  512u			/* of a base, in which its newest block is named */
#define ARENA_BYTES	  (UINT64_C(256) << 10) /* of an arena, before its base is named at the latest */
#define THREADS_MAX	  (1u << 16)		/* with a cache, of an arena */
#define BINS_MAX	  256u
#define BIN_BYTES	  24u
#define BINS_SOUGHT	  8u /* side by side prove themselves */
#define SEEK_BYTES	  (32u << 10)
#define BLOCKS_CACHED_MAX 8192u /* in a bin */

struct reader {
	struct hl_memory *memory;
	struct hl_jemalloc *jemalloc;
	struct hl_addresses places; /* in base blocks, rounded down to their alignment */
	uint64_t ring_at; /* where in an arena the list of caches begins; 0: not known yet */
	int r;		  /* -ENOMEM: what seems not to be there may be */
};

static bool read_present(struct reader *reader, uint64_t address, void *bytes, size_t length)
{
	int r = address + length < address
			? -EFAULT
			: hl_memory_read_present(reader->memory, address, bytes, length);

	if (r == -ENOMEM)
		reader->r = r;
	return r == 0;
}

/* ---- base blocks ---- */

static const struct hl_jemalloc_block *find_block(const struct hl_jemalloc *jemalloc,
						  uint64_t address)
{
	for (size_t i = 0; i < jemalloc->block_count; i++)
		if (address >= jemalloc->blocks[i].start && address < jemalloc->blocks[i].end)
			return &jemalloc->blocks[i];
	return NULL;
}

/* Whether a base block begins at ${start}. */
static bool read_header(struct reader *reader, uint64_t start, uint64_t *ret_end,
			uint64_t *ret_next)
{
	uint8_t bytes[HL_JEMALLOC_BASE_REST + HL_JEMALLOC_HEAD_BYTES];

	if (start % HL_JEMALLOC_HUGE_PAGE || !read_present(reader, start, bytes, sizeof(bytes)))
		return false;
	const uint8_t *rest = bytes + HL_JEMALLOC_BASE_REST;
	uint64_t size = hl_jemalloc_word(bytes);
	uint64_t next = hl_jemalloc_word(bytes + HL_JEMALLOC_BASE_NEXT);
	uint64_t rest_start = hl_jemalloc_word(rest + HL_JEMALLOC_AT_BLOCK);
	uint64_t rest_bytes = hl_jemalloc_word(rest + HL_JEMALLOC_AT_SIZE);
	if (!size || size % HL_JEMALLOC_HUGE_PAGE || start + size < start ||
	    next % HL_JEMALLOC_HUGE_PAGE ||
	    rest_start <
		    start + HL_JEMALLOC_BASE_REST + reader->jemalloc->shape->descriptor_bytes ||
	    rest_start + rest_bytes != start + size ||
	    (hl_jemalloc_word(rest) & (HL_JEMALLOC_ARENAS - 1)) != HL_JEMALLOC_NO_ARENA)
		return false;
	*ret_end = start + size;
	*ret_next = next;
	return true;
}

/* Adds the block at ${start} and the older ones that follow it. Sets the oldest one; 0: there is none. */
static int add_chain(struct reader *reader, uint64_t start, uint64_t *ret_oldest)
{
	struct hl_jemalloc *jemalloc = reader->jemalloc;
	uint64_t end, next;

	*ret_oldest = 0;
	for (; start && !find_block(jemalloc, start) && read_header(reader, start, &end, &next);
	     start = next) {
		const struct hl_jemalloc_block block = {start, end, UINT32_MAX};
		if (jemalloc->block_count == BLOCKS_MAX)
			return 0;
		int r = HL_ARRAY_APPEND(jemalloc->blocks, jemalloc->block_count,
					jemalloc->block_capacity, block);
		if (r < 0)
			return r;
		*ret_oldest = next ? 0 : start;
	}
	return 0;
}

/* Adds all blocks of the base of which the one at ${start} is one. */
static int add_base(struct reader *reader, uint64_t start)
{
	struct hl_jemalloc *jemalloc = reader->jemalloc;
	size_t first = jemalloc->block_count;
	uint8_t bytes[BASE_BYTES];
	uint64_t oldest, none;
	uint32_t number;
	int r = add_chain(reader, start, &oldest);

	/* The arena's oldest one has its base, which begins with the arena's number. */
	uint64_t base = oldest + ((HL_JEMALLOC_BASE_REST + jemalloc->shape->descriptor_bytes + 63) &
				  ~UINT64_C(63));
	if (r < 0 || !oldest || !read_present(reader, base, bytes, sizeof(bytes)))
		return r;
	/* Newer ones are found from the base alone. */
	for (size_t at = 0; at < sizeof(bytes) && r == 0; at += 8)
		if (hl_jemalloc_word(bytes + at) % HL_JEMALLOC_HUGE_PAGE == 0)
			r = add_chain(reader, hl_jemalloc_word(bytes + at), &none);
	memcpy(&number, bytes, sizeof(number));
	if (number >= HL_JEMALLOC_NO_ARENA)
		return r;
	for (size_t i = first; i < jemalloc->block_count; i++)
		jemalloc->blocks[i].arena = number;
	jemalloc->arenas[number].base = base;
	jemalloc->arenas[number].is_used = true;
	return r;
}

/* The header of the block in which ${place} lies is some steps below. */
static int add_block_of(struct reader *reader, uint64_t place)
{
	uint64_t end, next, start = place;

	if (find_block(reader->jemalloc, place))
		return 0;
	for (unsigned i = 0; i < STEPS_MAX && start; i++, start -= HL_JEMALLOC_HUGE_PAGE) {
		const struct hl_map *map = hl_maps_find(&reader->memory->maps, start);
		if (!map || map->inode)
			return 0;
		if (read_header(reader, start, &end, &next))
			return end > place ? add_base(reader, start) : 0;
	}
	return 0;
}

static int add_place(struct reader *reader, uint64_t address)
{
	uint64_t place = address & ~(HL_JEMALLOC_HUGE_PAGE - 1);
	struct hl_addresses *places = &reader->places;

	if (!place || (places->count && places->addresses[places->count - 1] == place))
		return 0;
	return HL_ARRAY_APPEND(places->addresses, places->count, places->capacity, place);
}

/* Descriptors lie in base blocks, and so do leaves. */
static int find_blocks(struct reader *reader)
{
	struct hl_jemalloc *jemalloc = reader->jemalloc;
	uint64_t root[512];
	uint64_t count = UINT64_C(1) << jemalloc->shape->bits[0];
	int r = 0;

	for (size_t i = 0; i < jemalloc->extent_count && r == 0; i++)
		r = add_place(reader, jemalloc->extents[i].descriptor);
	for (uint64_t i = 0; i < count && r == 0; i += HL_COUNT_OF(root)) {
		if (!read_present(reader, jemalloc->root + i * 8, root, sizeof(root)))
			continue;
		for (size_t k = 0; k < HL_COUNT_OF(root) && r == 0; k++)
			r = add_place(reader, root[k]);
	}
	hl_addresses_sort(&reader->places);
	for (size_t i = 0; i < reader->places.count && r == 0; i++)
		r = add_block_of(reader, reader->places.addresses[i]);
	if (jemalloc->block_count)
		qsort(jemalloc->blocks, jemalloc->block_count, sizeof(*jemalloc->blocks),
		      hl_addresses_compare);
	return r;
}

/* ---- arenas ---- */

/* Where from ${address} on ${word} lies, before ${end}; 0: nowhere. */
static uint64_t seek_word(struct reader *reader, uint64_t address, uint64_t end, uint64_t word)
{
	uint64_t words[READ_BYTES / 8], start = address & ~(READ_BYTES - 1);

	for (; start < end; start += READ_BYTES) {
		if (!read_present(reader, start, words, sizeof(words)))
			continue;
		for (size_t i = 0; i < HL_COUNT_OF(words); i++)
			if (words[i] == word && start + i * 8 >= address)
				return start + i * 8;
	}
	return 0;
}

/* A variable of jemalloc leads to ${address}: it may be an arena, which names its base. Variables lead to what lies before an
 * arena, too: the one that is nearest to the name is it. */
static void try_arena(struct reader *reader, uint64_t address)
{
	const struct hl_jemalloc_block *block = find_block(reader->jemalloc, address);
	struct hl_jemalloc_arena *arena = block && block->arena != UINT32_MAX
						  ? &reader->jemalloc->arenas[block->arena]
						  : NULL;

	if (!arena || address <= arena->base || arena->base < block->start ||
	    (arena->address && address <= arena->address))
		return;
	uint64_t end = block->end - address > ARENA_BYTES ? address + ARENA_BYTES : block->end;
	uint64_t at = seek_word(reader, address, end, arena->base);
	if (!at || !read_present(reader, address, &arena->threads, sizeof(arena->threads)))
		return;
	arena->address = address;
	arena->base_at = at - address;
}

static int find_arenas(struct reader *reader)
{
	const struct hl_jemalloc *jemalloc = reader->jemalloc;
	uint64_t words[READ_BYTES / 8], root_end;
	uint64_t address = jemalloc->variables;

	root_end = jemalloc->root + (UINT64_C(8) << jemalloc->shape->bits[0]);
	for (; address < jemalloc->variables_end; address += READ_BYTES) {
		if (address >= jemalloc->root + READ_BYTES && address + READ_BYTES < root_end)
			continue;
		if (!read_present(reader, address, words, sizeof(words)))
			continue;
		for (size_t i = 0; i < HL_COUNT_OF(words); i++)
			if (words[i] && words[i] % 64 == 0)
				try_arena(reader, words[i]);
	}
	return reader->r;
}

/* ---- caches of threads ---- */

struct bin {
	uint64_t start, end; /* its stack */
	uint64_t used;	     /* where what is in it begins, up to the end */
};

/* Reads a bin of 5.2, whose stack begins where that of the bin before ends. */
static bool parse_bin_5_2(const uint8_t *bytes, uint64_t before, struct bin *ret_bin)
{
	uint64_t count = hl_jemalloc_word(bytes) >> 32, end = hl_jemalloc_word(bytes + 16);

	*ret_bin = (struct bin){
		.start = before ? before : end - 8, .end = end, .used = end - count * 8};
	return end && end % 8 == 0 && count <= BLOCKS_CACHED_MAX && count * 8 < end &&
	       (!before ||
		(end > before && end - before <= BLOCKS_CACHED_MAX * 8 && ret_bin->used >= before));
}

/* Of 5.3, which has the lower 16 bits of both ends. */
static bool parse_bin_5_3(const uint8_t *bytes, uint64_t before, struct bin *ret_bin)
{
	uint64_t used = hl_jemalloc_word(bytes);
	uint16_t start, end;

	memcpy(&start, bytes + 18, sizeof(start));
	memcpy(&end, bytes + 20, sizeof(end));
	uint64_t count = (uint16_t)(end - (uint16_t)used), room = (uint16_t)(end - start);
	*ret_bin = (struct bin){.start = used + count - room, .end = used + count, .used = used};
	if (!room && !count) /* a size class without a cache */
		return used;
	return used && used % 8 == 0 && count % 8 == 0 && count <= room && room % 8 == 0 &&
	       used > room && (!before || ret_bin->start == before);
}

static bool parse_bin(const struct reader *reader, const uint8_t *bytes, uint64_t before,
		      struct bin *ret_bin)
{
	return reader->jemalloc->layout->is_5_2 ? parse_bin_5_2(bytes, before, ret_bin)
						: parse_bin_5_3(bytes, before, ret_bin);
}

/* Reads up to ${count} bins from ${address} on; ${before}: where the stack of the last one ends, 0: none. Returns how many. */
static uint32_t read_bins(struct reader *reader, uint64_t address, uint32_t count, uint64_t *before,
			  struct bin *ret_bins)
{
	uint8_t bytes[BINS_MAX * BIN_BYTES];
	uint64_t length = 0, all = count * BIN_BYTES;
	uint32_t read = 0;

	/* What follows them may not be there. */
	while (length < all) {
		uint64_t piece = READ_BYTES - (address + length) % READ_BYTES;
		piece = piece < all - length ? piece : all - length;
		if (!read_present(reader, address + length, bytes + length, piece))
			break;
		length += piece;
	}
	while (read < count && (read + 1) * BIN_BYTES <= length &&
	       parse_bin(reader, bytes + read * BIN_BYTES, *before, &ret_bins[read])) {
		if (ret_bins[read].start != ret_bins[read].end)
			*before = ret_bins[read].end;
		read++;
	}
	return read;
}

/* All bins of a cache whose list element has ${words}. */
static uint32_t read_cache(struct reader *reader, const uint64_t *words, struct bin *ret_bins)
{
	const struct hl_jemalloc *jemalloc = reader->jemalloc;
	uint64_t before = 0;

	if (!jemalloc->layout->is_5_2)
		return read_bins(reader, words[2], BINS_MAX, &before, ret_bins);
	uint32_t small = read_bins(reader, words[2], jemalloc->slab_classes, &before, ret_bins);
	if (small < jemalloc->slab_classes)
		return 0;
	return small + read_bins(reader, words[3], BINS_MAX - small, &before, ret_bins + small);
}

static int add_cached(struct reader *reader, const struct bin *bins, uint32_t count)
{
	struct hl_addresses *cached = &reader->jemalloc->cached, *own = &reader->jemalloc->own;
	uint64_t blocks[BLOCKS_CACHED_MAX];
	int r = 0;

	for (uint32_t i = 0; i < count && r == 0; i++) {
		uint64_t bytes = bins[i].end - bins[i].used;
		if (!bytes || bytes > sizeof(blocks) ||
		    !read_present(reader, bins[i].used, blocks, bytes))
			continue;
		r = HL_ARRAY_RESERVE(cached->addresses, cached->capacity,
				     cached->count + bytes / 8);
		if (r == 0)
			memcpy(cached->addresses + cached->count, blocks, bytes);
		cached->count += r == 0 ? bytes / 8 : 0;
	}
	for (uint32_t i = 0; i < count; i++)
		if (bins[i].start != bins[i].end)
			return r == 0 ? HL_ARRAY_APPEND(own->addresses, own->count, own->capacity,
							bins[i].start)
				      : r;
	return r;
}

/* Adds what is in caches of the list in which an element lies at ${first}. Sets how many have bins; 0: it is not a list of caches. */
static int read_ring(struct reader *reader, uint64_t first, uint32_t *ret_count)
{
	size_t words_read = reader->jemalloc->layout->is_5_2 ? 4 : 3;
	struct bin bins[BINS_MAX];
	uint64_t words[4], before = 0, address = first;

	*ret_count = 0;
	for (uint32_t i = 0; i < THREADS_MAX; i++) {
		if (!read_present(reader, address, words, words_read * 8) ||
		    (i && words[1] != before))
			return 0;
		uint32_t count = read_cache(reader, words, bins);
		if (count < 2)
			return 0;
		int r = add_cached(reader, bins, count);
		if (r < 0)
			return r;
		++*ret_count;
		before = address;
		address = words[0];
		if (address == first)
			return 0;
	}
	return 0;
}

/* Threads have their caches outside of base blocks. */
static bool can_be_cache(const struct reader *reader, uint64_t address)
{
	const struct hl_map *map =
		address && address % 8 == 0 ? hl_maps_find(&reader->memory->maps, address) : NULL;

	return map && map->flags & HL_MAP_WRITE && !(map->flags & HL_MAP_RECORDER) &&
	       !find_block(reader->jemalloc, address);
}

static int read_caches(struct reader *reader, const struct hl_jemalloc_arena *arena)
{
	uint64_t words[READ_BYTES / 8];
	uint64_t at = reader->ring_at, end = at ? at + 8 : arena->base_at;
	uint32_t count = 0;
	int r = 0;

	for (uint64_t length; at < end && r == 0; at += length) {
		uint64_t address = arena->address + at;
		length = READ_BYTES - address % READ_BYTES;
		length = length < end - at ? length : end - at;
		if (!read_present(reader, address, words, length & ~UINT64_C(7)))
			continue;
		for (size_t i = 0; i < length / 8 && r == 0; i++) {
			if (!can_be_cache(reader, words[i]))
				continue;
			r = read_ring(reader, words[i], &count);
			if (!count)
				continue;
			reader->ring_at = at + i * 8;
			return r;
		}
	}
	return r;
}

/* Whether jemalloc has memory in use at ${address}. */
static bool is_in_use(const struct hl_jemalloc *jemalloc, uint64_t address)
{
	const struct hl_jemalloc_extent *extents = jemalloc->extents;
	size_t at = HL_LOWER_BOUND(i, jemalloc->extent_count, extents[i].end <= address);

	return at < jemalloc->extent_count && extents[at].start <= address &&
	       hl_jemalloc_has_blocks(&extents[at]);
}

/* Reads as many bins as lie at the beginning of ${bytes}, stack behind stack. */
static uint32_t parse_bins(const struct reader *reader, const uint8_t *bytes, size_t length,
			   struct bin *ret_bins)
{
	uint64_t before = 0;
	uint32_t count = 0;

	while (count < BINS_MAX && (count + 1) * BIN_BYTES <= length &&
	       parse_bin(reader, bytes + count * BIN_BYTES, before, &ret_bins[count])) {
		if (ret_bins[count].start == ret_bins[count].end)
			break;
		before = ret_bins[count++].end;
	}
	return count;
}

/* Looks for bins in ${length} bytes from the page at ${start} on, where a thread's variables may lie. */
static int seek_bins(struct reader *reader, uint64_t start, size_t length)
{
	uint8_t bytes[SEEK_BYTES] = {0};
	struct bin bins[BINS_MAX];
	int r = 0;

	for (size_t at = 0; at < length; at += READ_BYTES)
		(void)read_present(reader, start + at, bytes + at, READ_BYTES);
	for (size_t at = 0; at + BIN_BYTES <= length && r == 0; at += 8) {
		if (!hl_jemalloc_word(bytes + at) && !hl_jemalloc_word(bytes + at + 16))
			continue;
		uint32_t count = parse_bins(reader, bytes + at, length - at, bins);
		if (count < BINS_SOUGHT || !is_in_use(reader->jemalloc, bins[0].start))
			continue;
		r = add_cached(reader, bins, count);
		at += count * BIN_BYTES - 8;
	}
	return r;
}

/* A jemalloc that was built without statistics has no list of caches. They are variables of threads, which lie at the end of
 * stacks, for the first thread in a small mapping or where the break begins. */
static int seek_caches(struct reader *reader)
{
	const struct hl_maps *maps = &reader->memory->maps;
	int r = 0;

	for (size_t i = 0; i < maps->count && r == 0; i++) {
		const struct hl_map *map = &maps->maps[i];
		bool is_break = strcmp(map->path, "[heap]") == 0;
		uint64_t bytes = map->end - map->start;
		if (map->inode || !(map->flags & HL_MAP_WRITE) ||
		    find_block(reader->jemalloc, map->start) ||
		    map->flags & (HL_MAP_SHARED | HL_MAP_RECORDER))
			continue;
		bytes = bytes < SEEK_BYTES ? bytes : SEEK_BYTES;
		r = seek_bins(reader, is_break ? map->start : map->end - bytes, bytes);
	}
	return r;
}

int hl_jemalloc_read_base(struct hl_memory *memory, struct hl_jemalloc *jemalloc)
{
	struct reader reader = {.memory = memory, .jemalloc = jemalloc};
	int r = find_blocks(&reader);

	for (size_t i = 0; i < jemalloc->extent_count; i++)
		if (!jemalloc->extents[i].is_bad)
			jemalloc->arenas[jemalloc->extents[i].arena].is_used = true;
	if (r == 0)
		r = find_arenas(&reader);
	for (size_t i = 0; i < HL_JEMALLOC_ARENAS && r == 0; i++)
		if (jemalloc->arenas[i].address)
			r = read_caches(&reader, &jemalloc->arenas[i]);
	if (r == 0 && !reader.ring_at)
		r = seek_caches(&reader);
	hl_addresses_sort(&jemalloc->cached);
	hl_addresses_sort(&jemalloc->own);
	hl_addresses_release(&reader.places);
	return r == 0 ? reader.r : r;
}
