/* SPDX-License-Identifier: BSD-2-Clause */
/* Who owns which pages, and what two snapshots differ in. */
#include "bpf/pages.h"

#include "base/compiler.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fail_allocations.h"

#define BASE  UINT64_C(0x7f0000000000) /* the first page of a block */
#define PAGES (4 * HL_PAGE_BLOCK_PAGES)

static uint64_t page(uint32_t number)
{
	return BASE + number * HL_PAGE_BYTES;
}

static struct hl_page_table *new_table(void)
{
	struct hl_page_table *table;

	assert_int_equal(hl_page_table_new(&table), 0);
	return table;
}

/* The stack to which a page goes, as seen from a mapping; 0: nobody's. */
static uint64_t owner_in(const struct hl_page_table *table, uint32_t number, uint64_t low,
			 uint64_t high)
{
	uint32_t owners[HL_PAGE_BLOCK_PAGES];
	uint64_t block = page(number) & ~(HL_PAGE_BLOCK_BYTES - 1);

	hl_page_table_owners(table, block, low, high, owners);
	uint32_t index = owners[(page(number) - block) / HL_PAGE_BYTES];
	return index ? hl_page_table_stack(table, index) : 0;
}

static uint64_t owner(const struct hl_page_table *table, uint32_t number)
{
	return owner_in(table, number, 0, UINT64_MAX);
}

/* As the owner of one page alone: the mapping has no other. */
static uint64_t own_owner(const struct hl_page_table *table, uint32_t number)
{
	return owner_in(table, number, page(number), page(number + 1));
}

static void touch(struct hl_page_table *table, uint32_t number, uint64_t stack, uint32_t how)
{
	assert_int_equal(hl_page_table_touch(table, page(number) + 123, stack, how), 0);
}

/* ---- tables ---- */

static void the_first_to_touch_a_page_owns_it_until_it_is_gone(void **state)
{
	(void)state;
	struct hl_page_table *table = new_table();

	touch(table, 5, 77, HL_PAGE_TOUCH_WRITE);
	touch(table, 5, 88, HL_PAGE_TOUCH_WRITE | HL_PAGE_TOUCH_PRESENT); /* copy after a fork */
	assert_int_equal(own_owner(table, 5), 77);
	touch(table, 5, 99, HL_PAGE_TOUCH_WRITE); /* was gone in between */
	assert_int_equal(own_owner(table, 5), 99);
	hl_page_table_free(table);
}

static void the_first_to_write_owns_what_was_read_before(void **state)
{
	(void)state;
	struct hl_page_table *table = new_table();

	touch(table, 5, 77, 0);
	assert_int_equal(own_owner(table, 5), 77);
	touch(table, 5, 88, HL_PAGE_TOUCH_WRITE | HL_PAGE_TOUCH_PRESENT);
	touch(table, 5, 99, HL_PAGE_TOUCH_WRITE | HL_PAGE_TOUCH_PRESENT);
	assert_int_equal(own_owner(table, 5), 88);
	hl_page_table_free(table);
}

static void stacks_that_are_not_known_own_nothing(void **state)
{
	(void)state;
	struct hl_page_table *table = new_table();

	touch(table, 5, 77, HL_PAGE_TOUCH_WRITE);
	touch(table, 5, 0, HL_PAGE_TOUCH_WRITE);
	assert_int_equal(own_owner(table, 5), 0);
	assert_int_equal(hl_page_table_stack_count(table), 1);
	hl_page_table_free(table);
}

