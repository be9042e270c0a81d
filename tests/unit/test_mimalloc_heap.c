/* SPDX-License-Identifier: BSD-2-Clause */
/* Heaps of mimalloc, whole and damaged, read in images that are made up here. */
#include "allocators/outside/readers.h"
#include "allocators/traits.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fail_allocations.h"
#include "mimalloc_image.h"

static void make(struct mi_builder *builder, unsigned kind)
{
	if (kind == 0)
		mi_make_segments(builder);
	else if (kind == 3)
		mi_make_group(builder);
	else
		mi_make_mapped(builder, kind == 1 ? &mi_3_1 : &mi_3_4);
}

#define KINDS 4u

/* Blocks rise within a carrier, and are not more than there are. */
static int take_block(void *context, uint64_t address, uint64_t usable_bytes, uint64_t last_word)
{
	uint64_t *blocks = context;

	(void)last_word;
	assert_true(usable_bytes && address + usable_bytes > address);
	return ++*blocks < 1000000 ? 0 : -E2BIG;
}

static int read_image(struct mi_builder *builder, struct hl_heap **ret_heap, struct hl_error *err)
{
	uint64_t blocks = 0;
	const struct hl_heap_settings settings = {.block = take_block, .context = &blocks};
	const struct hl_allocator_traits *traits = hl_allocator_traits;
	struct hl_heap *heap = hl_heap_new();

	while (strcmp(traits->name, hl_mimalloc_reader.allocator) != 0)
		traits++;
	int r = heap ? hl_mimalloc_reader.read(&builder->image.base, traits, &settings, heap, err)
		     : -ENOMEM;
	if (r < 0) {
		hl_heap_free(heap);
		return r;
	}
	*ret_heap = heap;
	return 0;
}

static void blocks_of_each_release_are_found_to_the_byte(void **state)
{
	(void)state;
	for (unsigned kind = 0; kind < KINDS; kind++) {
		struct mi_builder builder;
		struct hl_heap_arena total;
		struct hl_heap *heap = NULL;
		make(&builder, kind);
		assert_int_equal(read_image(&builder, &heap, NULL), 0);
		hl_heap_total(heap, &total);
		assert_int_equal(total.inuse_blocks, builder.live_blocks);
		assert_int_equal(total.inuse_bytes, builder.live_bytes);
		assert_int_equal(total.tcache_blocks, builder.cached_blocks);
		assert_int_equal(total.unscanned_bytes, 0);
		assert_int_equal(heap->abandoned, 0);
		assert_int_equal(total.system_bytes, total.inuse_bytes + total.tcache_bytes +
							     total.free_bytes +
							     total.overhead_bytes);
		/* What is in memory of a page without live blocks; but nothing waits in 2.0.9, and 3.6 gives back
		 * 32 slices together. */
		assert_int_equal(total.trimmable_bytes, kind == 0 || kind == 3 ? 0 : IMAGE_PAGE);
		hl_heap_free(heap);
		image_release(&builder.image);
	}
}

static void blocks_that_may_be_aligned_are_noted(void **state)
{
	static const uint64_t flags[KINDS] = {MI_SEGMENT + 264 + 80 + 14, MI_ARENA + 2 * MI_SLICE,
					      MI_ARENA + MI_SLICE + 2 * 112,
					      MI_ARENA + 11 * 128 + 8};

	(void)state;
	for (unsigned kind = 0; kind < KINDS; kind++) {
		struct mi_builder builder;
		struct hl_heap *heap = NULL;
		make(&builder, kind);
		mi_put(&builder, flags[kind], (kind ? MI_THREAD : 0) | 2, kind ? 8 : 1);
		assert_int_equal(read_image(&builder, &heap, NULL), 0);
		assert_int_equal(heap->note_count, 1);
		assert_non_null(strstr(heap->notes[0].text, "14 blocks may begin later"));
		hl_heap_free(heap);
		image_release(&builder.image);
	}
}

static void what_3_6_has_for_its_threads_is_not_the_programs(void **state)
{
	struct mi_builder builder;
	struct hl_heap_arena total;
	struct hl_heap *heap = NULL;

	(void)state;
	mi_make_group(&builder);
	mi_put(&builder, MI_ARENA + 11 * 128 + 8, 8, 8);
	assert_int_equal(read_image(&builder, &heap, NULL), 0);
	hl_heap_total(heap, &total);
	assert_int_equal(total.inuse_blocks, builder.live_blocks - 14);
	hl_heap_free(heap);
	image_release(&builder.image);
}

static void lists_that_lead_into_themselves_or_elsewhere_cost_their_page(void **state)
{
	static const uint64_t pages[KINDS] = {MI_SEGMENT + MI_SLICE + 384,
					      MI_ARENA + 2 * MI_SLICE + 128,
					      MI_ARENA + 2 * MI_SLICE, MI_ARENA + 11 * MI_SLICE};

	(void)state;
	for (unsigned kind = 0; kind < KINDS; kind++)
		for (unsigned way = 0; way < 3; way++) {
			const uint64_t next[] = {pages[kind] + 19 * 64, pages[kind] + 18 * 64 + 8,
						 UINT64_C(0x1234567890)};
			struct mi_builder builder;
			struct hl_heap_arena total;
			struct hl_heap *heap = NULL;
			make(&builder, kind);
			mi_put(&builder, pages[kind] + 19 * 64, next[way], 8);
			assert_int_equal(read_image(&builder, &heap, NULL), 0);
			hl_heap_total(heap, &total);
			assert_int_equal(total.inuse_blocks, builder.live_blocks - 14);
			assert_int_equal(total.unscanned_bytes, MI_SLICE);
			assert_int_equal(heap->abandoned, 20);
			assert_int_equal(heap->note_count, 1);
			hl_heap_free(heap);
			image_release(&builder.image);
		}
}

