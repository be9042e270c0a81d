/* SPDX-License-Identifier: BSD-2-Clause */
/* Differences: what grew and shrank, by whatever key, adds up to the growth of the whole. */
#include "profile/profile.h"

#include "fail_allocations.h"
#include "stacks.h"
#include "viewing.h"

#include <errno.h>

static const struct stack before_stacks[] = {
	{"main:12;parse:27;grow:31", 100, 10},
	{"main:12;cart:50;grow:32", 40, 4},
	{"main:13;gone:5", 30, 3},
	{"main:14;same:9", 20, 2},
	{"main:15;less:61", 25, 5},
	{NULL, 0, 0},
};

static const struct stack after_stacks[] = {
	{"main:12;parse:27;grow:31", 107, 11},
	{"main:12;cart:50;grow:32", 90, 9},
	{"main:14;same:9", 20, 2},
	{"main:15;less:61", 24, 5},
	{"main:16;fresh:3!/lib/libnew.so", 17, 1},
	{NULL, 0, 0},
};

static struct hl_profile *joined(const struct stack *before, const struct stack *after)
{
	struct hl_profile *earlier = profile_of("old.hl", before, 0x1000);
	struct hl_profile *later = profile_of("new.hl", after, 0x2000), *profile;
	struct hl_error err = {0};

	assert_int_equal(hl_profile_join(earlier, later, false, &profile, &err), 0);
	hl_profile_free(earlier);
	hl_profile_free(later);
	return profile;
}

static struct hl_view_options options_by(enum hl_view_key by)
{
	return (struct hl_view_options){.value = HL_VALUE_ALLOC,
					.by = by,
					.sort = HL_VIEW_SORT_GROWTH,
					.row_limit = HL_EMIT_ROWS_DEFAULT};
}

static char *text_of_join(const struct stack *before, const struct stack *after,
			  struct hl_view_options options)
{
	struct hl_profile *profile = joined(before, after);
	char *text = text_of(hl_diff_view, profile, options);

	hl_profile_free(profile);
	return text;
}

static json_t *json_of_join(const struct stack *before, const struct stack *after,
			    struct hl_view_options options)
{
	struct hl_profile *profile = joined(before, after);
	json_t *report = json_of(hl_diff_view, profile, options);

	hl_profile_free(profile);
	return report;
}

static int number(const json_t *row, const char *key)
{
	const json_t *member = json_object_get(row, key);

	if (!json_is_integer(member))
		fail_msg("no number '%s'", key);
	return (int)json_integer_value(member);
}

/* "name:line before>after delta objects, " of each row */
static void expect_rows(struct hl_view_options options, const char *expected)
{
	json_t *report = json_of_join(before_stacks, after_stacks, options), *row;
	char text[1024] = "";
	size_t i, used = 0;

	json_array_foreach(json_object_get(report, "rows"), i, row)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s:%d %d>%d %d %d, ",
					 json_string_value(json_object_get(row, "name")),
					 number(row, "line"), number(row, "before_bytes"),
					 number(row, "after_bytes"), number(row, "delta_bytes"),
					 number(row, "delta_objects"));
	assert_string_equal(text, expected);
	json_decref(report);
}

static void functions_that_grew_come_first_and_those_that_shrank_last(void **state)
{
	(void)state;
	expect_rows(options_by(HL_VIEW_BY_FUNCTION), "grow:31 140>197 57 6, fresh:3 0>17 17 1, "
						     "less:61 25>24 -1 0, gone:5 30>0 -30 -3, ");
}

static void lines_modules_and_stacks_are_compared_as_well(void **state)
{
	(void)state;
	expect_rows(options_by(HL_VIEW_BY_LINE),
		    "grow:32 40>90 50 5, fresh:3 0>17 17 1, grow:31 100>107 7 1, "
		    "less:61 25>24 -1 0, gone:5 30>0 -30 -3, ");
	expect_rows(options_by(HL_VIEW_BY_MODULE),
		    "/bin/app:0 215>241 26 3, /lib/libnew.so:0 0>17 17 1, ");
	expect_rows(options_by(HL_VIEW_BY_STACK),
		    "grow:32 40>90 50 5, fresh:3 0>17 17 1, grow:31 100>107 7 1, "
		    "less:61 25>24 -1 0, gone:5 30>0 -30 -3, ");
}

