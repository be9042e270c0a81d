/* SPDX-License-Identifier: BSD-2-Clause */
/* Filters: which stacks and frames are left, and that every figure follows them. */
#include "profile/filter.h"

#include "profile/builder.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fail_allocations.h"
#include "stacks.h"

/*
 * main (1)
 *   parse (2)
 *     xmalloc (4)
 *   send (8)
 *     xmalloc (16)
 *   xmalloc (32)
 *     grow (64)
 * in parentheses the bytes allocated there; powers of two, so that a sum says of what it is
 */
struct sample {
	struct hl_builder builder;
	uint32_t nodes[8];
	size_t count;
};

static uint32_t add_node(struct sample *sample, uint32_t parent, const char *name, const char *file)
{
	const struct hl_symbols_frame symbol = {
		.function = name, .function_file = file, .file = file, .line = 7};
	uint32_t frame, node, module;

	assert_int_equal(hl_builder_module(&sample->builder, "/opt/app", NULL, 0, NULL, &module),
			 0);
	assert_int_equal(hl_builder_frame(&sample->builder, &symbol, module, 0, &frame), 0);
	assert_int_equal(hl_builder_child(&sample->builder, parent, frame, &node), 0);
	sample->nodes[sample->count++] = node;
	return node;
}

static void add_rows(struct hl_profile *profile)
{
	profile->threads = calloc(2, sizeof(*profile->threads));
	profile->rows = calloc(profile->node_count, sizeof(*profile->rows));
	profile->sizes = calloc(profile->node_count, sizeof(*profile->sizes));
	profile->base = calloc(profile->node_count, sizeof(*profile->base));
	profile->thread_count = 2;
	profile->row_count = profile->size_count = profile->node_count;
	for (uint32_t i = 0; i < profile->node_count; i++) {
		profile->rows[i] = (struct hl_profile_row){i, i % 2, profile->counters[i]};
		profile->sizes[i] = (struct hl_profile_size){
			.node = i, .size_class = 3, .counters = profile->counters[i]};
		profile->threads[i % 2].total.alloc_bytes += profile->counters[i].alloc_bytes;
		profile->base[i].alloc_bytes = 1000 * profile->counters[i].alloc_bytes;
	}
	profile->base_total.alloc_bytes = 1000 * profile->total.alloc_bytes;
}

static struct hl_profile *make_profile(void)
{
	struct sample sample = {0};
	struct hl_profile *profile;
	uint32_t *final_ids;

	assert_int_equal(hl_builder_init(&sample.builder), 0);
	uint32_t top = add_node(&sample, 0, "main", "src/main.c");
	uint32_t parse = add_node(&sample, top, "parse", "src/parse.c");
	add_node(&sample, parse, "xmalloc", "src/memory.c");
	uint32_t send = add_node(&sample, top, "send", "src/net.c");
	add_node(&sample, send, "xmalloc", "src/memory.c");
	uint32_t own = add_node(&sample, top, "xmalloc", "src/memory.c");
	add_node(&sample, own, "grow", "src/main.c");
	assert_int_equal(hl_builder_finish(&sample.builder, &final_ids, &profile), 0);
	for (size_t i = 0; i < sample.count; i++) {
		profile->counters[final_ids[sample.nodes[i]]].alloc_bytes = 1 << i;
		profile->total.alloc_bytes += 1 << i;
	}
	profile->unfiltered_total = profile->total;
	add_rows(profile);
	free(final_ids);
	hl_builder_release(&sample.builder);
	assert_true(hl_profile_is_valid(profile));
	return profile;
}

static int64_t bytes_at(const struct hl_profile *profile, const char *path)
{
	char found[128];

	for (uint32_t i = 1; i < profile->node_count; i++) {
		path_of(profile, i, found, sizeof(found));
		if (!strcmp(found, path))
			return profile->counters[i].alloc_bytes;
	}
	return -1;
}

static int64_t sum_of_rows(const struct hl_profile *profile)
{
	int64_t sum = 0, threads = 0, sizes = 0;

	for (size_t i = 0; i < profile->row_count; i++)
		sum += profile->rows[i].counters.alloc_bytes;
	for (size_t i = 0; i < profile->thread_count; i++)
		threads += profile->threads[i].total.alloc_bytes;
	for (size_t i = 0; i < profile->size_count; i++)
		sizes += profile->sizes[i].counters.alloc_bytes;
	assert_int_equal(sum, threads);
	assert_int_equal(sum, sizes);
	return sum;
}

static struct hl_profile *filtered(struct hl_filter filter, int64_t expected_total)
{
	struct hl_profile *profile = make_profile();
	struct hl_error err = {0};

	assert_int_equal(hl_filter_apply(&filter, profile, NULL, &err), 0);
	assert_true(hl_profile_is_valid(profile));
	assert_int_equal(profile->total.alloc_bytes, expected_total);
	assert_int_equal(profile->base_total.alloc_bytes, 1000 * expected_total);
	assert_int_equal(sum_of_rows(profile), expected_total);
	assert_int_equal(profile->unfiltered_total.alloc_bytes, 127);
	return profile;
}

