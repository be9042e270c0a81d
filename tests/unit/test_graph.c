/* SPDX-License-Identifier: BSD-2-Clause */
/* Call graphs: sums over nodes and edges, what is left out, names that would be markup, and dot. */
#include "view/pictures/graph.h"

#include "fail_allocations.h"
#include "stacks.h"
#include "viewing.h"

#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct stack shop[] = {
	{"main;cart;item", 700, 7},	 {"main;parse;parse;word", 100, 10}, {"main;parse", 50, 5},
	{"main;parse;cart;item", 30, 3}, {"start;main;cart", 1, 1},	     {NULL, 0, 0},
};

static struct hl_view_options options_of(uint64_t nodes, double edge_threshold)
{
	return (struct hl_view_options){.value = HL_VALUE_ALLOC,
					.graph.node_limit = nodes,
					.graph.edge_threshold = edge_threshold,
					.notes = stderr};
}

static struct hl_graph graph_of(const struct hl_profile *profile, struct hl_view_options options)
{
	struct hl_graph graph;

	assert_int_equal(hl_graph_model_init(&graph, profile, &options), 0);
	return graph;
}

static const char *name_of(const struct hl_profile *profile, const struct hl_graph_node *node)
{
	return hl_profile_text(profile, profile->functions[node->function].name);
}

static const struct hl_graph_edge *find_edge(const struct hl_graph *graph,
					     const struct hl_profile *profile, const char *from,
					     const char *to)
{
	for (size_t i = 0; i < graph->edge_count; i++) {
		const struct hl_graph_edge *edge = &graph->edges[i];
		if (!strcmp(name_of(profile, &graph->nodes[edge->from]), from) &&
		    !strcmp(name_of(profile, &graph->nodes[edge->to]), to))
			return edge;
	}
	return NULL;
}

static int64_t edge_bytes(const struct hl_graph *graph, const struct hl_profile *profile,
			  const char *from, const char *to)
{
	const struct hl_graph_edge *edge = find_edge(graph, profile, from, to);

	return edge ? edge->figures.bytes : -1;
}

/* ---- sums ---- */

static void edges_hold_what_is_allocated_through_them(void **state)
{
	struct hl_profile *profile = profile_of("shop.hl", shop, 0x1000);
	struct hl_graph graph = graph_of(profile, options_of(0, 0));

	(void)state;
	assert_int_equal(graph.node_count, 6);
	assert_int_equal(graph.edge_count, 7);
	assert_int_equal(edge_bytes(&graph, profile, "main", "cart"), 701);
	assert_int_equal(edge_bytes(&graph, profile, "cart", "item"), 730);
	assert_int_equal(edge_bytes(&graph, profile, "main", "parse"), 180);
	assert_int_equal(edge_bytes(&graph, profile, "parse", "cart"), 30);
	assert_int_equal(edge_bytes(&graph, profile, "start", "main"), 1);
	for (size_t i = 0; i < graph.edge_count; i++)
		assert_false(graph.edges[i].residual);
	hl_graph_model_release(&graph);
	hl_profile_free(profile);
}

static void recursion_is_an_edge_of_a_function_to_itself(void **state)
{
	struct hl_profile *profile = profile_of("shop.hl", shop, 0x1000);
	struct hl_graph graph = graph_of(profile, options_of(0, 0));
	const struct hl_graph_edge *edge = find_edge(&graph, profile, "parse", "parse");

	(void)state;
	assert_non_null(edge);
	assert_int_equal(edge->from, edge->to);
	assert_int_equal(edge->figures.bytes, 100);
	assert_int_equal(edge->figures.objects, 10);
	hl_graph_model_release(&graph);
	hl_profile_free(profile);
}

static void a_stack_counts_once_in_an_edge_that_it_takes_twice(void **state)
{
	static const struct stack stacks[] = {{"a;b;a;b", 10, 1}, {"a;b;a", 3, 1}, {NULL, 0, 0}};
	struct hl_profile *profile = profile_of("x.hl", stacks, 0x1000);
	struct hl_graph graph = graph_of(profile, options_of(0, 0));

	(void)state;
	assert_int_equal(edge_bytes(&graph, profile, "a", "b"), 13);
	assert_int_equal(edge_bytes(&graph, profile, "b", "a"), 13);
	hl_graph_model_release(&graph);
	hl_profile_free(profile);
}

