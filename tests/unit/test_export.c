/* SPDX-License-Identifier: BSD-2-Clause */
/* Files for other programs: each keeps the rules of its format, and all say the same. */
#include "fail_allocations.h"
#include "stacks.h"

#include "view/view.h"

#include <errno.h>
#include <jansson.h>

#define AWKWARD "do<[u8; 4]>\n\"x\""

static const struct stack awkward_stacks[] = {
	{"main:12;parse:25;read!/lib/libio.so", 1009, 11},
	{"main:12;parse:25", 503, 7},
	{"main:14;parse:31", 70001, 71}, /* the same functions at other places */
	{"main:12;" AWKWARD ":40", 13, 1},
	{NULL, 0, 0},
};

static struct hl_profile *make_profile(void)
{
	struct stack stacks[HL_COUNT_OF(awkward_stacks)];
	struct hl_profile *profile;

	memcpy(stacks, awkward_stacks, sizeof(stacks));
	stacks[3].frames = "main:12;awkward:40"; /* ';' separates frames there too */
	profile = profile_of("t.hl", stacks, 0x1000);
	for (size_t i = 1; i < profile->function_count; i++) {
		struct hl_profile_function *function = &profile->functions[i];
		if (strcmp(hl_profile_text(profile, function->name), "awkward"))
			continue;
		assert_int_equal(hl_strings_intern(&profile->strings, AWKWARD, &function->name), 0);
		function->label = function->name;
	}
	return profile;
}

static int write_result(hl_view *view, const struct hl_profile *profile, char **ret_text)
{
	struct hl_view_options options = {.value = HL_VALUE_PEAK, .notes = fopen("/dev/null", "w")};
	struct hl_error err = {0};
	size_t size;

	options.out = open_memstream(ret_text, &size);
	int r = view(profile, &options, &err);
	fclose(options.out);
	fclose(options.notes);
	assert_true((r < 0) == (err.text[0] != '\0'));
	return r;
}

/* What ${view} writes of the profile above; to be freed. */
static char *text_of(hl_view *view)
{
	struct hl_profile *profile = make_profile();
	char *text;

	assert_int_equal(write_result(view, profile, &text), 0);
	hl_profile_free(profile);
	return text;
}

static json_t *json_of(hl_view *view)
{
	char *text = text_of(view);
	json_error_t error;
	json_t *parsed = json_loads(text, JSON_REJECT_DUPLICATES, &error);

	if (!parsed)
		fail_msg("%s in %s", error.text, text);
	free(text);
	return parsed;
}

