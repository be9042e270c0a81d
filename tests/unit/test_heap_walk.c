/* SPDX-License-Identifier: BSD-2-Clause */
/* Heaps of each version of glibc, whole and damaged, walked in images that are made up here. */
#include "heap/glibc.h"
#include "heap/glibc_reader.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fail_allocations.h"
#include "glibc_image.h"

static const struct hl_heap_settings plain;

/* A heap of its own, read from what ${builder} has made. */
static int read_image(struct builder *builder, const struct hl_heap_settings *settings,
		      struct hl_heap **ret_heap)
{
	struct hl_heap *heap = calloc(1, sizeof(*heap));
	struct hl_glibc glibc;
	int r = heap ? hl_glibc_roots_find(&builder->image.base, &glibc, NULL) : -ENOMEM;

	if (r == 0)
		r = hl_glibc_heap_read(&builder->image.base, &glibc, settings, heap, NULL);
	if (r != 0) {
		hl_heap_free(heap);
		return r;
	}
	*ret_heap = heap;
	return 0;
}

static void expect_arena(const struct tally *tally, const struct hl_heap_arena *arena)
{
	assert_int_equal(arena->inuse_blocks, tally->live_blocks);
	assert_int_equal(arena->inuse_bytes, tally->live_bytes);
	assert_int_equal(arena->tcache_blocks, tally->tcache_blocks);
	assert_int_equal(arena->tcache_bytes, tally->tcache_bytes);
	assert_int_equal(arena->fastbin_blocks, tally->fast_blocks);
	assert_int_equal(arena->fastbin_bytes, tally->fast_bytes);
	assert_int_equal(arena->free_blocks, tally->free_blocks + 1);
	assert_int_equal(arena->free_bytes, tally->free_bytes + tally->top_bytes);
	assert_int_equal(arena->largest_free_bytes, tally->largest_free > tally->top_bytes
							    ? tally->largest_free
							    : tally->top_bytes);
	assert_int_equal(arena->system_bytes, arena->inuse_bytes + arena->tcache_bytes +
						      arena->fastbin_bytes + arena->free_bytes +
						      arena->unscanned_bytes +
						      arena->overhead_bytes);
	assert_int_equal(arena->top_bytes, tally->top_bytes);
	assert_int_equal(arena->unscanned_bytes, 0);
}

static void each_version_is_walked_to_the_byte(void **state)
{
	static struct builder builder;
	struct hl_heap *heap = NULL;
	char name[32];

	(void)state;
	for (size_t i = 0; i < VERSION_COUNT; i++) {
		builder_make(&builder, &versions[i]);
		assert_int_equal(read_image(&builder, &plain, &heap), 0);
		snprintf(name, sizeof(name), "glibc 2.%u", versions[i].minor);
		assert_string_equal(heap->allocator, name);
		assert_int_equal(heap->arena_count, 2);
		expect_arena(&builder.main, &heap->arenas[0]);
		expect_arena(&builder.second, &heap->arenas[1]);
		assert_int_equal(heap->mmapped_blocks, 1);
		assert_int_equal(heap->mmapped_bytes, heap->mp_mmapped_bytes);
		assert_int_equal(heap->abandoned, 0);
		assert_int_equal(heap->note_count, 0);
		hl_heap_free(heap);
		image_release(&builder.image);
	}
}

static void roots_are_confirmed_by_file_and_memory(void **state)
{
	static struct builder builder;
	struct hl_glibc glibc;

	(void)state;
	builder_make(&builder, &versions[10]);
	assert_int_equal(hl_glibc_roots_find(&builder.image.base, &glibc, NULL), 0);
	assert_true(glibc.is_confirmed);
	assert_int_equal(glibc.main_arena, MAIN_ARENA);
	assert_int_equal(glibc.mp, MP);
	image_release(&builder.image);
}

static void tunables_do_not_hide_the_roots(void **state)
{
	static struct builder builder;
	struct hl_glibc glibc;

	(void)state;
	builder_make(&builder, &versions[10]);
	*builder_word(&builder, MP + 8) = 1 << 20;    /* top_pad */
	*builder_word(&builder, MP + 24) = 3;	      /* arena_test */
	*builder_word(&builder, MP + 104 + 8) = 4096; /* tcache_max_bytes */
	assert_int_equal(hl_glibc_roots_find(&builder.image.base, &glibc, NULL), 0);
	assert_int_equal(glibc.mp, MP);
	image_release(&builder.image);
}