static void what_is_left_out_is_counted_and_the_total_stays(void **state)
{
	struct hl_profile *profile = profile_of("shop.hl", shop, 0x1000);

	(void)state;
	for (uint64_t limit = 1; limit < 8; limit++) {
		struct hl_graph graph = graph_of(profile, options_of(limit, 0));
		int64_t sum = graph.left_out_flat.bytes + graph.stackless.bytes;
		for (size_t i = 0; i < graph.node_count; i++)
			sum += graph.nodes[i].flat.bytes;
		assert_int_equal(graph.node_count, limit < 6 ? limit : 6);
		assert_int_equal(graph.node_count + graph.left_out_count, 6);
		assert_int_equal(sum, 881);
		assert_int_equal(graph.total.bytes, 881);
		hl_graph_model_release(&graph);
	}
	hl_profile_free(profile);
}

static void edges_past_functions_left_out_are_residual(void **state)
{
	static const struct stack stacks[] = {
		{"main;between;leaf", 90, 1}, {"main;leaf", 5, 1}, {"main;other", 80, 1}, {0}};
	struct hl_profile *profile = profile_of("x.hl", stacks, 0x1000);
	struct hl_graph graph = graph_of(profile, options_of(3, 0));
	const struct hl_graph_edge *edge = find_edge(&graph, profile, "main", "leaf");

	(void)state;
	assert_non_null(edge);
	assert_true(edge->residual);
	assert_int_equal(edge->figures.bytes, 95);
	edge = find_edge(&graph, profile, "main", "other");
	assert_non_null(edge);
	assert_false(edge->residual);
	hl_graph_model_release(&graph);
	hl_profile_free(profile);
}

static void a_chain_that_branches_nowhere_makes_room_for_what_it_leads_to(void **state)
{
	static const struct stack stacks[] = {{"start;c1;c2;c3;c4;c5;work;a", 60, 1},
					      {"start;c1;c2;c3;c4;c5;work;b", 40, 1},
					      {0}};
	struct hl_profile *profile = profile_of("x.hl", stacks, 0x1000);
	struct hl_graph graph = graph_of(profile, options_of(4, 0));

	(void)state;
	assert_int_equal(edge_bytes(&graph, profile, "start", "work"), 100);
	assert_int_equal(edge_bytes(&graph, profile, "work", "a"), 60);
	assert_int_equal(edge_bytes(&graph, profile, "work", "b"), 40);
	hl_graph_model_release(&graph);
	hl_profile_free(profile);
}

static void light_edges_and_lonely_nodes_are_left_out(void **state)
{
	struct hl_profile *profile = profile_of("shop.hl", shop, 0x1000);
	struct hl_graph graph = graph_of(profile, options_of(0, 4)); /* 35.24 */

	(void)state;
	assert_int_equal(graph.node_count, 5); /* without start */
	assert_int_equal(graph.edge_count, 5);
	assert_int_equal(graph.left_out_edges, 1);
	assert_null(find_edge(&graph, profile, "parse", "cart"));
	hl_graph_model_release(&graph);
	hl_profile_free(profile);
}

static void the_five_heaviest_by_flat_are_marked(void **state)
{
	static const struct stack stacks[] = {{"m;a", 1, 1}, {"m;b", 2, 1}, {"m;c", 3, 1},
					      {"m;d", 4, 1}, {"m;e", 5, 1}, {"m;f", 6, 1},
					      {NULL, 0, 0}};
	struct hl_profile *profile = profile_of("x.hl", stacks, 0x1000);
	struct hl_graph graph = graph_of(profile, options_of(0, 0));

	(void)state;
	for (size_t i = 0; i < graph.node_count; i++)
		assert_int_equal(graph.nodes[i].heaviest, graph.nodes[i].flat.bytes > 1);
	hl_graph_model_release(&graph);
	hl_profile_free(profile);
}

