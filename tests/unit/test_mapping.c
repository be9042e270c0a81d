/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of the program's mappings, against a model that knows the owner of every page. */
#include "recorder/mappings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Stands in for the system: refuses private memory on demand. */
static bool refuse;
void *__real_hl_private_map_new(size_t bytes);
void *__wrap_hl_private_map_new(size_t bytes);
void *__wrap_hl_private_map_new(size_t bytes)
{
	return refuse ? NULL : __real_hl_private_map_new(bytes);
}

#define PAGE  UINT64_C(4096)
#define BASE  UINT64_C(0x7f0000000000)
#define PAGES 512u
#define NODES 40000u

struct gone {
	uint64_t bytes[NODES];
	uint32_t objects[NODES];
};

static struct gone gone;
static struct hl_mappings mappings;
static uint32_t owner[PAGES]; /* the model: node of each page, 0 = none */

static void count_gone(void *context, uint32_t node, uint64_t bytes, bool last)
{
	struct gone *it = context;

	it->bytes[node] += bytes;
	it->objects[node] += last;
}

static int setup(void **state)
{
	(void)state;
	refuse = false;
	memset(&gone, 0, sizeof(gone));
	memset(&mappings, 0, sizeof(mappings));
	memset(owner, 0, sizeof(owner));
	return 0;
}

static bool add(uint32_t page, uint32_t pages, uint32_t node)
{
	return hl_mappings_add(&mappings, BASE + page * PAGE, BASE + (page + pages) * PAGE, node);
}

static bool take_out(uint32_t page, uint32_t pages, uint64_t bound)
{
	return hl_mappings_remove(&mappings, BASE + page * PAGE, BASE + (page + pages) * PAGE,
				  bound, count_gone, &gone);
}

static void a_mapping_is_one_object_until_its_last_byte_has_gone(void **state)
{
	(void)state;
	assert_true(add(10, 20, 1));
	take_out(15, 2, HL_MAPPING_ANY);
	take_out(0, 12, HL_MAPPING_ANY);
	take_out(25, 100, HL_MAPPING_ANY);
	assert_true(gone.bytes[1] == 9 * PAGE);
	assert_int_equal(gone.objects[1], 0);
	take_out(0, PAGES, HL_MAPPING_ANY);
	assert_true(gone.bytes[1] == 20 * PAGE);
	assert_int_equal(gone.objects[1], 1);
	assert_int_equal(mappings.count, 0);
}

static void what_was_mapped_after_the_unmapping_began_stays(void **state)
{
	(void)state;
	assert_true(add(0, 4, 1));
	uint64_t bound = hl_mappings_next(&mappings);
	take_out(0, 2, HL_MAPPING_ANY); /* another thread has mapped the first half again ... */
	assert_true(add(0, 2, 2));
	take_out(0, 4, bound); /* ... before this one could take out what it had unmapped */
	assert_true(gone.bytes[1] == 4 * PAGE);
	assert_int_equal(gone.objects[1], 1);
	assert_true(gone.bytes[2] == 0);
	assert_int_equal(mappings.count, 1);
}

static void unknown_addresses_are_ignored(void **state)
{
	(void)state;
	assert_true(take_out(0, PAGES, HL_MAPPING_ANY));
	assert_true(add(5, 1, 1));
	assert_true(take_out(0, 5, HL_MAPPING_ANY));
	assert_true(take_out(6, 5, HL_MAPPING_ANY));
	assert_int_equal(mappings.count, 1);
}

static void without_memory_for_a_hole_the_range_stays_whole(void **state)
{
	(void)state;
	assert_true(add(0, 3, 1));
	while (mappings.count < mappings.capacity)
		assert_true(add(3 + mappings.count, 1, 2));
	refuse = true;
	assert_false(take_out(1, 1, HL_MAPPING_ANY));
	assert_false(add(PAGES, 1, 3));
	assert_true(gone.bytes[1] == 0);
	assert_true(take_out(0, 3, HL_MAPPING_ANY));
	assert_true(gone.bytes[1] == 3 * PAGE);
	assert_int_equal(gone.objects[1], 1);
}

/* ---- random operations ---- */

static uint32_t pages_of(uint32_t node)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < PAGES; i++)
		count += owner[i] == node;
	return count;
}

/* Frees the pages in the model, and says what the table must have reported for node ${node}. */
static void set_owner(uint32_t page, uint32_t pages, uint32_t node)
{
	for (uint32_t i = page; i < page + pages; i++)
		owner[i] = node;
}

static void random_calls_free_exactly_what_the_model_frees(void **state)
{
	(void)state;
	static uint32_t mapped[NODES];
	srand(7);
	for (uint32_t node = 1; node < NODES; node++) {
		uint32_t page = (uint32_t)rand() % PAGES;
		uint32_t pages = 1 + (uint32_t)rand() % (node % 10 ? 9 : PAGES - page);
		pages = pages > PAGES - page ? PAGES - page : pages;
		assert_true(take_out(page, pages, HL_MAPPING_ANY));
		set_owner(page, pages, 0);
		mapped[node] = 0;
		if (rand() % 2) {
			assert_true(add(page, pages, node));
			set_owner(page, pages, node);
			mapped[node] = pages;
		}
	}
	for (uint32_t node = 1; node < NODES; node++) {
		uint32_t left = pages_of(node);
		assert_true(gone.bytes[node] == (mapped[node] - left) * PAGE);
		assert_int_equal(gone.objects[node], mapped[node] && !left);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_mapping_is_one_object_until_its_last_byte_has_gone, setup),
		cmocka_unit_test_setup(what_was_mapped_after_the_unmapping_began_stays, setup),
		cmocka_unit_test_setup(unknown_addresses_are_ignored, setup),
		cmocka_unit_test_setup(without_memory_for_a_hole_the_range_stays_whole, setup),
		cmocka_unit_test_setup(random_calls_free_exactly_what_the_model_frees, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
