/* SPDX-License-Identifier: BSD-2-Clause */
/* Size classes: told ones are exact, others go by the mean, and both add up to the totals. */
#include "profile/calltree.h"

#include "fail_allocations.h"
#include "stacks.h"
#include "viewing.h"

#include <errno.h>

#define AWKWARD "p<int>\n\x1b[31m\"x\""

static const struct stack stacks[] = {
	{"main;load;strings", 1000 + 30, 5}, /* 4 blocks of 250 and one of 30 */
	{"main;load;table", 4096, 2},
	{"main;a;b;c;d;e;deep", 48, 2},
	{"main;" AWKWARD, 17, 17},
	{"main;zero", 0, 3},
	{NULL, 0, 0},
};

static uint32_t node_named(const struct hl_profile *profile, const char *name)
{
	for (uint32_t i = 1; i < profile->node_count; i++) {
		uint32_t function = profile->frames[profile->nodes[i].frame].function;
		if (!strcmp(hl_profile_text(profile, profile->functions[function].name), name))
			return i;
	}
	fail_msg("no function '%s'", name);
	return 0;
}

static struct hl_profile_counters blocks(int64_t bytes, int64_t objects)
{
	return (struct hl_profile_counters){.alloc_bytes = bytes,
					    .alloc_objects = objects,
					    .peak_bytes = bytes,
					    .peak_objects = objects};
}

/* As a recording made with --sizes: of some functions the sizes are told, by several threads. */
static void tell_sizes(struct hl_profile *profile, bool all)
{
	const struct hl_profile_size told[] = {
		{node_named(profile, "strings"), 0, 8, blocks(750, 3)},
		{node_named(profile, "strings"), 0, 5, blocks(30, 1)},
		{node_named(profile, "strings"), 1, 8, blocks(250, 1)},
		{node_named(profile, "deep"), 0, 5, blocks(48, 2)},
		{node_named(profile, AWKWARD), 0, 1, blocks(17, 17)},
		{node_named(profile, "zero"), 0, 0, blocks(0, 3)},
		{node_named(profile, "table"), 0, 12, blocks(4096, 2)},
	};

	profile->size_count = HL_COUNT_OF(told) - !all;
	profile->sizes = calloc(HL_COUNT_OF(told), sizeof(*told));
	assert_non_null(profile->sizes);
	memcpy(profile->sizes, told, sizeof(told));
}

static struct hl_profile *told_profile(void)
{
	struct hl_profile *profile = profile_of("t.hl", stacks, 0x1000);

	tell_sizes(profile, true);
	return profile;
}

/* ---- the histogram ---- */

struct sorted {
	struct hl_calltree tree;
	struct hl_histogram histogram;
};

static struct sorted sort(const struct hl_profile *profile, enum hl_value value, enum hl_unit unit)
{
	struct sorted sorted;

	assert_int_equal(hl_calltree_init(&sorted.tree, profile, value, unit), 0);
	assert_int_equal(hl_histogram_init(&sorted.histogram, profile, &sorted.tree, value, unit),
			 0);
	return sorted;
}

static void release(struct sorted *sorted)
{
	hl_histogram_release(&sorted->histogram);
	hl_calltree_release(&sorted->tree);
}

static struct hl_histogram_figures figures_in(const struct sorted *sorted, uint32_t size_class)
{
	for (size_t i = 0; i < sorted->histogram.class_count; i++)
		if (sorted->histogram.classes[i].size_class == size_class)
			return sorted->histogram.classes[i].figures;
	return (struct hl_histogram_figures){0};
}

static void expect_class(const struct sorted *sorted, uint32_t size_class, int64_t bytes,
			 int64_t objects)
{
	struct hl_histogram_figures figures = figures_in(sorted, size_class);

	assert_int_equal(figures.bytes, bytes);
	assert_int_equal(figures.objects, objects);
}

