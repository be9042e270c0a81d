/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lays out heaps as each version of glibc would: two arenas with chunks of all kinds, and a block
 * with a mapping of its own. Where the fields lie is said here once more, in plain numbers from the
 * releases' sources, so that a mistake in heapline's own table shows.
 */
#pragma once

#include "heap_image.h"

#include <elf.h>

#define LIBC_DATA  UINT64_C(0x7f1230000000)
#define HEAP_BASE  UINT64_C(0x555555800000)
#define HEAP_PAGES 128u
#define ARENA_HEAP UINT64_C(0x7f1200000000) /* a multiple of 64 MiB */
#define MAPPED	   UINT64_C(0x7f1220000000)
#define KEY	   UINT64_C(0x9e3779b97f4a7c15)

/* What differs between versions. */
struct version {
	uint32_t minor;
	uint32_t fastbins, top, bins, next, threads, system, arena_bytes;
	uint32_t n_mmaps, mmapped, sbrk_base, tcache_bins;
	uint32_t heap_info;
	uint32_t tcache_bytes, entries;
	char key; /* 'n'one, 'p'ointer, 'r'andom */
	bool safe_links;
	uint32_t
		places; /* of each list of a tcache, where those are counted, as from 2.43 on; else 0 */
};

static const struct version versions[] = {
	{26, 8, 88, 104, 2152, 2168, 2176, 2192, 40, 56, 72, 80, 32, 576, 64, 'n', false, 0},
	{27, 16, 96, 112, 2160, 2176, 2184, 2200, 40, 56, 72, 80, 32, 576, 64, 'n', false, 0},
	{28, 16, 96, 112, 2160, 2176, 2184, 2200, 40, 56, 72, 80, 32, 576, 64, 'n', false, 0},
	{29, 16, 96, 112, 2160, 2176, 2184, 2200, 40, 56, 72, 80, 32, 576, 64, 'p', false, 0},
	{30, 16, 96, 112, 2160, 2176, 2184, 2200, 40, 56, 72, 80, 32, 640, 128, 'p', false, 0},
	{31, 16, 96, 112, 2160, 2176, 2184, 2200, 40, 56, 72, 80, 32, 640, 128, 'p', false, 0},
	{32, 16, 96, 112, 2160, 2176, 2184, 2200, 40, 56, 72, 80, 32, 640, 128, 'p', true, 0},
	{33, 16, 96, 112, 2160, 2176, 2184, 2200, 40, 56, 72, 80, 32, 640, 128, 'p', true, 0},
	{34, 16, 96, 112, 2160, 2176, 2184, 2200, 40, 56, 72, 80, 32, 640, 128, 'r', true, 0},
	{35, 16, 96, 112, 2160, 2176, 2184, 2200, 60, 80, 96, 104, 48, 640, 128, 'r', true, 0},
	{36, 16, 96, 112, 2160, 2176, 2184, 2200, 60, 80, 96, 104, 48, 640, 128, 'r', true, 0},
	{37, 16, 96, 112, 2160, 2176, 2184, 2200, 60, 80, 96, 104, 48, 640, 128, 'r', true, 0},
	{38, 16, 96, 112, 2160, 2176, 2184, 2200, 60, 80, 96, 104, 48, 640, 128, 'r', true, 0},
	{39, 16, 96, 112, 2160, 2176, 2184, 2200, 60, 80, 96, 104, 48, 640, 128, 'r', true, 0},
	{40, 16, 96, 112, 2160, 2176, 2184, 2200, 60, 80, 96, 104, 48, 640, 128, 'r', true, 0},
	{41, 16, 96, 112, 2160, 2176, 2184, 2200, 60, 80, 96, 104, 48, 640, 128, 'r', true, 0},
	{43, 0, 8, 24, 2072, 2088, 2096, 2112, 68, 88, 104, 112, 48, 760, 152, 'r', true, 16},
};

