/* SPDX-License-Identifier: BSD-2-Clause */
/* musl's heap, whole and damaged, walked in images that are made up here. */
#include "allocators/outside/readers.h"
#include "allocators/traits.h"
#include "heap/heap.h"
#include "heap/other_allocators.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fail_allocations.h"
#include "musl_image.h"

static int read_image(struct musl_builder *builder, struct hl_heap **ret_heap)
{
	const struct hl_heap_settings settings = {0};
	struct hl_heap *heap = hl_heap_new();
	int r = heap ? hl_musl_reader.read(&builder->image.base, hl_allocator_traits, &settings,
					   heap, NULL)
		     : -ENOMEM;

	if (r < 0)
		hl_heap_free(heap);
	else
		*ret_heap = heap;
	return r;
}

static size_t count_carriers(const struct hl_heap *heap, const char *type)
{
	size_t count = 0;

	for (size_t i = 0; i < heap->carriers.count; i++)
		count += strcmp(heap->carriers.carriers[i].type, type) == 0;
	return count;
}

static void expect_all(const struct musl_builder *builder, const struct hl_heap *heap)
{
	const struct hl_heap_arena *arena = &heap->arenas[0];

	assert_int_equal(heap->arena_count, 1);
	assert_int_equal(arena->inuse_blocks, builder->live_blocks);
	assert_int_equal(arena->inuse_bytes, builder->live_bytes);
	assert_int_equal(arena->free_blocks, builder->free_blocks);
	assert_int_equal(arena->free_bytes, builder->free_bytes);
	assert_int_equal(arena->unscanned_bytes, 0);
	assert_int_equal(arena->system_bytes,
			 arena->inuse_bytes + arena->free_bytes + arena->overhead_bytes);
	assert_int_equal(heap->abandoned, 0);
	assert_int_equal(count_carriers(heap, "metas"), 2);
	assert_int_equal(count_carriers(heap, "donated"), 1);
	/* Two groups next to each other are one. */
	assert_int_equal(count_carriers(heap, "groups"), 2);
}

static void blocks_of_each_kind_of_group_are_found_to_the_byte(void **state)
{
	struct musl_builder builder;
	struct hl_heap *heap = NULL;

	(void)state;
	musl_make(&builder);
	assert_int_equal(read_image(&builder, &heap), 0);
	expect_all(&builder, heap);
	hl_heap_free(heap);
	image_release(&builder.image);
}

static void areas_in_a_ring_are_read_once(void **state)
{
	static const uint64_t next[] = {MUSL_METAS, MUSL_METAS + 2 * IMAGE_PAGE};
	struct musl_builder builder;
	struct hl_heap *heap = NULL;

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		musl_make(&builder);
		musl_word(&builder, musl_areas[1] + 8, next[i]);
		assert_int_equal(read_image(&builder, &heap), 0);
		expect_all(&builder, heap);
		hl_heap_free(heap);
		image_release(&builder.image);
	}
}

static void a_group_that_begins_and_ends_in_different_mappings_is_none(void **state)
{
	struct musl_builder builder;
	struct hl_heap *heap = NULL;

	(void)state;
	musl_make(&builder);
	/* A block alone, from the last page of the groups to the metas. */
	uint64_t start = MUSL_GROUPS + (MUSL_GROUP_PAGES - 1) * IMAGE_PAGE;
	musl_word(&builder, builder.next_meta + 16, start);
	musl_word(&builder, builder.next_meta + 32,
		  63 << 6 | (MUSL_METAS + IMAGE_PAGE - start) / IMAGE_PAGE << 12);
	assert_int_equal(read_image(&builder, &heap), 0);
	expect_all(&builder, heap);
	hl_heap_free(heap);
	image_release(&builder.image);
}

/* Under the address sanitizer it is an error to keep any of the file. */
static void the_file_of_a_program_is_searched_and_given_back(void **state)
{
	struct musl_builder builder;
	size_t capacity = 64u << 20;
	char *file = malloc(capacity);
	FILE *self = fopen("/proc/self/exe", "re");

	(void)state;
	assert_non_null(file);
	assert_non_null(self);
	musl_make(&builder);
	builder.image.file = file;
	builder.image.file_length = fread(file, 1, capacity, self);
	fclose(self);
	assert_in_range(builder.image.file_length, 1, capacity - 1);
	struct hl_other_found found = hl_other_allocator_built_in(&builder.image.base);
	assert_false(found.hides_functions);
	image_release(&builder.image);
	free(file);
}

static void want_of_memory_is_an_error(void **state)
{
	struct musl_builder builder;
	struct hl_heap *heap = NULL;

	(void)state;
	musl_make(&builder);
	FOR_EACH_FAILING_ALLOCATION(r, read_image(&builder, &heap))
	{
		assert_true(r == -ENOMEM || (r == 0 && heap->abandoned));
		if (r == 0)
			hl_heap_free(heap);
	}
	hl_heap_free(heap);
	image_release(&builder.image);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_of_each_kind_of_group_are_found_to_the_byte),
		cmocka_unit_test(areas_in_a_ring_are_read_once),
		cmocka_unit_test(a_group_that_begins_and_ends_in_different_mappings_is_none),
		cmocka_unit_test(the_file_of_a_program_is_searched_and_given_back),
		cmocka_unit_test(want_of_memory_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
