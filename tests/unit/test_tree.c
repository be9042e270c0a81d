/* SPDX-License-Identifier: BSD-2-Clause */
/* The call tree: order, folding, and that no figure gets lost in it. */
#include "fail_allocations.h"
#include "stacks.h"
#include "viewing.h"

#include <errno.h>

static const struct stack shop[] = {
	{"main;cart;item", 700, 7},
	{"main;parse;parse;word", 200, 20},
	{"main;parse", 90, 5},
	{"main;parse;item", 7, 1},
	{"main;log", 2, 1},
	{"main;trace", 1, 1},
	{"", 0, 0},
	{NULL, 0, 0},
};

static struct hl_view_options options_of(double threshold, uint64_t depth, bool reversed)
{
	return (struct hl_view_options){.value = HL_VALUE_ALLOC,
					.tree.threshold = threshold,
					.tree.depth_limit = depth,
					.reversed = reversed};
}

static json_int_t number(const json_t *row, const char *key)
{
	const json_t *member = json_object_get(row, key);

	if (!json_is_integer(member))
		fail_msg("no number '%s'", key);
	return json_integer_value(member);
}

/* "depth:name:cum_bytes:cum_objects " of each row; folded ones are "+N" */
static void expect_rows(const json_t *report, const char *expected)
{
	char text[1024] = "";
	json_t *row;
	size_t i, used = 0;

	json_array_foreach(json_object_get(report, "rows"), i, row) {
		char folded[16] = "";
		if (number(row, "folded"))
			snprintf(folded, sizeof(folded), "+%d", (int)number(row, "folded"));
		used += (size_t)snprintf(
			text + used, sizeof(text) - used, "%d:%s%s:%d:%d ",
			(int)number(row, "depth"), json_string_value(json_object_get(row, "name")),
			folded, (int)number(row, "cum_bytes"), (int)number(row, "cum_objects"));
	}
	assert_string_equal(text, expected);
}

static void expect_tree(struct hl_view_options options, const char *expected)
{
	struct hl_profile *profile = profile_of("shop.hl", shop, 0x1000);
	json_t *report = json_of(hl_tree_view, profile, options);

	expect_rows(report, expected);
	json_decref(report);
	hl_profile_free(profile);
}

static void heavy_branches_come_first_and_recursion_stays_as_it_is(void **state)
{
	(void)state;
	expect_tree(options_of(0, 0, false),
		    "1:main:1000:35 2:cart:700:7 3:item:700:7 2:parse:297:26 3:parse:200:20 "
		    "4:word:200:20 3:item:7:1 2:log:2:1 2:trace:1:1 ");
}

static void light_branches_are_folded_into_one_row(void **state)
{
	(void)state;
	expect_tree(options_of(1, 0, false),
		    "1:main:1000:35 2:cart:700:7 3:item:700:7 2:parse:297:26 3:parse:200:20 "
		    "4:word:200:20 3:+1:7:1 2:+2:3:2 ");
}

static void branches_that_are_too_deep_are_folded(void **state)
{
	(void)state;
	expect_tree(options_of(0, 2, false),
		    "1:main:1000:35 2:cart:700:7 3:+1:700:7 2:parse:297:26 3:+2:207:21 "
		    "2:log:2:1 2:trace:1:1 ");
}

static void reversed_it_begins_with_the_functions_that_allocated(void **state)
{
	(void)state;
	expect_tree(options_of(1, 0, true),
		    "1:item:707:8 2:cart:700:7 3:main:700:7 2:+1:7:1 1:word:200:20 2:parse:200:20 "
		    "3:parse:200:20 4:main:200:20 1:parse:90:5 2:main:90:5 1:+2:3:2 ");
}

/* Whatever is folded: a row is its own figure and its children. */
static void no_figure_gets_lost_by_folding(void **state)
{
	struct hl_profile *profile = profile_of("shop.hl", shop, 0x1000);

	(void)state;
	for (int threshold = 0; threshold <= 100; threshold += 5) {
		json_t *report = json_of(hl_tree_view, profile, options_of(threshold, 0, false));
		json_t *rows = json_object_get(report, "rows"), *row;
		json_int_t missing[16] = {1000};
		size_t i;
		json_array_foreach(rows, i, row) {
			json_int_t cum = number(row, "cum_bytes");
			assert_int_equal(number(row, "id"), i + 1);
			missing[number(row, "parent")] -= cum;
			missing[i + 1] =
				number(row, "folded") ? 0 : cum - number(row, "flat_bytes");
		}
		for (i = 0; i <= json_array_size(rows); i++)
			assert_int_equal(missing[i], 0);
		json_decref(report);
	}
	hl_profile_free(profile);
}

static void reversed_it_counts_blocks_without_bytes_too(void **state)
{
	static const struct stack stacks[] = {{"main;empty", 0, 3}, {"main", 10, 1}, {NULL, 0, 0}};
	struct hl_profile *profile = profile_of("x.hl", stacks, 0x1000);
	json_t *report = json_of(hl_tree_view, profile, options_of(0, 1, true)), *row;
	json_int_t objects = 0;
	size_t i;

	(void)state;
	json_array_foreach(json_object_get(report, "rows"), i, row)
		if (number(row, "depth") == 1)
			objects += number(row, "cum_objects");
	assert_int_equal(objects, 4);
	json_decref(report);
	hl_profile_free(profile);
}

static void a_tree_of_nothing_has_all_members(void **state)
{
	static const struct stack none[] = {{NULL, 0, 0}};
	struct hl_profile *profile = profile_of("x.hl", none, 0x1000);
	json_t *report = json_of(hl_tree_view, profile, options_of(1, 0, false));

	(void)state;
	assert_int_equal(number(json_object_get(report, "stackless"), "bytes"), 0);
	assert_int_equal(json_array_size(json_object_get(report, "rows")), 0);
	json_decref(report);
	hl_profile_free(profile);
}

