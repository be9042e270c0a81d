/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lays out a heap as jemalloc 5.2 and 5.3 do: slabs, a large block, free pages of each kind, and a thread's cache, in one arena.
 * Where the fields lie is said here once more, in plain numbers from the releases' sources, so that a mistake in heapline's own
 * table shows.
 */
#pragma once

#include "heap_image.h"

#define JE_HEAP	     UINT64_C(0x7f1100000000)
#define JE_BASE	     UINT64_C(0x7f1120000000)
#define JE_THREAD    UINT64_C(0x7f1200000000)
#define JE_DATA	     UINT64_C(0x7f1230000000)
#define JE_VARIABLES (JE_DATA + IMAGE_PAGE) /* .bss */
#define JE_ROOT	     (JE_VARIABLES + 0x1a98)
#define JE_TABLE     (JE_VARIABLES + 0x300)
#define JE_ARENAS    (JE_VARIABLES + 0x1200)

#define JE_BASE_BYTES  (UINT64_C(4) << 20)
#define JE_FIRST_BASE  (JE_BASE + 192)
#define JE_ARENA       (JE_BASE + 0x2000)
#define JE_DESCRIPTORS (JE_BASE + 0x8000)
#define JE_LEAF	       (JE_BASE + 0x10040)
#define JE_NODE	       (JE_BASE + 0x300040) /* of a tree of three levels */
#define JE_STACK       (JE_HEAP + 6 * IMAGE_PAGE)
#define JE_LARGE_BLOCK (JE_HEAP + 7 * IMAGE_PAGE + 0x240)
#define JE_HEAP_PAGES  32u
#define JE_DIRTY_PAGES 2u
#define JE_MUZZY_PAGES 3u
#define JE_BINS	       40u
#define JE_BIN_ROOM    4u
#define JE_SMALL_BINS  36u
#define JE_NO_CLASS    232u
#define JE_CLASS_16    1u
#define JE_CLASS_80    5u
#define JE_CLASS_2048  24u
#define JE_CLASS_16384 36u

enum je_release { JE_5_2, JE_5_3, JE_5_3_57_BITS };

struct je_builder {
	struct image image;
	enum je_release release;
	uint64_t next_descriptor;
	/* What a walk must find. */
	uint64_t live_blocks, live_bytes, cached_blocks, cached_bytes, free_blocks;
};

static void je_put(struct je_builder *builder, uint64_t address, const void *bytes, size_t length)
{
	const struct image_part *part = image_part_at(&builder->image, address);

	memcpy(part->bytes + (address - part->start), bytes, length);
}

static void je_word(struct je_builder *builder, uint64_t address, uint64_t word)
{
	je_put(builder, address, &word, sizeof(word));
}

static void je_element(struct je_builder *builder, uint64_t page, uint64_t descriptor, bool is_slab,
		       uint32_t size_class, uint32_t state)
{
	uint64_t index = page >> 12;

	if (builder->release == JE_5_2)
		je_word(builder, JE_LEAF + (index & 0x3ffff) * 8,
			descriptor | (uint64_t)size_class << 48 | is_slab);
	else if (builder->release == JE_5_3)
		je_word(builder, JE_LEAF + (index & 0x3ffff) * 8,
			descriptor | (uint64_t)size_class << 48 | state << 2 | is_slab);
	if (builder->release != JE_5_3_57_BITS)
		return;
	je_word(builder, JE_LEAF + (index & 0x7fff) * 16, descriptor);
	je_word(builder, JE_LEAF + (index & 0x7fff) * 16 + 8,
		size_class << 5 | state << 2 | is_slab);
}

/* An extent of ${pages} from page ${first} on; places of which ${free} has the bits are free. Returns its descriptor. */
static uint64_t je_extent(struct je_builder *builder, uint32_t first, uint32_t pages, bool is_slab,
			  uint32_t size_class, uint32_t state, const uint64_t *free)
{
	bool is_5_2 = builder->release == JE_5_2;
	uint64_t start = JE_HEAP + first * IMAGE_PAGE, descriptor = builder->next_descriptor;
	uint64_t count = 0;

	for (unsigned i = 0; free && i < 8; i++)
		count += (uint64_t)__builtin_popcountll(free[i]);
	je_word(builder, descriptor,
		(uint64_t)is_slab << 12 | 1 << 13 | (uint64_t)state << (is_5_2 ? 16 : 17) |
			(uint64_t)size_class << (is_5_2 ? 18 : 20) | count << (is_5_2 ? 26 : 28));
	je_word(builder, descriptor + 8, start);
	je_word(builder, descriptor + 16, pages * IMAGE_PAGE | 5);
	if (free)
		je_put(builder, descriptor + 64, free, 64);
	for (uint32_t i = 0; i < pages; i++)
		if (is_slab || i == 0 || i + 1 == pages)
			je_element(builder, start + i * IMAGE_PAGE, descriptor, is_slab, size_class,
				   state);
	builder->next_descriptor += 128;
	builder->free_blocks += count + (state != 0);
	return descriptor;
}

static void je_live(struct je_builder *builder, uint64_t blocks, uint64_t bytes)
{
	builder->live_blocks += blocks;
	builder->live_bytes += blocks * bytes;
}