static void a_file_without_initial_values_is_no_obstacle(void **state)
{
	static struct builder builder;
	struct hl_glibc glibc;

	(void)state;
	builder_make(&builder, &versions[10]);
	memset(builder.file + FILE_DATA, 0, DATA_PAGES * IMAGE_PAGE);
	assert_int_equal(hl_glibc_roots_find(&builder.image.base, &glibc, NULL), 0);
	assert_false(glibc.is_confirmed);
	assert_int_equal(glibc.main_arena, MAIN_ARENA);
	image_release(&builder.image);
}

/* Of the libc that this test runs with: needs libc6-dbg, or a libc that was not stripped. */
static void symbols_agree_with_what_is_found_without_them(void **state)
{
	struct hl_memory *memory;
	struct hl_glibc glibc;
	struct hl_glibc_symbols symbols = {0};
	uint64_t bias = 0;

	(void)state;
	assert_int_equal(hl_memory_live_open(getpid(), &memory, NULL), 0);
	for (size_t i = 0; i < memory->maps.count && !bias; i++) {
		const struct hl_map *map = &memory->maps.maps[i];
		if (!strstr(map->path, "libc.so.6"))
			continue;
		bias = map->start;
		int fd = hl_memory_open_file(memory, map);
		Elf *elf = hl_elf_open(fd);
		assert_non_null(elf);
		symbols = hl_glibc_file_symbols(elf, "/usr/lib/debug");
		elf_end(elf);
		close(fd);
	}
	int r = hl_glibc_roots_find(memory, &glibc, NULL);
	hl_memory_free(memory);
	if (!symbols.main_arena)
		skip();
	assert_int_equal(r, 0);
	assert_true(glibc.is_confirmed);
	assert_int_equal(glibc.main_arena, bias + symbols.main_arena);
	assert_int_equal(glibc.mp, bias + symbols.mp);
}

/* A process that stops inside malloc once: its arena is locked, and a chunk is half written. */
static struct builder stopping;
static uint64_t half_written, *half_written_at;
static unsigned stops;

static int stop_inside_malloc_once(struct hl_memory *memory, struct hl_error *err)
{
	(void)memory;
	(void)err;
	bool is_inside = stops++ == 0;
	*(uint32_t *)builder_word(&stopping, MAIN_ARENA) = is_inside;
	*half_written_at = is_inside ? 8 : half_written;
	return 0;
}

static void go_on(struct hl_memory *memory)
{
	(void)memory;
}

static void a_stopped_walk_waits_until_no_thread_is_inside_malloc(void **state)
{
	(void)state;
	builder_make(&stopping, &versions[10]);
	struct hl_memory_kind kind = *stopping.image.base.kind;
	kind.stop = stop_inside_malloc_once;
	kind.go_on = go_on;
	stopping.image.base.kind = &kind;
	half_written_at = builder_word(&stopping, HEAP_BASE + 8);
	half_written = *half_written_at;
	stops = 0;
	const struct hl_heap_settings stop = {.stop = true};
	struct hl_heap *heap = NULL;
	assert_int_equal(read_image(&stopping, &stop, &heap), 0);
	assert_int_equal(heap->abandoned, 0);
	assert_int_equal(heap->rereads, 0);
	assert_true(stops > 1);
	hl_heap_free(heap);
	image_release(&stopping.image);
}