static void told_sizes_count_in_their_own_class(void **state)
{
	struct hl_profile *profile = told_profile();
	struct sorted sorted = sort(profile, HL_VALUE_ALLOC, HL_UNIT_BYTES);

	(void)state;
	assert_true(sorted.histogram.exact);
	assert_int_equal(sorted.histogram.class_count, 5);
	expect_class(&sorted, 0, 0, 3);
	expect_class(&sorted, 1, 17, 17);
	expect_class(&sorted, 5, 78, 3);
	expect_class(&sorted, 8, 1000, 4);
	expect_class(&sorted, 12, 4096, 2);
	release(&sorted);
	hl_profile_free(profile);
}

static void rows_of_one_stack_and_class_are_one_entry(void **state)
{
	struct hl_profile *profile = told_profile();
	struct sorted sorted = sort(profile, HL_VALUE_ALLOC, HL_UNIT_BYTES);

	(void)state;
	for (size_t i = 0; i < sorted.histogram.class_count; i++)
		if (sorted.histogram.classes[i].size_class == 8)
			assert_int_equal(sorted.histogram.classes[i].stack_count, 1);
	assert_int_equal(sorted.histogram.stack_count, 6);
	release(&sorted);
	hl_profile_free(profile);
}

static void what_is_not_told_goes_by_the_mean_of_its_stack(void **state)
{
	struct hl_profile *profile = profile_of("t.hl", stacks, 0x1000);
	struct sorted sorted = sort(profile, HL_VALUE_PEAK, HL_UNIT_BYTES);

	(void)state;
	assert_false(sorted.histogram.exact);
	expect_class(&sorted, 8, 1030, 5); /* 206 each */
	expect_class(&sorted, 12, 4096, 2);
	expect_class(&sorted, 5, 48, 2);
	release(&sorted);
	tell_sizes(profile, false);
	sorted = sort(profile, HL_VALUE_PEAK, HL_UNIT_BYTES);
	assert_false(sorted.histogram.exact);
	expect_class(&sorted, 8, 1000, 4);
	expect_class(&sorted, 12, 4096, 2);
	release(&sorted);
	hl_profile_free(profile);
}

static void each_call_site_has_a_mean_of_its_own(void **state)
{
	static const struct stack sites[] = {
		{"main:11", 1600, 100}, {"main:12", 100 << 20, 100}, {NULL, 0, 0}};
	struct hl_profile *profile = profile_of("t.hl", sites, 0x1000);
	struct sorted sorted = sort(profile, HL_VALUE_ALLOC, HL_UNIT_BYTES);

	(void)state;
	assert_int_equal(sorted.tree.count, 2); /* the root and main */
	assert_int_equal(sorted.histogram.class_count, 2);
	expect_class(&sorted, 5, 1600, 100);
	expect_class(&sorted, 21, 100 << 20, 100);
	release(&sorted);
	hl_profile_free(profile);
}

/* Figures that come to nothing in some value, are negative, or stand in a damaged file. */
static void make_odd(struct hl_profile *profile)
{
	struct hl_profile_counters *table = &profile->counters[node_named(profile, "table")];
	struct hl_profile_counters *deep = &profile->counters[node_named(profile, "deep")];

	*table = (struct hl_profile_counters){
		.free_bytes = 300, .free_objects = 3, .slack_bytes = 11, .temporary_objects = 2};
	*deep = (struct hl_profile_counters){
		.alloc_bytes = INT64_MIN, .alloc_objects = -1, .peak_bytes = 5, .slack_bytes = -7};
	profile->total = (struct hl_profile_counters){0};
	for (size_t i = 0; i < profile->node_count; i++)
		hl_profile_counters_add(&profile->total, &profile->counters[i]);
}