static void pages_without_a_touch_go_to_the_nearest_of_their_group_then_block(void **state)
{
	(void)state;
	struct hl_page_table *table = new_table();

	touch(table, 15, 7, HL_PAGE_TOUCH_WRITE);
	touch(table, 18, 8, HL_PAGE_TOUCH_WRITE);
	touch(table, 24, 9, HL_PAGE_TOUCH_WRITE);
	assert_int_equal(owner(table, 0), 7);
	assert_int_equal(owner(table, 16), 8); /* 15 is as near, but of another group */
	assert_int_equal(owner(table, 21), 8); /* the one before of two as near */
	assert_int_equal(owner(table, 22), 9);
	assert_int_equal(owner(table, 31), 9);
	assert_int_equal(owner(table, HL_PAGE_BLOCK_PAGES - 1), 9);
	assert_int_equal(owner(table, HL_PAGE_BLOCK_PAGES), 0);
	hl_page_table_free(table);
}

static void neighbours_of_another_mapping_bring_nothing_in(void **state)
{
	(void)state;
	struct hl_page_table *table = new_table();

	touch(table, 3, 7, HL_PAGE_TOUCH_WRITE);
	touch(table, 8, 8, HL_PAGE_TOUCH_WRITE);
	assert_int_equal(owner_in(table, 5, page(4), page(8)), 0);
	assert_int_equal(owner_in(table, 5, page(4), page(9)), 8);
	assert_int_equal(owner_in(table, 5, page(2), page(8)), 7);
	hl_page_table_free(table);
}

static void populated_pages_are_owned_unless_somebody_touched_them(void **state)
{
	(void)state;
	struct hl_page_table *table = new_table();
	const uint32_t end = 2 * HL_PAGE_BLOCK_PAGES + 9;

	touch(table, 7, 70, HL_PAGE_TOUCH_WRITE);
	touch(table, HL_PAGE_BLOCK_PAGES + 7, 70, HL_PAGE_TOUCH_WRITE);
	assert_int_equal(hl_page_table_populate(table, page(5) + 1, page(end) - 1, 80), 0);
	for (uint32_t i = 0; i < PAGES; i++) {
		uint64_t expected = i < 5 || i >= end			     ? 0
				    : i == 7 || i == HL_PAGE_BLOCK_PAGES + 7 ? 70
									     : 80;
		assert_int_equal(own_owner(table, i), expected);
	}
	hl_page_table_free(table);
}

static void pages_populated_are_touched_anew_when_they_were_gone(void **state)
{
	(void)state;
	struct hl_page_table *table = new_table();

	assert_int_equal(hl_page_table_populate(table, page(0), page(512), 80), 0);
	touch(table, 9, 90, HL_PAGE_TOUCH_WRITE | HL_PAGE_TOUCH_PRESENT);
	assert_int_equal(own_owner(table, 9), 80);
	touch(table, 9, 90, HL_PAGE_TOUCH_WRITE);
	assert_int_equal(own_owner(table, 9), 90);
	hl_page_table_free(table);
}

static void what_was_forgotten_belongs_to_nobody(void **state)
{
	(void)state;
	struct hl_page_table *table = new_table();

	touch(table, 600, 60, HL_PAGE_TOUCH_WRITE);
	assert_int_equal(hl_page_table_populate(table, page(0), page(PAGES), 80), 0);
	hl_page_table_forget(table, page(3), page(3));
	hl_page_table_forget(table, page(4), page(6));
	hl_page_table_forget(table, page(512), page(1024));
	for (uint32_t i = 0; i < PAGES; i++)
		assert_int_equal(own_owner(table, i),
				 i == 4 || i == 5 || (i >= 512 && i < 1024) ? 0 : 80);
	hl_page_table_forget(table, 0, UINT64_C(1) << 47); /* more blocks than are known */
	for (uint32_t i = 0; i < PAGES; i++)
		assert_int_equal(own_owner(table, i), 0);
	hl_page_table_free(table);
}

