/* SPDX-License-Identifier: BSD-2-Clause */
/* The heap of gperftools' tcmalloc, whole and damaged, walked in images that are made up here. */
#include "allocators/outside/readers.h"
#include "allocators/traits.h"
#include "heap/heap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fail_allocations.h"
#include "tcmalloc_image.h"

struct visited {
	uint64_t count, bytes, end;
};

static int visit(void *context, uint64_t address, uint64_t usable_bytes, uint64_t last_word)
{
	struct visited *visited = context;

	(void)last_word;
	assert_true(address >= visited->end);
	visited->end = address + usable_bytes;
	visited->count++;
	visited->bytes += usable_bytes;
	return 0;
}

static int read_image(struct tc_builder *builder, struct hl_heap **ret_heap, struct hl_error *err)
{
	struct visited visited = {0};
	const struct hl_heap_settings settings = {.block = visit, .context = &visited};
	struct hl_heap *heap = hl_heap_new();
	int r = heap ? hl_tcmalloc_reader.read(&builder->image.base, hl_allocator_traits, &settings,
					       heap, err)
		     : -ENOMEM;

	if (r == 0) {
		assert_int_equal(visited.count, heap->arenas[0].inuse_blocks);
		assert_int_equal(visited.bytes, heap->arenas[0].inuse_bytes);
		*ret_heap = heap;
	} else {
		hl_heap_free(heap);
	}
	return r;
}

static size_t count_carriers(const struct hl_heap *heap, const char *type)
{
	size_t count = 0;

	for (size_t i = 0; i < heap->carriers.count; i++)
		count += strcmp(heap->carriers.carriers[i].type, type) == 0;
	return count;
}

static void expect_all(const struct tc_builder *builder, const struct hl_heap *heap)
{
	const struct hl_heap_arena *arena = &heap->arenas[0];

	assert_int_equal(heap->arena_count, 1);
	assert_int_equal(arena->threads, 2);
	assert_int_equal(arena->inuse_blocks, builder->live_blocks);
	assert_int_equal(arena->inuse_bytes, builder->live_bytes);
	assert_int_equal(arena->tcache_blocks, builder->cached_blocks);
	assert_int_equal(arena->tcache_bytes, builder->cached_bytes);
	assert_int_equal(arena->free_blocks, builder->free_blocks);
	assert_int_equal(arena->free_bytes, builder->free_bytes);
	assert_int_equal(arena->trimmable_bytes, builder->purged_bytes);
	assert_int_equal(arena->unscanned_bytes, 0);
	assert_int_equal(heap->abandoned, 0);
	assert_int_equal(heap->note_count, 0);
	assert_int_equal(count_carriers(heap, "spans"), 2);
	assert_int_equal(count_carriers(heap, "metadata"), 1);
}

static void blocks_of_each_kind_of_span_are_found_to_the_byte(void **state)
{
	struct tc_builder builder;
	struct hl_heap *heap = NULL;

	(void)state;
	for (unsigned levels = 2; levels <= 3; levels++) {
		tc_make(&builder, levels);
		assert_int_equal(read_image(&builder, &heap, NULL), 0);
		expect_all(&builder, heap);
		hl_heap_free(heap);
		image_release(&builder.image);
	}
}

static void absent_pages_are_neither_in_memory_nor_needed(void **state)
{
	struct tc_builder builder;
	struct hl_heap *heap = NULL;

	(void)state;
	tc_make(&builder, 3);
	for (unsigned page = 3; page < 16;
	     page++) /* the blocks of 8 bytes from the second half on, and free spans */
		builder.image.parts[0].absent[page] = true;
	builder.purged_bytes = 0;
	assert_int_equal(read_image(&builder, &heap, NULL), 0);
	expect_all(&builder, heap);
	assert_int_equal(heap->rss.free_bytes, 2 * 1024);
	hl_heap_free(heap);
	image_release(&builder.image);
}

/* Words that are written over, and what is unscanned then, or noted of chains. */
static const struct {
	uint64_t address, word;
	uint64_t unscanned;
	bool is_noted;
} damages[] = {
	/* a span's own chain: into itself, out of it, between places; its length */
	{TC_HEAP + 1024, TC_HEAP + 5 * 1024, TC_PAGE, true},
	{TC_HEAP + 1024, TC_HEAP + TC_PAGE, TC_PAGE, true},
	{TC_HEAP + 1024, TC_HEAP + 2049, TC_PAGE, true},
	{TC_SPANS + 40, 5 | 3 << 16, TC_PAGE, true},
	/* a cache's: into itself, to another class, to nothing; billions of them */
	{TC_HEAP, TC_HEAP + 7 * 1024, 0, false},
	{TC_HEAP + 7 * 1024, TC_HEAP + TC_PAGE, 0, true},
	{TC_HEAP + 7 * 1024, UINT64_C(0x123456789abcdef0), 0, true},
	{TC_CACHES + 32 * 3 + 8, UINT32_MAX, 0, true},
	/* chains on their way: more than there is room for */
	{TC_VARIABLES + TC_CENTRAL + 3 * 1216 + 1152, UINT32_MAX, 0, true},
	/* descriptors: of no length, far too long, of a class that is not there */
	{TC_SPANS + 8, 0, 0, true},
	{TC_SPANS + 8, UINT64_C(1) << 31, 0, true},
	{TC_SPANS + 40, 6 | 200 << 16, 0, true},
};

