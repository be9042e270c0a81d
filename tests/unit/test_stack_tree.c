/* SPDX-License-Identifier: BSD-2-Clause */
/* Stacks as a tree. */
#include "bpf/walker.h"

#include "fail_allocations.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void stacks_share_their_outer_frames(void **state)
{
	struct hl_stack_tree tree = {0};
	const uint64_t one[] = {3, 2, 1}, other[] = {4, 2, 1}, inside[] = {2, 1};

	(void)state;
	assert_int_equal(hl_stack_tree_add(&tree, 100, one, 3), 0);
	assert_int_equal(hl_stack_tree_add(&tree, 200, other, 3), 0);
	assert_int_equal(hl_stack_tree_add(&tree, 300, inside, 2), 0);
	assert_int_equal(tree.count, 4);
	uint32_t leaf = hl_stack_tree_find(&tree, 100);
	assert_int_equal(tree.nodes[leaf - 1].frame, 3);
	assert_int_equal(tree.nodes[leaf - 1].parent, hl_stack_tree_find(&tree, 300));
	assert_int_equal(tree.nodes[hl_stack_tree_find(&tree, 200) - 1].parent,
			 hl_stack_tree_find(&tree, 300));
	hl_stack_tree_release(&tree);
}

static void a_stack_that_is_sent_again_changes_nothing(void **state)
{
	struct hl_stack_tree tree = {0};
	const uint64_t keys[] = {2, 1}, others[] = {9};

	(void)state;
	assert_int_equal(hl_stack_tree_add(&tree, 100, keys, 2), 0);
	uint32_t leaf = hl_stack_tree_find(&tree, 100);
	assert_int_equal(hl_stack_tree_add(&tree, 100, others, 1), 0);
	assert_int_equal(hl_stack_tree_find(&tree, 100), leaf);
	assert_int_equal(tree.count, 2);
	hl_stack_tree_release(&tree);
}

static void stacks_that_were_never_received_have_no_node(void **state)
{
	struct hl_stack_tree tree = {0};

	(void)state;
	assert_int_equal(hl_stack_tree_find(&tree, 100), 0);
	assert_int_equal(hl_stack_tree_find(&tree, 0), 0);
}

static int add_many(struct hl_stack_tree *tree)
{
	int r = 0;

	for (uint64_t i = 0; i < 200 && r == 0; i++)
		r = hl_stack_tree_add(tree, 1000 + i, (const uint64_t[]){i, i / 7, 1}, 3);
	return r;
}

static void want_of_memory_leaves_what_was_there(void **state)
{
	struct hl_stack_tree tree = {0};

	(void)state;
	FOR_EACH_FAILING_ALLOCATION(r, add_many(&tree))
	{
		assert_int_equal(r, -ENOMEM);
		for (uint64_t i = 0; i < 200; i++) {
			uint32_t node = hl_stack_tree_find(&tree, 1000 + i);
			assert_true(!node || tree.nodes[node - 1].frame == i);
		}
		if (limit_of_allocations % 2)
			hl_stack_tree_release(&tree);
	}
	assert_int_not_equal(hl_stack_tree_find(&tree, 1199), 0);
	hl_stack_tree_release(&tree);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stacks_share_their_outer_frames),
		cmocka_unit_test(a_stack_that_is_sent_again_changes_nothing),
		cmocka_unit_test(stacks_that_were_never_received_have_no_node),
		cmocka_unit_test(want_of_memory_leaves_what_was_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