static void what_only_the_earlier_one_has_is_shown_by_its_heaviest_line(void **state)
{
	static const struct stack before[] = {{"main:1;gone:5", 10, 1},
					      {"main:1;gone:9", 90, 9},
					      {"main:2;gone:7", 30, 1},
					      {NULL, 0, 0}};
	static const struct stack after[] = {{"main:3;fresh:4", 1, 1}, {NULL, 0, 0}};
	static const enum hl_view_key keys[] = {HL_VIEW_BY_FUNCTION, HL_VIEW_BY_STACK};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(keys); i++) {
		json_t *report = json_of_join(before, after, options_by(keys[i]));
		json_t *rows = json_object_get(report, "rows");
		const json_t *gone = json_array_get(rows, json_array_size(rows) - 1);
		assert_string_equal(json_string_value(json_object_get(gone, "name")), "gone");
		assert_int_equal(number(gone, "line"), 9);
		json_decref(report);
	}
}

static void of_functions_on_one_line_the_heaviest_is_named(void **state)
{
	static const struct stack before[] = {{"main:1;small:5", 1, 1}, {NULL, 0, 0}};
	static const struct stack after[] = {
		{"main:1;small:5", 10, 1}, {"main:1;large:5", 90, 9}, {NULL, 0, 0}};
	json_t *report = json_of_join(before, after, options_by(HL_VIEW_BY_LINE));
	const json_t *row = json_array_get(json_object_get(report, "rows"), 0);

	(void)state;
	assert_string_equal(json_string_value(json_object_get(row, "name")), "large");
	assert_int_equal(number(row, "after_bytes"), 100);
	json_decref(report);
	char *text = text_of_join(before, after, options_by(HL_VIEW_BY_LINE));
	assert_null(strstr(text, ",...")); /* as of a function that has several lines */
	free(text);
}

static void stacks_have_their_frames(void **state)
{
	json_t *report = json_of_join(before_stacks, after_stacks, options_by(HL_VIEW_BY_STACK));
	json_t *row = json_array_get(json_object_get(report, "rows"), 0);
	json_t *stack = json_object_get(row, "stack");

	(void)state;
	assert_int_equal(json_array_size(stack), 3);
	assert_string_equal(json_string_value(json_array_get(stack, 0)), "main");
	assert_string_equal(json_string_value(json_array_get(stack, 1)), "cart");
	json_decref(report);
	char *text = text_of_join(before_stacks, after_stacks, options_by(HL_VIEW_BY_STACK));
	assert_non_null(strstr(text, "grow < cart < main\n"));
	free(text);
}

static void deltas_add_up_to_the_growth_of_the_whole(void **state)
{
	static const enum hl_view_key keys[] = {HL_VIEW_BY_FUNCTION, HL_VIEW_BY_LINE,
						HL_VIEW_BY_MODULE, HL_VIEW_BY_STACK};

	(void)state;
	for (size_t key = 0; key < HL_COUNT_OF(keys); key++) {
		json_t *report = json_of_join(before_stacks, after_stacks, options_by(keys[key]));
		json_t *row, *base = json_object_get(report, "base");
		int bytes = 0, objects = 0;
		size_t i;
		json_array_foreach(json_object_get(report, "rows"), i, row) {
			bytes += number(row, "delta_bytes");
			objects += number(row, "delta_objects");
		}
		assert_int_equal(bytes, 43);
		assert_int_equal(objects, 4);
		assert_int_equal(number(json_object_get(base, "total"), "alloc_bytes"), 215);
		assert_int_equal(number(json_object_get(report, "total"), "alloc_bytes"), 258);
		json_decref(report);
	}
}