static void what_has_no_stack_is_said(void **state)
{
	static const struct stack stacks[] = {{"", 5, 2}, {"main", 10, 1}, {NULL, 0, 0}};
	struct hl_profile *profile = profile_of("x.hl", stacks, 0x1000);
	json_t *report = json_of(hl_tree_view, profile, options_of(1, 0, false));
	json_t *stackless = json_object_get(report, "stackless");

	(void)state;
	assert_int_equal(number(stackless, "bytes"), 5);
	assert_int_equal(number(stackless, "objects"), 2);
	json_decref(report);
	char *text = text_of(hl_tree_view, profile, options_of(1, 0, false));
	assert_non_null(strstr(text, "without a stack: 5 B in 2 blocks\n"));
	free(text);
	hl_profile_free(profile);
}

static void the_other_unit_is_chosen_like_the_first(void **state)
{
	struct hl_view_options options = options_of(5, 1, false);

	(void)state;
	options.unit = HL_UNIT_OBJECTS;
	expect_tree(options, "1:main:1000:35 2:+4:1000:35 ");
	options = options_of(10, 0, true);
	options.unit = HL_UNIT_OBJECTS;
	expect_tree(options, "1:word:200:20 2:parse:200:20 3:parse:200:20 4:main:200:20 "
			     "1:item:707:8 2:cart:700:7 3:main:700:7 2:+1:7:1 1:parse:90:5 "
			     "2:main:90:5 1:+2:3:2 ");
}

#define DEPTH 20000

static void stacks_of_any_depth_can_be_shown(void **state)
{
	char *deep = malloc(2 * DEPTH);
	struct stack stacks[] = {{deep, 10, 1}, {NULL, 0, 0}};

	(void)state;
	for (size_t i = 0; i < DEPTH; i++)
		memcpy(deep + 2 * i, i % 2 ? "a;" : "b;", 2);
	deep[2 * DEPTH - 1] = '\0';
	struct hl_profile *profile = profile_of("deep.hl", stacks, 0x1000);
	json_t *report = json_of(hl_tree_view, profile, options_of(1, 0, false));
	assert_int_equal(json_array_size(json_object_get(report, "rows")), DEPTH);
	json_decref(report);
	char *text = text_of(hl_tree_view, profile, options_of(1, 0, false));
	assert_non_null(strstr(text, "... 1 more"));
	free(text);
	hl_profile_free(profile);
	free(deep);
}

static void expect_lines(hl_view *view, const char *const *expected)
{
	/* The first ones are not the heaviest; 30 and 40 add up to more than any other. */
	static const struct stack lines[] = {
		{"main:2;serve:22;read:32", 0, 0},
		{"main:3;serve:20;read:30", 1000, 1},
		{"main:4;serve:25;read:30", 900, 1},
		{"main:4;serve:25;read:31", 800, 1},
		{"main:4;serve:26;log:40", 100, 1},
		{"main:4;serve:20;log:40", 10, 1},
		{NULL, 0, 0},
	};
	struct hl_profile *profile = profile_of("app.hl", lines, 0x1000);
	struct hl_view_options options = {.value = HL_VALUE_INUSE, .tree.threshold = 0};
	char *text = text_of(view, profile, options);

	for (; *expected; expected++)
		if (!strstr(text, *expected))
			fail_msg("'%s' is not in:\n%s", *expected, text);
	free(text);
	hl_profile_free(profile);
}

/* Not the line where a function begins, nor that of the call that was seen first. */
static void the_line_shown_is_the_heaviest_call_site(void **state)
{
	(void)state;
	expect_lines(hl_tree_view,
		     (const char *const[]){"main (app.c:4,...)", "serve (app.c:25,...)",
					   "read (app.c:30,...)", "log (app.c:40)\n", NULL});
	expect_lines(hl_top_view,
		     (const char *const[]){"app.c:4,...   main", "app.c:25,...  serve",
					   "app.c:30,...  read", "app.c:40      log", NULL});
	expect_lines(hl_graph_view, (const char *const[]){"app.c:4,...", "app.c:25,...",
							  "app.c:30,...", "app.c:40<", NULL});
}

static void want_of_memory_is_an_error_wherever_it_strikes(void **state)
{
	struct hl_profile *profile = profile_of("shop.hl", shop, 0x1000);

	(void)state;
	FOR_EACH_FAILING_ALLOCATION(r, view_quietly(hl_tree_view, profile, options_of(1, 0, false)))
	assert_int_equal(r, -ENOMEM);
	FOR_EACH_FAILING_ALLOCATION(r, view_quietly(hl_tree_view, profile, options_of(1, 0, true)))
	assert_int_equal(r, -ENOMEM);
	hl_profile_free(profile);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(heavy_branches_come_first_and_recursion_stays_as_it_is),
		cmocka_unit_test(light_branches_are_folded_into_one_row),
		cmocka_unit_test(branches_that_are_too_deep_are_folded),
		cmocka_unit_test(reversed_it_begins_with_the_functions_that_allocated),
		cmocka_unit_test(no_figure_gets_lost_by_folding),
		cmocka_unit_test(reversed_it_counts_blocks_without_bytes_too),
		cmocka_unit_test(a_tree_of_nothing_has_all_members),
		cmocka_unit_test(what_has_no_stack_is_said),
		cmocka_unit_test(the_other_unit_is_chosen_like_the_first),
		cmocka_unit_test(stacks_of_any_depth_can_be_shown),
		cmocka_unit_test(the_line_shown_is_the_heaviest_call_site),
		cmocka_unit_test(want_of_memory_is_an_error_wherever_it_strikes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
