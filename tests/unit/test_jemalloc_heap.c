/* SPDX-License-Identifier: BSD-2-Clause */
/* jemalloc's heap, whole and damaged, read in images that are made up here. */
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
#include "jemalloc_image.h"

static int read_with(struct je_builder *builder, const struct hl_heap_settings *settings,
		     struct hl_heap **ret_heap, struct hl_error *err)
{
	struct hl_heap *heap = hl_heap_new();
	int r = heap ? hl_jemalloc_reader.read(&builder->image.base, hl_allocator_traits, settings,
					       heap, err)
		     : -ENOMEM;

	if (r < 0)
		hl_heap_free(heap);
	else
		*ret_heap = heap;
	return r;
}

static int read_image(struct je_builder *builder, struct hl_heap **ret_heap)
{
	const struct hl_heap_settings settings = {0};

	return read_with(builder, &settings, ret_heap, NULL);
}

static void expect_all(const struct je_builder *builder, const struct hl_heap *heap)
{
	const struct hl_heap_arena *arena = &heap->arenas[0];

	assert_int_equal(heap->arena_count, 1);
	assert_int_equal(arena->address, JE_ARENA);
	assert_int_equal(arena->threads, 1);
	assert_int_equal(arena->inuse_blocks, builder->live_blocks);
	assert_int_equal(arena->inuse_bytes, builder->live_bytes);
	assert_int_equal(arena->tcache_blocks, builder->cached_blocks);
	assert_int_equal(arena->tcache_bytes, builder->cached_bytes);
	assert_int_equal(arena->free_blocks, builder->free_blocks);
	assert_int_equal(arena->trimmable_bytes, (JE_DIRTY_PAGES + JE_MUZZY_PAGES) * IMAGE_PAGE);
	assert_int_equal(arena->unscanned_bytes, 0);
	assert_int_equal(arena->system_bytes, JE_HEAP_PAGES * IMAGE_PAGE + JE_BASE_BYTES);
	assert_int_equal(heap->abandoned, 0);
	assert_int_equal(heap->carriers.count, 2);
	assert_string_equal(heap->carriers.carriers[0].type, "extents");
	assert_string_equal(heap->carriers.carriers[1].type, "metadata");
}

static void heaps_of_each_release_are_read_to_the_byte(void **state)
{
	struct je_builder builder;
	struct hl_heap *heap = NULL;

	(void)state;
	for (int release = JE_5_2; release <= JE_5_3_57_BITS; release++) {
		je_make(&builder, (enum je_release)release);
		assert_int_equal(read_image(&builder, &heap), 0);
		expect_all(&builder, heap);
		hl_heap_free(heap);
		image_release(&builder.image);
	}
}

/* A jemalloc without statistics has none. */
static void caches_are_found_without_a_list_of_them(void **state)
{
	struct je_builder builder;
	struct hl_heap *heap = NULL;

	(void)state;
	for (int release = JE_5_2; release <= JE_5_3; release++) {
		je_make(&builder, (enum je_release)release);
		je_word(&builder, JE_ARENA + 0x1340, 0);
		assert_int_equal(read_image(&builder, &heap), 0);
		expect_all(&builder, heap);
		hl_heap_free(heap);
		image_release(&builder.image);
	}
}

static int sum_blocks(void *context, uint64_t address, uint64_t usable_bytes, uint64_t last_word)
{
	uint64_t *sums = context;

	(void)last_word;
	sums[0] += usable_bytes;
	sums[1] += address == JE_LARGE_BLOCK;
	sums[2] += address >= JE_STACK && address < JE_STACK + IMAGE_PAGE;
	return 0;
}

static void cached_blocks_and_those_of_caches_are_not_live(void **state)
{
	uint64_t sums[3] = {0};
	const struct hl_heap_settings settings = {.block = sum_blocks, .context = sums};
	struct je_builder builder;
	struct hl_heap *heap = NULL;

	(void)state;
	je_make(&builder, JE_5_3);
	assert_int_equal(read_with(&builder, &settings, &heap, NULL), 0);
	assert_int_equal(sums[0], builder.live_bytes);
	assert_int_equal(sums[1], 0); /* it is in a cache */
	assert_int_equal(sums[2], 0);
	hl_heap_free(heap);
	image_release(&builder.image);
}

/* ---- what is not there, or not as it should be ---- */

