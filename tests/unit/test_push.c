/* SPDX-License-Identifier: BSD-2-Clause */
/* What a look at a process yields, and what waits in a spool. */
#include "push/session.h"
#include "push/spool.h"

#include "fail_allocations.h"
#include "stacks.h"
#include "temporary.h"

#include <errno.h>

static const struct stack first[] = {
	{"main:1;read:2", 100, 4}, {"main:1;write:3", 50, 1}, {NULL, 0, 0}};
static const struct stack second[] = {{"main:1;read:2", 130, 5},
				      {"main:1;write:3", 50, 1},
				      {"main:1;fresh:4", 7, 1},
				      {NULL, 0, 0}};

static struct hl_push_session *new_session(void)
{
	struct hl_push_session *session = hl_push_session_new("x.hl", NULL, 1, 0);

	assert_non_null(session);
	for (size_t i = 0; i < HL_FLEET_LABEL_COUNT; i++)
		session->labels[i] = strdup("x");
	return session;
}

static int64_t sum_of(const struct hl_push_look *look)
{
	int64_t sum = 0;

	for (size_t i = 0; i < look->window.row_count; i++)
		sum += look->window.rows[i].inuse_bytes;
	return sum;
}

static void a_look_yields_what_changed_since_the_one_before(void **state)
{
	struct hl_push_session *session = new_session();
	struct hl_push_stacks told = {0};
	struct hl_push_look look;

	(void)state;
	assert_int_equal(hl_push_session_look(session, profile_of("a", first, 0x10), &told, 1000,
					      15000, false, &look),
			 0);
	assert_int_equal(look.window.row_count, 2);
	assert_int_equal(look.window.stack_count, 2);
	assert_int_equal(sum_of(&look), 150);
	assert_true(look.window.until_ms > 31000);
	assert_string_equal(look.window.stacks[0].frames, "main\tapp\t/src/app.c\t1\t\t0\n"
							  "read\tapp\t/src/app.c\t2\t\t0\n");
	int64_t read = look.window.stacks[0].stack;
	hl_push_look_release(&look);

	/* Addresses are not part of a stack's number. */
	assert_int_equal(hl_push_session_look(session, profile_of("a", second, 0x77), &told, 2000,
					      15000, true, &look),
			 0);
	assert_int_equal(look.window.stack_count, 1);
	assert_int_equal(look.window.row_count, 2);
	assert_int_equal(sum_of(&look), 37);
	assert_int_equal(look.window.rows[0].stack, read);
	assert_int_equal(look.window.rows[0].alloc_objects, 1);
	assert_int_equal(look.window.ended_ms, 2000);
	/* The profile has what was allocated since, and all that is in use. */
	int64_t alloc = 0, inuse = 0;
	for (size_t i = 0; i < look.profile->node_count; i++) {
		alloc += look.profile->counters[i].alloc_bytes;
		inuse += hl_profile_figure(&look.profile->counters[i], HL_VALUE_INUSE,
					   HL_UNIT_BYTES);
	}
	assert_int_equal(alloc, 37);
	assert_int_equal(inuse, 187);
	hl_push_look_release(&look);

	/* Stacks of another build that are gone are in use no more, and figures that begin again are all new. */
	assert_int_equal(hl_push_session_look(session, profile_of("a", first, 0x10), &told, 3000,
					      15000, false, &look),
			 0);
	assert_int_equal(sum_of(&look), -37);
	for (size_t i = 0; i < look.window.row_count; i++)
		if (look.window.rows[i].stack == read)
			assert_int_equal(look.window.rows[i].alloc_bytes, 100);
	hl_push_look_release(&look);
	hl_push_stacks_release(&told);
	hl_push_session_free(session);
}

static int look_once(void)
{
	long limit = allocations_left;
	struct hl_push_stacks told = {0};
	struct hl_push_look look;

	allocations_left = -1;
	struct hl_push_session *session = new_session();
	struct hl_profile *profile = profile_of("a", second, 0);
	allocations_left = limit;
	int r = hl_push_session_look(session, profile, &told, 1000, 15000, false, &look);
	hl_push_look_release(&look);
	hl_push_stacks_release(&told);
	hl_push_session_free(session);
	return r;
}

static void a_look_without_memory_fails_and_loses_none(void **state)
{
	(void)state;
	FOR_EACH_FAILING_ALLOCATION(r, look_once())
	assert_int_equal(r, -ENOMEM);
}

