/* SPDX-License-Identifier: BSD-2-Clause */
/* Source lines: files are found, figures stand beside the right lines, and sums are the total. */
#include "fail_allocations.h"
#include "profile/builder.h"
#include "view/annotate.h"
#include "view/view.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- a folder with a source of 60 lines: line 3 begins outer(), 50 inner() ---- */

static char folder[] = "/tmp/heapline-annotate-XXXXXX";
static char recorded[PATH_MAX]; /* where debug information says that the source is */

static int make_folder(void **state)
{
	(void)state;
	if (!mkdtemp(folder))
		return -1;
	snprintf(recorded, sizeof(recorded), "%s/shop.c", folder);
	FILE *out = fopen(recorded, "w");
	for (int line = 1; out && line < 60; line++)
		fprintf(out, line == 48 || line == 55 ? "}\n" : "\tline(%d);\r\n", line);
	fputs("the last", out);
	return fclose(out);
}

static int remove_folder(void **state)
{
	(void)state;
	unlink(recorded);
	return rmdir(folder);
}

struct place {
	const char *function;
	uint32_t function_line, line; /* 0: not known */
	bool inlined;
};

static uint32_t add_frame(struct hl_builder *builder, const struct place *place, uint32_t parent)
{
	const struct hl_symbols_frame symbol = {
		.function = place->function,
		.function_file = place->function_line ? recorded : "",
		.function_line = place->function_line,
		.file = place->line ? recorded : "",
		.line = place->line,
		.inlined = place->inlined,
	};
	uint32_t module, frame, node;

	assert_int_equal(hl_builder_module(builder, "/nowhere/shop", NULL, 0, NULL, &module), 0);
	assert_int_equal(hl_builder_frame(builder, &symbol, module, 0x10, &frame), 0);
	assert_int_equal(hl_builder_child(builder, parent, frame, &node), 0);
	return node;
}

/*
 * outer(int) line 5 -> inner line 52, inlined at the leaf
 * outer(int) line 5 -> outer(int) line 40 -> without_line
 */
static struct hl_profile *make_profile(void)
{
	static const struct place call = {"outer(int)", 3, 5, false};
	static const struct place leaf = {"inner", 50, 52, true};
	static const struct place again = {"outer(int)", 3, 40, false};
	static const struct place bare = {"without_line", 0, 0, false};
	struct hl_builder builder;
	struct hl_profile *profile;
	uint32_t *final_ids;

	assert_int_equal(hl_builder_init(&builder), 0);
	uint32_t outer = add_frame(&builder, &call, 0);
	uint32_t inner = add_frame(&builder, &leaf, outer);
	uint32_t below = add_frame(&builder, &again, outer);
	uint32_t last = add_frame(&builder, &bare, below);
	assert_int_equal(hl_builder_finish(&builder, &final_ids, &profile), 0);
	profile->counters[final_ids[inner]] =
		(struct hl_profile_counters){.alloc_bytes = 1009, .alloc_objects = 11};
	profile->counters[final_ids[below]] =
		(struct hl_profile_counters){.alloc_bytes = 101, .alloc_objects = 3};
	profile->counters[final_ids[last]] =
		(struct hl_profile_counters){.alloc_bytes = 13, .alloc_objects = 1};
	for (size_t i = 0; i < profile->node_count; i++)
		hl_profile_counters_add(&profile->total, &profile->counters[i]);
	assert_int_equal(hl_strings_intern(&profile->strings, "t.hl", &profile->name), 0);
	assert_int_equal(hl_strings_intern(&profile->strings, "stripped; install its debug package",
					   &profile->modules[1].symbols_reason),
			 0);
	profile->complete = true;
	hl_profile_know_all(profile);
	free(final_ids);
	hl_builder_release(&builder);
	return profile;
}

/* What ${view} writes; to be freed. Not inlined for the reason in test_views.c. */
static __attribute__((noinline)) char *text_of(hl_view *view, struct hl_view_options options)
{
	struct hl_profile *profile = make_profile();
	struct hl_error err = {0};
	char *text;
	size_t size;

	options.out = open_memstream(&text, &size);
	options.notes = options.out;
	options.value = HL_VALUE_ALLOC;
	assert_int_equal(view(profile, &options, &err), 0);
	fclose(options.out);
	hl_profile_free(profile);
	return text;
}

static void assert_contains(const char *text, const char *part)
{
	assert_non_null(text);
	if (!strstr(text, part))
		fail_msg("no '%s' in:\n%s", part, text);
}

/* ---- sources ---- */

static void a_source_is_found_where_it_was_compiled(void **state)
{
	struct hl_source source;

	(void)state;
	assert_int_equal(hl_source_read(&source, recorded, NULL), 0);
	assert_string_equal(source.path, recorded);
	assert_int_equal(source.count, 60);
	assert_string_equal(hl_source_line(&source, 1), "\tline(1);"); /* no carriage return */
	assert_string_equal(hl_source_line(&source, 60), "the last");
	assert_null(hl_source_line(&source, 0));
	assert_null(hl_source_line(&source, 61));
	hl_source_release(&source);
}

