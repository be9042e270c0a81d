/* SPDX-License-Identifier: BSD-2-Clause */
/* Dominators of small graphs, compared with their definition. */
#include "heap/graph/holder_parts.h"

#include "base/compiler.h"
#include "fail_allocations.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NODES_MAX 64u
#define EDGES_MAX 512u

/* A graph by edges, and as the code under test takes it. */
struct sketch {
	uint32_t count, edge_count;
	uint32_t from[EDGES_MAX], to[EDGES_MAX];
	struct hl_digraph_node nodes[NODES_MAX + 1];
	uint32_t targets[EDGES_MAX];
	struct hl_digraph graph;
};

static void add_edge(struct sketch *sketch, uint32_t from, uint32_t to)
{
	sketch->from[sketch->edge_count] = from;
	sketch->to[sketch->edge_count++] = to;
}

static struct hl_digraph *digraph_of(struct sketch *sketch)
{
	uint32_t used = 0;

	for (uint32_t node = 0; node <= sketch->count; node++) {
		sketch->nodes[node].first = used;
		for (uint32_t i = 0; i < sketch->edge_count; i++)
			if (sketch->from[i] == node)
				sketch->targets[used++] = sketch->to[i];
	}
	sketch->graph = (struct hl_digraph){sketch->nodes, sketch->count, sketch->targets};
	return &sketch->graph;
}

/* What the root leads to without ${left_out}. */
static void reach(const struct sketch *sketch, uint32_t left_out, bool *ret_reached)
{
	bool has_more = left_out != 0;

	memset(ret_reached, 0, NODES_MAX);
	ret_reached[0] = left_out != 0;
	while (has_more) {
		has_more = false;
		for (uint32_t i = 0; i < sketch->edge_count; i++)
			if (ret_reached[sketch->from[i]] && !ret_reached[sketch->to[i]] &&
			    sketch->to[i] != left_out)
				has_more = ret_reached[sketch->to[i]] = true;
	}
}

static void expect_definition(struct sketch *sketch)
{
	struct hl_dominators found;
	bool reached[NODES_MAX], without[NODES_MAX];
	uint32_t count = 0;

	assert_int_equal(hl_dominators_find(digraph_of(sketch), &found), 0);
	reach(sketch, NODES_MAX, reached);
	for (uint32_t node = 0; node < sketch->count; node++) {
		count += reached[node];
		assert_int_equal(sketch->nodes[node].number != HL_DOMINATORS_NONE, reached[node]);
	}
	assert_int_equal(found.count, count);
	for (uint32_t i = 0; i < count; i++)
		assert_int_equal(sketch->nodes[found.order[i]].number, i);
	for (uint32_t by = 0; by < sketch->count; by++) {
		reach(sketch, by, without);
		for (uint32_t i = 0; i < count && reached[by]; i++) {
			uint32_t at = i;
			while (at && found.order[at] != by)
				at = found.dominator[at];
			assert_int_equal(found.order[at] == by, !without[found.order[i]]);
		}
	}
	hl_dominators_release(&found);
}

static void one_node_is_its_own_root(void **state)
{
	struct sketch sketch = {.count = 1};

	(void)state;
	expect_definition(&sketch);
}

static void what_two_paths_lead_to_hangs_on_where_they_part(void **state)
{
	struct sketch sketch = {.count = 7};
	struct hl_dominators found;

	(void)state;
	add_edge(&sketch, 0, 1);
	add_edge(&sketch, 1, 2);
	add_edge(&sketch, 1, 3);
	add_edge(&sketch, 2, 4);
	add_edge(&sketch, 3, 4);
	add_edge(&sketch, 4, 5);
	add_edge(&sketch, 5, 4);
	add_edge(&sketch, 6, 5); /* nothing leads to 6 */
	assert_int_equal(hl_dominators_find(digraph_of(&sketch), &found), 0);
	assert_int_equal(found.count, 6);
	assert_int_equal(found.order[found.dominator[sketch.nodes[4].number]], 1);
	assert_int_equal(found.order[found.dominator[sketch.nodes[5].number]], 4);
	assert_int_equal(sketch.nodes[6].number, HL_DOMINATORS_NONE);
	hl_dominators_release(&found);
}

static void random_graphs_have_the_dominators_of_the_definition(void **state)
{
	(void)state;
	srand(16);
	for (unsigned round = 0; round < 400; round++) {
		struct sketch sketch = {.count = 1 + (uint32_t)rand() % (NODES_MAX - 1)};
		uint32_t edges = (uint32_t)rand() % (3 * sketch.count);
		for (uint32_t i = 0; i < edges; i++)
			add_edge(&sketch, (uint32_t)rand() % sketch.count,
				 (uint32_t)rand() % sketch.count);
		expect_definition(&sketch);
	}
}

/* A path as long as the graph is compressed, which recursion would not survive. */
static void a_list_of_a_million_nodes_is_no_deeper_than_memory(void **state)
{
	uint32_t count = 1000000, used = 0;
	struct hl_digraph_node *nodes = malloc((count + 1) * sizeof(*nodes));
	uint32_t *targets = malloc(2 * count * sizeof(*targets));
	struct hl_dominators found;

	(void)state;
	for (uint32_t i = 0; i <= count; i++) {
		nodes[i].first = used;
		if (i + 1 < count)
			targets[used++] = i + 1;
		if (i + 1 == count)
			targets[used++] = 1; /* the last leads back */
	}
	assert_int_equal(hl_dominators_find(&(struct hl_digraph){nodes, count, targets}, &found),
			 0);
	assert_int_equal(found.count, count);
	for (uint32_t i = 1; i < count; i++)
		assert_int_equal(found.dominator[i], i - 1);
	hl_dominators_release(&found);
	free(nodes);
	free(targets);
}

static int find_and_release(struct sketch *sketch)
{
	struct hl_dominators found = {0};
	int r = hl_dominators_find(digraph_of(sketch), &found);

	if (r < 0)
		assert_null(found.order);
	hl_dominators_release(&found);
	return r;
}

static void each_failing_allocation_is_an_error(void **state)
{
	struct sketch sketch = {.count = 8};

	(void)state;
	for (uint32_t i = 0; i + 1 < sketch.count; i++)
		add_edge(&sketch, i, i + 1);
	add_edge(&sketch, 7, 2);
	FOR_EACH_FAILING_ALLOCATION(r, find_and_release(&sketch))
	assert_int_equal(r, -ENOMEM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_node_is_its_own_root),
		cmocka_unit_test(what_two_paths_lead_to_hangs_on_where_they_part),
		cmocka_unit_test(random_graphs_have_the_dominators_of_the_definition),
		cmocka_unit_test(a_list_of_a_million_nodes_is_no_deeper_than_memory),
		cmocka_unit_test(each_failing_allocation_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