static json_int_t integer(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

static const char *string(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

/* ---- CSV ---- */

static void csv_has_a_row_for_each_stack_with_all_its_figures(void **state)
{
	char *text = text_of(hl_csv_view);

	(void)state;
	assert_string_equal(
		text, "inuse_bytes,inuse_objects,alloc_bytes,alloc_objects,peak_bytes,peak_objects,"
		      "temporary_objects,slack_bytes,stack\r\n"
		      "13,1,13,1,13,1,0,0,\"main;do<[u8: 4]>\\x0a\"\"x\"\"\"\r\n"
		      "70504,78,70504,78,70504,78,0,0,\"main;parse\"\r\n"
		      "1009,11,1009,11,1009,11,0,0,\"main;parse;read\"\r\n");
	free(text);
}

static void csv_leaves_fields_empty_that_are_not_known(void **state)
{
	struct hl_profile *profile = make_profile();
	char *text;

	(void)state;
	memset(profile->known, 0, sizeof(profile->known));
	profile->known[HL_VALUE_ALLOC][HL_UNIT_OBJECTS] = true;
	assert_int_equal(write_result(hl_csv_view, profile, &text), 0);
	assert_non_null(strstr(text, "\r\n,,,1,,,,,\"main;do"));
	free(text);
	hl_profile_free(profile);
}

/* ---- heaptrack ---- */

static void heaptracks_frames_name_their_file_and_end_with_a_semicolon(void **state)
{
	char *text = text_of(hl_heaptrack_view);

	(void)state;
	assert_string_equal(text, "main (app.c);do<[u8: 4]>\\x0a\"x\" (app.c); 13\n"
				  "main (app.c);parse (app.c); 70504\n"
				  "main (app.c);parse (app.c);read; 1009\n");
	free(text);
}

/* ---- speedscope: the rules of its file format, in src/lib/file-format-spec.ts ---- */

static void assert_frames_are_named(const json_t *frames)
{
	size_t i;
	json_t *frame;

	json_array_foreach(frames, i, frame) {
		assert_true(json_is_string(json_object_get(frame, "name")));
		assert_true(!json_object_get(frame, "file") || string(frame, "file")[0]);
		assert_true(!json_object_get(frame, "line") || integer(frame, "line") > 0);
	}
}

static void assert_profile_is_sampled(const json_t *profile, size_t frame_count)
{
	const json_t *samples = json_object_get(profile, "samples");
	const json_t *weights = json_object_get(profile, "weights");
	json_t *stack, *frame;
	json_int_t sum = 0;
	size_t i, j;

	assert_string_equal(string(profile, "type"), "sampled");
	assert_true(json_is_string(json_object_get(profile, "name")));
	assert_int_equal(json_array_size(samples), json_array_size(weights));
	json_array_foreach(samples, i, stack) {
		json_array_foreach(stack, j, frame)
			assert_in_range(json_integer_value(frame), 0, frame_count - 1);
		assert_true(json_integer_value(json_array_get(weights, i)) > 0);
		sum += json_integer_value(json_array_get(weights, i));
	}
	assert_int_equal(integer(profile, "startValue"), 0);
	assert_int_equal(integer(profile, "endValue"), sum);
}

static void speedscope_gets_a_sampled_profile_for_each_value(void **state)
{
	static const struct {
		const char *name, *unit;
		json_int_t end;
	} expected[] = {
		{"in use, bytes", "bytes", 71526},   {"in use, objects", "none", 90},
		{"allocated bytes", "bytes", 71526}, {"allocated objects", "none", 90},
		{"peak bytes", "bytes", 71526},	     {"peak objects", "none", 90},
		{"temporary objects", "none", 0},    {"slack bytes", "bytes", 0},
	};
	json_t *file = json_of(hl_speedscope_view);
	const json_t *frames = json_object_get(json_object_get(file, "shared"), "frames");
	const json_t *profiles = json_object_get(file, "profiles");

	(void)state;
	assert_string_equal(string(file, "$schema"),
			    "https://www.speedscope.app/file-format-schema.json");
	assert_int_equal(json_array_size(frames), 4);
	assert_frames_are_named(frames);
	assert_int_equal(json_array_size(profiles), HL_COUNT_OF(expected));
	for (size_t i = 0; i < HL_COUNT_OF(expected); i++) {
		const json_t *profile = json_array_get(profiles, i);
		assert_profile_is_sampled(profile, json_array_size(frames));
		assert_string_equal(string(profile, "name"), expected[i].name);
		assert_string_equal(string(profile, "unit"), expected[i].unit);
		assert_int_equal(integer(profile, "endValue"), expected[i].end);
	}
	assert_int_equal(integer(file, "activeProfileIndex"), 4);
	json_decref(file);
}

static void speedscopes_stacks_begin_at_the_root(void **state)
{
	json_t *file = json_of(hl_speedscope_view);
	const json_t *frames = json_object_get(json_object_get(file, "shared"), "frames");
	const json_t *inuse = json_array_get(json_object_get(file, "profiles"), 0);
	const json_t *stack = json_array_get(json_object_get(inuse, "samples"), 0);

	(void)state;
	assert_int_equal(json_array_size(stack), 2);
	size_t first = (size_t)json_integer_value(json_array_get(stack, 0));
	size_t last = (size_t)json_integer_value(json_array_get(stack, 1));
	assert_string_equal(string(json_array_get(frames, first), "name"), "main");
	assert_string_equal(string(json_array_get(frames, last), "name"), AWKWARD);
	json_decref(file);
}

/* ---- JSON ---- */

static json_int_t sum_of_nodes(const json_t *file, const char *key)
{
	json_int_t sum = 0;
	json_t *node;
	size_t i;

	json_array_foreach(json_object_get(file, "nodes"), i, node)
		sum += integer(node, key);
	return sum;
}

static void json_holds_all_that_is_needed_to_name_stacks(void **state)
{
	json_t *file = json_of(hl_export_json_view), *node;
	const json_t *nodes = json_object_get(file, "nodes"),
		     *frames = json_object_get(file, "frames");
	const json_t *functions = json_object_get(file, "functions");
	const json_t *modules = json_object_get(file, "modules");
	size_t i;

	(void)state;
	assert_string_equal(string(file, "schema"), "heapline/export/1");
	assert_int_equal(sum_of_nodes(file, "alloc_bytes"), 71526);
	assert_int_equal(sum_of_nodes(file, "peak_objects"), 90);
	json_array_foreach(nodes, i, node) {
		const json_t *frame = json_array_get(frames, (size_t)integer(node, "frame"));
		const json_t *function =
			json_array_get(functions, (size_t)integer(frame, "function"));
		const json_t *module = json_array_get(modules, (size_t)integer(function, "module"));
		if (i == 0)
			continue;
		assert_in_range(integer(node, "parent"), 0, i - 1);
		assert_non_null(string(function, "name"));
		assert_string_equal(string(module, "build_id"), "6964");
		assert_string_equal(string(frame, "address"), "0x1000");
	}
	json_decref(file);
}

static void json_names_the_figures_that_are_known(void **state)
{
	json_t *file = json_of(hl_export_json_view);
	const json_t *known = json_object_get(file, "known");

	(void)state;
	assert_int_equal(json_array_size(known), 8);
	assert_string_equal(json_string_value(json_array_get(known, 0)), "inuse_bytes");
	assert_string_equal(json_string_value(json_array_get(known, 7)), "slack_bytes");
	json_decref(file);
}

/* ---- all of them ---- */

static hl_view *const views[] = {hl_csv_view,	     hl_heaptrack_view, hl_speedscope_view,
				 hl_dhat_view,	     hl_firefox_view,	hl_perfetto_view,
				 hl_export_json_view};

static void what_has_no_stack_is_exported_too(void **state)
{
	static const struct stack stacks[] = {{"", 4096, 2}, {"main:1", 10, 1}, {NULL, 0, 0}};
	struct hl_profile *profile = profile_of("t.hl", stacks, 0x1000);
	char *csv, *lines, *speedscope;

	(void)state;
	assert_int_equal(write_result(hl_csv_view, profile, &csv), 0);
	assert_non_null(strstr(csv, ",\"[no stack]\"\r\n"));
	assert_int_equal(write_result(hl_heaptrack_view, profile, &lines), 0);
	assert_string_equal(lines, "[no stack]; 4096\nmain (app.c); 10\n");
	assert_int_equal(write_result(hl_speedscope_view, profile, &speedscope), 0);
	json_t *parsed = json_loads(speedscope, JSON_REJECT_DUPLICATES, NULL);
	const json_t *frames = json_object_get(json_object_get(parsed, "shared"), "frames");
	assert_string_equal(string(json_array_get(frames, 0), "name"), "[no stack]");
	json_t *peak = json_array_get(json_object_get(parsed, "profiles"), 4);
	assert_int_equal(json_integer_value(json_array_get(json_object_get(peak, "weights"), 0)),
			 4096);
	json_t *first = json_array_get(json_object_get(peak, "samples"), 0);
	assert_int_equal(json_array_size(first), 1);
	assert_int_equal(json_integer_value(json_array_get(first, 0)), 0);
	json_decref(parsed);
	free(csv);
	free(lines);
	free(speedscope);
	hl_profile_free(profile);
}

static void an_empty_profile_is_a_file_too(void **state)
{
	static const struct stack none[] = {{NULL, 0, 0}};
	struct hl_profile *profile = profile_of("t.hl", none, 0);

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(views); i++) {
		char *text;
		assert_int_equal(write_result(views[i], profile, &text), 0);
		free(text);
	}
	hl_profile_free(profile);
}

static void a_full_device_is_an_error(void **state)
{
	struct hl_profile *profile = make_profile();

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(views); i++) {
		struct hl_view_options options = {.out = fopen("/dev/full", "w"), .notes = stderr};
		struct hl_error err = {0};
		setvbuf(options.out, NULL, _IONBF, 0);
		assert_int_equal(views[i](profile, &options, &err), -EIO);
		assert_non_null(strstr(err.text, "t.hl"));
		fclose(options.out);
	}
	hl_profile_free(profile);
}

