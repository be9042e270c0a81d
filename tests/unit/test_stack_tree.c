/* SPDX-License-Identifier: BSD-2-Clause */
/* Stacks as a tree. */
#include "bpf/walker.h"

#include "fail_allocations.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

struct stacks {
	struct hl_stack_tree tree;
	struct hl_stack_leaves leaves;
};

static int add(struct stacks *stacks, uint64_t stack, const uint64_t *keys, size_t count)
{
	return hl_stack_leaves_add(&stacks->leaves, &stacks->tree,
				   (struct hl_stack_leaf){.stack = stack}, keys, count);
}

static uint32_t find(const struct stacks *stacks, uint64_t stack)
{
	return hl_stack_leaves_find(&stacks->leaves, stack).node;
}

static void release(struct stacks *stacks)
{
	hl_stack_leaves_release(&stacks->leaves);
	hl_stack_tree_release(&stacks->tree);
}

static void stacks_share_their_outer_frames(void **state)
{
	struct stacks stacks = {0};
	const uint64_t one[] = {3, 2, 1}, other[] = {4, 2, 1}, inside[] = {2, 1};

	(void)state;
	assert_int_equal(add(&stacks, 100, one, 3), 0);
	assert_int_equal(add(&stacks, 200, other, 3), 0);
	assert_int_equal(add(&stacks, 300, inside, 2), 0);
	assert_int_equal(stacks.tree.count, 4);
	uint32_t leaf = find(&stacks, 100);
	assert_int_equal(stacks.tree.nodes[leaf - 1].frame, 3);
	assert_int_equal(stacks.tree.nodes[leaf - 1].parent, find(&stacks, 300));
	assert_int_equal(stacks.tree.nodes[find(&stacks, 200) - 1].parent, find(&stacks, 300));
	release(&stacks);
}

static void a_stack_that_is_sent_again_changes_nothing(void **state)
{
	struct stacks stacks = {0};
	const uint64_t keys[] = {2, 1}, others[] = {9};

	(void)state;
	assert_int_equal(add(&stacks, 100, keys, 2), 0);
	uint32_t leaf = find(&stacks, 100);
	assert_int_equal(add(&stacks, 100, others, 1), 0);
	assert_int_equal(find(&stacks, 100), leaf);
	assert_int_equal(stacks.tree.count, 2);
	release(&stacks);
}

static void stacks_that_were_never_received_have_no_node(void **state)
{
	struct stacks stacks = {0};

	(void)state;
	assert_int_equal(find(&stacks, 100), 0);
	assert_int_equal(find(&stacks, 0), 0);
}

static int add_many(struct stacks *stacks)
{
	int r = 0;

	for (uint64_t i = 0; i < 200 && r == 0; i++)
		r = add(stacks, 1000 + i, (const uint64_t[]){i, i / 7, 1}, 3);
	return r;
}

static void want_of_memory_leaves_what_was_there(void **state)
{
	struct stacks stacks = {0};

	(void)state;
	FOR_EACH_FAILING_ALLOCATION(r, add_many(&stacks))
	{
		assert_int_equal(r, -ENOMEM);
		for (uint64_t i = 0; i < 200; i++) {
			uint32_t node = find(&stacks, 1000 + i);
			assert_true(!node || stacks.tree.nodes[node - 1].frame == i);
		}
		if (limit_of_allocations % 2)
			release(&stacks);
	}
	assert_int_not_equal(find(&stacks, 1199), 0);
	release(&stacks);
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