#define VERSION_COUNT (sizeof(versions) / sizeof(versions[0]))

/* Where main_arena and mp_ are in libc's variables, which are file contents from this offset on. */
#define MAIN_ARENA (LIBC_DATA + 0xc60)
#define MP	   (LIBC_DATA + 0x340)
#define DATA_PAGES 4u
#define FILE_DATA  0x1000u

/* What the builder has put into an arena: what a walk must find. */
struct tally {
	uint64_t live_blocks, live_bytes; /* usable */
	uint64_t tcache_blocks, tcache_bytes;
	uint64_t fast_blocks, fast_bytes;
	uint64_t free_blocks, free_bytes, largest_free;
	uint64_t top_bytes;
};

struct builder {
	struct image image;
	const struct version *version;
	uint64_t arena, at; /* the arena that is filled, and where its next chunk goes */
	uint64_t tcache;    /* the cache of its thread */
	bool before_in_use;
	struct tally main, second;
	struct tally *tally;
	uint8_t file[FILE_DATA + DATA_PAGES * IMAGE_PAGE];
};

static uint64_t *builder_word(struct builder *builder, uint64_t address)
{
	return image_word(&builder->image, address);
}

/* A pointer as lists have it at ${at}. */
static uint64_t builder_link(const struct builder *builder, uint64_t at, uint64_t to)
{
	return builder->version->safe_links ? at >> 12 ^ to : to;
}

/* The next chunk, of ${size} bytes; its address. */
static uint64_t builder_chunk(struct builder *builder, uint64_t size, bool is_free)
{
	uint64_t chunk = builder->at, other = builder->tally == &builder->second ? 4 : 0;

	*builder_word(builder, chunk + 8) = size | (builder->before_in_use ? 1 : 0) | other;
	if (is_free)
		*builder_word(builder, chunk + size) = size;
	builder->at += size;
	builder->before_in_use = !is_free;
	return chunk;
}

static void builder_live(struct builder *builder, uint64_t size)
{
	uint64_t chunk = builder_chunk(builder, size, false);

	*builder_word(builder, chunk + 16) = 0x4141414141414141;
	*builder_word(builder, chunk + 24) = 0x4242424242424242;
	*builder_word(builder, chunk + size) = chunk; /* the last word is the block's, too */
	builder->tally->live_blocks++;
	builder->tally->live_bytes += size - 8;
}

/* A free chunk in the first bin. */
static void builder_free(struct builder *builder, uint64_t size)
{
	uint64_t chunk = builder_chunk(builder, size, true);
	uint64_t bin = builder->arena + builder->version->bins - 16;
	uint64_t first = *builder_word(builder, bin + 16);

	*builder_word(builder, chunk + 16) = first;
	*builder_word(builder, chunk + 24) = bin;
	*builder_word(builder, first + 24) = chunk;
	*builder_word(builder, bin + 16) = chunk;
	builder->tally->free_blocks++;
	builder->tally->free_bytes += size;
	if (size > builder->tally->largest_free)
		builder->tally->largest_free = size;
}

static void builder_fast(struct builder *builder, uint64_t size)
{
	uint64_t chunk = builder_chunk(builder, size, false);
	uint64_t head = builder->arena + builder->version->fastbins + (size / 16 - 2) * 8;

	*builder_word(builder, chunk + 16) =
		builder_link(builder, chunk + 16, *builder_word(builder, head));
	*builder_word(builder, head) = chunk;
	builder->tally->fast_blocks++;
	builder->tally->fast_bytes += size;
}

static void builder_count(struct builder *builder, uint64_t list)
{
	uint8_t *counts = (uint8_t *)builder_word(builder, builder->tcache);

	if (builder->version->places)
		counts[list * 2]--;
	else
		counts[builder->version->entries == 64 ? list : list * 2]++;
}