static void focus_keeps_the_stacks_that_pass_a_match(void **state)
{
	struct hl_profile *profile = filtered((struct hl_filter){.focus = {"^parse$"}}, 2 + 4);

	(void)state;
	assert_int_equal(bytes_at(profile, "main;parse"), 2);
	assert_int_equal(bytes_at(profile, "main;parse;xmalloc"), 4);
	assert_int_equal(bytes_at(profile, "main"), 0);
	assert_int_equal(bytes_at(profile, "main;send"), -1);
	assert_string_equal(hl_profile_text(profile, profile->filter), "focus '^parse$'");
	hl_profile_free(profile);
}

static void ignore_drops_the_stacks_that_pass_a_match(void **state)
{
	struct hl_profile *profile = filtered((struct hl_filter){.ignore = {"xmalloc"}}, 1 + 2 + 8);

	(void)state;
	assert_int_equal(bytes_at(profile, "main;parse"), 2);
	assert_int_equal(bytes_at(profile, "main;parse;xmalloc"), -1);
	assert_int_equal(bytes_at(profile, "main;xmalloc;grow"), -1);
	hl_profile_free(profile);
}

static void hidden_frames_leave_what_they_hold_to_their_callers(void **state)
{
	struct hl_profile *profile = filtered((struct hl_filter){.hide = {"xmalloc|parse"}}, 127);

	(void)state;
	assert_int_equal(bytes_at(profile, "main"), 1 + 2 + 4 + 32);
	assert_int_equal(bytes_at(profile, "main;send"), 8 + 16);
	assert_int_equal(bytes_at(profile, "main;grow"), 64);
	assert_int_equal(profile->node_count, 4);
	hl_profile_free(profile);
}

static void all_frames_can_be_hidden(void **state)
{
	struct hl_profile *profile = filtered((struct hl_filter){.hide = {"."}}, 127);

	(void)state;
	assert_int_equal(profile->node_count, 1);
	assert_int_equal(profile->counters[0].alloc_bytes, 127);
	hl_profile_free(profile);
}

static void files_and_modules_match_too(void **state)
{
	(void)state;
	hl_profile_free(filtered((struct hl_filter){.focus = {"memory\\.c$"}}, 4 + 16 + 32 + 64));
	hl_profile_free(filtered((struct hl_filter){.focus = {"/opt/app"}}, 127));
}

static void filters_combine(void **state)
{
	struct hl_profile *profile = filtered(
		(struct hl_filter){.focus = {"xmalloc"}, .ignore = {"send"}, .hide = {"grow"}},
		4 + 32 + 64);

	(void)state;
	assert_int_equal(bytes_at(profile, "main;xmalloc"), 32 + 64);
	assert_string_equal(hl_profile_text(profile, profile->filter),
			    "focus 'xmalloc', ignore 'send', hide 'grow'");
	hl_profile_free(profile);
}

static void a_stack_passes_a_match_of_each_focus(void **state)
{
	struct hl_profile *profile = filtered((struct hl_filter){.focus = {"send", "xmalloc"}}, 16);

	(void)state;
	assert_int_equal(bytes_at(profile, "main;send;xmalloc"), 16);
	assert_string_equal(hl_profile_text(profile, profile->filter),
			    "focus 'send', focus 'xmalloc'");
	hl_profile_free(profile);
	hl_profile_free(filtered((struct hl_filter){.focus = {"send", "parse"}}, 0));
}

static void any_of_several_expressions_ignores_and_hides(void **state)
{
	struct hl_profile *profile = filtered(
		(struct hl_filter){.ignore = {"send", "grow"}, .hide = {"parse", "xmalloc"}},
		1 + 2 + 4 + 32);

	(void)state;
	assert_int_equal(bytes_at(profile, "main"), 1 + 2 + 4 + 32);
	assert_int_equal(profile->node_count, 2);
	hl_profile_free(profile);
}

static int check_focus(const char *text, struct hl_error *err)
{
	*err = (struct hl_error){0};
	return hl_filter_check(&(struct hl_filter){.focus = {text}}, err);
}

/* ${unit} ${count} times, then ${tail}; to be freed. */
static char *repeated(const char *unit, size_t count, const char *tail)
{
	char *text = calloc(count * strlen(unit) + strlen(tail) + 1, 1), *end = text;

	assert_non_null(text);
	while (count--)
		end = stpcpy(end, unit);
	strcpy(end, tail);
	return text;
}