static void expect_refusal(struct je_builder *builder, const char *reason)
{
	const struct hl_heap_settings settings = {0};
	struct hl_error err = {0};
	struct hl_heap *heap = NULL;

	assert_int_equal(read_with(builder, &settings, &heap, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, reason));
	assert_true(reason[0] || !err.text[0]);
}

static void what_cannot_be_proven_is_refused_with_its_reason(void **state)
{
	struct je_builder builder;

	(void)state;
	je_make(&builder, JE_5_3);
	je_word(&builder, JE_TABLE + 77 * 8, 12345);
	expect_refusal(&builder, "table of sizes");
	image_release(&builder.image);
	/* Descriptors of another release: their addresses are elsewhere. */
	je_make(&builder, JE_5_3);
	for (uint32_t i = 0; i < 7; i++)
		je_word(&builder, JE_DESCRIPTORS + i * 128 + 8, UINT64_C(0x1122334455) << i);
	expect_refusal(&builder, "tree of its pages");
	builder.image.base.maps.maps[3].path = (char *)(uintptr_t) "/usr/bin/program";
	expect_refusal(&builder, "");
	image_release(&builder.image);
}

static void a_slab_that_does_not_fit_is_unscanned_and_the_others_are_read(void **state)
{
	struct je_builder builder;
	struct hl_heap *heap = NULL;

	(void)state;
	je_make(&builder, JE_5_3);
	je_word(&builder, JE_DESCRIPTORS + 64 + 8, 1); /* one more free place than it counts */
	assert_int_equal(read_image(&builder, &heap), 0);
	assert_int_equal(heap->abandoned, 1);
	assert_int_equal(heap->arenas[0].unscanned_bytes, IMAGE_PAGE);
	assert_int_equal(heap->arenas[0].inuse_blocks, builder.live_blocks - 252);
	assert_int_equal(heap->note_count, 1);
	hl_heap_free(heap);
	image_release(&builder.image);
}

static void extents_that_overlap_are_unscanned(void **state)
{
	struct je_builder builder;
	struct hl_heap *heap = NULL;

	(void)state;
	je_make(&builder, JE_5_3);
	je_word(&builder, JE_DESCRIPTORS + 128 + 16, 9 * IMAGE_PAGE); /* of 5 pages */
	assert_int_equal(read_image(&builder, &heap), 0);
	assert_int_equal(heap->abandoned, 2); /* the page in the middle fits by itself */
	hl_heap_free(heap);
	image_release(&builder.image);
}

static void lists_that_do_not_end_are_left(void **state)
{
	struct je_builder builder;
	struct hl_heap *heap = NULL;

	(void)state;
	je_make(&builder, JE_5_3);
	je_word(&builder, JE_BASE + 8, JE_BASE); /* a base block that follows itself */
	je_word(&builder, JE_THREAD + 0x40, JE_THREAD + 0x80); /* a cache that none follows */
	assert_int_equal(read_image(&builder, &heap), 0);
	assert_int_equal(heap->arenas[0].unscanned_bytes, 0);
	hl_heap_free(heap);
	image_release(&builder.image);
}

static void damage_anywhere_ends_the_walk_and_keeps_the_sums(void **state)
{
	static const uint64_t places[][2] = {{JE_DESCRIPTORS, 7 * 128},
					     {JE_LEAF + 0, JE_HEAP_PAGES * 8},
					     {JE_BASE, 512},
					     {JE_ARENA, 0x2010},
					     {JE_THREAD, IMAGE_PAGE},
					     {JE_STACK, 2048},
					     {JE_ARENAS, 64},
					     {JE_ROOT, 8 * 0x20000}};
	static const uint64_t words[] = {0, 1, UINT64_MAX, JE_HEAP, JE_BASE, JE_THREAD + 0x40};
	uint64_t random = 42;
	struct je_builder builder;
	struct hl_heap *heap = NULL;

	(void)state;
	for (unsigned i = 0; i < 320; i++) {
		const uint64_t *place = places[i % 8];
		je_make(&builder, i & 8 ? JE_5_2 : JE_5_3);
		for (unsigned k = 0; k < 3; k++) {
			random = random * 6364136223846793005u + 1442695040888963407u;
			uint64_t word = random >> 60 < 6 ? words[random >> 60] : random;
			je_word(&builder, place[0] + (random >> 16) % (place[1] / 8) * 8, word);
		}
		int r = read_image(&builder, &heap);
		assert_true(r == 0 || r == -ENOTSUP);
		if (r == 0) {
			struct hl_heap_arena total;
			hl_heap_total(heap, &total);
			assert_in_range(total.inuse_bytes + total.tcache_bytes + total.free_bytes +
						total.unscanned_bytes,
					0, total.system_bytes);
			hl_heap_free(heap);
		}
		image_release(&builder.image);
	}
}

