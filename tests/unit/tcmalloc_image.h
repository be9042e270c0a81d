/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lays out a heap as gperftools' tcmalloc does, with few classes of size: spans of blocks, a large and a sampled block, free
 * spans, caches of two threads and one that nobody uses. Where the fields lie is said here once more, in plain numbers from the
 * release's sources, so that a mistake in heapline's own table shows.
 */
#pragma once

#include "heap_image.h"

#define TC_HEAP	     UINT64_C(0x7f1100000000)
#define TC_METADATA  UINT64_C(0x7f1200000000)
#define TC_VARIABLES UINT64_C(0x7f1230000000)

#define TC_PAGE	      8192u
#define TC_HEAP_PAGES 13u

#define TC_SPANS  TC_METADATA		/* descriptors of 48 bytes */
#define TC_TRACE  (TC_METADATA + 0x800) /* of the sampled block */
#define TC_CACHES (TC_METADATA + 0x1000)
#define TC_NODES  (TC_METADATA + 0x5000) /* of the page map */

#define TC_CACHE_BYTES 0x1080u
#define TC_CACHE_NEXT  4128u /* since 2.16 */

/* Of the variables. */
#define TC_SIZES     0x100u /* a table by size, then by class: batch, bytes, pages */
#define TC_CENTRAL   0x2000u
#define TC_CHAIN     0x30000u /* where the first cache is named */
#define TC_PAGE_HEAP 0x31000u /* its root; the map's function, two sets, and the lists follow */
#define TC_LISTS     (tc_root_words(builder) * 8 + 8 + 2 * 48)

#define TC_CLASSES 5u
static const uint32_t tc_bytes[TC_CLASSES] = {0, 8, 16, 1024, 262144};
static const uint64_t tc_pages[TC_CLASSES] = {0, 1, 1, 1, 32};
static const uint32_t tc_batch[TC_CLASSES] = {0, 32, 32, 2, 2};

struct tc_builder {
	struct image image;
	unsigned levels;
	uint64_t page_heap; /* its root */
	unsigned spans;
	/* What a walk must find. */
	uint64_t live_blocks, live_bytes, cached_blocks, cached_bytes, free_blocks, free_bytes,
		purged_bytes;
};

static uint64_t tc_root_words(const struct tc_builder *builder)
{
	return builder->levels == 2 ? UINT64_C(1) << 17 : UINT64_C(1) << 12;
}

static void tc_word(struct tc_builder *builder, uint64_t address, uint64_t word)
{
	*image_word(&builder->image, address) = word;
}

static void tc_half(struct tc_builder *builder, uint64_t address, uint32_t half)
{
	const struct image_part *part = image_part_at(&builder->image, address);

	memcpy(part->bytes + (address - part->start), &half, sizeof(half));
}

/* Where the page map has the descriptor of page ${number} of the heap. */
static uint64_t tc_entry(const struct tc_builder *builder, unsigned number)
{
	uint64_t page = TC_HEAP / TC_PAGE + number;

	return builder->levels == 2 ? TC_NODES + 8 * (page % (1 << 18))
				    : TC_NODES + 8 * ((1 << 12) + page % (1 << 11));
}

static void tc_map(struct tc_builder *builder)
{
	uint64_t page = TC_HEAP / TC_PAGE;

	builder->page_heap = TC_VARIABLES + TC_PAGE_HEAP;
	if (builder->levels == 2) {
		tc_word(builder, builder->page_heap + 8 * (page >> 18), TC_NODES);
	} else {
		tc_word(builder, builder->page_heap + 8 * (page >> 23), TC_NODES);
		tc_word(builder, TC_NODES + 8 * (page >> 11 & 0xfff), TC_NODES + 8 * (1 << 12));
	}
	tc_word(builder, builder->page_heap + 8 * tc_root_words(builder), 0x55550000);
}

/* The address of a place of ${bytes} in page ${page}. */
static uint64_t tc_place(unsigned page, unsigned number, uint32_t bytes)
{
	return TC_HEAP + page * TC_PAGE + (uint64_t)number * bytes;
}

