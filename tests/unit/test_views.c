/* SPDX-License-Identifier: BSD-2-Clause */
/* The views: their JSON is JSON, their tables and their JSON agree, their texts are safe. */
#include "profile/builder.h"
#include "view/format.h"
#include "view/json.h"
#include "view/view.h"

#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- a profile made by hand: main -> one of two functions with awkward names ---- */

#define AWKWARD "do<[u8; 4]>\n\"x\" \xff"

static void rename_function(struct hl_profile *profile, uint32_t function, const char *name)
{
	assert_int_equal(
		hl_strings_intern(&profile->strings, name, &profile->functions[function].name), 0);
}

static struct hl_profile *make_profile(void)
{
	struct hl_builder builder;
	struct hl_profile *profile;
	uint32_t *final_ids, outer, inner, other;

	assert_int_equal(hl_builder_init(&builder), 0);
	assert_int_equal(hl_builder_node(&builder, 0, 0, 0x10, &outer), 0);
	assert_int_equal(hl_builder_node(&builder, outer, 0, 0x20, &inner), 0);
	assert_int_equal(hl_builder_node(&builder, outer, 0, 0x30, &other), 0);
	assert_int_equal(hl_builder_finish(&builder, &final_ids, &profile), 0);
	rename_function(profile, 1, "main");
	rename_function(profile, 2, AWKWARD);
	rename_function(profile, 3, "z");
	assert_int_equal(hl_strings_intern(&profile->strings, "t.hl", &profile->name), 0);
	profile->counters[final_ids[inner]] = (struct hl_profile_counters){
		.alloc_bytes = 1536, .alloc_objects = 3, .peak_bytes = 1024, .peak_objects = 2};
	profile->counters[final_ids[other]] = (struct hl_profile_counters){
		.alloc_bytes = 512, .alloc_objects = 7, .peak_bytes = 512, .peak_objects = 7};
	profile->total = (struct hl_profile_counters){
		.alloc_bytes = 2048, .alloc_objects = 10, .peak_bytes = 1536, .peak_objects = 9};
	profile->complete = true;
	profile->recorded_process_count = 1;
	free(final_ids);
	hl_builder_release(&builder);
	assert_true(hl_profile_is_valid(profile));
	return profile;
}

typedef int view_function(const struct hl_profile *profile, const struct hl_view_options *options,
			  struct hl_error *err);

/* What ${view} writes; to be freed. */
static char *text_of(view_function *view, struct hl_view_options options)
{
	struct hl_profile *profile = make_profile();
	struct hl_error err = {0};
	char *text;
	size_t size;

	options.out = open_memstream(&text, &size);
	options.notes = options.out;
	assert_int_equal(view(profile, &options, &err), 0);
	fclose(options.out);
	hl_profile_free(profile);
	return text;
}

static json_t *json_of(view_function *view, struct hl_view_options options)
{
	json_error_t error;

	options.json = true;
	char *text = text_of(view, options);
	json_t *parsed = json_loads(text, JSON_REJECT_DUPLICATES, &error);
	if (!parsed)
		fail_msg("%s in %s", error.text, text);
	free(text);
	return parsed;
}

static void every_view_writes_json_with_the_common_members(void **state)
{
	static const struct {
		view_function *view;
		const char *schema;
	} cases[] = {
		{hl_view_top, "heapline/top/1"},
		{hl_view_folded, "heapline/folded/1"},
		{hl_view_info, "heapline/info/1"},
	};
	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(cases); i++) {
		struct hl_view_options options = {.value = HL_VALUE_ALLOC, .stacks = true};
		json_t *report = json_of(cases[i].view, options);
		json_t *total = json_object_get(report, "total");
		assert_string_equal(json_string_value(json_object_get(report, "schema")),
				    cases[i].schema);
		assert_int_equal(json_integer_value(json_object_get(total, "alloc_bytes")), 2048);
		assert_true(json_is_object(json_object_get(report, "recording")));
		assert_true(json_is_object(json_object_get(report, "lost")));
		assert_true(json_is_array(json_object_get(report, "rows")));
		json_decref(report);
	}
}