/* A version that is not known, with a heap as that of a known one, or with parts of two. */
static void unknown_versions_are_walked_as_the_layout_they_agree_with(void **state)
{
	static struct builder builder;
	struct version between = versions[15], newest = versions[VERSION_COUNT - 1];
	struct {
		uint32_t minor;
		const struct version *heap;
		const char *note;
	} cases[] = {
		{44, &newest, "not known; its heap agrees with the layout of 2.43"},
		{42, &between, "the layout of 2.41 in parts and 2.43 in others"},
		{42, &versions[10], "the layout of 2.35-2.41"},
		{99, &versions[10], "the layout of 2.35-2.41"},
		{0, &newest, "does not state its version; its heap agrees with the layout of 2.43"},
	};

	(void)state;
	between.tcache_bytes = newest.tcache_bytes;
	between.entries = newest.entries;
	between.places = 7;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct version version = *cases[i].heap;
		struct hl_heap *heap = NULL;
		version.minor = cases[i].minor;
		builder_make(&builder, &version);
		assert_int_equal(read_image(&builder, &plain, &heap), 0);
		expect_arena(&builder.main, &heap->arenas[0]);
		expect_arena(&builder.second, &heap->arenas[1]);
		assert_int_equal(heap->mmapped_bytes, heap->mp_mmapped_bytes);
		assert_int_equal(heap->mmapped_blocks, 1);
		assert_int_equal(heap->note_count, 1);
		assert_non_null(strstr(heap->notes[0].text, cases[i].note));
		hl_heap_free(heap);
		image_release(&builder.image);
	}
}

static void expect_unknown(struct builder *builder)
{
	struct hl_error err = {0};
	struct hl_glibc glibc = {0};

	assert_int_equal(hl_glibc_roots_find(&builder->image.base, &glibc, &err), -ENOTSUP);
	assert_true(glibc.is_unknown);
	assert_non_null(strstr(err.text, "versions 2.26 to 2.41 and 2.43"));
	image_release(&builder->image);
}

/* One thing is not as the layout has it. */
static void unknown_versions_that_agree_with_no_layout_are_refused(void **state)
{
	static struct builder builder;
	struct version version = versions[10];
	const uint64_t wrong[] = {
		MAIN_ARENA + version.system, /* what the arena has from the system */
		ARENA_HEAP + version.heap_info + version.system,
		MP + version.n_mmaps,
		HEAP_BASE + 0x290 + 8,	   /* a chunk's size */
		MAIN_ARENA + version.bins, /* the list of free chunks */
	};

	(void)state;
	version.minor = 44;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		builder_make(&builder, &version);
		((uint32_t *)builder_word(&builder, wrong[i] & ~UINT64_C(7)))[wrong[i] / 4 & 1] +=
			16;
		expect_unknown(&builder);
	}
	version.minor = 25;
	builder_make(&builder, &version);
	expect_unknown(&builder);
}

/* A busy thread takes chunks from its cache while the number is looked for in them. */
static void chunks_that_left_a_cache_do_not_hide_its_number(void **state)
{
	static struct builder builder;
	const struct version *version = &versions[10];
	struct hl_glibc glibc;

	(void)state;
	builder_make(&builder, version);
	assert_int_equal(hl_glibc_roots_find(&builder.image.base, &glibc, NULL), 0);
	for (uint64_t list = 3; list < 24; list += 10) {
		uint64_t head = HEAP_BASE + 16 + version->entries + list * 8;
		*builder_word(&builder, *builder_word(&builder, head) + 8) = list;
		assert_int_equal(hl_glibc_state_tcache_key(&builder.image.base, &glibc, HEAP_BASE),
				 KEY);
	}
	image_release(&builder.image);
}

static void a_heap_without_memory_is_empty(void **state)
{
	static struct builder builder;
	struct hl_heap *heap = NULL;

	(void)state;
	builder_make(&builder, &versions[10]);
	*builder_word(&builder, MP + 96) = 0; /* sbrk_base */
	*builder_word(&builder, MAIN_ARENA + 96) = MAIN_ARENA + 96;
	*builder_word(&builder, MAIN_ARENA + 2160) = MAIN_ARENA;
	*builder_word(&builder, MAIN_ARENA + 2184) = 0;
	assert_int_equal(read_image(&builder, &plain, &heap), 0);
	assert_int_equal(heap->arena_count, 1);
	assert_int_equal(heap->arenas[0].inuse_blocks, 0);
	hl_heap_free(heap);
	image_release(&builder.image);
}

/* ---- damage ---- */

/* All of an arena is accounted, be it as unscanned. */
static void expect_whole(const struct hl_heap *heap)
{
	for (size_t i = 0; i < heap->carriers.count; i++) {
		const struct hl_carrier *carrier = &heap->carriers.carriers[i];
		assert_true(carrier->allocated_bytes + carrier->cached_bytes + carrier->free_bytes +
				    carrier->unscanned_bytes <=
			    carrier->total_bytes);
	}
}