static void rows_can_be_sorted_by_size(void **state)
{
	struct hl_view_options options = options_by(HL_VIEW_BY_FUNCTION);

	(void)state;
	options.sort = HL_VIEW_SORT_SIZE;
	expect_rows(options, "grow:31 140>197 57 6, gone:5 30>0 -30 -3, less:61 25>24 -1 0, "
			     "fresh:3 0>17 17 1, ");
}

static void a_limit_keeps_what_grew_most_and_what_shrank_most(void **state)
{
	struct hl_view_options options = options_by(HL_VIEW_BY_FUNCTION);

	(void)state;
	options.row_limit = 3;
	expect_rows(options, "grow:31 140>197 57 6, fresh:3 0>17 17 1, "
			     "less:61 25>24 -1 0, gone:5 30>0 -30 -3, ");
	options.row_limit = 1;
	expect_rows(options, "grow:31 140>197 57 6, gone:5 30>0 -30 -3, ");
	char *text = text_of_join(before_stacks, after_stacks, options);
	assert_non_null(strstr(text, "... and 2 more in between; -n 0 shows all\n"));
	free(text);
}

static void equal_profiles_have_no_difference(void **state)
{
	static const enum hl_view_key keys[] = {HL_VIEW_BY_FUNCTION, HL_VIEW_BY_STACK};

	(void)state;
	for (size_t key = 0; key < HL_COUNT_OF(keys); key++) {
		char *text = text_of_join(after_stacks, after_stacks, options_by(keys[key]));
		assert_non_null(strstr(text, "\nno difference\n"));
		free(text);
	}
}

static void what_has_no_stack_is_compared_too(void **state)
{
	static const struct stack before[] = {{"", 5, 1}, {NULL, 0, 0}};
	static const struct stack after[] = {{"", 9, 2}, {NULL, 0, 0}};
	static const enum hl_view_key keys[] = {HL_VIEW_BY_FUNCTION, HL_VIEW_BY_STACK};

	(void)state;
	for (size_t key = 0; key < HL_COUNT_OF(keys); key++) {
		json_t *report = json_of_join(before, after, options_by(keys[key]));
		json_t *rows = json_object_get(report, "rows");
		assert_int_equal(json_array_size(rows), 1);
		assert_int_equal(number(json_array_get(rows, 0), "delta_bytes"), 4);
		json_decref(report);
		char *text = text_of_join(before, after, options_by(keys[key]));
		assert_non_null(strstr(text, "[no stack]"));
		free(text);
	}
}

static void want_of_memory_is_an_error_wherever_it_strikes(void **state)
{
	struct hl_profile *profile = joined(before_stacks, after_stacks);

	(void)state;
	FOR_EACH_FAILING_ALLOCATION(
		r, view_quietly(hl_diff_view, profile, options_by(HL_VIEW_BY_FUNCTION)))
	assert_int_equal(r, -ENOMEM);
	FOR_EACH_FAILING_ALLOCATION(
		r, view_quietly(hl_diff_view, profile, options_by(HL_VIEW_BY_STACK)))
	assert_int_equal(r, -ENOMEM);
	hl_profile_free(profile);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(functions_that_grew_come_first_and_those_that_shrank_last),
		cmocka_unit_test(lines_modules_and_stacks_are_compared_as_well),
		cmocka_unit_test(what_only_the_earlier_one_has_is_shown_by_its_heaviest_line),
		cmocka_unit_test(of_functions_on_one_line_the_heaviest_is_named),
		cmocka_unit_test(stacks_have_their_frames),
		cmocka_unit_test(deltas_add_up_to_the_growth_of_the_whole),
		cmocka_unit_test(rows_can_be_sorted_by_size),
		cmocka_unit_test(a_limit_keeps_what_grew_most_and_what_shrank_most),
		cmocka_unit_test(equal_profiles_have_no_difference),
		cmocka_unit_test(what_has_no_stack_is_compared_too),
		cmocka_unit_test(want_of_memory_is_an_error_wherever_it_strikes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