static void flat_of_all_rows_is_the_total_and_cum_of_main_too(void **state)
{
	json_t *report = json_of(hl_view_top, (struct hl_view_options){.value = HL_VALUE_PEAK});
	json_t *rows = json_object_get(report, "rows"), *row;
	json_int_t flat = 0, most = 0;
	size_t i;

	(void)state;
	assert_int_equal(json_array_size(rows), 3);
	json_array_foreach(rows, i, row)
	{
		json_int_t cum = json_integer_value(json_object_get(row, "cum_bytes"));
		flat += json_integer_value(json_object_get(row, "flat_bytes"));
		most = cum > most ? cum : most;
	}
	assert_int_equal(flat, 1536);
	assert_int_equal(most, 1536);
	json_decref(report);
}

static void names_that_are_not_text_stay_json(void **state)
{
	json_t *report = json_of(hl_view_folded, (struct hl_view_options){.value = HL_VALUE_PEAK});
	json_t *row = json_array_get(json_object_get(report, "rows"), 0);
	json_t *stack = json_object_get(row, "stack");

	(void)state;
	assert_string_equal(json_string_value(json_array_get(stack, 1)),
			    "do<[u8; 4]>\n\"x\" \xef\xbf\xbd");
	assert_int_equal(json_integer_value(json_object_get(row, "bytes")), 1024);
	json_decref(report);
}

static void separators_within_names_do_not_break_folded_lines(void **state)
{
	char *text = text_of(hl_view_folded, (struct hl_view_options){.value = HL_VALUE_PEAK});

	(void)state;
	assert_string_equal(text, "main;do<[u8: 4]> \"x\" \xff 1024\nmain;z 512\n");
	free(text);
}

static void rows_follow_the_chosen_unit(void **state)
{
	struct hl_view_options options = {.value = HL_VALUE_PEAK, .row_limit = 1};

	(void)state;
	for (int unit = 0; hl_unit_names[unit]; unit++) {
		options.unit = (enum hl_unit)unit;
		json_t *report = json_of(hl_view_top, options);
		json_t *row = json_array_get(json_object_get(report, "rows"), 0);
		assert_int_equal(json_integer_value(json_object_get(row, "flat_objects")),
				 unit == HL_UNIT_BYTES ? 2 : 7);
		json_decref(report);
	}
}

static void a_full_device_is_an_error_of_the_view(void **state)
{
	struct hl_profile *profile = make_profile();
	struct hl_view_options options = {.out = fopen("/dev/full", "w"), .notes = stderr};
	struct hl_error err = {0};

	(void)state;
	setvbuf(options.out, NULL, _IONBF, 0);
	assert_true(hl_view_top(profile, &options, &err) < 0);
	assert_non_null(strstr(err.text, "t.hl"));
	fclose(options.out);
	hl_profile_free(profile);
}

/* ---- the JSON writer and the formats ---- */

static void only_utf_8_passes_into_json(void **state)
{
	static const struct {
		const char *text, *expected;
	} cases[] = {
		{"plain", "[\"plain\"]"},
		{"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
		 "[\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"]"},
		{"\x80", "[\"\\ufffd\"]"},				    /* lone continuation */
		{"\xc3", "[\"\\ufffd\"]"},				    /* cut off */
		{"\xc0\xaf", "[\"\\ufffd\\ufffd\"]"},			    /* overlong */
		{"\xed\xa0\x80", "[\"\\ufffd\\ufffd\\ufffd\"]"},	    /* surrogate */
		{"\xf4\x90\x80\x80", "[\"\\ufffd\\ufffd\\ufffd\\ufffd\"]"}, /* beyond U+10FFFF */
		{"\t\x7f\\", "[\"\\u0009\\u007f\\\\\"]"},
	};
	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(cases); i++) {
		struct hl_json json = {0};
		char *text;
		size_t size;
		json.out = open_memstream(&text, &size);
		json.depth = 2; /* no new lines */
		hl_json_open(&json, NULL, '[');
		hl_json_text(&json, NULL, cases[i].text);
		hl_json_close(&json, ']');
		fclose(json.out);
		assert_string_equal(strchr(text, '['), cases[i].expected);
		free(text);
	}
}