static void a_source_that_was_moved_is_found_by_the_end_of_its_path(void **state)
{
	static const char *const paths[] = {"/build/app-1.2/src/shop.c", "../src/shop.c", "shop.c",
					    "./shop.c"};
	struct hl_source source;

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(paths); i++) {
		assert_int_equal(hl_source_read(&source, paths[i], folder), 0);
		assert_string_equal(source.path, recorded);
		hl_source_release(&source);
		assert_int_equal(hl_source_read(&source, paths[i], NULL), -ENOENT);
	}
	assert_int_equal(hl_source_read(&source, "/build/other.c", folder), -ENOENT);
}

static void what_is_no_file_is_no_source(void **state)
{
	struct hl_source source;

	(void)state;
	assert_int_equal(hl_source_read(&source, "/dev/zero", NULL), -EINVAL);
	assert_int_equal(hl_source_read(&source, folder, NULL), -EINVAL);
	assert_int_equal(hl_source_read(&source, "", folder), -ENOENT);
}

/* ---- annotate ---- */

static void figures_stand_beside_their_lines(void **state)
{
	char *text =
		text_of(hl_annotate_view, (struct hl_view_options){.annotate.function = "outer"});

	(void)state;
	assert_contains(text,
			"outer(int) in /nowhere/shop\nflat 101 B (9.0%), cum 1.1 KiB (100.0%)");
	assert_contains(text, "\n                                     3          line(3);\n");
	assert_contains(text, "\n                1.1 KiB       15     5          line(5);\n");
	assert_contains(text, "\n101 B        3    114 B        4    40          line(40);\n");
	free(text);
}

static void long_stretches_without_figures_are_left_out(void **state)
{
	char *text =
		text_of(hl_annotate_view, (struct hl_view_options){.annotate.function = "outer"});

	(void)state;
	assert_contains(text, "10          line(10);\n");
	assert_contains(text, "...\n");
	assert_contains(text, "35          line(35);\n");
	assert_null(strstr(text, "line(11);"));
	assert_null(strstr(text, "line(34);"));
	assert_contains(text, "45          line(45);\n"); /* five lines after the last */
	assert_null(strstr(text, "line(46);"));
	free(text);
}

static void an_inlined_line_belongs_to_its_own_function_which_ends_at_its_brace(void **state)
{
	char *text =
		text_of(hl_annotate_view, (struct hl_view_options){.annotate.function = "inner"});

	(void)state;
	assert_null(strstr(text, "outer"));
	assert_contains(text, "\n1009 B       11  1009 B       11    52          line(52);\n");
	assert_contains(text, "55  }\n");
	assert_null(strstr(text, "line(56);"));
	free(text);
}

static void a_name_is_preferred_to_an_expression(void **state)
{
	char *text = text_of(hl_annotate_view,
			     (struct hl_view_options){.annotate.function = "o.*r|inner"});

	(void)state;
	assert_true(strstr(text, "\nouter(int) in") < strstr(text, "\ninner in")); /* by cum */
	free(text);
	text = text_of(hl_annotate_view,
		       (struct hl_view_options){.annotate.function = "i", .row_limit = 1});
	assert_contains(text, "... and 2 more; -n 0 shows all");
	free(text);
}

static void a_source_newer_than_the_program_is_a_warning(void **state)
{
	struct hl_view_options options = {.annotate.function = "inner", .value = HL_VALUE_ALLOC};
	struct hl_profile *profile = make_profile();
	struct hl_error err = {0};
	char *text;
	size_t size;

	(void)state;
	options.out = open_memstream(&text, &size);
	profile->start_realtime_ns =
		UINT64_C(1000000000) * 86400; /* there is no program any more */
	assert_int_equal(hl_annotate_view(profile, &options, &err), 0);
	fclose(options.out);
	assert_contains(text, "\nCHANGED: ");
	free(text);
	hl_profile_free(profile);
	text = text_of(hl_annotate_view, options);
	assert_null(strstr(text, "CHANGED"));
	free(text);
}

static void without_a_source_lines_are_listed_and_it_is_said_where_it_was_looked_for(void **state)
{
	char elsewhere[sizeof(recorded) + 8];

	(void)state;
	snprintf(elsewhere, sizeof(elsewhere), "%s.gone", recorded);
	assert_int_equal(rename(recorded, elsewhere), 0);
	char *text =
		text_of(hl_annotate_view, (struct hl_view_options){.annotate.function = "inner"});
	char *other =
		text_of(hl_annotate_view, (struct hl_view_options){.annotate.function = "inner",
								   .annotate.source_path = "/usr"});
	assert_int_equal(rename(elsewhere, recorded), 0);
	assert_contains(text, "shop.c' cannot be read: No such file or directory; --source-path");
	assert_contains(text, "\n1009 B       11  1009 B       11    52\n");
	assert_contains(other, "shop.c' nor an end of that path below '/usr' can be read");
	free(text);
	free(other);
}