static void expect_sums(const struct hl_profile *profile, enum hl_value value)
{
	struct sorted sorted = sort(profile, value, HL_UNIT_OBJECTS);
	struct hl_histogram_figures sum = {0};

	for (size_t i = 0; i < sorted.histogram.class_count; i++) {
		sum.bytes += sorted.histogram.classes[i].figures.bytes;
		sum.objects += sorted.histogram.classes[i].figures.objects;
		sum.slack_bytes += sorted.histogram.classes[i].figures.slack_bytes;
		sum.inuse_bytes += sorted.histogram.classes[i].figures.inuse_bytes;
	}
	assert_true(sum.bytes == hl_profile_figure(&profile->total, value, HL_UNIT_BYTES));
	assert_true(sum.objects == hl_profile_figure(&profile->total, value, HL_UNIT_OBJECTS));
	assert_true(sum.slack_bytes == profile->total.slack_bytes);
	assert_true(sum.inuse_bytes ==
		    hl_profile_figure(&profile->total, HL_VALUE_INUSE, HL_UNIT_BYTES));
	assert_memory_equal(&sum, &sorted.histogram.total, sizeof(sum));
	release(&sorted);
}

static void classes_add_up_to_the_total_of_every_value(void **state)
{
	(void)state;
	for (int odd = 0; odd < 2; odd++) {
		for (int told = 0; told < 3; told++) {
			struct hl_profile *profile = profile_of("t.hl", stacks, 0x1000);
			if (told)
				tell_sizes(profile, told == 2);
			if (odd)
				make_odd(profile);
			for (int value = 0; value < HL_VALUE_COUNT; value++)
				expect_sums(profile, (enum hl_value)value);
			hl_profile_free(profile);
		}
	}
}

static void negative_blocks_of_one_thread_have_a_mean_too(void **state)
{
	struct hl_profile *profile = profile_of("t.hl", stacks, 0x1000);

	(void)state;
	make_odd(profile);
	struct sorted sorted = sort(profile, HL_VALUE_INUSE, HL_UNIT_BYTES);
	expect_class(&sorted, 7, -300, -3); /* 100 each */
	release(&sorted);
	hl_profile_free(profile);
}

static void stacks_are_in_order_of_the_chosen_unit(void **state)
{
	static const struct stack two[] = {{"few;large", 900, 1},
					   {"many;small", 800, 1},
					   {"more;small", 1200, 2},
					   {NULL, 0, 0}};
	struct hl_profile *profile = profile_of("t.hl", two, 0x1000);

	(void)state;
	for (int unit = 0; unit < HL_UNIT_COUNT; unit++) {
		struct sorted sorted = sort(profile, HL_VALUE_ALLOC, (enum hl_unit)unit);
		assert_int_equal(sorted.histogram.class_count, 1);
		const struct hl_histogram_stack *first = sorted.histogram.classes[0].stacks;
		assert_int_equal(first[0].figures.bytes, 1200);
		assert_int_equal(first[1].figures.bytes, 900);
		assert_int_equal(first[2].figures.bytes, 800);
		release(&sorted);
	}
	hl_profile_free(profile);
}

/* ---- the view ---- */

static json_t *row_of(json_t *report, json_int_t size_min)
{
	json_t *rows = json_object_get(report, "rows"), *row;
	size_t i;

	json_array_foreach(rows, i, row)
		if (json_integer_value(json_object_get(row, "size_min")) == size_min)
			return row;
	fail_msg("no row from %d on", (int)size_min);
	return NULL;
}

static void json_has_classes_with_their_stacks(void **state)
{
	struct hl_profile *profile = told_profile();
	json_t *report =
		json_of(hl_sizes_view, profile, (struct hl_view_options){.value = HL_VALUE_ALLOC});
	json_t *row = row_of(report, 16);
	json_t *stack = json_array_get(json_object_get(row, "stacks"), 0);

	(void)state;
	assert_string_equal(json_string_value(json_object_get(report, "schema")),
			    "heapline/sizes/2");
	assert_true(json_is_true(json_object_get(report, "exact")));
	assert_int_equal(json_integer_value(json_object_get(row, "size_max")), 31);
	assert_int_equal(json_integer_value(json_object_get(row, "objects")), 3);
	assert_int_equal(json_integer_value(json_object_get(row, "bytes")), 78);
	assert_int_equal(json_array_size(json_object_get(row, "stacks")), 2);
	assert_int_equal(json_integer_value(json_object_get(stack, "bytes")), 48);
	stack = json_object_get(stack, "stack");
	assert_int_equal(json_array_size(stack), 7);
	assert_string_equal(json_string_value(json_array_get(stack, 0)), "deep");
	json_decref(report);
	hl_profile_free(profile);
}