static void builder_cached(struct builder *builder, uint64_t size)
{
	uint64_t chunk = builder_chunk(builder, size, false), list = size / 16 - 2;
	uint64_t head = builder->tcache + builder->version->entries + list * 8;

	*builder_word(builder, chunk + 16) =
		builder_link(builder, chunk + 16, *builder_word(builder, head));
	*builder_word(builder, chunk + 24) = builder->version->key == 'r'   ? KEY
					     : builder->version->key == 'p' ? builder->tcache
									    : 0;
	*builder_word(builder, head) = chunk + 16;
	builder_count(builder, list);
	builder->tally->tcache_blocks++;
	builder->tally->tcache_bytes += size;
}

/* The thread's cache: a live block as any other. */
static void builder_tcache(struct builder *builder)
{
	uint64_t size = (builder->version->tcache_bytes + 8 + 15) & ~UINT64_C(15);

	if (builder->version->places && builder->tally == &builder->second)
		size += 32; /* with a rest that was not split off */

	builder->tcache = builder_chunk(builder, size, false) + 16;
	for (uint32_t i = 0; i < (builder->version->places ? 76u : 0); i++)
		((uint16_t *)builder_word(builder, builder->tcache))[i] =
			(uint16_t)builder->version->places;
	builder->tally->live_blocks++;
	builder->tally->live_bytes += size - 8;
}

static void builder_top(struct builder *builder, uint64_t end)
{
	*builder_word(builder, builder->arena + builder->version->top) = builder->at;
	builder->tally->top_bytes = end - builder->at;
	builder_chunk(builder, end - builder->at - 0, false);
}

static void builder_arena(struct builder *builder, uint64_t arena, struct tally *tally)
{
	const struct version *version = builder->version;

	builder->arena = arena;
	builder->tally = tally;
	builder->before_in_use = true;
	for (uint32_t i = 0; i < 254; i++)
		*builder_word(builder, arena + version->bins + i * 8) =
			arena + version->bins + i / 2 * 16 - 16;
}

/* Chunks of each kind, next to each other in each order that matters. */
static void builder_fill(struct builder *builder)
{
	if (builder->version->places) /* it is made at the first free() */
		builder_live(builder, 4096);
	builder_tcache(builder);
	for (uint64_t size = 32; size < 2000; size += 16) {
		builder_live(builder, size);
		if (size % 48 == 0)
			builder_free(builder, size * 3 / 16 * 16);
		if (size <= 1040 && size % 80 == 0)
			builder_cached(builder, size);
		if (size <= 128 && size % 32 == 0 && builder->version->fastbins)
			builder_fast(builder, size);
	}
	builder_live(builder, 20000);
	builder_free(builder, 40000);
	builder_live(builder, 64);
}

static void builder_mp(struct builder *builder)
{
	const struct version *version = builder->version;
	const uint64_t words[] = {131072, 131072, 131072, 8, 0};
	uint32_t mmaps[2] = {1, 65536};

	for (int i = 0; i < 5; i++)
		*builder_word(builder, MP + i * 8) = words[i];
	memcpy(builder_word(builder, MP) + 0, words, 8);
	memcpy((uint8_t *)builder_word(builder, MP) + version->n_mmaps, mmaps, sizeof(mmaps));
	*builder_word(builder, MP + version->mmapped) = 33 * IMAGE_PAGE;
	*builder_word(builder, MP + version->sbrk_base) = HEAP_BASE;
	*builder_word(builder, MP + version->tcache_bins) = 64;
	*builder_word(builder, MP + version->tcache_bins + 8) = version->places ? 1041 : 1032;
	*builder_word(builder, MP + version->tcache_bins + 16) =
		version->places ? version->places : 7;
}