static void a_root_whose_elements_lead_to_one_leaf_has_it_read_few_times(void **state)
{
	struct je_builder builder;
	struct hl_heap *heap = NULL;

	(void)state;
	je_make(&builder, JE_5_3);
	for (uint64_t i = JE_HEAP >> 30; i < 1 << 18; i += 32)
		je_word(&builder, JE_ROOT + i * 8, JE_LEAF);
	image_bytes_read = 0;
	assert_int_equal(read_image(&builder, &heap), 0);
	expect_all(&builder, heap);
	assert_in_range(image_bytes_read, 0, UINT64_C(256) << 20);
	hl_heap_free(heap);
	image_release(&builder.image);
}

static void a_heap_whose_extents_name_no_arena_is_unscanned(void **state)
{
	struct je_builder builder;
	struct hl_heap *heap = NULL;

	(void)state;
	je_make(&builder, JE_5_3);
	je_word(&builder, JE_DESCRIPTORS + 16, JE_HEAP_PAGES * IMAGE_PAGE); /* all overlap */
	je_word(&builder, JE_ARENAS, 0);
	je_word(&builder, JE_FIRST_BASE, UINT32_MAX);
	assert_int_equal(read_image(&builder, &heap), 0);
	assert_int_equal(heap->arena_count, 1);
	assert_true(heap->arenas[0].unscanned_bytes > 0);
	hl_heap_free(heap);
	image_release(&builder.image);
}

/* As many words as are tried of a module. */
static void a_module_full_of_pointers_leaves_others_to_be_searched(void **state)
{
	const uint64_t module = UINT64_C(0x7f1000000000), array = UINT64_C(0x7f1001000000);
	struct je_builder builder;
	struct hl_heap *heap = NULL;

	(void)state;
	je_make(&builder, JE_5_3);
	uint8_t *bytes = image_add(&builder.image, module, 600 * IMAGE_PAGE, "/lib/libmany.so", 8);
	for (uint64_t i = 0; i < 1000; i++)
		memcpy(bytes + i * 128, &array, sizeof(array));
	bytes = image_add(&builder.image, array, 600 * IMAGE_PAGE, "", 0);
	for (uint64_t word = 4096; word < 100 * 4096; word += 4096)
		memcpy(bytes + word / 512 - 8, &word, sizeof(word));
	qsort(builder.image.base.maps.maps, builder.image.count, sizeof(struct hl_map),
	      hl_addresses_compare);
	assert_int_equal(read_image(&builder, &heap), 0);
	expect_all(&builder, heap);
	hl_heap_free(heap);
	image_release(&builder.image);
}

static void want_of_memory_is_an_error(void **state)
{
	struct je_builder builder;
	struct hl_heap *heap = NULL;

	(void)state;
	je_make(&builder, JE_5_3);
	FOR_EACH_FAILING_ALLOCATION(r, read_image(&builder, &heap))
	{
		assert_int_equal(r, -ENOMEM);
	}
	hl_heap_free(heap);
	image_release(&builder.image);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(heaps_of_each_release_are_read_to_the_byte),
		cmocka_unit_test(caches_are_found_without_a_list_of_them),
		cmocka_unit_test(cached_blocks_and_those_of_caches_are_not_live),
		cmocka_unit_test(what_cannot_be_proven_is_refused_with_its_reason),
		cmocka_unit_test(a_slab_that_does_not_fit_is_unscanned_and_the_others_are_read),
		cmocka_unit_test(extents_that_overlap_are_unscanned),
		cmocka_unit_test(lists_that_do_not_end_are_left),
		cmocka_unit_test(damage_anywhere_ends_the_walk_and_keeps_the_sums),
		cmocka_unit_test(a_root_whose_elements_lead_to_one_leaf_has_it_read_few_times),
		cmocka_unit_test(a_heap_whose_extents_name_no_arena_is_unscanned),
		cmocka_unit_test(a_module_full_of_pointers_leaves_others_to_be_searched),
		cmocka_unit_test(want_of_memory_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