static void bytes_have_the_unit_that_reads_best(void **state)
{
	static const struct {
		int64_t bytes;
		const char *expected;
	} cases[] = {
		{0, "0 B"},
		{1023, "1023 B"},
		{1024, "1.0 KiB"},
		{1536, "1.5 KiB"},
		{1024 * 1024 - 1, "1.0 MiB"}, /* not 1024.0 KiB */
		{-1536, "-1.5 KiB"},
		{INT64_MAX, "8.0 EiB"},
		{INT64_MIN, "-8.0 EiB"},
	};
	char buffer[HL_FORMAT_MAX];

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(cases); i++)
		assert_string_equal(hl_format_bytes(cases[i].bytes, buffer), cases[i].expected);
}

static void counts_percentages_and_durations_read_well(void **state)
{
	char buffer[HL_FORMAT_MAX];

	(void)state;
	assert_string_equal(hl_format_count(0, buffer), "0");
	assert_string_equal(hl_format_count(999, buffer), "999");
	assert_string_equal(hl_format_count(-1234567, buffer), "-1,234,567");
	assert_string_equal(hl_format_count(INT64_MIN, buffer), "-9,223,372,036,854,775,808");
	assert_string_equal(hl_format_percent(1, 3, buffer), "33.3%");
	assert_string_equal(hl_format_percent(1, 0, buffer), "-");
	assert_string_equal(hl_format_duration(999999999, buffer), "999 ms");
	assert_string_equal(hl_format_duration(UINT64_C(1500000000), buffer), "1.50 s");
	assert_string_equal(hl_format_duration(UINT64_C(125000000000), buffer), "2 min 5 s");
	assert_string_equal(hl_format_duration(UINT64_MAX, buffer), "5124095 h 34 min");
	assert_string_equal(hl_format_time(UINT64_C(1767225600999999999), buffer),
			    "2026-01-01T00:00:00Z");
}

/* ---- every allocation of ours made to fail in turn ---- */

static long allocations_left = -1; /* -1: no limit */

static bool may_allocate(void)
{
	if (allocations_left == 0)
		return false;
	if (allocations_left > 0)
		allocations_left--;
	return true;
}

void *__real_calloc(size_t count, size_t size);
void *__real_malloc(size_t size);
void *__real_reallocarray(void *old, size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_reallocarray(void *old, size_t count, size_t size);

void *__wrap_calloc(size_t count, size_t size)
{
	return may_allocate() ? __real_calloc(count, size) : NULL;
}

void *__wrap_malloc(size_t size)
{
	return may_allocate() ? __real_malloc(size) : NULL;
}

void *__wrap_reallocarray(void *old, size_t count, size_t size)
{
	return may_allocate() ? __real_reallocarray(old, count, size) : NULL;
}

static void want_of_memory_is_an_error_wherever_it_strikes(void **state)
{
	static view_function *const views[] = {hl_view_top, hl_view_folded, hl_view_info};
	struct hl_profile *profile = make_profile();
	struct hl_view_options options = {.out = fopen("/dev/null", "w"), .stacks = true};

	(void)state;
	options.notes = options.out;
	for (size_t i = 0; i < HL_COUNT_OF(views); i++) {
		int r = -1;
		for (long limit = 0; r < 0; limit++) {
			struct hl_error err = {0};
			allocations_left = limit;
			r = views[i](profile, &options, &err);
			allocations_left = -1;
			if (r < 0) {
				assert_int_equal(r, -ENOMEM);
				assert_non_null(strstr(err.text, "t.hl"));
			}
		}
	}
	fclose(options.out);
	hl_profile_free(profile);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_view_writes_json_with_the_common_members),
		cmocka_unit_test(flat_of_all_rows_is_the_total_and_cum_of_main_too),
		cmocka_unit_test(names_that_are_not_text_stay_json),
		cmocka_unit_test(separators_within_names_do_not_break_folded_lines),
		cmocka_unit_test(rows_follow_the_chosen_unit),
		cmocka_unit_test(a_full_device_is_an_error_of_the_view),
		cmocka_unit_test(only_utf_8_passes_into_json),
		cmocka_unit_test(bytes_have_the_unit_that_reads_best),
		cmocka_unit_test(counts_percentages_and_durations_read_well),
		cmocka_unit_test(want_of_memory_is_an_error_wherever_it_strikes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