static int result_of(hl_view *view, const struct hl_profile *profile)
{
	char *text;
	int r = write_result(view, profile, &text);

	free(text);
	return r;
}

static void want_of_memory_is_an_error_wherever_it_strikes(void **state)
{
	struct hl_profile *profile = make_profile();

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(views); i++)
		FOR_EACH_FAILING_ALLOCATION(r, result_of(views[i], profile))
	assert_int_equal(r, -ENOMEM);
	hl_profile_free(profile);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(csv_has_a_row_for_each_stack_with_all_its_figures),
		cmocka_unit_test(csv_leaves_fields_empty_that_are_not_known),
		cmocka_unit_test(heaptracks_frames_name_their_file_and_end_with_a_semicolon),
		cmocka_unit_test(speedscope_gets_a_sampled_profile_for_each_value),
		cmocka_unit_test(speedscopes_stacks_begin_at_the_root),
		cmocka_unit_test(json_holds_all_that_is_needed_to_name_stacks),
		cmocka_unit_test(json_names_the_figures_that_are_known),
		cmocka_unit_test(what_has_no_stack_is_exported_too),
		cmocka_unit_test(an_empty_profile_is_a_file_too),
		cmocka_unit_test(a_full_device_is_an_error),
		cmocka_unit_test(want_of_memory_is_an_error_wherever_it_strikes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
