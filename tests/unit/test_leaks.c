/* SPDX-License-Identifier: BSD-2-Clause */
/* Which blocks of made-up heaps nothing leads to. */
#include "../e2e/machine.h"
#include "heap/glibc.h"
#include "heap/graph/graph.h"
#include "heap/graph/holder_parts.h"
#include "heap/graph/leak_candidates.h"
#include "heap/graph/leaks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fail_allocations.h"
#include "glibc_image.h"

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
	free(heap.rss.mappings);
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

/* What may pass for a block of 72 bytes. */
struct likely {
	uint64_t block, cached, fast, remains;
	struct hl_glibc glibc;
	struct hl_extents extents;
	struct hl_candidates candidates;
	struct hl_graph graph;
};

static int take_large(void *context, uint64_t address, uint64_t usable, uint64_t last_word)
{
	uint64_t *block = context;

	(void)last_word;
	if (usable == 20000 - HL_CHUNK_HEADER && !*block)
		*block = address;
	return 0;
}

/* The remains of a chunk that became a part of a larger block lie in its middle. */
static void make_likely(struct likely *likely)
{
	const struct hl_heap_settings settings = {.block = take_large, .context = &likely->remains};
	const struct version *version = &versions[10];
	struct hl_heap heap = {0};
	uint64_t blocks[8];

	memset(likely, 0, sizeof(*likely));
	make(version, blocks);
	assert_int_equal(hl_heap_walk(&builder.image.base, &settings, &heap, NULL), 0);
	hl_carriers_release(&heap.carriers);
	free(heap.arenas);
	free(heap.notes);
	free(heap.rss.mappings);
	likely->block = blocks[4];
	likely->cached = *image_word(&builder.image, HEAP_BASE + 16 + version->entries + 3 * 8);
	likely->fast = *image_word(&builder.image, MAIN_ARENA + version->fastbins + 2 * 8) + 16;
	likely->remains += 4096;
	*image_word(&builder.image, likely->remains - 8) = 80 | HL_CHUNK_IN_USE_BEFORE;
	*image_word(&builder.image, likely->remains + 72) = 96 | HL_CHUNK_IN_USE_BEFORE;
	hl_glibc_roots_find(&builder.image.base, &likely->glibc, NULL);
	assert_non_null(likely->glibc.layout);
	const uint64_t found[] = {likely->block, likely->cached, likely->fast, likely->remains};
	const uint64_t end = HEAP_BASE + HEAP_PAGES * IMAGE_PAGE;
	assert_int_equal(hl_extents_add(&likely->extents, HEAP_BASE, end), 0);
	assert_int_equal(hl_graph_init(&likely->graph, &builder.image.base), 0);
	for (size_t i = 0; i < 4; i++) {
		uint64_t size = *image_word(&builder.image, found[i] - 8) & ~HL_CHUNK_FLAGS;
		assert_int_equal(hl_graph_add(&likely->graph, found[i], size - 8), 0);
	}
	assert_int_equal(hl_graph_settle(&likely->graph, &likely->extents), 0);
	assert_int_equal(hl_candidates_collect(&likely->candidates, &likely->graph), 0);
	assert_int_equal(likely->candidates.count, 4);
}

/* Only the block was not reached. */
static void check_likely(struct likely *likely)
{
	assert_false(hl_graph_is_reached(&likely->graph, likely->block));
	assert_true(hl_graph_is_reached(&likely->graph, likely->cached));
	assert_true(hl_graph_is_reached(&likely->graph, likely->fast));
	assert_true(hl_graph_is_reached(&likely->graph, likely->remains));
	hl_candidates_release(&likely->candidates);
	hl_graph_release(&likely->graph);
	hl_extents_release(&likely->extents);
	image_release(&builder.image);
}

static void only_blocks_that_a_walk_meets_are_proven(void **state)
{
	struct likely likely;

	(void)state;
	make_likely(&likely);
	assert_int_equal(
		hl_candidates_prove(&likely.candidates, &likely.graph, &likely.glibc, false), 0);
	check_likely(&likely);
}