static void owners_move_along_with_their_pages(void **state)
{
	(void)state;
	struct hl_page_table *table = new_table();

	touch(table, 510, 1, HL_PAGE_TOUCH_WRITE);
	touch(table, 514, 2, HL_PAGE_TOUCH_WRITE);
	touch(table, 700, 3, HL_PAGE_TOUCH_WRITE);  /* not moved */
	touch(table, 1513, 4, HL_PAGE_TOUCH_WRITE); /* overwritten */
	assert_int_equal(hl_page_table_move(table, page(500), page(1503), 20 * HL_PAGE_BYTES), 0);
	for (uint32_t i = 0; i < PAGES; i++)
		assert_int_equal(own_owner(table, i), i == 1513	  ? 1
						      : i == 1517 ? 2
						      : i == 700  ? 3
								  : 0);
	assert_int_equal(hl_page_table_move(table, page(1503), page(10), 20 * HL_PAGE_BYTES), 0);
	assert_int_equal(own_owner(table, 20), 1);
	assert_int_equal(own_owner(table, 24), 2);
	assert_int_equal(own_owner(table, 1513), 0);
	hl_page_table_free(table);
}

static void a_move_takes_populated_pages_along(void **state)
{
	(void)state;
	struct hl_page_table *table = new_table();

	assert_int_equal(hl_page_table_populate(table, page(0), page(512), 80), 0);
	assert_int_equal(hl_page_table_move(table, page(100), page(1100), 10 * HL_PAGE_BYTES), 0);
	for (uint32_t i = 0; i < 10; i++) {
		assert_int_equal(own_owner(table, 100 + i), 0);
		assert_int_equal(own_owner(table, 1100 + i), 80);
	}
	assert_int_equal(own_owner(table, 99), 80);
	assert_int_equal(own_owner(table, 110), 80);
	assert_int_equal(own_owner(table, 1110), 0);
	hl_page_table_free(table);
}

static void pages_that_came_with_discarded_ones_keep_their_owner(void **state)
{
	(void)state;
	struct hl_page_table *table = new_table();

	touch(table, 0, 60, HL_PAGE_TOUCH_WRITE); /* brought in all of the block */
	hl_page_table_discard(table, page(0), page(5));
	touch(table, 3, 70, HL_PAGE_TOUCH_WRITE);
	assert_int_equal(own_owner(table, 2), 0);
	assert_int_equal(own_owner(table, 3), 70);
	for (uint32_t i = 5; i < HL_PAGE_BLOCK_PAGES; i++)
		assert_int_equal(own_owner(table, i), 60);
	/* That they came was a guess, and now there is a better one. */
	assert_int_equal(hl_page_table_populate(table, page(8), page(9), 80), 0);
	assert_int_equal(own_owner(table, 8), 80);
	assert_int_equal(own_owner(table, 9), 60);
	hl_page_table_discard(table, page(0), page(512));
	assert_int_equal(owner(table, 9), 0);
	hl_page_table_free(table);
}

static void ranges_too_long_to_remember_are_refused(void **state)
{
	(void)state;
	struct hl_page_table *table = new_table();

	assert_int_equal(hl_page_table_populate(table, 0, UINT64_C(1) << 47, 80), -E2BIG);
	assert_int_equal(hl_page_table_populate(table, page(9), page(8), 80), -E2BIG);
	assert_int_equal(owner(table, 0), 0);
	assert_int_equal(hl_page_table_move(table, page(9), page(99), UINT64_MAX), 0);
	hl_page_table_free(table);
}

/* ---- balances, compared with counting page by page ---- */

/* Two snapshots, and which stack touched each page; 0: none. */
struct world {
	uint32_t before[PAGES], after[PAGES]; /* kinds */
	uint64_t stack[PAGES];
};

static struct hl_pages pages_of(const uint32_t *kinds)
{
	struct hl_pages pages = {.runs = test_calloc(PAGES, sizeof(struct hl_page_run))};

	for (uint32_t i = 0; i < PAGES; i++) {
		struct hl_page_run *last = pages.count ? &pages.runs[pages.count - 1] : NULL;
		if (!kinds[i])
			continue;
		pages.page_count++;
		if (last && last->end == page(i) && last->kind == kinds[i])
			last->end = page(i + 1);
		else
			pages.runs[pages.count++] =
				(struct hl_page_run){page(i), page(i + 1), kinds[i]};
	}
	return pages;
}