static void without_lines_it_is_said_what_would_give_them(void **state)
{
	char *text = text_of(hl_annotate_view,
			     (struct hl_view_options){.annotate.function = "without_line"});

	(void)state;
	assert_contains(text, "no line numbers for 'shop': stripped; install its debug package\n");
	free(text);
}

static void json_has_a_row_for_each_line_with_its_source(void **state)
{
	struct hl_view_options options = {.annotate.function = "outer|inner", .json = true};
	char *text = text_of(hl_annotate_view, options);
	json_t *report = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	json_t *rows = json_object_get(report, "rows"), *row;
	json_int_t flat = 0;
	size_t i;

	(void)state;
	assert_int_equal(json_array_size(json_object_get(report, "functions")), 2);
	assert_int_equal(json_array_size(rows), 3);
	json_array_foreach(rows, i, row) {
		flat += json_integer_value(json_object_get(row, "flat_bytes"));
	}
	assert_int_equal(flat, 1009 + 101);
	row = json_array_get(rows, 1);
	assert_int_equal(json_integer_value(json_object_get(row, "line")), 40);
	assert_string_equal(json_string_value(json_object_get(row, "source")), "\tline(40);");
	json_decref(report);
	free(text);
}

static void a_function_that_is_not_there_is_an_error(void **state)
{
	struct hl_profile *profile = make_profile();
	struct hl_view_options options = {.out = stderr, .annotate.function = "nobody"};
	struct hl_error err = {0};

	(void)state;
	assert_int_equal(hl_annotate_view(profile, &options, &err), -ENOENT);
	assert_string_equal(err.text,
			    "no function 'nobody' in 't.hl'; 'heapline top -n 0' lists them");
	err = (struct hl_error){0};
	options.annotate.function = "[";
	assert_int_equal(hl_annotate_view(profile, &options, &err), -EINVAL);
	assert_true(!strncmp(err.text, "bad expression '[': ", 20));
	hl_profile_free(profile);
}

/* ---- lines ---- */

static void lines_add_up_to_the_total(void **state)
{
	char *text = text_of(hl_lines_view, (struct hl_view_options){.lines.plain = true}),
	     *expected;

	(void)state;
	assert_true(asprintf(&expected,
			     "%s line:52 size:1009\n%s line:40 size:101\n"
			     "/nowhere/shop(without_line) line:0 size:13\ntotal size:1123\n",
			     recorded, recorded) > 0);
	assert_string_equal(text, expected);
	free(expected);
	free(text);
}

static void what_is_left_out_of_lines_is_summed(void **state)
{
	char *text = text_of(hl_lines_view,
			     (struct hl_view_options){.row_limit = 1, .lines.plain = true});

	(void)state;
	assert_contains(text, " line:52 size:1009\nand 2 more size:114\ntotal size:1123\n");
	free(text);
}

static void want_of_memory_is_an_error_wherever_it_strikes(void **state)
{
	struct hl_profile *profile = make_profile();
	struct hl_view_options options = {.out = fopen("/dev/null", "w"),
					  .annotate.function = "outer|inner",
					  .value = HL_VALUE_ALLOC};
	struct hl_error err = {0};

	(void)state;
	options.notes = options.out;
	for (int json = 0; json < 2; json++) {
		options.json = json;
		FOR_EACH_FAILING_ALLOCATION(r, hl_annotate_view(profile, &options, &err))
		{
			assert_int_equal(r, -ENOMEM);
			assert_non_null(strstr(err.text, "t.hl"));
			err = (struct hl_error){0};
		}
	}
	fclose(options.out);
	hl_profile_free(profile);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_source_is_found_where_it_was_compiled),
		cmocka_unit_test(a_source_that_was_moved_is_found_by_the_end_of_its_path),
		cmocka_unit_test(what_is_no_file_is_no_source),
		cmocka_unit_test(figures_stand_beside_their_lines),
		cmocka_unit_test(long_stretches_without_figures_are_left_out),
		cmocka_unit_test(
			an_inlined_line_belongs_to_its_own_function_which_ends_at_its_brace),
		cmocka_unit_test(a_name_is_preferred_to_an_expression),
		cmocka_unit_test(a_source_newer_than_the_program_is_a_warning),
		cmocka_unit_test(
			without_a_source_lines_are_listed_and_it_is_said_where_it_was_looked_for),
		cmocka_unit_test(without_lines_it_is_said_what_would_give_them),
		cmocka_unit_test(json_has_a_row_for_each_line_with_its_source),
		cmocka_unit_test(a_function_that_is_not_there_is_an_error),
		cmocka_unit_test(lines_add_up_to_the_total),
		cmocka_unit_test(what_is_left_out_of_lines_is_summed),
		cmocka_unit_test(want_of_memory_is_an_error_wherever_it_strikes),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