static void only_blocks_that_chunks_before_them_lead_to_are_proven(void **state)
{
	uint64_t first = HEAP_BASE + 16; /* the thread's cache */
	const struct hl_addresses anchors = {&first, 1, 1};
	struct likely likely;

	(void)state;
	make_likely(&likely);
	const struct hl_still still = {
		&likely.graph, NULL, &likely.glibc, &likely.extents, &anchors, &anchors, 2};
	assert_int_equal(hl_still_prove(&still), 0);
	check_likely(&likely);
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
	free(heap.rss.mappings);
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

static unsigned reads;

static int count_read(struct hl_memory *memory, uint64_t address, void *bytes, size_t length)
{
	reads++;
	return image_kind.read(memory, address, bytes, length);
}

#define LIST_STEP 48u

/* Reaches a list of blocks that fill an image, of which the one at ${first} is the head and each next
 * one lies ${step} bytes further on; returns how often memory was read. */
static unsigned reads_of_list(uint64_t first, int64_t step, unsigned count)
{
	struct hl_memory_kind counting = image_kind;
	struct image image = {0};
	struct hl_extents extents = {0};
	struct hl_graph graph;

	counting.read = count_read;
	image_add(&image, HEAP_BASE, HEAP_PAGES * IMAGE_PAGE, "", 0);
	image.base.kind = &counting;
	assert_int_equal(hl_graph_init(&graph, &image.base), 0);
	assert_int_equal(hl_extents_add(&extents, HEAP_BASE, HEAP_BASE + HEAP_PAGES * IMAGE_PAGE),
			 0);
	for (unsigned i = 0; i < count; i++) {
		uint64_t block = first + (uint64_t)(i * step);
		assert_int_equal(hl_graph_add(&graph, block, LIST_STEP - HL_CHUNK_HEADER), 0);
		if (i + 1 < count)
			*image_word(&image, block) = block + (uint64_t)step;
	}
	assert_int_equal(hl_graph_settle(&graph, &extents), 0);
	reads = 0;
	hl_graph_see_root(&graph, &first, 1, false);
	assert_int_equal(hl_graph_drain(&graph), 0);
	assert_int_equal(hl_graph_next_lost(&graph, HEAP_BASE), 0);
	hl_graph_release(&graph);
	hl_extents_release(&extents);
	image_release(&image);
	return reads;
}

static void lists_in_order_are_read_in_large_pieces_upwards_and_downwards(void **state)
{
	const unsigned count = HEAP_PAGES * IMAGE_PAGE / LIST_STEP;
	const uint64_t last = HEAP_BASE + (count - 1) * LIST_STEP;

	(void)state;
	/* pieces of 4 KiB at first, of 256 KiB at last */
	assert_in_range(reads_of_list(HEAP_BASE, LIST_STEP, count), 3, 10);
	assert_in_range(reads_of_list(last, -(int64_t)LIST_STEP, count), 3, 10);
}

static void steps_of_a_chain_that_changed_since_are_told(void **state)
{
	const uint64_t blocks[] = {HEAP_BASE, HEAP_BASE + 48, HEAP_BASE + 96};
	const struct hl_holders_settings settings = {.address = blocks[2]};
	struct hl_holder holder = {.kind = HL_HOLDER_MAPPING, .place = 1, .start = ROOTS};
	struct hl_holders holders = {.holders = &holder, .holder_count = 1};
	struct hl_root_word word = {.address = ROOTS + 8};
	struct hl_holder_finder finder = {.settings = &settings, .holders = &holders};
	struct hl_extents extents = {0};
	struct image image = {0};

	(void)state;
	image_add(&image, HEAP_BASE, IMAGE_PAGE, "", 0);
	image_add(&image, ROOTS, IMAGE_PAGE, "", 0);
	*image_word(&image, ROOTS + 8) = blocks[0];
	*image_word(&image, blocks[0] + 8) = blocks[1];
	*image_word(&image, blocks[1] + 16) = blocks[2];
	assert_int_equal(hl_graph_init(&finder.graph, &image.base), 0);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(hl_graph_add(&finder.graph, blocks[i], 40), 0);
	assert_int_equal(hl_extents_add(&extents, HEAP_BASE, HEAP_BASE + IMAGE_PAGE), 0);
	assert_int_equal(hl_graph_settle(&finder.graph, &extents), 0);
	hl_class_names_init(&finder.classes, &finder.graph, &holders.names);
	assert_int_equal(hl_block_edges_init(&finder.edges, &finder.graph, &finder.classes), 0);
	assert_int_equal(hl_block_edges_read(&finder.edges), 0);
	assert_int_equal(hl_block_edges_add_holder(&finder.edges), 0);
	word.node = hl_block_edges_node(&finder.edges, blocks[0]);
	assert_int_equal(hl_block_edges_add_to_holder(&finder.edges, word.node), 0);
	finder.digraph = hl_block_edges_finish(&finder.edges);
	finder.looks[0].words = &word;
	finder.looks[0].word_count = 1;
	assert_int_equal(hl_root_names_new(&image.base, &holders.names, &finder.names), 0);
	*image_word(&image, blocks[0] + 8) = 0;
	assert_int_equal(hl_holder_follow(&finder), 0);
	assert_int_equal(holders.chain_count, 4);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(holders.chain[i].is_stale, i == 1);
	assert_int_equal(holders.chain[0].offset, 8);
	assert_int_equal(holders.chain[2].offset, 16);
	hl_root_names_free(finder.names);
	hl_block_edges_release(&finder.edges);
	hl_class_names_release(&finder.classes);
	hl_graph_release(&finder.graph);
	hl_strings_release(&holders.names);
	hl_extents_release(&extents);
	free(holders.chain);
	image_release(&image);
}

static int refuse_scan(struct hl_memory *memory, uint64_t start, uint64_t end,
		       struct hl_pages *pages)
{
	(void)memory;
	(void)start;
	(void)end;
	(void)pages;
	return -ENOMEM;
}

static void a_mapping_is_without_a_name_only_if_it_was_looked_at(void **state)
{
	struct hl_memory_kind refusing = image_kind;
	struct image image = {0};
	struct hl_strings strings = {0};
	struct hl_root_names *names;
	struct hl_root_name name;

	(void)state;
	image_add(&image, ROOTS, IMAGE_PAGE, "", 0);
	assert_int_equal(hl_root_names_new(&image.base, &strings, &names), 0);
	assert_int_equal(hl_root_names_find(names, ROOTS, &name), 0);
	assert_string_equal(hl_strings_text(&strings, name.module), "[anon]");
	refusing.scan = refuse_scan;
	image.base.kind = &refusing;
	assert_int_equal(hl_root_names_find(names, ROOTS, &name), -ENOMEM);
	hl_root_names_free(names);
	hl_strings_release(&strings);
	image_release(&image);
}

static unsigned went_on_after; /* as many reads */
static unsigned went_on;

static void note_going_on(struct hl_memory *memory)
{
	(void)memory;
	went_on++;
	went_on_after = reads;
}

/* Of a process that has gone on there are no registers. */
static int visit_thread(struct hl_memory *memory, hl_thread_visit *visit, void *context)
{
	const struct hl_thread_registers registers =
		REGISTERS_OF(ROOTS + 1024, ROOTS + 2048, HEAP_BASE);

	(void)memory;
	return went_on ? 0 : visit(context, &registers);
}

static int see_roots(struct hl_graph *graph, const struct hl_extents *heap, unsigned roots)
{
	const struct hl_glibc glibc = {0};

	return hl_graph_see_roots(graph, &glibc, heap, &(struct hl_extents){0}, roots);
}

static void check_end_of_stop(bool ends_before_others)
{
	struct hl_memory_kind stopped = image_kind;
	struct image image = {0};
	struct hl_extents heap = {0};
	struct hl_graph graph;

	stopped.read = count_read;
	stopped.go_on = note_going_on;
	stopped.threads = visit_thread;
	image_add(&image, HEAP_BASE, IMAGE_PAGE, "", 0);
	image_add(&image, ROOTS, IMAGE_PAGE, "", 0);
	image_add(&image, ROOTS + 16 * IMAGE_PAGE, 2 * IMAGE_PAGE, "", 0);
	image.base.kind = &stopped;
	*image_word(&image, ROOTS + 16) = HEAP_BASE + 144; /* below the stack */
	*image_word(&image, ROOTS + 1088) = HEAP_BASE + 48;
	*image_word(&image, ROOTS + 17 * IMAGE_PAGE) = HEAP_BASE + 96;
	assert_int_equal(hl_graph_init(&graph, &image.base), 0);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(hl_graph_add(&graph, HEAP_BASE + i * 48, 40), 0);
	assert_int_equal(hl_extents_add(&heap, HEAP_BASE, HEAP_BASE + IMAGE_PAGE), 0);
	assert_int_equal(hl_graph_settle(&graph, &heap), 0);
	reads = went_on = went_on_after = 0;
	assert_int_equal(see_roots(&graph, &heap, HL_ROOTS_STACKS), 0);
	assert_int_equal(went_on, 0);
	image.base.still_until_ns = 1; /* long ago */
	if (ends_before_others)
		hl_memory_keep_time(&image.base, 0);
	assert_int_equal(see_roots(&graph, &heap, HL_ROOTS_OTHERS), 0);
	assert_int_equal(hl_graph_drain(&graph), 0);
	/* The stack was read before it, and the other mapping after it, which is counted. */
	assert_int_equal(went_on, 1);
	assert_true(went_on_after > 0 && went_on_after < reads);
	assert_int_equal(image.base.late_bytes, 2 * IMAGE_PAGE);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(hl_graph_is_reached(&graph, HEAP_BASE + i * 48), i < 3);
	hl_graph_release(&graph);
	hl_extents_release(&heap);
	image_release(&image);
}

static void a_stop_ends_in_time_once_stacks_were_read(void **state)
{
	(void)state;
	check_end_of_stop(false);
}

/* As where the heap alone took all the time: stacks are known still, and what lies below them is not read. */
static void stacks_stay_known_when_the_stop_is_over(void **state)
{
	(void)state;
	check_end_of_stop(true);
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
		cmocka_unit_test(steps_of_a_chain_that_changed_since_are_told),
		cmocka_unit_test(a_mapping_is_without_a_name_only_if_it_was_looked_at),
		cmocka_unit_test(lists_in_order_are_read_in_large_pieces_upwards_and_downwards),
		cmocka_unit_test(the_ring_that_leads_to_others_owns_them),
		cmocka_unit_test(only_blocks_that_a_walk_meets_are_proven),
		cmocka_unit_test(only_blocks_that_chunks_before_them_lead_to_are_proven),
		cmocka_unit_test(a_stop_ends_in_time_once_stacks_were_read),
		cmocka_unit_test(stacks_stay_known_when_the_stop_is_over),
		cmocka_unit_test(want_of_memory_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
