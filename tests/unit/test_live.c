/* SPDX-License-Identifier: BSD-2-Clause */
/* Rows of a recording that is watched: what they grew by, and who calls whom how often. */
#include "base/clock.h"
#include "view/live.h"

#include "fail_allocations.h"
#include "stacks.h"

#include <errno.h>

static const struct stack first[] = {
	{"main;parse;grow", 1009, 11},
	{"main;walk;walk;walk;grow", 503, 5},
	{"main;read!/lib/libio.so", 101, 3},
	{NULL, 0, 0},
};

static const struct stack second[] = {
	{"main;parse;grow", 3019, 31},
	{"main;walk;walk;walk;grow", 503, 5},
	{"main;read!/lib/libio.so", 103, 5},
	{"main;fresh", 17, 1},
	{NULL, 0, 0},
};

static struct hl_live live;

static void take(const struct stack *stacks, uint64_t saved_s)
{
	hl_live_take(&live, profile_of("test.hl", stacks, 0x1000 * (saved_s + 1)),
		     saved_s * HL_NS_PER_SECOND);
}

static int begin(void **state)
{
	(void)state;
	live = (struct hl_live){.by = HL_VIEW_BY_FUNCTION, .name = "", .command = ""};
	return 0;
}

static int end(void **state)
{
	(void)state;
	hl_live_release(&live);
	return 0;
}

static const struct hl_live_row *row(const char *name, enum hl_live_role role)
{
	for (size_t i = 0; i < live.row_count; i++)
		if (!strcmp(live.rows[i].label.name, name) && live.rows[i].role == role)
			return &live.rows[i];
	fail_msg("no row '%s'", name);
	return NULL;
}

static int64_t figure(const char *name, enum hl_live_role role, int cum, enum hl_live_column column)
{
	return hl_live_figure(&live, row(name, role), cum, HL_UNIT_BYTES, column);
}

static void update(size_t rows)
{
	assert_int_equal(hl_live_update(&live), 0);
	assert_int_equal(live.row_count, rows);
}

static void growth_counts_from_the_mark_and_rates_from_the_save_before(void **state)
{
	(void)state;
	take(first, 10);
	update(2);
	assert_int_equal(figure("grow", HL_LIVE_PLAIN, HL_LIVE_FLAT, HL_LIVE_INUSE), 1512);
	assert_int_equal(figure("grow", HL_LIVE_PLAIN, HL_LIVE_FLAT, HL_LIVE_DELTA), 0);
	assert_int_equal(figure("grow", HL_LIVE_PLAIN, HL_LIVE_FLAT, HL_LIVE_RATE), 0);
	take(second, 12);
	update(3);
	assert_int_equal(figure("grow", HL_LIVE_PLAIN, HL_LIVE_FLAT, HL_LIVE_DELTA), 2010);
	assert_int_equal(figure("grow", HL_LIVE_PLAIN, HL_LIVE_FLAT, HL_LIVE_RATE), 1005);
	assert_int_equal(figure("fresh", HL_LIVE_PLAIN, HL_LIVE_FLAT, HL_LIVE_DELTA), 17);
	hl_live_mark(&live);
	update(3);
	assert_int_equal(figure("grow", HL_LIVE_PLAIN, HL_LIVE_FLAT, HL_LIVE_DELTA), 0);
	assert_int_equal(figure("grow", HL_LIVE_PLAIN, HL_LIVE_FLAT, HL_LIVE_RATE), 1005);
	assert_int_equal(live.total[HL_LIVE_NOW].inuse.bytes, 3642);
}

static void functions_of_scripts_with_one_name_are_a_row_for_each_source(void **state)
{
	static const struct stack one[] = {{"new!./ai/init.lua:3", 5, 1}, {NULL, 0, 0}};
	static const struct stack both[] = {
		{"new!./ai/init.lua:3", 7, 1}, {"new!./bi/init.lua:3", 9, 1}, {NULL, 0, 0}};

	(void)state;
	take(one, 1);
	take(both, 2);
	update(2);
	assert_string_equal(live.rows[0].label.file, "./bi/init.lua");
	assert_int_equal(live.rows[0].figures[HL_LIVE_NOW][HL_LIVE_FLAT].inuse.bytes, 9);
	/* The other one is the row that it was before a second source shared its name. */
	assert_int_equal(
		hl_live_figure(&live, &live.rows[1], HL_LIVE_FLAT, HL_UNIT_BYTES, HL_LIVE_DELTA),
		2);
}

