/* SPDX-License-Identifier: BSD-2-Clause */
/* Which blocks of made-up heaps nothing leads to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fail_allocations.h"
#include "glibc_image.h"
#include "heap/glibc.h"
#include "heap/graph/candidates.h"
#include "heap/graph/graph.h"
#include "heap/graph/leaks.h"

#define ROOTS UINT64_C(0x7f1240000000) /* a mapping after all others */

static struct builder builder;

static int take_first(void *context, uint64_t address, uint64_t usable, uint64_t last_word)
{
	uint64_t *blocks = context;

	(void)usable;
	(void)last_word;
	for (size_t i = 0; i < 8; i++)
		if (!blocks[i]) {
			blocks[i] = address;
			break;
		}
	return 0;
}

/* Makes a heap of ${version}, and finds its first live blocks. */
static void make(const struct version *version, uint64_t blocks[8])
{
	const struct hl_heap_settings settings = {.block = take_first, .context = blocks};
	struct hl_heap heap = {0};

	memset(blocks, 0, 8 * sizeof(*blocks));
	builder_make(&builder, version);
	image_add(&builder.image, ROOTS, IMAGE_PAGE, "", 0);
	assert_int_equal(hl_heap_walk(&builder.image.base, &settings, &heap, NULL), 0);
	assert_true(blocks[7]);
	hl_carriers_release(&heap.carriers);
	free(heap.arenas);
	free(heap.notes);
}

static struct hl_leaks *find(size_t show)
{
	const struct hl_leaks_settings settings = {.show = show};
	struct hl_leaks *leaks;

	assert_int_equal(hl_leaks_read_memory(&builder.image.base, &settings, &leaks, NULL), 0);
	return leaks;
}

static uint64_t sum_of(const struct hl_leaks *leaks, bool bytes)
{
	return bytes ? leaks->lost.bytes + leaks->indirect.bytes
		     : leaks->lost.blocks + leaks->indirect.blocks;
}

static void without_roots_all_blocks_are_lost_in_every_version(void **state)
{
	uint64_t blocks[8];

	(void)state;
	for (size_t i = 0; i < VERSION_COUNT; i++) {
		make(&versions[i], blocks);
		struct hl_leaks *leaks = find(3);
		/* and one with a mapping of its own */
		assert_int_equal(leaks->live.blocks,
				 builder.main.live_blocks + builder.second.live_blocks + 1);
		assert_int_equal(sum_of(leaks, false), leaks->live.blocks);
		assert_int_equal(sum_of(leaks, true), leaks->live.bytes);
		assert_int_equal(leaks->possible.blocks, 0);
		assert_int_equal(leaks->block_count, 3);
		assert_int_equal(leaks->passes, 1);
		hl_leaks_free(leaks);
		image_release(&builder.image);
	}
}

static void a_root_keeps_what_it_leads_to(void **state)
{
	uint64_t blocks[8];

	(void)state;
	make(&versions[10], blocks);
	struct hl_leaks *before = find(0);
	*image_word(&builder.image, ROOTS + 8) = blocks[2];
	*image_word(&builder.image, blocks[2]) = blocks[4];
	*image_word(&builder.image, blocks[4]) = blocks[2];
	*image_word(&builder.image, blocks[4] + 8) = MAPPED + 16;
	struct hl_leaks *after = find(0);
	assert_in_range(sum_of(after, false), 0, sum_of(before, false) - 3);
	assert_int_equal(after->live.bytes, before->live.bytes);
	hl_leaks_free(before);
	hl_leaks_free(after);
	image_release(&builder.image);
}

static void a_page_that_is_not_in_memory_leads_nowhere(void **state)
{
	uint64_t blocks[8];

	(void)state;
	make(&versions[10], blocks);
	*image_word(&builder.image, ROOTS + 8) = blocks[2];
	struct hl_leaks *before = find(0);
	image_part_at(&builder.image, ROOTS)->absent[0] = true;
	struct hl_leaks *after = find(0);
	assert_in_range(sum_of(before, false), 0, sum_of(after, false) - 1);
	hl_leaks_free(before);
	hl_leaks_free(after);
	image_release(&builder.image);
}

static void pointers_to_the_inside_make_possible_ones(void **state)
{
	uint64_t blocks[8];

	(void)state;
	make(&versions[10], blocks);
	*image_word(&builder.image, ROOTS) = MAPPED + 16 + 1000;
	struct hl_leaks *leaks = find(0);
	assert_int_equal(leaks->possible.blocks, 1);
	hl_leaks_free(leaks);
	*image_word(&builder.image, ROOTS) = MAPPED + 16 + 8;
	leaks = find(0);
	assert_int_equal(leaks->possible.blocks, 0);
	hl_leaks_free(leaks);
	image_release(&builder.image);
}