/* Whatever a word of what describes the heap says, the walk ends, and what it counts is there. */
static void damaged_words_end_no_walk(void **state)
{
	static const uint64_t values[] = {0,
					  1,
					  UINT64_MAX,
					  UINT64_C(0x7fffffffffff),
					  UINT64_C(0xffff0000ffff),
					  MI_ARENA + 64,
					  MI_SEGMENT};
	static const uint64_t starts[KINDS] = {MI_SEGMENT, MI_ARENA, MI_ARENA + MI_SLICE, MI_ARENA};

	(void)state;
	for (unsigned kind = 0; kind < KINDS; kind++)
		for (uint64_t at = 0; at < 1600; at += 8) {
			uint64_t address = starts[kind] + at, blocks;
			struct mi_builder builder;
			struct hl_heap_arena total;
			struct hl_heap *heap = NULL;
			if (kind == 1 && at >= 1200) /* in the page instead */
				address = MI_ARENA + 2 * MI_SLICE + at % 128;
			else if (kind == 3)
				address = at < 800 ? MI_ARENA + 8 * MI_SLICE + at
						   : MI_ARENA + 11 * 128 + (at - 800);
			make(&builder, kind);
			mi_put(&builder, address, values[at / 8 % 7], 8);
			int r = read_image(&builder, &heap, NULL);
			assert_true(r == 0 || r == -ENOTSUP);
			if (r == 0) {
				hl_heap_total(heap, &total);
				blocks = total.inuse_blocks;
				assert_true(blocks <= 100000);
				assert_true(total.inuse_bytes <= 2048 * UINT64_C(65536));
				hl_heap_free(heap);
			}
			image_release(&builder.image);
		}
}

/* Memory that begins with an address 2 MiB behind itself, as a list of chunks does. */
static void what_only_begins_as_the_map_does_is_left(void **state)
{
	const uint64_t false_map = UINT64_C(0x7f1700000000), half = UINT64_C(2) << 20;
	struct mi_builder builder;
	struct hl_heap_arena total;
	struct hl_heap *heap = NULL;

	(void)state;
	mi_make_mapped(&builder, &mi_3_4);
	uint8_t *bytes = image_add(&builder.image, false_map, 2 * half, "", 0);
	for (uint64_t i = 0; i < 2 * half; i += 8) {
		uint64_t word = i == 0	   ? false_map + half
				: i < half ? false_map + half + i % 32 * 4096
					   : i * 4099;
		memcpy(bytes + i, &word, sizeof(word));
	}
	mi_put(&builder, MI_VARIABLES + 0x80, false_map, 8);
	assert_int_equal(read_image(&builder, &heap, NULL), 0);
	hl_heap_total(heap, &total);
	assert_int_equal(total.inuse_blocks, builder.live_blocks);
	hl_heap_free(heap);
	mi_put(&builder, MI_VARIABLES + 0x140, 0, 8);
	assert_int_equal(read_image(&builder, &heap, NULL), -ENOTSUP);
	image_release(&builder.image);
}

static void a_secure_build_is_refused_with_a_sentence(void **state)
{
	struct mi_builder builder;
	struct hl_heap *heap = NULL;
	struct hl_error err = {0};
	uint8_t slices[513 * 80];

	(void)state;
	/* Each struct of a page has two words more, before the list of other threads. */
	mi_make_segments(&builder);
	struct image_part *part = image_part_at(&builder.image, MI_SEGMENT);
	for (size_t k = 0; k < 2; k++) {
		uint8_t *first = part->bytes + k * 512 * MI_SLICE + 264;
		memcpy(slices, first, sizeof(slices));
		for (size_t i = 0; i < 512; i++) {
			memset(first + i * 96, 0, 96);
			memcpy(first + i * 96, slices + i * 80, 40);
			memcpy(first + i * 96 + 56, slices + i * 80 + 40, 40);
		}
	}
	assert_int_equal(read_image(&builder, &heap, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "secure"));
	image_release(&builder.image);
}

static void want_of_memory_is_an_error(void **state)
{
	(void)state;
	for (unsigned kind = 0; kind < KINDS; kind++) {
		struct mi_builder builder;
		struct hl_heap *heap = NULL;
		make(&builder, kind);
		FOR_EACH_FAILING_ALLOCATION(r, read_image(&builder, &heap, NULL))
		{
			assert_int_equal(r, -ENOMEM);
		}
		hl_heap_free(heap);
		image_release(&builder.image);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_of_each_release_are_found_to_the_byte),
		cmocka_unit_test(blocks_that_may_be_aligned_are_noted),
		cmocka_unit_test(what_3_6_has_for_its_threads_is_not_the_programs),
		cmocka_unit_test(lists_that_lead_into_themselves_or_elsewhere_cost_their_page),
		cmocka_unit_test(damaged_words_end_no_walk),
		cmocka_unit_test(what_only_begins_as_the_map_does_is_left),
		cmocka_unit_test(a_secure_build_is_refused_with_a_sentence),
		cmocka_unit_test(want_of_memory_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