static void an_overwritten_header_costs_what_lies_up_to_the_next_known_chunk(void **state)
{
	static struct builder builder;
	struct hl_heap *heap = NULL;

	(void)state;
	builder_make(&builder, &versions[10]);
	/* the header of the second chunk, behind the cache */
	*builder_word(&builder, HEAP_BASE + 0x290 + 8) = UINT64_C(0x4141414141414141);
	assert_int_equal(read_image(&builder, &plain, &heap), 0);
	assert_int_equal(heap->abandoned, 1);
	assert_true(heap->rereads >= 2);
	assert_true(heap->arenas[0].unscanned_bytes > 0);
	assert_true(heap->arenas[0].unscanned_bytes < 4096);
	assert_true(heap->arenas[0].inuse_blocks + 5 > builder.main.live_blocks);
	assert_int_equal(heap->arenas[0].top_bytes, builder.main.top_bytes);
	assert_true(heap->note_count > 0);
	expect_arena(&builder.second, &heap->arenas[1]);
	expect_whole(heap);
	hl_heap_free(heap);
	image_release(&builder.image);
}

static void an_overwritten_top_is_found_by_the_chunks(void **state)
{
	static struct builder builder;
	struct hl_heap *heap = NULL;

	(void)state;
	builder_make(&builder, &versions[10]);
	*builder_word(&builder, MAIN_ARENA + 96) = UINT64_C(0x4141414141414141);
	*builder_word(&builder, ARENA_HEAP + 48 + 96) = 16;
	assert_int_equal(read_image(&builder, &plain, &heap), 0);
	assert_int_equal(heap->arenas[0].inuse_bytes, builder.main.live_bytes);
	assert_int_equal(heap->arenas[0].unscanned_bytes, builder.main.top_bytes);
	assert_int_equal(heap->arenas[1].inuse_bytes, builder.second.live_bytes);
	assert_int_equal(heap->arenas[1].unscanned_bytes, builder.second.top_bytes);
	assert_non_null(strstr(heap->notes[0].text, "the heap is damaged"));
	expect_whole(heap);
	hl_heap_free(heap);
	image_release(&builder.image);
}

static void rings_that_do_not_lead_back_are_left(void **state)
{
	static struct builder builder;
	struct hl_heap *heap = NULL;
	uint64_t second = ARENA_HEAP + 48;

	(void)state;
	builder_make(&builder, &versions[10]);
	struct hl_glibc glibc;
	assert_int_equal(hl_glibc_roots_find(&builder.image.base, &glibc, NULL), 0);
	*builder_word(&builder, second + 2160) = second;
	heap = calloc(1, sizeof(*heap));
	assert_int_equal(hl_glibc_heap_read(&builder.image.base, &glibc, &plain, heap, NULL), 0);
	assert_int_equal(heap->arena_count, 2);
	assert_int_equal(heap->note_count, 1);
	assert_non_null(strstr(heap->notes[0].text, "does not lead back"));
	hl_heap_free(heap);
	image_release(&builder.image);
}

static void heaps_that_lead_to_themselves_end(void **state)
{
	static struct builder builder;
	struct hl_heap *heap = NULL;

	(void)state;
	builder_make(&builder, &versions[10]);
	*builder_word(&builder, ARENA_HEAP + 8) = ARENA_HEAP; /* prev */
	assert_int_equal(read_image(&builder, &plain, &heap), 0);
	expect_arena(&builder.second, &heap->arenas[1]);
	assert_int_equal(heap->note_count, 1);
	hl_heap_free(heap);
	image_release(&builder.image);
}

static void lists_that_lead_in_circles_end(void **state)
{
	static struct builder builder;
	struct hl_heap *heap = NULL;

	(void)state;
	builder_make(&builder, &versions[2]); /* without safe links */
	uint64_t fast = *builder_word(&builder, MAIN_ARENA + 16);
	*builder_word(&builder, fast + 16) = fast;
	assert_int_equal(read_image(&builder, &plain, &heap), 0);
	expect_whole(heap);
	hl_heap_free(heap);
	image_release(&builder.image);
}

