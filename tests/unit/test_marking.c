/* SPDX-License-Identifier: BSD-2-Clause */
/* Several threads reach the same blocks as one. */
#include "heap/glibc.h"
#include "heap/graph/graph.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "heap_image.h"

#define HEAP	    UINT64_C(0x7f1200000000)
#define HEAP_BYTES  (UINT64_C(24) << 20)
#define BLOCK_BYTES 96u
#define BLOCKS	    (HEAP_BYTES / BLOCK_BYTES - 4096)
#define LARGE_BYTES (UINT64_C(320) << 10) /* at the end: without bits for its pages */

struct heap {
	struct image image;
	struct hl_extents extents;
};

static uint64_t state = 1;

static uint64_t below(uint64_t count)
{
	state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (state >> 33) % count;
}

static uint64_t block_at(uint64_t number)
{
	return HEAP + number * BLOCK_BYTES;
}

static void put(struct heap *heap, uint64_t address, uint64_t word)
{
	*(uint64_t *)(void *)(heap->image.parts[0].bytes + (address - HEAP)) = word;
}

/*
 * A tree whose links go up and down, but for every 7th block, which only others of these lead to; and pointers
 * into the inside of blocks, of which every 13th is known by such a one alone.
 */
static void make(struct heap *heap)
{
	*heap = (struct heap){0};
	image_add(&heap->image, HEAP, HEAP_BYTES, "", 0);
	assert_int_equal(hl_extents_add(&heap->extents, HEAP, HEAP + HEAP_BYTES), 0);
	for (uint64_t i = 1; i < BLOCKS; i++) {
		uint64_t from = i % 7 == 6 ? i : (i * UINT64_C(7919) + 1) % BLOCKS;
		uint64_t parent = i % 2 ? below(i) : i + 1 < BLOCKS ? i + 1 + below(3) : 0;
		parent = parent < BLOCKS ? parent : 0;
		parent -= i % 7 != 6 ? parent % 7 == 6 : 0;
		if (i % 7 == 6)
			parent = parent / 7 * 7 + 6 < BLOCKS ? parent / 7 * 7 + 6 : i;
		put(heap, block_at(parent) + 8 * below(9), block_at(i) + (i % 13 ? 0 : 40));
		if (from % 7 != 6 && from % 13)
			put(heap, block_at(i) + 72, block_at(from));
	}
	put(heap, block_at(BLOCKS / 2), block_at(BLOCKS) + 200000);
	put(heap, block_at(BLOCKS) + LARGE_BYTES - 64, block_at(BLOCKS - 1));
}

/* Reaches what the first block leads to, by ${markers} threads. */
static void mark(struct heap *heap, unsigned markers, struct hl_graph *graph,
		 struct hl_graph_offsets *offsets)
{
	uint64_t first = HEAP;

	assert_int_equal(hl_graph_init(graph, &heap->image.base), 0);
	graph->markers = markers;
	graph->offsets = offsets;
	for (uint64_t i = 0; i < BLOCKS; i++)
		assert_int_equal(hl_graph_add(graph, block_at(i), BLOCK_BYTES - HL_CHUNK_HEADER),
				 0);
	assert_int_equal(hl_graph_add(graph, block_at(BLOCKS), LARGE_BYTES), 0);
	assert_int_equal(hl_graph_settle(graph, &heap->extents), 0);
	hl_graph_see_root(graph, &first, 1, false);
	assert_int_equal(hl_graph_drain(graph), 0);
}

/* How many blocks were not reached; they are the same in both. */
static uint64_t compare(const struct hl_graph *one, const struct hl_graph *other)
{
	uint64_t lost = 0, block = 0;

	for (; (block = hl_graph_next_lost(one, block)); block += 16, lost++)
		assert_int_equal(hl_graph_next_lost(other, block), block);
	assert_int_equal(hl_graph_next_lost(other, block_at(BLOCKS) + 16), 0);
	return lost;
}