static void expressions_that_libc_cannot_bear_are_refused(void **state)
{
	static const char *const repeating[] = {"a{1,32767}", "a{256}",
						"a{0,99999999999999999999}"};
	static const char *const growing[] = {"(a{1,255}){1,255}", "a{255}{255}",
					      "((((((((((((a+)+)+)+)+)+)+)+)+)+)+)+)+",
					      "([[:alpha:]]{64}[]x]{64}){64}"};
	struct hl_error err;

	(void)state;
	for (size_t i = 0; i < sizeof(repeating) / sizeof(*repeating); i++) {
		assert_int_equal(check_focus(repeating[i], &err), -EINVAL);
		assert_non_null(strstr(err.text, "more than 255 times"));
	}
	for (size_t i = 0; i < sizeof(growing) / sizeof(*growing); i++) {
		assert_int_equal(check_focus(growing[i], &err), -EINVAL);
		assert_non_null(strstr(err.text, "make it too large"));
	}
	char *nested = repeated("(", 65, ""), *long_text = repeated("(", 20000, "");
	assert_int_equal(check_focus(nested, &err), -EINVAL);
	assert_non_null(strstr(err.text, "of --focus: its parentheses are nested more than 64"));
	assert_int_equal(check_focus(long_text, &err), -EINVAL);
	assert_string_equal(err.text,
			    "bad expression '((((((((((((((((((((((((((((((((((((((((...' of "
			    "--focus: it is longer than 1,024 bytes");
	free(nested);
	free(long_text);
}

static void expressions_within_bounds_are_taken(void **state)
{
	static const char *const good[] = {
		"",
		"a|b",
		"^std::vector<.*>::(push|emplace)_back\\(",
		"[0-9a-f]{40}",
		"(a+b+){1,9}",
		"[]a]+[^]b]*[[:alpha:]]?",
		"\\{x\\}",
		"a{2,}",
		"operator\\+\\+",
	};
	struct hl_error err;

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		assert_int_equal(check_focus(good[i], &err), 0);
	char *many = repeated("a+", 500, "b");
	assert_int_equal(check_focus(many, &err), 0);
	free(many);
}

static void what_matches_nothing_leaves_nothing(void **state)
{
	struct hl_profile *profile = filtered((struct hl_filter){.focus = {"nowhere"}}, 0);

	(void)state;
	assert_int_equal(profile->node_count, 1);
	assert_int_equal(profile->row_count, 0);
	hl_profile_free(profile);
}

static void no_filter_changes_nothing(void **state)
{
	struct hl_profile *profile = filtered((struct hl_filter){0}, 127);

	(void)state;
	assert_int_equal(profile->filter, 0);
	assert_int_equal(profile->node_count, 8);
	hl_profile_free(profile);
}

static void without_rows_no_thread_has_a_figure(void **state)
{
	struct hl_profile *profile = make_profile();
	const struct hl_filter filter = {.focus = {"parse"}};

	(void)state;
	profile->row_count = 0;
	assert_int_equal(hl_filter_apply(&filter, profile, NULL, NULL), 0);
	assert_int_equal(profile->thread_count, 0);
	hl_profile_free(profile);
}

static void a_bad_expression_is_named(void **state)
{
	struct hl_profile *profile = make_profile();
	const struct hl_filter filter = {.focus = {"x"}, .hide = {"a("}};
	struct hl_error err = {0};

	(void)state;
	assert_int_equal(hl_filter_apply(&filter, profile, NULL, &err), -EINVAL);
	assert_non_null(strstr(err.text, "'a(' of --hide"));
	assert_true(hl_profile_is_valid(profile));
	hl_profile_free(profile);
}

static int apply_to(struct hl_profile *profile)
{
	const struct hl_filter filter = {
		.focus = {"xmalloc"}, .ignore = {"send"}, .hide = {"grow"}};

	return hl_filter_apply(&filter, profile, NULL, NULL);
}

static void want_of_memory_is_an_error_wherever_it_strikes(void **state)
{
	struct hl_profile *profile = make_profile();
	long failures = 0;

	(void)state;
	FOR_EACH_FAILING_ALLOCATION(r, apply_to(profile))
	{
		assert_int_equal(r, -ENOMEM);
		hl_profile_free(profile);
		profile = make_profile();
		failures++;
	}
	assert_true(failures > 10);
	hl_profile_free(profile);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(focus_keeps_the_stacks_that_pass_a_match),
		cmocka_unit_test(ignore_drops_the_stacks_that_pass_a_match),
		cmocka_unit_test(hidden_frames_leave_what_they_hold_to_their_callers),
		cmocka_unit_test(all_frames_can_be_hidden),
		cmocka_unit_test(files_and_modules_match_too),
		cmocka_unit_test(filters_combine),
		cmocka_unit_test(a_stack_passes_a_match_of_each_focus),
		cmocka_unit_test(any_of_several_expressions_ignores_and_hides),
		cmocka_unit_test(expressions_that_libc_cannot_bear_are_refused),
		cmocka_unit_test(expressions_within_bounds_are_taken),
		cmocka_unit_test(what_matches_nothing_leaves_nothing),
		cmocka_unit_test(no_filter_changes_nothing),
		cmocka_unit_test(without_rows_no_thread_has_a_figure),
		cmocka_unit_test(a_bad_expression_is_named),
		cmocka_unit_test(want_of_memory_is_an_error_wherever_it_strikes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
