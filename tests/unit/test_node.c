/* SPDX-License-Identifier: BSD-2-Clause */
/* Stack nodes: one id for one key, through growth, want of memory and races. */
#include "recorder/node.h"

#include "recorder/sys.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "test_region.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define MANY 200000u
#else
#define MANY 2000000u
#endif

/* Stands in for the system: refuses memory on demand. */
static bool refuse;
long __real_hl_sys_madvise(void *address, size_t bytes, int advice);
long __wrap_hl_sys_madvise(void *address, size_t bytes, int advice);
long __wrap_hl_sys_madvise(void *address, size_t bytes, int advice)
{
	return refuse ? -ENOMEM : __real_hl_sys_madvise(address, bytes, advice);
}

static struct hl_region_map region;
static struct hl_node_cache cache;

static int setup(void **state)
{
	(void)state;
	region = test_region_new(0);
	memset(&cache, 0, sizeof(cache));
	assert_true(hl_node_init(&region));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	refuse = false;
	test_region_free(&region);
	return 0;
}

static uint32_t intern(uint32_t parent, uint64_t frame)
{
	return hl_node_intern(&region, &cache, parent, frame);
}

static void a_key_has_one_id(void **state)
{
	(void)state;
	uint32_t outer = intern(0, 0x1000), inner = intern(outer, 0x1000);
	assert_int_equal(outer, 1);
	assert_int_equal(inner, 2);
	memset(cache.slots, 0, sizeof(cache.slots));
	assert_int_equal(intern(0, 0x1000), outer);
	assert_int_equal(intern(outer, 0x1000), inner);
	assert_int_equal(region.nodes[inner].parent, outer);
	assert_null(test_region_check(&region));
}

static uint32_t parent_of(uint32_t i)
{
	return i / 3;
}

static void ids_stay_while_the_index_grows_through_several_tables(void **state)
{
	(void)state;
	for (uint32_t i = 1; i <= MANY; i++)
		assert_int_equal(intern(parent_of(i), i * UINT64_C(16)), i);
	assert_true(atomic_load(&region.header->index_bits) >= HL_INDEX_BITS_MIN + 6);
	for (uint32_t i = 1; i <= MANY; i++)
		assert_int_equal(intern(parent_of(i), i * UINT64_C(16)), i);
	assert_int_equal(atomic_load(&region.header->node_count), MANY);
	assert_null(test_region_check(&region));
}

static void the_newest_table_of_the_index_takes_over_all_nodes(void **state)
{
	(void)state;
	for (uint32_t i = 1; i <= MANY; i++)
		intern(parent_of(i), i * UINT64_C(16));
	uint32_t bits = atomic_load(&region.header->index_bits);
	memset((void *)region.index, 0,
	       ((UINT64_C(1) << bits) - (UINT64_C(1) << HL_INDEX_BITS_MIN)) * sizeof(uint32_t));
	for (uint32_t i = 1; i <= MANY; i++)
		assert_int_equal(intern(parent_of(i), i * UINT64_C(16)), i);
	assert_null(test_region_check(&region));
}

/* As many frames as are looked for together, one more, and many. */
static void a_path_gets_the_nodes_of_its_frames_one_by_one(void **state)
{
	static const uint32_t counts[] = {0, 1, 15, 16, 17, 100};
	static struct hl_walk_frame frames[100];

	(void)state;
	for (size_t c = 0; c < HL_COUNT_OF(counts); c++) {
		uint32_t first = intern(0, 0x5000 + c), parent = first;
		for (uint32_t i = 0; i < counts[c]; i++)
			frames[i] = (struct hl_walk_frame){.key = 0x1000 + i % 7};
		assert_int_equal(hl_node_intern_path(&region, &cache, first, frames, counts[c]),
				 counts[c]);
		memset(cache.slots, 0, sizeof(cache.slots));
		for (uint32_t i = 0; i < counts[c]; i++) {
			parent = intern(parent, 0x1000 + i % 7);
			assert_int_equal(frames[i].node, parent);
		}
	}
	assert_int_equal(atomic_load(&region.header->node_count), 6 + 0 + 1 + 15 + 16 + 17 + 100);
	assert_null(test_region_check(&region));
}