static void pages_that_are_not_in_memory_are_not_read(void **state)
{
	static struct builder builder;
	struct hl_heap *heap = NULL;
	struct image_part *part;

	(void)state;
	builder_make(&builder, &versions[10]);
	part = image_part_at(&builder.image, HEAP_BASE);
	/* the interior of the top, and one page with chunks */
	for (uint32_t page = HEAP_PAGES - 4; page < HEAP_PAGES; page++)
		part->absent[page] = true;
	part->absent[3] = true;
	assert_int_equal(read_image(&builder, &plain, &heap), 0);
	assert_true(heap->arenas[0].unscanned_bytes >= IMAGE_PAGE);
	assert_int_equal(heap->arenas[0].top_bytes, builder.main.top_bytes);
	assert_int_equal(heap->carriers.carriers[0].resident_bytes, (HEAP_PAGES - 5) * IMAGE_PAGE);
	expect_whole(heap);
	hl_heap_free(heap);
	image_release(&builder.image);
}

static void a_heap_that_grew_since_its_mappings_were_read_is_walked_to_its_end(void **state)
{
	static struct builder builder;
	struct hl_heap *heap = NULL;

	(void)state;
	builder_make(&builder, &versions[10]);
	/* The top is not in the mapping as it was read; the memory is there. */
	builder.image.base.maps.maps[0].end -= (builder.main.top_bytes & ~UINT64_C(4095)) + 4096;
	assert_int_equal(read_image(&builder, &plain, &heap), 0);
	expect_arena(&builder.main, &heap->arenas[0]);
	assert_int_equal(heap->abandoned, 0);
	assert_int_equal(heap->note_count, 0);
	hl_heap_free(heap);
	image_release(&builder.image);
}

/* ---- blocks with a mapping of their own ---- */

/* A page of the mapping that looks like the header of a mapped block. */
struct header {
	uint32_t page, pages;
};

/* Reads a heap whose mapping has ${headers}, of which glibc counts ${blocks} with ${pages}. */
static struct hl_heap *read_mapped(const struct header *headers, uint32_t blocks, uint32_t pages)
{
	static struct builder builder;
	struct hl_heap *heap = NULL;

	builder_make(&builder, &versions[10]);
	*builder_word(&builder, MAPPED + 8) = 0;
	for (; headers->pages; headers++)
		*builder_word(&builder, MAPPED + headers->page * IMAGE_PAGE + 8) =
			headers->pages * IMAGE_PAGE | 2;
	memcpy((uint8_t *)builder_word(&builder, MP) + versions[10].n_mmaps, &blocks,
	       sizeof(blocks));
	*builder_word(&builder, MP + versions[10].mmapped) = pages * IMAGE_PAGE;
	assert_int_equal(read_image(&builder, &plain, &heap), 0);
	assert_int_equal(heap->mp_mmapped_blocks, blocks);
	assert_int_equal(heap->mp_mmapped_bytes, pages * IMAGE_PAGE);
	assert_int_equal(heap->carriers.count, 2 + heap->mmapped_blocks);
	image_release(&builder.image);
	return heap;
}

static void pages_that_look_like_headers_are_no_blocks(void **state)
{
	static const struct header headers[] = {{5, 9}, {12, 10}, {15, 4}, {25, 3}, {0, 0}};
	struct hl_heap *heap = read_mapped(headers, 1, 10);

	(void)state;
	assert_int_equal(heap->mmapped_blocks, 1);
	assert_int_equal(heap->carriers.carriers[2].address, MAPPED + 12 * IMAGE_PAGE);
	assert_int_equal(heap->mmapped_bytes, 10 * IMAGE_PAGE);
	assert_int_equal(heap->note_count, 0);
	hl_heap_free(heap);
}

static void blocks_that_cannot_be_told_from_others_are_located_nowhere(void **state)
{
	static const struct header alike[] = {{3, 6}, {20, 6}, {0, 0}};
	static const struct header odd[] = {{5, 15}, {12, 10}, {25, 2}, {0, 0}};
	struct hl_heap *heap = read_mapped(alike, 1, 6);

	(void)state;
	assert_int_equal(heap->mmapped_blocks, 0);
	assert_non_null(strstr(heap->notes[0].text, "1 separately mapped blocks of 24 KiB; 0 of"));
	hl_heap_free(heap);
	heap = read_mapped(odd, 2, 18);
	assert_int_equal(heap->mmapped_blocks, 0);
	assert_int_equal(heap->note_count, 1);
	hl_heap_free(heap);
}