static void the_five_heaviest_are_shown_before_all_others(void **state)
{
	static const struct stack stacks[] = {
		{"m;x;y;a", 100, 1}, {"m;x;b", 102, 1},	     {"m;y;x;c", 103, 1}, {"m;x;d", 104, 1},
		{"m;y;e", 105, 1},   {"m;y;x;y;x;f", 99, 1}, {NULL, 0, 0}};
	struct hl_profile *profile = profile_of("x.hl", stacks, 0x1000);
	struct hl_graph graph = graph_of(profile, options_of(5, 0));

	(void)state;
	for (size_t i = 0; i < graph.node_count; i++) {
		assert_true(graph.nodes[i].heaviest);
		assert_true(graph.nodes[i].flat.bytes >= 100);
	}
	assert_int_equal(graph.left_out_flat.bytes, 99);
	hl_graph_model_release(&graph);
	hl_profile_free(profile);
}

/* ---- what is written ---- */

static char *written(const struct stack *stacks, struct hl_view_options options)
{
	struct hl_profile *profile = profile_of("x\"\\.hl", stacks, 0x1000);
	char *text = text_of(hl_graph_view, profile, options);

	hl_profile_free(profile);
	return text;
}

static void json_has_the_nodes_and_edges_of_the_picture(void **state)
{
	struct hl_view_options options = options_of(0, 0);
	json_error_t error;

	(void)state;
	options.json = true;
	char *text = written(shop, options);
	json_t *report = json_loads(text, JSON_REJECT_DUPLICATES, &error);
	json_t *rows = json_object_get(report, "rows"), *edges = json_object_get(report, "edges");
	assert_string_equal(json_string_value(json_object_get(report, "schema")),
			    "heapline/graph/1");
	assert_int_equal(json_array_size(rows), 6);
	assert_int_equal(json_array_size(edges), 7);
	json_t *first = json_array_get(edges, 0);
	assert_int_equal(json_integer_value(json_object_get(first, "bytes")), 730);
	assert_true(json_is_false(json_object_get(first, "residual")));
	json_decref(report);
	free(text);
}

static const struct stack awkward[] = {
	{"main;f<a & b>(\"x\\\");tail\\", 100, 1},
	{"main;\xff\x1b[31m</FONT>;a_name_that_has_no_end_and_then_goes_on_for_longer_than_"
	 "anyone_would_like_to_read_in_a_box_of_a_picture_of_calls",
	 50, 1},
	{NULL, 0, 0},
};

static void names_are_no_markup(void **state)
{
	char *text = written(awkward, options_of(0, 0));

	(void)state;
	assert_non_null(strstr(text, "digraph \"x\\\"\\\\.hl\" {"));
	assert_non_null(strstr(text, "f&lt;a &amp; b&gt;(&quot;x\\&quot;)")); /* in a label */
	assert_non_null(strstr(text, "f&lt;a &amp; b&gt;(\\\"x\\\\\\\")"));   /* in a tooltip */
	assert_non_null(strstr(text, "\xef\xbf\xbd\\x1b[31m&lt;/FONT&gt;"));
	assert_non_null(strstr(text, "..."));
	assert_null(strchr(text, '\x1b'));
	free(text);
}

/* ---- the program dot ---- */

static char folder[] = "/tmp/heapline-graph-XXXXXX";

/* Puts a shell script in the place of dot. */
static void be_dot(const char *script)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/dot", folder);
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fprintf(file, "#!/bin/sh\nPATH=/usr/bin:/bin\n%s\n", script);
	fclose(file);
	assert_int_equal(chmod(path, 0755), 0);
	assert_int_equal(setenv("PATH", folder, 1), 0);
}

static int make_folder(void **state)
{
	(void)state;
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
	char path[64];

	(void)state;
	snprintf(path, sizeof(path), "%s/dot", folder);
	unlink(path);
	return rmdir(folder);
}

#define LARGE_BYTES ((size_t)8 * 1024 * 1024) /* more than any pipe holds */

static int draw_large(char **ret_picture, size_t *ret_size, struct hl_error *err)
{
	char *source = malloc(LARGE_BYTES);

	assert_non_null(source);
	memset(source, 'x', LARGE_BYTES);
	FILE *out = open_memstream(ret_picture, ret_size);
	int r = hl_graphviz_draw(source, LARGE_BYTES, "svg", out, err);
	fclose(out);
	free(source);
	return r;
}

