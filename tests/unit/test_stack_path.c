/* SPDX-License-Identifier: BSD-2-Clause */
/* Stacks in one line: how much of them is shown, and that they are told apart. */
#include "view/rows.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fail_allocations.h"

#define NODES_MAX 32

struct fixture {
	struct hl_profile profile;
	struct hl_calltree_node nodes[NODES_MAX];
	struct hl_calltree tree;
	struct hl_stack_path path;
};

/* Each word of ${names} calls the next one, the first is called by ${parent}; the last one's node.
 */
static uint32_t add_stack(struct fixture *fixture, uint32_t parent, const char *names)
{
	char copy[128], *rest = copy;

	strcpy(copy, names);
	for (char *name; (name = strsep(&rest, " "));) {
		uint32_t id = (uint32_t)fixture->tree.count++;
		assert_true(id < NODES_MAX);
		fixture->nodes[id] = (struct hl_calltree_node){
			.parent = parent, .depth = fixture->nodes[parent].depth + 1};
		assert_int_equal(hl_strings_intern(&fixture->profile.strings, name,
						   &fixture->nodes[id].name),
				 0);
		if (fixture->nodes[id].depth > fixture->tree.depth_max)
			fixture->tree.depth_max = fixture->nodes[id].depth;
		parent = id;
	}
	return parent;
}

static void begin(struct fixture *fixture)
{
	*fixture = (struct fixture){.tree = {.count = 1}};
	fixture->tree.nodes = fixture->nodes;
	assert_int_equal(hl_stack_path_init(&fixture->path, &fixture->profile, &fixture->tree), 0);
}

static void end(struct fixture *fixture)
{
	hl_stack_path_release(&fixture->path);
	hl_strings_release(&fixture->profile.strings);
}

static void add_to_table(struct fixture *fixture, uint32_t node)
{
	assert_int_equal(hl_stack_path_add(&fixture->path, node), 0);
}

static void assert_line(struct fixture *fixture, uint32_t node, bool full, const char *expected)
{
	fixture->path.full = full;
	char *line = hl_stack_path_line(&fixture->path, node);

	assert_non_null(line);
	assert_string_equal(line, expected);
	free(line);
}

static void a_stack_of_few_frames_is_shown_whole(void **state)
{
	struct fixture fixture;

	(void)state;
	begin(&fixture);
	uint32_t node = add_stack(&fixture, 0, "main run make alloc");
	add_to_table(&fixture, node);
	assert_line(&fixture, node, false, "alloc < make < run < main");
	assert_line(&fixture, 0, false, "[no stack]");
	assert_line(&fixture, 0, true, "[no stack]");
	end(&fixture);
}

static void of_a_deep_stack_the_inner_frames_are_shown(void **state)
{
	struct fixture fixture;

	(void)state;
	begin(&fixture);
	uint32_t node = add_stack(&fixture, 0, "main b c d e alloc");
	add_to_table(&fixture, node);
	assert_line(&fixture, node, false, "alloc < e < d < c < ...");
	assert_line(&fixture, node, true, "alloc < e < d < c < b < main");
	end(&fixture);
}

static void stacks_that_begin_alike_are_told_apart_by_their_first_other_caller(void **state)
{
	struct fixture fixture;

	(void)state;
	begin(&fixture);
	uint32_t main_node = add_stack(&fixture, 0, "start main");
	uint32_t load = add_stack(&fixture, main_node, "load a b c d e alloc");
	uint32_t save = add_stack(&fixture, main_node, "save a b c d e alloc");
	uint32_t near = add_stack(&fixture, main_node, "x c d e alloc");
	uint32_t other = add_stack(&fixture, main_node, "f g h free");
	const uint32_t table[] = {load, save, near, other};
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
		add_to_table(&fixture, table[i]);
	assert_line(&fixture, load, false, "alloc < e < d < c < ... < load < ...");
	assert_line(&fixture, save, false, "alloc < e < d < c < ... < save < ...");
	assert_line(&fixture, near, false, "alloc < e < d < c < x < ...");
	assert_line(&fixture, other, false, "free < h < g < f < ...");
	end(&fixture);
}

static void the_end_of_one_stack_tells_it_from_a_longer_one(void **state)
{
	struct fixture fixture;

	(void)state;
	begin(&fixture);
	uint32_t shorter = add_stack(&fixture, 0, "r r r r r r");
	uint32_t longer = add_stack(&fixture, shorter, "r");
	add_to_table(&fixture, shorter);
	add_to_table(&fixture, longer);
	assert_line(&fixture, shorter, false, "r < r < r < r < ...");
	assert_line(&fixture, longer, false, "r < r < r < r < ... < r");
	end(&fixture);
}

static void tables_do_not_mix(void **state)
{
	struct fixture fixture;

	(void)state;
	begin(&fixture);
	uint32_t load = add_stack(&fixture, 0, "main load a b c d alloc");
	uint32_t save = add_stack(&fixture, 0, "main save a b c d alloc");
	add_to_table(&fixture, load);
	hl_stack_path_begin_table(&fixture.path);
	add_to_table(&fixture, save);
	assert_line(&fixture, save, false, "alloc < d < c < b < ...");
	end(&fixture);
}

static int add_once(struct fixture *fixture)
{
	struct hl_stack_path path;
	int r = hl_stack_path_init(&path, &fixture->profile, &fixture->tree);

	if (r == 0)
		r = hl_stack_path_add(&path, 0);
	hl_stack_path_release(&path);
	return r;
}

static void want_of_memory_is_said(void **state)
{
	struct fixture fixture;

	(void)state;
	begin(&fixture);
	FOR_EACH_FAILING_ALLOCATION(r, add_once(&fixture))
	assert_int_equal(r, -ENOMEM);
	end(&fixture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_stack_of_few_frames_is_shown_whole),
		cmocka_unit_test(of_a_deep_stack_the_inner_frames_are_shown),
		cmocka_unit_test(
			stacks_that_begin_alike_are_told_apart_by_their_first_other_caller),
		cmocka_unit_test(the_end_of_one_stack_tells_it_from_a_longer_one),
		cmocka_unit_test(tables_do_not_mix),
		cmocka_unit_test(want_of_memory_is_said),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