/* Adds the descriptor of [${page}, ${page} + ${pages}). ${bits}: blocks in use, class, location, sampled. */
static uint64_t tc_span(struct tc_builder *builder, unsigned page, unsigned pages, uint64_t objects,
			uint64_t bits)
{
	uint64_t span = TC_SPANS + 48 * builder->spans++;

	tc_word(builder, span, TC_HEAP / TC_PAGE + page);
	tc_word(builder, span + 8, pages);
	tc_word(builder, span + 32, objects);
	tc_word(builder, span + 40, bits);
	tc_word(builder, tc_entry(builder, page), span);
	tc_word(builder, tc_entry(builder, page + pages - 1), span);
	return span;
}

static void tc_empty_list(struct tc_builder *builder, uint64_t head)
{
	tc_word(builder, head + 16, head);
	tc_word(builder, head + 24, head);
}

static void tc_list(struct tc_builder *builder, uint64_t head, uint64_t span)
{
	tc_word(builder, head + 16, span);
	tc_word(builder, head + 24, span);
	tc_word(builder, span + 16, head);
	tc_word(builder, span + 24, head);
}

static void tc_count(struct tc_builder *builder, uint64_t live, uint64_t cached, uint64_t free,
		     uint64_t bytes)
{
	builder->live_blocks += live;
	builder->live_bytes += live * bytes;
	builder->cached_blocks += cached;
	builder->cached_bytes += cached * bytes;
	builder->free_blocks += free;
	builder->free_bytes += free * bytes;
}

static uint64_t tc_central(unsigned class)
{
	return TC_VARIABLES + TC_CENTRAL + class * 1216;
}

static uint64_t tc_cache(unsigned number)
{
	return TC_CACHES + number * TC_CACHE_BYTES;
}

static void tc_variables(struct tc_builder *builder)
{
	uint64_t sizes = TC_VARIABLES + TC_SIZES, lists = builder->page_heap + TC_LISTS;
	struct image_part *part = image_part_at(&builder->image, sizes);

	for (unsigned i = 1; i < TC_CLASSES; i++) {
		uint32_t bytes = tc_bytes[i];
		size_t index = bytes <= 1024 ? (bytes + 7) / 8 : (bytes + 127 + 15360) / 128;
		part->bytes[TC_SIZES + index] = (uint8_t)i;
		tc_half(builder, sizes + 2172 + 4 * i, tc_batch[i]);
		tc_half(builder, sizes + 2684 + 4 * i, bytes);
		tc_word(builder, sizes + 3200 + 8 * i, tc_pages[i]);
	}
	for (unsigned i = 0; i < TC_CLASSES; i++) {
		tc_word(builder, tc_central(i) + 8, i);
		tc_empty_list(builder, tc_central(i) + 16);
		tc_empty_list(builder, tc_central(i) + 64);
	}
	for (unsigned i = 0; i < 256; i++)
		tc_empty_list(builder, lists + 48 * i);
	tc_word(builder, lists + 256 * 48, TC_HEAP_PAGES * TC_PAGE);
	tc_word(builder, lists + 256 * 48 + 8, 2 * TC_PAGE);
	tc_word(builder, lists + 256 * 48 + 16, TC_PAGE);
	tc_word(builder, lists + 256 * 48 + 24, (TC_HEAP_PAGES - 1) * TC_PAGE);
}

/* Three caches; the one in the middle was of a thread that has ended. */
static void tc_caches(struct tc_builder *builder)
{
	for (unsigned i = 0; i < 3; i++)
		for (unsigned k = 0; k < TC_CLASSES; k++)
			tc_half(builder, tc_cache(i) + 32 * k + 24, tc_bytes[k]);
	tc_word(builder, TC_VARIABLES + TC_CHAIN, tc_cache(0));
	tc_word(builder, TC_VARIABLES + TC_CHAIN + 8, tc_cache(1));
	tc_word(builder, tc_cache(0) + TC_CACHE_NEXT, tc_cache(2));
	tc_word(builder, tc_cache(1) + TC_CACHE_NEXT, tc_cache(2));
	tc_word(builder, tc_cache(2) + TC_CACHE_NEXT + 8, tc_cache(0));
}