static void damage_is_bounded_and_said(void **state)
{
	struct tc_builder builder;
	struct hl_heap *heap = NULL;

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(damages); i++) {
		tc_make(&builder, 3);
		tc_word(&builder, damages[i].address, damages[i].word);
		assert_int_equal(read_image(&builder, &heap, NULL), 0);
		assert_int_equal(heap->arenas[0].unscanned_bytes, damages[i].unscanned);
		assert_int_equal(heap->note_count > 0, damages[i].is_noted);
		hl_heap_free(heap);
		image_release(&builder.image);
	}
}

static void nodes_of_the_map_may_lead_anywhere(void **state)
{
	static const uint64_t words[] = {8, TC_NODES, TC_VARIABLES, TC_HEAP, UINT64_MAX};
	struct tc_builder builder;
	struct hl_heap *heap = NULL;

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(words); i++) {
		tc_make(&builder, 3);
		for (unsigned k = 0; k < 100; k++)
			tc_word(&builder, builder.page_heap + 8 * k, words[i]);
		assert_int_equal(read_image(&builder, &heap, NULL), 0);
		assert_int_equal(heap->arenas[0].inuse_bytes, builder.live_bytes);
		hl_heap_free(heap);
		image_release(&builder.image);
	}
}

static void expect_refusal(struct tc_builder *builder, const char *text)
{
	struct hl_heap *heap = NULL;
	struct hl_error err = {0};

	assert_int_equal(read_image(builder, &heap, &err), -ENOTSUP);
	if (!text)
		assert_string_equal(err.text, "");
	else
		assert_non_null(strstr(err.text, text));
	image_release(&builder->image);
}

static void what_is_not_proven_is_refused_with_a_reason(void **state)
{
	struct tc_builder builder;

	(void)state;
	tc_make(&builder, 3); /* there is none */
	tc_word(&builder, TC_VARIABLES + TC_CENTRAL + 64 + 16, 0);
	expect_refusal(&builder, NULL);
	tc_make(&builder, 3);
	tc_half(&builder, TC_VARIABLES + TC_SIZES + 2684 + 4 * 3, 512);
	expect_refusal(&builder, "classes of size");
	tc_make(&builder, 3); /* descriptors that are not the map's */
	for (unsigned i = 0; i < TC_HEAP_PAGES; i++)
		tc_word(&builder, tc_entry(&builder, i), 0);
	expect_refusal(&builder, "page heap");
	tc_make(&builder, 3);
	for (unsigned i = 0; i < 3; i++)
		tc_half(&builder, tc_cache(i) + 32 * 3 + 24, 1023);
	expect_refusal(&builder, "thread caches");
}

static void other_tcmallocs_are_refused_by_name(void **state)
{
	struct tc_builder builder;

	(void)state;
	tc_make(&builder, 3);
	builder.image.base.maps.maps[0].path = "[anon:tcmalloc_region_NORMAL]";
	expect_refusal(&builder, "Google's");
	tc_make(&builder, 3);
	builder.image.base.maps.maps[2].path = "/lib/libtcmalloc_minimal_debug.so.4";
	expect_refusal(&builder, "for debugging");
}

static void a_root_whose_entries_lead_to_one_leaf_has_it_read_few_times(void **state)
{
	struct tc_builder builder;
	struct hl_heap *heap = NULL;

	(void)state;
	tc_make(&builder, 2);
	for (uint64_t i = (TC_HEAP / TC_PAGE >> 18) + 1; i < tc_root_words(&builder); i++)
		tc_word(&builder, builder.page_heap + 8 * i, TC_NODES);
	image_bytes_read = 0;
	assert_int_equal(read_image(&builder, &heap, NULL), 0);
	expect_all(&builder, heap);
	assert_in_range(image_bytes_read, 0, UINT64_C(1) << 30);
	hl_heap_free(heap);
	image_release(&builder.image);
}

static void want_of_memory_is_an_error(void **state)
{
	struct tc_builder builder;
	struct hl_heap *heap = NULL;

	(void)state;
	tc_make(&builder, 3);
	FOR_EACH_FAILING_ALLOCATION(r, read_image(&builder, &heap, NULL))
	assert_int_equal(r, -ENOMEM);
	hl_heap_free(heap);
	image_release(&builder.image);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_of_each_kind_of_span_are_found_to_the_byte),
		cmocka_unit_test(absent_pages_are_neither_in_memory_nor_needed),
		cmocka_unit_test(damage_is_bounded_and_said),
		cmocka_unit_test(nodes_of_the_map_may_lead_anywhere),
		cmocka_unit_test(what_is_not_proven_is_refused_with_a_reason),
		cmocka_unit_test(other_tcmallocs_are_refused_by_name),
		cmocka_unit_test(a_root_whose_entries_lead_to_one_leaf_has_it_read_few_times),
		cmocka_unit_test(want_of_memory_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