static struct hl_page_balance compare(const struct world *world, const struct hl_page_table *table,
				      const struct hl_maps *maps)
{
	struct hl_pages before = pages_of(world->before), after = pages_of(world->after);
	struct hl_page_balance balance;

	assert_int_equal(hl_page_balance_compare(&before, &after, maps, table, &balance), 0);
	assert_int_equal(hl_page_balance_sum(&balance.before), before.page_count);
	assert_int_equal(hl_page_balance_sum(&balance.after), after.page_count);
	test_free(before.runs);
	test_free(after.runs);
	return balance;
}

/* In every class what came less what went is what the snapshots differ by. */
static void check_sums(const struct hl_page_balance *balance)
{
	for (int i = 0; i < HL_PAGE_CLASSES; i++) {
		uint64_t gained = balance->unattributed.of[i];
		for (uint32_t stack = 0; stack < balance->stack_count; stack++)
			gained += balance->gains[stack].of[i];
		assert_int_equal(gained - balance->released.of[i],
				 balance->after.of[i] - balance->before.of[i]);
	}
}

static const uint32_t kinds[] = {0, HL_PAGE_ANON, HL_PAGE_ANON | HL_PAGE_HUGE, HL_PAGE_FILE,
				 HL_PAGE_FILE | HL_PAGE_SHMEM};

static void fill_at_random(struct world *world, struct hl_page_table *table, unsigned seed)
{
	srand(seed);
	for (uint32_t i = 0; i < PAGES;) {
		uint32_t before = kinds[rand() % 5], after = kinds[rand() % 5];
		uint64_t stack = (uint64_t)(rand() % 4);
		for (int run = 1 + rand() % 100; run-- && i < PAGES; i++) {
			world->before[i] = before;
			world->after[i] = after;
			world->stack[i] = stack;
			touch(table, i, stack, HL_PAGE_TOUCH_WRITE);
		}
	}
}

static void count_page_by_page(const struct world *world, uint64_t gains[4][HL_PAGE_CLASSES],
			       uint64_t released[HL_PAGE_CLASSES])
{
	for (uint32_t i = 0; i < PAGES; i++) {
		int before =
			world->before[i] ? (int)hl_page_balance_class_of(world->before[i]) : -1;
		int after = world->after[i] ? (int)hl_page_balance_class_of(world->after[i]) : -1;
		if (before == after)
			continue;
		if (before >= 0)
			released[before]++;
		if (after >= 0)
			gains[world->stack[i]][after]++;
	}
}

static void snapshots_are_compared_as_if_page_by_page(void **state)
{
	(void)state;
	struct hl_map map_of_each_page[PAGES];
	struct hl_maps maps = {.maps = map_of_each_page, .count = PAGES};

	for (uint32_t i = 0; i < PAGES; i++)
		map_of_each_page[i] =
			(struct hl_map){.start = page(i), .end = page(i + 1), .inode = i + 1};
	for (unsigned seed = 1; seed <= 50; seed++) {
		struct world *world = test_calloc(1, sizeof(*world));
		struct hl_page_table *table = new_table();
		uint64_t gains[4][HL_PAGE_CLASSES] = {0}, released[HL_PAGE_CLASSES] = {0};

		fill_at_random(world, table, seed);
		count_page_by_page(world, gains, released);
		struct hl_page_balance balance = compare(world, table, &maps);
		check_sums(&balance);
		assert_memory_equal(balance.released.of, released, sizeof(released));
		assert_memory_equal(balance.unattributed.of, gains[0], sizeof(gains[0]));
		for (uint32_t i = 1; i <= balance.stack_count; i++)
			assert_memory_equal(balance.gains[i - 1].of,
					    gains[hl_page_table_stack(table, i)], sizeof(gains[0]));
		hl_page_balance_release(&balance);
		hl_page_table_free(table);
		test_free(world);
	}
}