static void je_extents(struct je_builder *builder)
{
	static const uint64_t few[8] = {5, 0, 0, 1ull << 63}, many[8] = {~0ull, ~0ull, 0, 2};
	static const uint64_t stack[8] = {2};

	je_extent(builder, 0, 1, true, JE_CLASS_16, 0, few);
	je_extent(builder, 1, 5, true, JE_CLASS_80, 0, many);
	je_extent(builder, 6, 1, true, JE_CLASS_2048, 0, stack); /* which the cache has */
	je_word(builder, je_extent(builder, 7, 5, false, JE_CLASS_16384, 0, NULL) + 8,
		JE_LARGE_BLOCK);
	je_extent(builder, 12, JE_DIRTY_PAGES, false, JE_NO_CLASS, 1, NULL);
	je_extent(builder, 14, JE_MUZZY_PAGES, false, JE_NO_CLASS, 2, NULL);
	je_extent(builder, 17, JE_HEAP_PAGES - 17, false, JE_NO_CLASS, 3, NULL);
	je_live(builder, 256 - 3, 16);
	je_live(builder, 256 - 129, 80);
	je_live(builder, 1, 16384);
}

/* A bin whose stack begins at ${start}, with ${count} blocks from ${block} on. */
static void je_bin(struct je_builder *builder, uint64_t bin, uint64_t start, uint64_t block,
		   uint64_t bytes, uint32_t count)
{
	uint64_t end = start + JE_BIN_ROOM * 8, used = end - count * 8;
	const uint16_t low[3] = {(uint16_t)used, (uint16_t)start, (uint16_t)end};

	if (builder->release == JE_5_2) {
		je_word(builder, bin, (uint64_t)count << 32);
		je_word(builder, bin + 16, end);
	} else {
		je_word(builder, bin, used);
		je_put(builder, bin + 16, low, sizeof(low));
	}
	for (uint32_t i = 0; i < count; i++)
		je_word(builder, used + i * 8, block + i * bytes);
	builder->cached_blocks += count;
	builder->cached_bytes += count * bytes;
	builder->live_blocks -= count;
	builder->live_bytes -= count * bytes;
}

static void je_cache(struct je_builder *builder)
{
	uint64_t bins = JE_THREAD + 0x2e0, link = JE_THREAD + 0x40;

	for (uint32_t i = 0; i < JE_BINS; i++) {
		uint64_t bytes = i == JE_CLASS_16 ? 16 : i == JE_CLASS_80 ? 80 : 16384;
		uint64_t block = i == JE_CLASS_16   ? JE_HEAP + 16
				 : i == JE_CLASS_80 ? JE_HEAP + IMAGE_PAGE + 240 * 80
						    : JE_LARGE_BLOCK;
		uint32_t count = i == JE_CLASS_16      ? 1
				 : i == JE_CLASS_80    ? JE_BIN_ROOM
				 : i == JE_CLASS_16384 ? 1
						       : 0;
		je_bin(builder, bins + i * 24, JE_STACK + i * JE_BIN_ROOM * 8, block, bytes, count);
	}
	je_word(builder, link, link);
	je_word(builder, link + 8, link);
	je_word(builder, link + 16, bins);
	je_word(builder, link + 24, bins + JE_SMALL_BINS * 24);
	je_word(builder, JE_ARENA, 1); /* a thread uses it */
	je_word(builder, JE_ARENA + 0x1340, link);
	je_word(builder, JE_ARENA + 0x2008, JE_FIRST_BASE);
	je_word(builder, JE_ARENAS, JE_ARENA);
}

static void je_variables(struct je_builder *builder)
{
	uint64_t at = JE_TABLE, bytes = 8;

	je_word(builder, at, bytes);
	for (bytes = 16; bytes <= 64; bytes += 16)
		je_word(builder, at += 8, bytes);
	for (uint64_t base = 64; at < JE_TABLE + (JE_NO_CLASS - 1) * 8; base *= 2)
		for (uint64_t i = 1; i <= 4 && at < JE_TABLE + (JE_NO_CLASS - 1) * 8; i++)
			je_word(builder, at += 8, base + base / 4 * i);
	if (builder->release == JE_5_3_57_BITS) {
		je_word(builder, JE_ROOT + (JE_HEAP >> 42) * 8, JE_NODE);
		je_word(builder, JE_NODE + (JE_HEAP >> 27 & 0x7fff) * 8, JE_LEAF);
	} else {
		je_word(builder, JE_ROOT + (JE_HEAP >> 30) * 8, JE_LEAF);
	}
}

static void je_base(struct je_builder *builder)
{
	je_word(builder, JE_BASE, JE_BASE_BYTES);
	je_word(builder, JE_BASE + 16, 4095);
	je_word(builder, JE_BASE + 24, JE_BASE + 0x380000);
	je_word(builder, JE_BASE + 32, JE_BASE_BYTES - 0x380000);
	je_word(builder, JE_FIRST_BASE + 160, JE_BASE);
}

static inline void je_make(struct je_builder *builder, enum je_release release)
{
	memset(builder, 0, sizeof(*builder));
	builder->release = release;
	builder->next_descriptor = JE_DESCRIPTORS;
	image_add(&builder->image, JE_HEAP, JE_HEAP_PAGES * IMAGE_PAGE, "", 0);
	image_add(&builder->image, JE_BASE, JE_BASE_BYTES, "", 0);
	image_add(&builder->image, JE_THREAD, IMAGE_PAGE, "", 0);
	image_add(&builder->image, JE_DATA, IMAGE_PAGE, "/usr/lib/libjemalloc.so.2", 7);
	image_add(&builder->image, JE_VARIABLES, 515 * IMAGE_PAGE, "", 0);
	je_variables(builder);
	je_base(builder);
	je_extents(builder);
	je_cache(builder);
}