static void a_path_ends_where_no_node_is_left(void **state)
{
	static struct hl_walk_frame frames[100];

	(void)state;
	uint32_t made = 0;
	refuse = true;
	while (intern(0, made + 1) != HL_NODE_NONE)
		assert_true(++made < 100000);
	frames[0].key = made;
	for (uint32_t i = 1; i < HL_COUNT_OF(frames); i++)
		frames[i].key = 0x100000;
	assert_int_equal(hl_node_intern_path(&region, &cache, 0, &frames[1], 99), 0);
	assert_int_equal(hl_node_intern_path(&region, &cache, 0, frames, 100), 1);
	assert_int_equal(frames[0].node, made);
	assert_int_equal(hl_node_intern_path(&region, &cache, UINT32_MAX, frames, 1), 0);
	assert_null(test_region_check(&region));
}

static void a_full_region_gives_no_more_nodes_and_keeps_those_it_has(void **state)
{
	(void)state;
	test_region_free(&region);
	region = test_region_new(UINT64_C(64) << 20);
	assert_true(hl_node_init(&region));
	uint32_t made = 0;
	while (made < UINT32_C(1) << HL_NODE_BITS && intern(0, made + 1) != HL_NODE_NONE)
		made++;
	assert_true(made > 1000);
	assert_int_equal(intern(0, made + 1), HL_NODE_NONE);
	for (uint32_t i = 0; i < made; i++)
		assert_int_equal(intern(0, i + 1), i + 1);
	assert_null(test_region_check(&region));
}

static void without_memory_nodes_stop_and_go_on_when_there_is_some_again(void **state)
{
	(void)state;
	refuse = true;
	uint32_t made = 0;
	while (intern(0, made + 1) != HL_NODE_NONE)
		assert_true(++made < 100000);
	for (uint32_t i = 0; i < made; i++)
		assert_int_equal(intern(0, i + 1), i + 1);
	refuse = false;
	assert_int_equal(intern(0, made + 1), made + 1);
	assert_null(test_region_check(&region));
}

/* ---- threads ---- */

#define THREADS	    4u
#define SHARED_KEYS (MANY / 20)

static uint32_t ids[THREADS][SHARED_KEYS + 1];

/* Interns the same tree as the others, from another point on. */
static void *intern_tree(void *argument)
{
	uint32_t thread = (uint32_t)(uintptr_t)argument;
	struct hl_node_cache *own = calloc(1, sizeof(*own));

	for (uint32_t i = 1; i <= SHARED_KEYS; i++)
		ids[thread][i] =
			hl_node_intern(&region, own, ids[thread][parent_of(i)], i * UINT64_C(16));
	free(own);
	return NULL;
}

/* The key number that a node stands for, resolved by what it says itself. */
static uint32_t key_of(uint32_t id)
{
	return (uint32_t)(atomic_load(&region.nodes[id].frame) / 16);
}

static void threads_that_intern_one_tree_get_nodes_that_merge_into_it(void **state)
{
	(void)state;
	pthread_t threads[THREADS];
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, intern_tree, (void *)i), 0);
	for (uint32_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (uint32_t thread = 0; thread < THREADS; thread++)
		for (uint32_t i = 1; i <= SHARED_KEYS; i++) {
			uint32_t id = ids[thread][i];
			assert_int_equal(key_of(id), i);
			assert_int_equal(key_of(region.nodes[id].parent), parent_of(i));
		}
	assert_null(test_region_check(&region));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_key_has_one_id, setup, teardown),
		cmocka_unit_test_setup_teardown(
			ids_stay_while_the_index_grows_through_several_tables, setup, teardown),
		cmocka_unit_test_setup_teardown(a_path_gets_the_nodes_of_its_frames_one_by_one,
						setup, teardown),
		cmocka_unit_test_setup_teardown(a_path_ends_where_no_node_is_left, setup, teardown),
		cmocka_unit_test_setup_teardown(the_newest_table_of_the_index_takes_over_all_nodes,
						setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_full_region_gives_no_more_nodes_and_keeps_those_it_has, setup, teardown),
		cmocka_unit_test_setup_teardown(
			without_memory_nodes_stop_and_go_on_when_there_is_some_again, setup,
			teardown),
		cmocka_unit_test_setup_teardown(
			threads_that_intern_one_tree_get_nodes_that_merge_into_it, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