static void pages_of_one_fault_go_to_it_and_no_further_than_its_mapping(void **state)
{
	(void)state;
	struct hl_map mapped[] = {{.start = page(0), .end = page(500)},
				  {.start = page(540), .end = page(700)},
				  {.start = page(700), .end = page(PAGES), .inode = 7}};
	struct hl_maps maps = {.maps = mapped, .count = HL_COUNT_OF(mapped)};
	struct world *world = test_calloc(1, sizeof(*world));
	struct hl_page_table *table = new_table();

	for (uint32_t i = 0; i < PAGES; i++)
		world->after[i] = HL_PAGE_ANON;
	touch(table, 600, 60, HL_PAGE_TOUCH_WRITE);
	struct hl_page_balance balance = compare(world, table, &maps);
	check_sums(&balance);
	assert_int_equal(balance.gains[0].of[HL_PAGE_CLASS_ANON], 700 - 512);
	assert_int_equal(balance.unattributed.of[HL_PAGE_CLASS_ANON], PAGES - (700 - 512));
	hl_page_balance_release(&balance);
	hl_page_table_free(table);
	test_free(world);
}

/* ---- want of memory ---- */

static int use_all(void)
{
	struct hl_page_run run = {BASE, BASE + HL_PAGE_BYTES, HL_PAGE_ANON};
	struct hl_pages none = {0}, one = {.runs = &run, .count = 1, .page_count = 1};
	struct hl_maps maps = {0};
	struct hl_page_balance balance = {0};
	struct hl_page_table *table = NULL;
	int r = hl_page_table_new(&table);

	for (uint32_t i = 0; i < 40 && r == 0; i++)
		r = hl_page_table_touch(table, page(i * 300), i, HL_PAGE_TOUCH_WRITE);
	if (r == 0)
		r = hl_page_table_populate(table, page(0), page(1 << 20), 1000);
	if (r == 0)
		r = hl_page_table_move(table, page(0), page(1 << 21), 5000 * HL_PAGE_BYTES);
	if (r == 0)
		r = hl_page_balance_compare(&none, &one, &maps, table, &balance);
	if (r == 0) {
		hl_page_table_forget(table, page(7), page(8)); /* cannot fail */
		hl_page_balance_release(&balance);
	}
	hl_page_table_free(table);
	return r;
}

static void want_of_memory_is_told(void **state)
{
	(void)state;
	FOR_EACH_FAILING_ALLOCATION(r, use_all())
	assert_true(r == -ENOMEM || r == 0); /* forgetting needs no memory */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_to_touch_a_page_owns_it_until_it_is_gone),
		cmocka_unit_test(the_first_to_write_owns_what_was_read_before),
		cmocka_unit_test(stacks_that_are_not_known_own_nothing),
		cmocka_unit_test(pages_without_a_touch_go_to_the_nearest_of_their_group_then_block),
		cmocka_unit_test(neighbours_of_another_mapping_bring_nothing_in),
		cmocka_unit_test(populated_pages_are_owned_unless_somebody_touched_them),
		cmocka_unit_test(pages_populated_are_touched_anew_when_they_were_gone),
		cmocka_unit_test(what_was_forgotten_belongs_to_nobody),
		cmocka_unit_test(owners_move_along_with_their_pages),
		cmocka_unit_test(a_move_takes_populated_pages_along),
		cmocka_unit_test(pages_that_came_with_discarded_ones_keep_their_owner),
		cmocka_unit_test(ranges_too_long_to_remember_are_refused),
		cmocka_unit_test(snapshots_are_compared_as_if_page_by_page),
		cmocka_unit_test(pages_of_one_fault_go_to_it_and_no_further_than_its_mapping),
		cmocka_unit_test(want_of_memory_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