static void several_threads_reach_what_one_does(void **unused)
{
	struct hl_graph_offsets by_one = {0}, by_many = {0};
	struct hl_graph one, many;
	struct heap heap;

	(void)unused;
	make(&heap);
	mark(&heap, 1, &one, &by_one);
	for (unsigned markers = 2; markers <= 8; markers *= 2) {
		memset(&by_many, 0, sizeof(by_many));
		mark(&heap, markers, &many, &by_many);
		uint64_t lost = compare(&one, &many);
		assert_in_range(lost, BLOCKS / 7, BLOCKS - BLOCKS / 7);
		assert_true(many.inner.count);
		assert_int_equal(hl_graph_explain_inner(&many, true), 0);
		if (markers < 8) {
			hl_graph_release(&many);
			continue;
		}
		assert_int_equal(hl_graph_explain_inner(&one, true), 0);
		assert_in_range(compare(&one, &many), 1, lost - 1);
		assert_memory_equal(by_one.starts, by_many.starts, sizeof(by_one.starts));
		assert_int_equal(hl_graph_reach_possible(&one), 0);
		assert_int_equal(hl_graph_reach_possible(&many), 0);
		compare(&one, &many);
		hl_graph_release(&many);
	}
	hl_graph_release(&one);
	hl_extents_release(&heap.extents);
	image_release(&heap.image);
}

/* A thread that has nothing to do reads ahead of the other. */
static void lists_in_order_are_followed_to_their_end(void **unused)
{
	struct hl_graph graph;
	struct heap heap = {0};

	(void)unused;
	image_add(&heap.image, HEAP, HEAP_BYTES, "", 0);
	assert_int_equal(hl_extents_add(&heap.extents, HEAP, HEAP + HEAP_BYTES), 0);
	for (uint64_t i = 0; i < BLOCKS; i++)
		put(&heap, block_at(i), block_at(i + 1));
	for (unsigned i = 0; i < 4; i++) {
		mark(&heap, 2, &graph, NULL);
		assert_int_equal(hl_graph_next_lost(&graph, HEAP), 0);
		hl_graph_release(&graph);
	}
	hl_extents_release(&heap.extents);
	image_release(&heap.image);
}

static void what_is_read_ahead_is_had_once(void **unused)
{
	struct image image = {0};
	uint64_t *window = malloc(2 * IMAGE_PAGE), start, end;
	struct hl_ahead *ahead;

	(void)unused;
	uint64_t *words = (void *)image_add(&image, HEAP, 4 * IMAGE_PAGE, "", 0);
	for (size_t i = 0; i < 4 * IMAGE_PAGE / 8; i++)
		words[i] = i;
	assert_int_equal(hl_ahead_new(&image.base, 2 * IMAGE_PAGE, &ahead), 0);
	assert_false(hl_ahead_take(ahead, HEAP, &window, &start, &end));
	hl_ahead_ask(ahead, HEAP + IMAGE_PAGE, HEAP + 3 * IMAGE_PAGE);
	assert_false(hl_ahead_take(ahead, HEAP, &window, &start, &end));
	assert_false(hl_ahead_take(ahead, HEAP + 3 * IMAGE_PAGE, &window, &start, &end));
	assert_true(hl_ahead_take(ahead, HEAP + 2 * IMAGE_PAGE, &window, &start, &end));
	assert_int_equal(start, HEAP + IMAGE_PAGE);
	assert_int_equal(end, HEAP + 3 * IMAGE_PAGE);
	assert_memory_equal(window, words + IMAGE_PAGE / 8, 2 * IMAGE_PAGE);
	assert_false(hl_ahead_take(ahead, HEAP + 2 * IMAGE_PAGE, &window, &start, &end));
	hl_ahead_ask(ahead, HEAP, HEAP + IMAGE_PAGE);
	hl_ahead_forget(ahead);
	assert_false(hl_ahead_take(ahead, HEAP, &window, &start, &end));
	/* what cannot be read is not had */
	hl_ahead_ask(ahead, HEAP + 4 * IMAGE_PAGE, HEAP + 5 * IMAGE_PAGE);
	assert_false(hl_ahead_take(ahead, HEAP + 4 * IMAGE_PAGE, &window, &start, &end));
	hl_ahead_ask(ahead, HEAP, HEAP + IMAGE_PAGE);
	hl_ahead_free(ahead);
	hl_ahead_free(NULL);
	free(window);
	image_release(&image);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(several_threads_reach_what_one_does),
		cmocka_unit_test(lists_in_order_are_followed_to_their_end),
		cmocka_unit_test(what_is_read_ahead_is_had_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