static void a_block_that_is_missing_does_not_hide_others(void **state)
{
	static const struct header headers[] = {{0, 10}, {10, 3}, {20, 9}, {0, 0}};
	struct hl_heap *heap = read_mapped(headers, 3, 20);

	(void)state;
	assert_int_equal(heap->mmapped_blocks, 2);
	assert_int_equal(heap->mmapped_bytes, 13 * IMAGE_PAGE);
	hl_heap_free(heap);
}

static void many_blocks_are_told_from_one_that_is_none(void **state)
{
	static struct header headers[32] = {{0, 1}};

	(void)state;
	for (uint32_t i = 1; i < 30; i++)
		headers[i] = (struct header){i, 1};
	headers[30] = (struct header){30, 2};
	struct hl_heap *heap = read_mapped(headers, 30, 30);
	assert_int_equal(heap->mmapped_blocks, 30);
	assert_int_equal(heap->mmapped_bytes, 30 * IMAGE_PAGE);
	hl_heap_free(heap);
}

/* ---- core files ---- */

static void a_page_of_a_core_file_may_begin_or_end_in_a_hole(void **state)
{
	enum { PAGES = 5, OFFSET = 0x1740, DATA = 0x3000 };
	static const uint8_t data[IMAGE_PAGE] = {[0] = 1, [IMAGE_PAGE - 1] = 1};
	const struct {
		Elf64_Ehdr header;
		Elf64_Phdr segment;
	} core = {{.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, 1},
		   .e_type = ET_CORE,
		   .e_machine = EM_X86_64,
		   .e_phoff = sizeof(Elf64_Ehdr),
		   .e_phentsize = sizeof(Elf64_Phdr),
		   .e_phnum = 1},
		  {.p_type = PT_LOAD,
		   .p_flags = PF_R | PF_W,
		   .p_offset = OFFSET,
		   .p_vaddr = HEAP_BASE,
		   .p_filesz = PAGES * IMAGE_PAGE,
		   .p_memsz = PAGES * IMAGE_PAGE}};
	struct hl_process_facts facts = {0};
	struct hl_pages pages = {0};
	struct hl_memory *memory;
	char path[32];
	int fd = memfd_create("core", MFD_CLOEXEC);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, OFFSET + PAGES * IMAGE_PAGE), 0);
	assert_int_equal(pwrite(fd, &core, sizeof(core), 0), sizeof(core));
	assert_int_equal(pwrite(fd, data, sizeof(data), DATA), sizeof(data));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	assert_int_equal(hl_memory_core_open(path, &memory, &facts, NULL), 0);
	assert_int_equal(hl_memory_scan(memory, HEAP_BASE, HEAP_BASE + PAGES * IMAGE_PAGE, &pages),
			 0);
	/* the data is in the second page and the third */
	assert_int_equal(pages.page_count, 2);
	assert_int_equal(pages.count, 1);
	assert_int_equal(pages.runs[0].start, HEAP_BASE + IMAGE_PAGE);
	assert_int_equal(pages.runs[0].end, HEAP_BASE + 3 * IMAGE_PAGE);
	hl_pages_release(&pages);
	hl_memory_free(memory);
	hl_process_facts_release(&facts);
	close(fd);
}

/* ---- the rest ---- */

static int count_blocks(void *context, uint64_t address, uint64_t usable, uint64_t last_word)
{
	uint64_t *counts = context;

	counts[0]++;
	counts[1] += usable;
	counts[2] += last_word == address - 16;
	return 0;
}