static void callers_and_callees_count_each_stack_once(void **state)
{
	(void)state;
	live.cum = HL_LIVE_CUM;
	take(first, 1);
	take(second, 2);
	update(6);
	hl_live_drill(&live, row("walk", HL_LIVE_PLAIN));
	update(5); /* main and walk call walk, which calls walk and grow */
	assert_int_equal(figure("main", HL_LIVE_CALLER, HL_LIVE_CUM, HL_LIVE_INUSE), 503);
	assert_int_equal(figure("walk", HL_LIVE_CALLER, HL_LIVE_CUM, HL_LIVE_INUSE), 503);
	assert_int_equal(figure("walk", HL_LIVE_ITSELF, HL_LIVE_CUM, HL_LIVE_INUSE), 503);
	assert_int_equal(figure("walk", HL_LIVE_CALLEE, HL_LIVE_CUM, HL_LIVE_INUSE), 503);
	assert_int_equal(figure("grow", HL_LIVE_CALLEE, HL_LIVE_CUM, HL_LIVE_INUSE), 503);
	hl_live_drill(&live, row("grow", HL_LIVE_CALLEE));
	update(3);
	assert_int_equal(figure("parse", HL_LIVE_CALLER, HL_LIVE_CUM, HL_LIVE_INUSE), 3019);
	assert_int_equal(figure("parse", HL_LIVE_CALLER, HL_LIVE_CUM, HL_LIVE_DELTA), 2010);
	assert_int_equal(figure("walk", HL_LIVE_CALLER, HL_LIVE_CUM, HL_LIVE_DELTA), 0);
	hl_live_rise(&live);
	update(5);
	hl_live_rise(&live);
	hl_live_rise(&live);
	update(6);
	assert_int_equal(figure("main", HL_LIVE_PLAIN, HL_LIVE_CUM, HL_LIVE_INUSE), 3642);
}

static void rows_are_chosen_by_text_and_sorted_by_any_column(void **state)
{
	(void)state;
	take(first, 1);
	take(second, 3);
	live.sort = HL_LIVE_NAME;
	update(3);
	assert_string_equal(live.rows[0].label.name, "fresh");
	live.sort = HL_LIVE_DELTA;
	update(3);
	assert_string_equal(live.rows[0].label.name, "grow");
	assert_string_equal(live.rows[2].label.name, "read");
	strcpy(live.filter, "LIBIO");
	update(1);
	assert_string_equal(live.rows[0].label.name, "read");
}

/* 0 or -ENOMEM. */
static int make_and_release(void)
{
	int r = hl_live_update(&live);

	live.row_count = 0;
	hl_strings_release(&live.texts);
	free(live.rows);
	live.rows = NULL;
	live.row_capacity = 0;
	return r;
}

static void want_of_memory_is_an_error_wherever_it_strikes(void **state)
{
	(void)state;
	take(first, 1);
	take(second, 2);
	FOR_EACH_FAILING_ALLOCATION(r, make_and_release())
	assert_int_equal(r, -ENOMEM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			growth_counts_from_the_mark_and_rates_from_the_save_before, begin, end),
		cmocka_unit_test_setup_teardown(
			functions_of_scripts_with_one_name_are_a_row_for_each_source, begin, end),
		cmocka_unit_test_setup_teardown(callers_and_callees_count_each_stack_once, begin,
						end),
		cmocka_unit_test_setup_teardown(rows_are_chosen_by_text_and_sorted_by_any_column,
						begin, end),
		cmocka_unit_test_setup_teardown(want_of_memory_is_an_error_wherever_it_strikes,
						begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