static void names_break_neither_json_nor_the_terminal(void **state)
{
	struct hl_profile *profile = told_profile();
	struct hl_view_options options = {.value = HL_VALUE_ALLOC};
	json_t *report = json_of(hl_sizes_view, profile, options);
	json_t *stack = json_array_get(json_object_get(row_of(report, 1), "stacks"), 0);
	json_t *frames = json_object_get(stack, "stack");
	char *text = text_of(hl_sizes_view, profile, options);

	(void)state;
	assert_string_equal(json_string_value(json_array_get(frames, 0)), AWKWARD);
	assert_null(strchr(text, '\x1b'));
	free(text);
	json_decref(report);
	hl_profile_free(profile);
}

/* Whether ${second} stands somewhere after ${first}, which must be there. */
static bool has_after(const char *text, const char *first, const char *second)
{
	const char *place = strstr(text, first);

	if (!place)
		fail_msg("no '%s' in %s", first, text);
	return strstr(place, second) != NULL;
}

static void stacks_are_limited_and_shortened_unless_said_otherwise(void **state)
{
	static const struct {
		uint64_t limit;
		bool full, has_second;
		const char *deep;
	} cases[] = {
		{0, false, true, "deep < e < d < c < ...\n"},
		{1, false, false, "deep < e < d < c < ...\n"},
		{2, true, true, "deep < e < d < c < b < a < main\n"},
	};
	struct hl_profile *profile = told_profile();

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(cases); i++) {
		char *text = text_of(hl_sizes_view, profile,
				     (struct hl_view_options){.value = HL_VALUE_ALLOC,
							      .stack_limit = cases[i].limit,
							      .full = cases[i].full});
		assert_int_equal(has_after(text, cases[i].deep, " 30 B "), cases[i].has_second);
		free(text);
	}
	hl_profile_free(profile);
}

static void classes_are_named_by_their_sizes(void **state)
{
	static const struct {
		uint32_t size_class;
		const char *label;
	} cases[] = {
		{0, "\n0 B "},
		{1, "\n1 B "},
		{2, "\n2 B .. 3 B "},
		{10, "\n512 B .. 1023 B "},
		{11, "\n1 KiB .. <2 KiB "},
		{20, "\n512 KiB .. <1 MiB "},
		{63, "\n4 EiB .. <8 EiB "},
		{64, "\n8 EiB .. "},
	};
	struct hl_profile *profile = told_profile();

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(cases); i++) {
		profile->sizes[0].size_class = cases[i].size_class;
		char *text = text_of(hl_sizes_view, profile,
				     (struct hl_view_options){.value = HL_VALUE_ALLOC});
		if (!strstr(text, cases[i].label))
			fail_msg("no '%s' in %s", cases[i].label, text);
		free(text);
	}
	hl_profile_free(profile);
}

static void the_report_says_whose_size_decides(void **state)
{
	struct hl_view_options options = {.value = HL_VALUE_ALLOC};
	struct hl_profile *profile = profile_of("t.hl", stacks, 0x1000);
	char *means = text_of(hl_sizes_view, profile, options);

	(void)state;
	profile->imported = true;
	char *imported = text_of(hl_sizes_view, profile, options);
	profile->imported = false;
	tell_sizes(profile, false);
	char *mixed = text_of(hl_sizes_view, profile, options);
	free(profile->sizes);
	tell_sizes(profile, true);
	char *exact = text_of(hl_sizes_view, profile, options);
	assert_non_null(strstr(means, "\nby the mean size of each stack; 'heapline record --sizes' "
				      "tells each size apart\n"));
	assert_non_null(strstr(imported, "\nby the mean size of each stack\n"));
	assert_non_null(strstr(mixed, "\nby the size of each block, mappings by the mean size of "
				      "each stack\n"));
	assert_non_null(strstr(exact, "\nby the size of each block\n"));
	free(means);
	free(imported);
	free(mixed);
	free(exact);
	hl_profile_free(profile);
}