static void each_live_block_is_told_with_its_last_word(void **state)
{
	static struct builder builder;
	struct hl_heap *heap = NULL;
	uint64_t counts[3] = {0};
	const struct hl_heap_settings settings = {.block = count_blocks, .context = counts};

	(void)state;
	builder_make(&builder, &versions[10]);
	assert_int_equal(read_image(&builder, &settings, &heap), 0);
	uint64_t live = builder.main.live_blocks + builder.second.live_blocks;
	assert_int_equal(counts[0], live + 1);
	assert_int_equal(counts[1], builder.main.live_bytes + builder.second.live_bytes +
					    33 * IMAGE_PAGE - 16);
	assert_int_equal(counts[2], live - 2); /* the caches have none */
	hl_heap_free(heap);
	image_release(&builder.image);
}

/* ---- mapped blocks of 2.43: a header before each block leads back to the mapping ---- */

struct seen_blocks {
	size_t count;
	struct {
		uint64_t address, usable, last_word;
	} blocks[8];
};

static int see_mapped(void *context, uint64_t address, uint64_t usable, uint64_t last_word)
{
	struct seen_blocks *seen = context;

	if (address >= MAPPED && address < MAPPED + 33 * IMAGE_PAGE) {
		seen->blocks[seen->count].address = address;
		seen->blocks[seen->count].usable = usable;
		seen->blocks[seen->count++].last_word = last_word;
	}
	return 0;
}

static void put_header(struct builder *builder, uint64_t start, uint64_t before, uint64_t pages)
{
	*builder_word(builder, MAPPED + start + before) = before;
	*builder_word(builder, MAPPED + start + before + 8) =
		(pages * IMAGE_PAGE - before - 16) | 2;
	*builder_word(builder, MAPPED + start + pages * IMAGE_PAGE - 16) = before + 1;
}

static void mapped_blocks_are_found_by_the_way_back_to_their_start(void **state)
{
	/* plain; aligned to 64; to 65536, with a first header left; and that moved by realloc() */
	static const uint64_t starts[] = {0, 3, 7, 28}, befores[] = {0, 0x30, 0xfff0, 0x2ff0};
	static const uint64_t pages[] = {3, 4, 21, 4};
	static struct builder builder;
	struct seen_blocks seen = {0};
	const struct hl_heap_settings settings = {.block = see_mapped, .context = &seen};
	struct hl_heap *heap = NULL;
	uint32_t count = 4;

	(void)state;
	builder_make(&builder, &versions[VERSION_COUNT - 1]);
	memcpy((uint8_t *)builder_word(&builder, MP) + 68, &count, sizeof(count));
	*builder_word(&builder, MP + 88) = 32 * IMAGE_PAGE + 300 * 16; /* moved 300 times */
	*builder_word(&builder, MAPPED + 8) = 0;
	for (size_t i = 0; i < count; i++)
		put_header(&builder, starts[i] * IMAGE_PAGE, befores[i], pages[i]);
	*builder_word(&builder, MAPPED + 7 * IMAGE_PAGE + 8) = (21 * IMAGE_PAGE - 16) | 2;
	*builder_word(&builder, MAPPED + 28 * IMAGE_PAGE + 8) = (2 * IMAGE_PAGE - 16) | 2;
	assert_int_equal(read_image(&builder, &settings, &heap), 0);
	assert_int_equal(heap->note_count, 0);
	assert_int_equal(heap->mmapped_blocks, 4);
	assert_int_equal(heap->mmapped_bytes, 32 * IMAGE_PAGE);
	assert_int_equal(seen.count, 4);
	for (size_t i = 0; i < count; i++) {
		uint64_t block = starts[i] * IMAGE_PAGE + befores[i] + 16;
		assert_int_equal(seen.blocks[i].address, MAPPED + block);
		assert_int_equal(seen.blocks[i].usable,
				 (starts[i] + pages[i]) * IMAGE_PAGE - block - 8);
		assert_int_equal(seen.blocks[i].last_word, befores[i] + 1);
	}
	hl_heap_free(heap);
	image_release(&builder.image);
}

/* A static program does not say which glibc it has: each layout is tried. */
static void static_programs_are_known_by_the_layout_that_fits(void **state)
{
	static const struct {
		uint32_t version;
		const char *name;
	} cases[] = {{10, "glibc 2.35-2.41, static"}, {VERSION_COUNT - 1, "glibc 2.43, static"}};
	static struct builder builder;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct hl_heap *heap = NULL;
		builder_make(&builder, &versions[cases[i].version]);
		builder.image.base.maps.maps[3].path = (char[]){"/bin/program"};
		assert_int_equal(read_image(&builder, &plain, &heap), 0);
		assert_string_equal(heap->allocator, cases[i].name);
		expect_arena(&builder.main, &heap->arenas[0]);
		assert_int_equal(heap->mmapped_blocks, 1);
		hl_heap_free(heap);
		image_release(&builder.image);
	}
}

