/* SPDX-License-Identifier: BSD-2-Clause */
/* The report of a trace: whole stacks, heaviest first, and nothing lost. */
#include "view/view.h"

#include "fail_allocations.h"
#include "stacks.h"
#include "viewing.h"

#include <errno.h>

static const struct stack kept[] = {
	{"main:12;serve:25;read!/lib/libio.so", 3072, 3},
	{"main:14;serve:27;read!/lib/libio.so", 1024, 1}, /* other lines of the same functions */
	{"main:12;log:33", 2048, 1},
	{"[released before the trace]", -1024, -2},
	{"", 512, 1},
	{NULL, 0, 0},
};

/* As 'heapline pgfault' would have it. */
static struct hl_profile *traced(const struct stack *stacks)
{
	struct hl_profile *profile = profile_of("process 7", stacks, 0x1000);

	assert_int_equal(hl_strings_intern(&profile->strings, "pgfault", &profile->mode), 0);
	profile->figures = calloc(2, sizeof(*profile->figures));
	profile->figures[0].value = 1234;
	profile->figures[1].value = 2048;
	assert_int_equal(
		hl_strings_intern(&profile->strings, "rss_growth_pages", &profile->figures[0].name),
		0);
	assert_int_equal(
		hl_strings_intern(&profile->strings, "table_bytes", &profile->figures[1].name), 0);
	profile->figure_count = 2;
	return profile;
}

static struct hl_view_options options_of(uint64_t row_limit)
{
	return (struct hl_view_options){
		.value = HL_VALUE_INUSE, .by = HL_VIEW_BY_LINE, .row_limit = row_limit};
}

static json_int_t number(const json_t *object, const char *key)
{
	const json_t *member = json_object_get(object, key);

	if (!json_is_integer(member))
		fail_msg("no number '%s'", key);
	return json_integer_value(member);
}

/* "main:12;serve:25;read 3072 3|..." of each row. */
static void expect_rows(const json_t *report, const char *expected)
{
	char text[1024] = "";
	json_t *row, *frame;
	size_t i, j, used = 0;

	json_array_foreach(json_object_get(report, "rows"), i, row) {
		const json_t *names = json_object_get(row, "stack");
		json_array_foreach(json_object_get(row, "frames"), j, frame) {
			const char *name = json_string_value(json_object_get(frame, "function"));
			const char *file = json_string_value(json_object_get(frame, "file"));
			assert_string_equal(json_string_value(json_array_get(names, j)), name);
			assert_non_null(json_object_get(frame, "module"));
			used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s",
						 j ? ";" : "", name);
			if (file[0])
				used += (size_t)snprintf(text + used, sizeof(text) - used, ":%d",
							 (int)number(frame, "line"));
		}
		assert_int_equal(json_array_size(names), j);
		used += (size_t)snprintf(text + used, sizeof(text) - used, " %d %d|",
					 (int)number(row, "bytes"), (int)number(row, "objects"));
	}
	assert_string_equal(text, expected);
}

static void json_has_whole_stacks_and_the_figures_of_the_whole(void **state)
{
	struct hl_profile *profile = traced(kept);
	json_t *report = json_of(hl_stacks_view, profile, options_of(HL_EMIT_ROWS_DEFAULT));

	(void)state;
	expect_rows(report,
		    "main:12;serve:25;read 3072 3|main:12;log:33 2048 1|"
		    "main:14;serve:27;read 1024 1| 512 1|[released before the trace] -1024 -2|");
	assert_string_equal(json_string_value(json_object_get(report, "schema")),
			    "heapline/pgfault/2");
	assert_int_equal(number(json_object_get(report, "total"), "rss_growth_pages"), 1234);
	assert_int_equal(number(json_object_get(report, "total"), "table_bytes"), 2048);
	assert_int_equal(number(json_object_get(report, "total"), "inuse_bytes"), 5632);
	assert_int_equal(number(json_object_get(report, "total"), "pages"), 4);
	json_decref(report);
	hl_profile_free(profile);
}