/* Blocks that a list of free chunks led through, and that became parts of a larger one since. */
static void blocks_that_were_merged_into_a_free_chunk_are_not_lost(void **state)
{
	const uint64_t block = ROOTS + 0x110, chunk = ROOTS + 0x80, bin = ROOTS + 0x800;
	struct hl_extents extents = {0};
	struct hl_candidates candidates = {0};
	struct hl_addresses no_tcaches = {0};
	struct hl_glibc glibc;
	struct hl_graph graph;
	uint64_t blocks[8];

	(void)state;
	make(&versions[10], blocks);
	hl_glibc_roots_find(&builder.image.base, &glibc, NULL);
	assert_non_null(glibc.layout);
	uint64_t link = ROOTS + 0x10;
	*image_word(&builder.image, block) = glibc.layout->safe_linking ? link ^ block >> 12 : link;
	assert_int_equal(hl_extents_add(&extents, ROOTS, ROOTS + IMAGE_PAGE), 0);
	assert_int_equal(hl_graph_init(&graph, &builder.image.base), 0);
	assert_int_equal(hl_graph_add(&graph, block, 72), 0);
	assert_int_equal(hl_graph_settle(&graph, &extents), 0);
	assert_int_equal(hl_candidates_collect(&candidates, &graph), 0);
	assert_int_equal(candidates.count, 1);
	assert_true(hl_candidates_any_looks_cached(&candidates, &graph, &glibc));
	assert_true(hl_candidates_meet(&candidates, &graph, block, 72));

	*image_word(&builder.image, chunk + 8) = 0x100 | HL_CHUNK_IN_USE_BEFORE;
	*image_word(&builder.image, chunk + 16) = *image_word(&builder.image, chunk + 24) = bin;
	*image_word(&builder.image, bin + 16) = chunk;
	assert_int_equal(hl_candidates_reach_cached(&candidates, &graph, &glibc, 1, &no_tcaches),
			 0);
	assert_false(hl_graph_is_reached(&graph, block)); /* one neighbour does not lead back */
	*image_word(&builder.image, bin + 24) = chunk;
	*image_word(&builder.image, chunk + 8) = 0x90 | HL_CHUNK_IN_USE_BEFORE;
	assert_int_equal(hl_candidates_reach_cached(&candidates, &graph, &glibc, 1, &no_tcaches),
			 0);
	assert_false(hl_graph_is_reached(&graph, block)); /* the chunk ends before the block */
	*image_word(&builder.image, chunk + 8) = 0x100 | HL_CHUNK_IN_USE_BEFORE;
	assert_int_equal(hl_candidates_reach_cached(&candidates, &graph, &glibc, 1, &no_tcaches),
			 0);
	assert_true(hl_graph_is_reached(&graph, block));

	hl_candidates_release(&candidates);
	hl_graph_release(&graph);
	hl_extents_release(&extents);
	image_release(&builder.image);
}

static int clear(void *context, uint64_t address, uint64_t usable, uint64_t last_word)
{
	(void)context;
	(void)last_word;
	for (uint64_t at = address; at < address + usable; at += 8)
		*image_word(&builder.image, at) = 0;
	return 0;
}

/* The contents of made-up blocks lead to others. */
static void clear_blocks(void)
{
	const struct hl_heap_settings settings = {.block = clear};
	struct hl_heap heap = {0};

	assert_int_equal(hl_heap_walk(&builder.image.base, &settings, &heap, NULL), 0);
	hl_carriers_release(&heap.carriers);
	free(heap.arenas);
	free(heap.notes);
}

/* The ring of blocks[5] leads to a ring of two blocks: to the first or the second of them. */
static void join_rings(unsigned which)
{
	uint64_t blocks[8];

	make(&versions[10], blocks);
	clear_blocks();
	struct hl_leaks *before = find(0);
	*image_word(&builder.image, blocks[2]) = blocks[3];
	*image_word(&builder.image, blocks[3]) = blocks[2];
	*image_word(&builder.image, blocks[5]) = blocks[6];
	*image_word(&builder.image, blocks[6]) = blocks[5];
	*image_word(&builder.image, blocks[6] + 8) = blocks[which];
	struct hl_leaks *after = find(0);
	assert_int_equal(sum_of(after, false), sum_of(before, false));
	assert_int_equal(sum_of(after, true), sum_of(before, true));
	assert_int_equal(before->indirect.blocks, 0);
	/* One of each ring, and the first ring's other one. */
	assert_int_equal(after->indirect.blocks, 3);
	hl_leaks_free(before);
	hl_leaks_free(after);
	image_release(&builder.image);
}

static void the_ring_that_leads_to_others_owns_them(void **state)
{
	(void)state;
	join_rings(2);
	join_rings(3);
}

static int find_all(void)
{
	const struct hl_leaks_settings settings = {.show = 4};
	struct hl_leaks *leaks = NULL;
	int r = hl_leaks_read_memory(&builder.image.base, &settings, &leaks, NULL);

	hl_leaks_free(leaks);
	return r;
}

static void want_of_memory_is_an_error(void **state)
{
	uint64_t blocks[8];

	(void)state;
	for (size_t i = 0; i < VERSION_COUNT; i += 5) {
		make(&versions[i], blocks);
		*image_word(&builder.image, ROOTS) = MAPPED + 16 + 1000;
		FOR_EACH_FAILING_ALLOCATION(r, find_all())
		assert_int_equal(r, -ENOMEM);
		image_release(&builder.image);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_roots_all_blocks_are_lost_in_every_version),
		cmocka_unit_test(a_root_keeps_what_it_leads_to),
		cmocka_unit_test(a_page_that_is_not_in_memory_leads_nowhere),
		cmocka_unit_test(pointers_to_the_inside_make_possible_ones),
		cmocka_unit_test(the_ring_that_leads_to_others_owns_them),
		cmocka_unit_test(blocks_that_were_merged_into_a_free_chunk_are_not_lost),
		cmocka_unit_test(want_of_memory_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