static void what_a_value_is_not_counted_in_is_left_out(void **state)
{
	struct hl_profile *profile = told_profile();
	json_t *temporary = json_of(
		hl_sizes_view, profile,
		(struct hl_view_options){.value = HL_VALUE_TEMPORARY, .unit = HL_UNIT_OBJECTS});
	json_t *slack =
		json_of(hl_sizes_view, profile, (struct hl_view_options){.value = HL_VALUE_SLACK});

	(void)state;
	assert_null(json_object_get(row_of(temporary, 16), "bytes"));
	assert_non_null(json_object_get(row_of(temporary, 16), "objects"));
	assert_null(json_object_get(row_of(slack, 16), "objects"));
	assert_non_null(json_object_get(row_of(slack, 16), "bytes"));
	json_decref(temporary);
	json_decref(slack);
	hl_profile_free(profile);
}

static void a_file_without_counts_of_blocks_is_an_error(void **state)
{
	struct hl_profile *profile = profile_of("t.folded", stacks, 0x1000);
	struct hl_view_options options = {.out = stderr, .value = HL_VALUE_INUSE};
	struct hl_error err = {0};

	(void)state;
	profile->imported = true;
	profile->known[HL_VALUE_INUSE][HL_UNIT_OBJECTS] = false;
	assert_int_equal(hl_sizes_view(profile, &options, &err), -ENODATA);
	assert_string_equal(err.text, "cannot tell sizes in 't.folded': it does not hold inuse in "
				      "both bytes and objects; choose what it does with --value");
	hl_profile_free(profile);
}

static void a_full_device_is_an_error_of_the_view(void **state)
{
	struct hl_profile *profile = told_profile();
	struct hl_view_options options = {.out = fopen("/dev/full", "w")};
	struct hl_error err = {0};

	(void)state;
	setvbuf(options.out, NULL, _IONBF, 0);
	assert_true(hl_sizes_view(profile, &options, &err) < 0);
	assert_non_null(strstr(err.text, "t.hl"));
	fclose(options.out);
	hl_profile_free(profile);
}

static void want_of_memory_is_an_error_wherever_it_strikes(void **state)
{
	struct hl_profile *profile = told_profile();
	struct hl_error err = {0};
	int failures = 0;

	(void)state;
	for (int json = 0; json < 2; json++) {
		struct hl_view_options options = {.out = fopen("/dev/null", "w"), .json = json};
		FOR_EACH_FAILING_ALLOCATION(r, hl_sizes_view(profile, &options, &err))
		{
			assert_int_equal(r, -ENOMEM);
			assert_non_null(strstr(err.text, "t.hl"));
			failures++;
		}
		fclose(options.out);
	}
	assert_true(failures > 10);
	hl_profile_free(profile);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(told_sizes_count_in_their_own_class),
		cmocka_unit_test(rows_of_one_stack_and_class_are_one_entry),
		cmocka_unit_test(what_is_not_told_goes_by_the_mean_of_its_stack),
		cmocka_unit_test(each_call_site_has_a_mean_of_its_own),
		cmocka_unit_test(classes_add_up_to_the_total_of_every_value),
		cmocka_unit_test(negative_blocks_of_one_thread_have_a_mean_too),
		cmocka_unit_test(stacks_are_in_order_of_the_chosen_unit),
		cmocka_unit_test(json_has_classes_with_their_stacks),
		cmocka_unit_test(names_break_neither_json_nor_the_terminal),
		cmocka_unit_test(stacks_are_limited_and_shortened_unless_said_otherwise),
		cmocka_unit_test(classes_are_named_by_their_sizes),
		cmocka_unit_test(the_report_says_whose_size_decides),
		cmocka_unit_test(what_a_value_is_not_counted_in_is_left_out),
		cmocka_unit_test(a_file_without_counts_of_blocks_is_an_error),
		cmocka_unit_test(a_full_device_is_an_error_of_the_view),
		cmocka_unit_test(want_of_memory_is_an_error_wherever_it_strikes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