static void tc_chain(struct tc_builder *builder, unsigned cache, unsigned class, uint64_t first,
		     uint32_t length)
{
	tc_word(builder, tc_cache(cache) + 32 * class, first);
	tc_half(builder, tc_cache(cache) + 32 * class + 8, length);
}

static void tc_blocks(struct tc_builder *builder)
{
	uint64_t lists = builder->page_heap + TC_LISTS;

	/* Of 8 places 2 are free, 2 in a cache, 2 on their way, in no order. */
	uint64_t mixed = tc_span(builder, 0, 1, tc_place(0, 5, 1024), 6 | 3 << 16);
	tc_word(builder, tc_place(0, 5, 1024), tc_place(0, 1, 1024));
	tc_chain(builder, 0, 3, tc_place(0, 7, 1024), 2);
	tc_word(builder, tc_place(0, 7, 1024), tc_place(0, 0, 1024));
	tc_word(builder, tc_central(3) + 128, tc_place(0, 3, 1024));
	tc_word(builder, tc_place(0, 3, 1024), tc_place(0, 4, 1024));
	tc_half(builder, tc_central(3) + 1152, 1);
	tc_list(builder, tc_central(3) + 64, mixed);
	tc_count(builder, 2, 4, 2, 1024);
	/* All of them live; it is the first of its list. */
	tc_list(builder, tc_central(1) + 16, tc_span(builder, 1, 1, 0, 1024 | 1 << 16));
	tc_count(builder, 1024, 0, 0, 8);
	/* A large block; the map has another span in its middle, which is no longer there. */
	tc_span(builder, 3, 1, 0, 0);
	tc_span(builder, 2, 3, 0, 0);
	tc_word(builder, TC_SPANS + 48 * 2, 0);
	tc_count(builder, 1, 0, 0, 3 * TC_PAGE);
	tc_list(builder, lists + 48 * 2, tc_span(builder, 5, 2, 0, 1 << 24));
	tc_list(builder, lists + 48 * 1, tc_span(builder, 7, 1, 0, 2 << 24));
	tc_count(builder, 0, 0, 1, 2 * TC_PAGE);
	tc_count(builder, 0, 0, 1, TC_PAGE);
	builder->purged_bytes = 2 * TC_PAGE;
	/* In the cache of another thread. */
	tc_span(builder, 8, 1, 0, 8 | 3 << 16);
	tc_chain(builder, 2, 3, tc_place(8, 6, 1024), 1);
	tc_count(builder, 7, 1, 0, 1024);
	/* Pages 9 to 11 are not tcmalloc's; on page 12 is a block of 1000 bytes. */
	tc_span(builder, 12, 1, TC_TRACE, 1 << 26);
	tc_word(builder, TC_TRACE, 1000);
	tc_count(builder, 1, 0, 0, 1024);
}

static inline void tc_make(struct tc_builder *builder, unsigned levels)
{
	*builder = (struct tc_builder){.levels = levels};
	uint64_t nodes = levels == 2 ? 8u << 18 : (8u << 12) + (8u << 11);
	image_add(&builder->image, TC_HEAP, TC_HEAP_PAGES * TC_PAGE, "", 0);
	image_add(&builder->image, TC_METADATA, 0x5000 + nodes, "", 0);
	image_add(&builder->image, TC_VARIABLES,
		  TC_PAGE_HEAP + tc_root_words(builder) * 8 + 4 * IMAGE_PAGE,
		  "/lib/libtcmalloc_minimal.so.4", 7);
	tc_map(builder);
	tc_variables(builder);
	tc_caches(builder);
	tc_blocks(builder);
}