static int refuse_blocks(void *context, uint64_t address, uint64_t usable, uint64_t last_word)
{
	(void)context, (void)address, (void)usable, (void)last_word;
	return 7;
}

static void a_visitor_ends_the_walk(void **state)
{
	static struct builder builder;
	struct hl_heap heap = {0};
	struct hl_glibc glibc;
	const struct hl_heap_settings settings = {.block = refuse_blocks};

	(void)state;
	builder_make(&builder, &versions[10]);
	assert_int_equal(hl_glibc_roots_find(&builder.image.base, &glibc, NULL), 0);
	assert_int_equal(hl_glibc_heap_read(&builder.image.base, &glibc, &settings, &heap, NULL),
			 7);
	hl_carriers_release(&heap.carriers);
	free(heap.arenas);
	image_release(&builder.image);
}

static int read_all(struct builder *builder)
{
	const struct hl_heap_settings settings = {.want_pins = true, .strip_count = 8};
	struct hl_heap *heap = NULL;
	int r = read_image(builder, &settings, &heap);

	if (r == 0)
		hl_heap_free(heap);
	return r;
}

static void want_of_memory_is_an_error(void **state)
{
	static struct builder builder;

	(void)state;
	for (size_t i = 0; i < VERSION_COUNT; i += 5) {
		struct version version = versions[i];
		version.minor = i > 10 ? 99 : version.minor; /* one is not known */
		builder_make(&builder, &version);
		FOR_EACH_FAILING_ALLOCATION(r, read_all(&builder))
		assert_int_equal(r, -ENOMEM);
		image_release(&builder.image);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_version_is_walked_to_the_byte),
		cmocka_unit_test(roots_are_confirmed_by_file_and_memory),
		cmocka_unit_test(tunables_do_not_hide_the_roots),
		cmocka_unit_test(a_file_without_initial_values_is_no_obstacle),
		cmocka_unit_test(symbols_agree_with_what_is_found_without_them),
		cmocka_unit_test(a_stopped_walk_waits_until_no_thread_is_inside_malloc),
		cmocka_unit_test(unknown_versions_are_walked_as_the_layout_they_agree_with),
		cmocka_unit_test(unknown_versions_that_agree_with_no_layout_are_refused),
		cmocka_unit_test(chunks_that_left_a_cache_do_not_hide_its_number),
		cmocka_unit_test(a_heap_without_memory_is_empty),
		cmocka_unit_test(an_overwritten_header_costs_what_lies_up_to_the_next_known_chunk),
		cmocka_unit_test(an_overwritten_top_is_found_by_the_chunks),
		cmocka_unit_test(rings_that_do_not_lead_back_are_left),
		cmocka_unit_test(heaps_that_lead_to_themselves_end),
		cmocka_unit_test(lists_that_lead_in_circles_end),
		cmocka_unit_test(pages_that_are_not_in_memory_are_not_read),
		cmocka_unit_test(
			a_heap_that_grew_since_its_mappings_were_read_is_walked_to_its_end),
		cmocka_unit_test(pages_that_look_like_headers_are_no_blocks),
		cmocka_unit_test(blocks_that_cannot_be_told_from_others_are_located_nowhere),
		cmocka_unit_test(a_block_that_is_missing_does_not_hide_others),
		cmocka_unit_test(many_blocks_are_told_from_one_that_is_none),
		cmocka_unit_test(a_page_of_a_core_file_may_begin_or_end_in_a_hole),
		cmocka_unit_test(each_live_block_is_told_with_its_last_word),
		cmocka_unit_test(mapped_blocks_are_found_by_the_way_back_to_their_start),
		cmocka_unit_test(static_programs_are_known_by_the_layout_that_fits),
		cmocka_unit_test(a_visitor_ends_the_walk),
		cmocka_unit_test(want_of_memory_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