static void recordings_that_are_no_traces_can_be_shown_so_too(void **state)
{
	struct hl_profile *profile = profile_of("app.hl", kept, 0x1000);
	json_t *report = json_of(hl_stacks_view, profile, options_of(1));

	(void)state;
	expect_rows(report, "main:12;serve:25;read 3072 3|");
	assert_string_equal(json_string_value(json_object_get(report, "schema")),
			    "heapline/stacks/2");
	assert_null(json_object_get(json_object_get(report, "total"), "pages"));
	assert_null(json_object_get(report, "figures"));
	json_decref(report);
	hl_profile_free(profile);
}

static void expect_text(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("'%s' is not in:\n%s", part, text);
}

/* Not those of the first, nor of other stacks through the same function. */
static void stacks_merged_by_function_show_the_lines_of_the_heaviest(void **state)
{
	static const struct stack lines[] = {
		{"main:12;serve:25;read!/lib/libio.so", 1024, 1},
		{"main:14;serve:27;read!/lib/libio.so", 2048, 1},
		{"main:14;serve:25;read!/lib/libio.so", 512, 1},
		{"main:15;log:33", 1024, 1},
		{NULL, 0, 0},
	};
	struct hl_profile *profile = profile_of("app.hl", lines, 0x1000);
	struct hl_view_options options = options_of(HL_EMIT_ROWS_DEFAULT);

	(void)state;
	options.by = HL_VIEW_BY_FUNCTION;
	json_t *report = json_of(hl_stacks_view, profile, options);
	expect_rows(report, "main:14;serve:27;read 3584 3|main:15;log:33 1024 1|");
	json_decref(report);
	char *text = text_of(hl_stacks_view, profile, options);
	expect_text(text, "    read (libio.so)\n    serve (app.c:27)\n"
			  "    main (app.c:14)\n");
	expect_text(text, "    log (app.c:33)\n    main (app.c:15)\n");
	free(text);
	hl_profile_free(profile);
}

static void places_in_scripts_say_what_tells_their_sources_apart(void **state)
{
	static const struct stack scripts[] = {
		{"new!./ai/init.lua:3", 10, 1}, {"new!./bi/init.lua:3", 20, 1}, {NULL, 0, 0}};
	struct hl_profile *profile = profile_of("app.hl", scripts, 0x1000);
	char *text = text_of(hl_stacks_view, profile, options_of(HL_EMIT_ROWS_DEFAULT));

	(void)state;
	expect_text(text, "    new (ai/init.lua:3)\n");
	expect_text(text, "    new (bi/init.lua:3)\n");
	free(text);
	hl_profile_free(profile);
}

static void a_brief_report_has_its_total_and_says_that_it_is_an_estimate(void **state)
{
	struct hl_profile *profile = traced(kept);
	struct hl_view_options options = options_of(1);

	(void)state;
	options.stacks.brief = true;
	profile->sample_bytes = 65536;
	char *text = text_of(hl_stacks_view, profile, options);
	expect_text(text, "gained 5.5 KiB in 4");
	expect_text(text, "sampled about every 64.0 KiB: figures are estimates\n");
	expect_text(text, "\n3.0 KiB in 3 pages, 54.5%\n");
	assert_null(strstr(text, "rss growth"));
	assert_null(strstr(text, "--unit"));
	free(text);
	hl_profile_free(profile);
}

static void of_lost_faults_it_is_said_that_their_pages_count(void **state)
{
	struct hl_profile *profile = traced(kept);

	(void)state;
	profile->lost.events = 3;
	char *text = text_of(hl_stacks_view, profile, options_of(HL_EMIT_ROWS_DEFAULT));
	expect_text(text, "LOST: the stacks of 3 events: their pages are in the total");
	free(text);
	hl_profile_free(profile);
}

static void text_shows_frames_from_the_innermost_out(void **state)
{
	struct hl_profile *profile = traced(kept);
	char *text = text_of(hl_stacks_view, profile, options_of(HL_EMIT_ROWS_DEFAULT));

	(void)state;
	expect_text(text, "rss growth 1,234 pages; table 2.0 KiB\n");
	expect_text(text,
		    "\n3.0 KiB in 3 pages, 54.5%\n    read (libio.so)\n"
		    "    serve (app.c:25)\n    main (app.c:12)\n\n2.0 KiB in 1 page, 36.4%\n");
	expect_text(text, "\n1.0 KiB in 1 page, 18.2%\n    read (libio.so)\n"
			  "    serve (app.c:27)\n    main (app.c:14)\n");
	expect_text(text, "\n512 B in 1 page, 9.1%\n    [no stack]\n");
	expect_text(text, "\n-1.0 KiB in -2 pages, -18.2%\n    [released before the trace]");
	assert_null(strstr(text, "more stack"));
	free(text);
	hl_profile_free(profile);
}