static void what_a_sink_has_is_not_sent_again(void **state)
{
	struct hl_push_session *session = new_session();
	struct hl_push_stacks told = {0};
	struct hl_push_look look;

	(void)state;
	assert_int_equal(
		hl_push_session_look(session, profile_of("a", first, 0), &told, 1, 1, false, &look),
		0);
	const struct hl_fleet_row row = look.window.rows[0];
	hl_push_look_release(&look);
	hl_push_session_forget(session);
	const int64_t figures[] = {row.inuse_bytes, row.inuse_objects, row.alloc_bytes,
				   row.alloc_objects};
	assert_int_equal(hl_push_session_add(session, row.stack, figures), 0);
	assert_int_equal(
		hl_push_session_look(session, profile_of("a", first, 0), &told, 2, 1, false, &look),
		0);
	assert_int_equal(look.window.row_count, 1);
	assert_int_equal(sum_of(&look), 50);
	hl_push_look_release(&look);
	hl_push_stacks_release(&told);
	hl_push_session_free(session);
}

static void assert_first(struct hl_push_spool *spool, const char *expected)
{
	struct hl_error err = {0};
	char *bytes;
	size_t size;

	assert_int_equal(hl_push_spool_first(spool, &bytes, &size, &err), 0);
	assert_string_equal(bytes, expected);
	assert_int_equal(size, strlen(expected));
	free(bytes);
}

static void a_spool_keeps_the_newest_in_order(void **state)
{
	char directory[TEMPORARY_MAX], path[TEMPORARY_MAX + 16];
	struct hl_push_spool *spool;
	struct hl_error err = {0};
	uint64_t dropped = 0;
	char *bytes;
	size_t size;

	(void)state;
	assert_int_equal(make_temporary(directory), 0);
	snprintf(path, sizeof(path), "%s/a/b", directory);
	assert_int_equal(hl_push_spool_open(path, 10, &spool, &err), 0);
	assert_int_equal(hl_push_spool_first(spool, &bytes, &size, &err), -ENOENT);
	assert_int_equal(hl_push_spool_add(spool, "one", 3, &dropped, &err), 0);
	assert_int_equal(hl_push_spool_add(spool, "two", 3, &dropped, &err), 0);
	assert_int_equal(dropped, 0);
	assert_int_equal(hl_push_spool_add(spool, "three", 5, &dropped, &err), 0);
	assert_int_equal(dropped, 1);
	assert_first(spool, "two");
	hl_push_spool_free(spool);
	/* The next one finds what is left. */
	assert_int_equal(hl_push_spool_open(path, 10, &spool, &err), 0);
	assert_int_equal(hl_push_spool_count(spool), 2);
	assert_first(spool, "two");
	hl_push_spool_pop(spool);
	assert_first(spool, "three");
	assert_int_equal(hl_push_spool_add(spool, "more than ten", 13, &dropped, &err), 0);
	assert_int_equal(dropped, 3);
	assert_int_equal(hl_push_spool_count(spool), 0);
	hl_push_spool_free(spool);
	assert_int_equal(remove_temporary(directory), 0);
}

static void pushes_to_one_place_do_not_share_a_spool(void **state)
{
	char directory[TEMPORARY_MAX], path[TEMPORARY_MAX + 16];
	struct hl_push_spool *two, *one, *three;
	struct hl_error err = {0};
	uint64_t dropped = 0;

	(void)state;
	assert_int_equal(make_temporary(directory), 0);
	snprintf(path, sizeof(path), "%s/spool", directory);
	assert_int_equal(hl_push_spool_open(path, 100, &two, &err), 0);
	assert_int_equal(hl_push_spool_open(path, 100, &one, &err), 0);
	assert_int_equal(hl_push_spool_add(one, "one", 3, &dropped, &err), 0);
	assert_int_equal(hl_push_spool_add(two, "two", 3, &dropped, &err), 0);
	assert_int_equal(hl_push_spool_open(path, 100, &three, &err), 0);
	assert_int_equal(hl_push_spool_count(three), 0);
	assert_int_equal(hl_push_spool_add(three, "three", 5, &dropped, &err), 0);
	assert_first(one, "one");
	assert_first(two, "two");
	assert_first(three, "three");
	/* Who comes then has what the ended ones left, and nothing of those that go on. */
	hl_push_spool_free(two);
	hl_push_spool_free(three);
	assert_int_equal(hl_push_spool_open(path, 100, &three, &err), 0);
	assert_int_equal(hl_push_spool_count(three), 2);
	assert_first(three, "two");
	hl_push_spool_pop(three);
	assert_first(three, "three");
	hl_push_spool_free(three);
	hl_push_spool_free(one);
	assert_int_equal(hl_push_spool_open(path, 100, &one, &err), 0);
	assert_int_equal(hl_push_spool_count(one), 2);
	assert_first(one, "one");
	assert_int_equal(dropped, 0);
	hl_push_spool_free(one);
	assert_int_equal(remove_temporary(directory), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_look_yields_what_changed_since_the_one_before),
		cmocka_unit_test(a_look_without_memory_fails_and_loses_none),
		cmocka_unit_test(what_a_sink_has_is_not_sent_again),
		cmocka_unit_test(a_spool_keeps_the_newest_in_order),
		cmocka_unit_test(pushes_to_one_place_do_not_share_a_spool),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