static void large_sources_and_pictures_pass_at_once(void **state)
{
	struct hl_error err = {0};
	char *picture;
	size_t size;

	(void)state;
	be_dot("exec cat");
	assert_int_equal(draw_large(&picture, &size, &err), 0);
	assert_int_equal(size, LARGE_BYTES);
	free(picture);
	be_dot("head -c 3000000 /dev/zero >&2; head -c 3000000 /dev/zero; cat >/dev/null");
	assert_int_equal(draw_large(&picture, &size, &err), 0);
	assert_int_equal(size, 3000000);
	free(picture);
}

static void expect_failure(const char *script, const char *sentence)
{
	struct hl_error err = {0};
	char *picture;
	size_t size;

	be_dot(script);
	assert_true(draw_large(&picture, &size, &err) < 0);
	assert_string_equal(err.text, sentence);
	assert_int_equal(size, 0);
	free(picture);
}

static void what_dot_says_when_it_fails_is_in_the_error(void **state)
{
	(void)state;
	expect_failure("printf 'no \\033[31mluck\\nat all' >&2; cat >/dev/null; exit 3",
		       "cannot draw: 'dot' failed: no  [31mluck; --format dot writes what it was "
		       "given");
	expect_failure("echo picture; exit 1",
		       "cannot draw: 'dot' failed: no reason given; --format dot writes what it "
		       "was given");
	expect_failure("cat >/dev/null", "cannot draw: 'dot' failed: no reason given; --format dot "
					 "writes what it was given");
	expect_failure("kill -9 $$",
		       "cannot draw: 'dot' was killed by signal 9; try fewer --nodes");
}

static void without_dot_the_error_says_what_to_install(void **state)
{
	struct hl_error err = {0};
	char *picture;
	size_t size;

	(void)state;
	setenv("PATH", "/nowhere", 1);
	assert_int_equal(draw_large(&picture, &size, &err), -ENOENT);
	assert_string_equal(err.text,
			    "cannot draw: there is no program 'dot'; install graphviz, or "
			    "use --format dot");
	free(picture);
}

static void graphviz_draws_awkward_names(void **state)
{
	struct hl_view_options options = options_of(0, 0);

	(void)state;
	setenv("PATH", "/usr/bin:/bin", 1);
	if (access("/usr/bin/dot", X_OK) < 0) {
		puts("skipped: graphviz is not installed");
		skip();
	}
	options.graph.picture = HL_VIEW_SVG;
	char *text = written(awkward, options);
	assert_non_null(strstr(text, "f&lt;a &amp; b&gt;"));
	assert_non_null(strstr(text, "</svg>"));
	free(text);
}

static void want_of_memory_is_an_error_wherever_it_strikes(void **state)
{
	struct hl_profile *profile = profile_of("shop.hl", shop, 0x1000);
	struct hl_view_options options = options_of(3, 0);

	(void)state;
	FOR_EACH_FAILING_ALLOCATION(r, view_quietly(hl_graph_view, profile, options))
	assert_int_equal(r, -ENOMEM);
	options.json = true;
	FOR_EACH_FAILING_ALLOCATION(r, view_quietly(hl_graph_view, profile, options))
	assert_int_equal(r, -ENOMEM);
	hl_profile_free(profile);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(edges_hold_what_is_allocated_through_them),
		cmocka_unit_test(recursion_is_an_edge_of_a_function_to_itself),
		cmocka_unit_test(a_stack_counts_once_in_an_edge_that_it_takes_twice),
		cmocka_unit_test(what_is_left_out_is_counted_and_the_total_stays),
		cmocka_unit_test(edges_past_functions_left_out_are_residual),
		cmocka_unit_test(a_chain_that_branches_nowhere_makes_room_for_what_it_leads_to),
		cmocka_unit_test(light_edges_and_lonely_nodes_are_left_out),
		cmocka_unit_test(the_five_heaviest_by_flat_are_marked),
		cmocka_unit_test(the_five_heaviest_are_shown_before_all_others),
		cmocka_unit_test(json_has_the_nodes_and_edges_of_the_picture),
		cmocka_unit_test(names_are_no_markup),
		cmocka_unit_test(large_sources_and_pictures_pass_at_once),
		cmocka_unit_test(what_dot_says_when_it_fails_is_in_the_error),
		cmocka_unit_test(without_dot_the_error_says_what_to_install),
		cmocka_unit_test(graphviz_draws_awkward_names),
		cmocka_unit_test(want_of_memory_is_an_error_wherever_it_strikes),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