static void what_is_left_out_is_counted(void **state)
{
	struct hl_profile *profile = traced(kept);
	char *text = text_of(hl_stacks_view, profile, options_of(1));

	(void)state;
	expect_text(text, "\n... and 4 more stacks with 2.5 KiB; -n 0 shows all\n");
	assert_null(strstr(text, "log (app.c"));
	free(text);
	struct hl_view_options by_objects = options_of(2);
	by_objects.unit = HL_UNIT_OBJECTS;
	text = text_of(hl_stacks_view, profile, by_objects);
	expect_text(text, "\n... and 3 more stacks with 0 pages; -n 0 shows all\n");
	free(text);
	hl_profile_free(profile);
}

static void of_less_than_nothing_there_are_no_shares(void **state)
{
	static const struct stack gone[] = {
		{"main", 1024, 1}, {"[released before the trace]", -4096, -4}, {NULL, 0, 0}};
	struct hl_profile *profile = traced(gone);
	char *text = text_of(hl_stacks_view, profile, options_of(0));

	(void)state;
	expect_text(text, "\n1.0 KiB in 1 page\n    main");
	expect_text(text, "\n-4.0 KiB in -4 pages\n    [released");
	free(text);
	hl_profile_free(profile);
}

static void nothing_at_all_is_said(void **state)
{
	static const struct stack nothing[] = {{"main", 0, 0}, {NULL, 0, 0}};
	struct hl_profile *profile = traced(nothing);
	char *text = text_of(hl_stacks_view, profile, options_of(0));

	(void)state;
	expect_text(text, "EMPTY: no page came or went during the trace\n");
	assert_null(strstr(text, "    main"));
	free(text);
	hl_profile_free(profile);
}

/* Stacks of blocks that were freed are known. */
static void a_trace_without_any_allocation_says_so(void **state)
{
	static const struct stack freed[] = {{"main", 0, 0}, {NULL, 0, 0}}, none[] = {{NULL, 0, 0}};
	struct hl_profile *profiles[] = {traced(freed), traced(none)};
	const char *const expected[] = {"EMPTY: everything allocated during the trace was freed\n",
					"EMPTY: nothing was allocated during the trace\n"};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(profiles); i++) {
		assert_int_equal(
			hl_strings_intern(&profiles[i]->strings, "stacks", &profiles[i]->mode), 0);
		char *text = text_of(hl_stacks_view, profiles[i], options_of(0));
		expect_text(text, expected[i]);
		free(text);
		hl_profile_free(profiles[i]);
	}
}

static void want_of_memory_is_an_error(void **state)
{
	struct hl_profile *profile = traced(kept);
	struct hl_view_options options = options_of(2);

	(void)state;
	FOR_EACH_FAILING_ALLOCATION(r, view_quietly(hl_stacks_view, profile, options))
	assert_int_equal(r, -ENOMEM);
	options.json = true;
	FOR_EACH_FAILING_ALLOCATION(r, view_quietly(hl_stacks_view, profile, options))
	assert_int_equal(r, -ENOMEM);
	hl_profile_free(profile);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(json_has_whole_stacks_and_the_figures_of_the_whole),
		cmocka_unit_test(recordings_that_are_no_traces_can_be_shown_so_too),
		cmocka_unit_test(text_shows_frames_from_the_innermost_out),
		cmocka_unit_test(stacks_merged_by_function_show_the_lines_of_the_heaviest),
		cmocka_unit_test(places_in_scripts_say_what_tells_their_sources_apart),
		cmocka_unit_test(a_brief_report_has_its_total_and_says_that_it_is_an_estimate),
		cmocka_unit_test(of_lost_faults_it_is_said_that_their_pages_count),
		cmocka_unit_test(what_is_left_out_is_counted),
		cmocka_unit_test(of_less_than_nothing_there_are_no_shares),
		cmocka_unit_test(nothing_at_all_is_said),
		cmocka_unit_test(a_trace_without_any_allocation_says_so),
		cmocka_unit_test(want_of_memory_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