static void builder_main(struct builder *builder)
{
	const struct version *version = builder->version;

	builder_arena(builder, MAIN_ARENA, &builder->main);
	*builder_word(builder, MAIN_ARENA + version->next) =
		ARENA_HEAP + version->heap_info; /* the second one */
	*builder_word(builder, MAIN_ARENA + version->threads) = 1;
	*builder_word(builder, MAIN_ARENA + version->system) = HEAP_PAGES * IMAGE_PAGE;
	builder->at = HEAP_BASE;
	builder_fill(builder);
	builder_top(builder, HEAP_BASE + HEAP_PAGES * IMAGE_PAGE);
}

static void builder_second(struct builder *builder)
{
	const struct version *version = builder->version;
	uint64_t arena = ARENA_HEAP + version->heap_info;

	*builder_word(builder, ARENA_HEAP) = arena;
	*builder_word(builder, ARENA_HEAP + 16) = HEAP_PAGES * IMAGE_PAGE;
	builder_arena(builder, arena, &builder->second);
	*builder_word(builder, arena + version->next) = MAIN_ARENA;
	*builder_word(builder, arena + version->system) = HEAP_PAGES * IMAGE_PAGE;
	builder->at = (arena + version->arena_bytes + 15) & ~UINT64_C(15);
	builder_fill(builder);
	builder_top(builder, ARENA_HEAP + HEAP_PAGES * IMAGE_PAGE);
}

/* A libc's file: a writable segment that holds the variables as they were at first, and what
 * version it is. */
static void builder_file(struct builder *builder)
{
	Elf64_Ehdr header = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, 1},
			     .e_type = ET_DYN,
			     .e_machine = EM_X86_64,
			     .e_phoff = sizeof(Elf64_Ehdr),
			     .e_phentsize = sizeof(Elf64_Phdr),
			     .e_phnum = 1};
	Elf64_Phdr segment = {.p_type = PT_LOAD,
			      .p_flags = PF_R | PF_W,
			      .p_offset = FILE_DATA,
			      .p_vaddr = 0x2000,
			      .p_filesz = DATA_PAGES * IMAGE_PAGE,
			      .p_memsz = DATA_PAGES * IMAGE_PAGE};
	uint64_t arena = FILE_DATA + (MAIN_ARENA - LIBC_DATA), one = 1, first[4];
	uint64_t address = 0x2000 + (MAIN_ARENA - LIBC_DATA);

	memcpy(first, (uint64_t[]){131072, 131072, 131072, 8}, sizeof(first));
	memset(builder->file, 0, sizeof(builder->file));
	memcpy(builder->file, &header, sizeof(header));
	memcpy(builder->file + sizeof(header), &segment, sizeof(segment));
	sprintf((char *)builder->file + 512, "GNU C Library (Test 1) stable release version 2.%u.",
		builder->version->minor);
	memcpy(builder->file + arena + builder->version->next, &address, 8);
	memcpy(builder->file + arena + builder->version->threads, &one, 8);
	memcpy(builder->file + FILE_DATA + (MP - LIBC_DATA), first, sizeof(first));
	builder->image.file = builder->file;
	builder->image.file_length = sizeof(builder->file);
}

static void builder_make(struct builder *builder, const struct version *version)
{
	memset(builder, 0, sizeof(*builder));
	builder->version = version;
	image_add(&builder->image, HEAP_BASE, HEAP_PAGES * IMAGE_PAGE, "[heap]", 0);
	image_add(&builder->image, ARENA_HEAP, HEAP_PAGES * IMAGE_PAGE, "", 0);
	image_add(&builder->image, MAPPED, 33 * IMAGE_PAGE, "", 0);
	image_add(&builder->image, LIBC_DATA, DATA_PAGES * IMAGE_PAGE, "/lib/libc.so.6", 7);
	builder->image.base.maps.maps[3].offset = FILE_DATA;
	builder_mp(builder);
	builder_main(builder);
	builder_second(builder);
	/* without fastbins, as from 2.43 on, without the header */
	*builder_word(builder, MAPPED + 8) = (33 * IMAGE_PAGE - (version->fastbins ? 0 : 16)) | 2;
	builder_file(builder);
}
