/* SPDX-License-Identifier: BSD-2-Clause */
/* The views: their JSON is JSON, their tables and their JSON agree, their texts are safe. */
#include "fail_allocations.h"
#include "profile/builder.h"
#include "view/emit.h"
#include "view/format.h"
#include "view/table.h"
#include "view/view.h"
#include "viewing.h"

#include <errno.h>
#include <jansson.h>
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- a profile made by hand: main -> one of two functions with awkward names ---- */

#define AWKWARD "do<[u8; 4]>\n\"x\" \xff"

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
	hl_profile_know_all(profile);
	free(final_ids);
	hl_builder_release(&builder);
	assert_true(hl_profile_is_valid(profile));
	return profile;
}

static char *text_of_sample(hl_view *view, struct hl_view_options options)
{
	struct hl_profile *profile = make_profile();
	char *text = text_of(view, profile, options);

	hl_profile_free(profile);
	return text;
}

static json_t *json_of_sample(hl_view *view, struct hl_view_options options)
{
	struct hl_profile *profile = make_profile();
	json_t *parsed = json_of(view, profile, options);

	hl_profile_free(profile);
	return parsed;
}

static json_int_t integer_of(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

static const char *name_of_row(const json_t *report, size_t row)
{
	return json_string_value(
		json_object_get(json_array_get(json_object_get(report, "rows"), row), "name"));
}

static void every_view_writes_json_with_the_common_members(void **state)
{
	static const struct {
		hl_view *view;
		const char *schema;
	} cases[] = {
		{hl_top_view, "heapline/top/1"},
		{hl_lines_view, "heapline/lines/1"},
		{hl_folded_view, "heapline/folded/1"},
		{hl_info_view, "heapline/info/1"},
	};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(cases); i++) {
		struct hl_view_options options = {.value = HL_VALUE_ALLOC, .info.stacks = true};
		json_t *report = json_of_sample(cases[i].view, options);
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
	json_t *report =
		json_of_sample(hl_top_view, (struct hl_view_options){.value = HL_VALUE_PEAK});
	json_t *rows = json_object_get(report, "rows"), *row;
	json_int_t flat = 0, most = 0;
	size_t i;

	(void)state;
	assert_int_equal(json_array_size(rows), 3);
	json_array_foreach(rows, i, row) {
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
	json_t *report =
		json_of_sample(hl_folded_view, (struct hl_view_options){.value = HL_VALUE_PEAK});
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
	char *text =
		text_of_sample(hl_folded_view, (struct hl_view_options){.value = HL_VALUE_PEAK});

	(void)state;
	assert_string_equal(text, "main;do<[u8: 4]>\\x0a\"x\" \xff 1024\nmain;z 512\n");
	free(text);
}

static void lines_write_bytes_that_are_no_utf_8_as_tables_do(void **state)
{
	struct hl_profile *profile = make_profile();
	char *text;

	(void)state;
	assert_int_equal(hl_strings_intern(&profile->strings, "\xe5\x86\x85\xff\x1b",
					   &profile->frames[3].file),
			 0);
	profile->frames[3].line = 5;
	text = text_of(hl_lines_view, profile,
		       (struct hl_view_options){.value = HL_VALUE_ALLOC, .lines.plain = true});
	assert_non_null(strstr(text, "\n\xe5\x86\x85\\xff\\x1b line:5 size:"));
	free(text);
	hl_profile_free(profile);
}

static void rows_follow_the_chosen_unit(void **state)
{
	struct hl_view_options options = {.value = HL_VALUE_PEAK, .row_limit = 1};

	(void)state;
	for (int unit = 0; hl_unit_names[unit]; unit++) {
		options.unit = (enum hl_unit)unit;
		json_t *report = json_of_sample(hl_top_view, options);
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
	assert_true(hl_top_view(profile, &options, &err) < 0);
	assert_non_null(strstr(err.text, "t.hl"));
	fclose(options.out);
	hl_profile_free(profile);
}

/* ---- order ---- */

static void what_is_never_a_leaf_comes_after_all_leaves_by_flat(void **state)
{
	struct hl_profile *profile = make_profile();
	struct hl_view_options options = {.value = HL_VALUE_INUSE};

	(void)state;
	/* More was freed than was seen to be allocated, at a node of "z"; nothing is left at one.
	 */
	for (size_t i = 0; i < profile->node_count; i++) {
		profile->counters[i].free_bytes = i == 3 ? 1000 : profile->counters[i].alloc_bytes;
		profile->counters[i].free_objects = i == 3 ? 1 : profile->counters[i].alloc_objects;
	}
	json_t *report = json_of(hl_top_view, profile, options);
	assert_string_equal(name_of_row(report, 0), "z"); /* -488 bytes */
	assert_string_equal(name_of_row(report, 1), "main");
	json_decref(report);
	options.sort = HL_VIEW_SORT_CUM;
	report = json_of(hl_top_view, profile, options);
	assert_string_equal(name_of_row(report, 0), "main");
	json_decref(report);
	hl_profile_free(profile);
}

static size_t occurrences(const char *text, const char *part)
{
	size_t count = 0;

	for (; (text = strstr(text, part)); text++)
		count++;
	return count;
}

/* A profile of ${count} functions; the first allocated 1 byte, the next 2, and so on. */
static struct hl_profile *make_ladder(uint32_t count)
{
	struct hl_builder builder;
	struct hl_profile *profile;
	uint32_t *final_ids, node;

	assert_int_equal(hl_builder_init(&builder), 0);
	for (uint32_t i = 0; i < count; i++)
		assert_int_equal(hl_builder_node(&builder, 0, 0, 0x10 + i, &node), 0);
	assert_int_equal(hl_builder_finish(&builder, &final_ids, &profile), 0);
	free(final_ids);
	for (uint32_t i = 1; i <= count; i++) {
		profile->counters[i] = (struct hl_profile_counters){.alloc_bytes = i};
		hl_profile_counters_add(&profile->total, &profile->counters[i]);
	}
	hl_profile_know_all(profile);
	hl_builder_release(&builder);
	return profile;
}

static void the_five_heaviest_are_red_and_a_tenth_of_the_total_is_bold(void **state)
{
	struct hl_profile *profile = make_ladder(16); /* 136 bytes; 14, 15 and 16 are heavy */
	struct hl_view_options options = {.value = HL_VALUE_ALLOC, .color = true};
	char *text = text_of(hl_top_view, profile, options);

	(void)state;
	assert_int_equal(occurrences(text, "\033[1;31m"), 3 + 1); /* one is the INCOMPLETE line */
	assert_int_equal(occurrences(text, "\033[31m"), 2);
	assert_int_equal(occurrences(text, "\033[1m"), 0);
	free(text);
	hl_profile_free(profile);
}

static void rows_can_stand_for_modules_and_addresses(void **state)
{
	struct hl_view_options options = {.value = HL_VALUE_PEAK, .by = HL_VIEW_BY_MODULE};
	json_t *report = json_of_sample(hl_top_view, options);
	json_t *row = json_array_get(json_object_get(report, "rows"), 0);

	(void)state;
	assert_string_equal(json_string_value(json_object_get(row, "name")), "[no module]");
	assert_int_equal(integer_of(row, "flat_bytes"), 1536);
	assert_int_equal(integer_of(row, "cum_bytes"), 1536);
	json_decref(report);
	options.by = HL_VIEW_BY_ADDRESS;
	report = json_of_sample(hl_top_view, options);
	row = json_array_get(json_object_get(report, "rows"), 1);
	assert_string_equal(json_string_value(json_object_get(row, "address")), "0x30");
	json_decref(report);
}

static void what_has_no_frame_is_a_row_so_that_flat_adds_up(void **state)
{
	struct hl_profile *profile = make_profile();
	struct hl_view_options options = {.value = HL_VALUE_ALLOC};

	(void)state;
	profile->counters[0] =
		(struct hl_profile_counters){.alloc_bytes = 4096, .alloc_objects = 1};
	profile->total.alloc_bytes += 4096;
	json_t *report = json_of(hl_top_view, profile, options);
	assert_string_equal(name_of_row(report, 0), "[no stack]");
	json_decref(report);
	options.lines.plain = true;
	char *text = text_of(hl_lines_view, profile, options);
	assert_non_null(strstr(text, "[no stack] line:0 size:4096\n"));
	assert_non_null(strstr(text, "\ntotal size:6144\n"));
	free(text);
	text = text_of(hl_folded_view, profile, options);
	assert_int_equal(strncmp(text, "[no stack] 4096\n", 16), 0);
	free(text);
	hl_profile_free(profile);
}

static void a_foreign_file_without_threads_cannot_be_shown_by_thread(void **state)
{
	struct hl_profile *profile = make_profile();
	struct hl_view_options options = {.out = stderr, .by = HL_VIEW_BY_THREAD};
	struct hl_error err = {0};

	(void)state;
	profile->imported = true;
	assert_int_equal(hl_top_view(profile, &options, &err), -ENODATA);
	assert_non_null(strstr(err.text, "'t.hl'"));
	hl_profile_free(profile);
}

static void figures_below_nothing_are_explained(void **state)
{
	static const char reason[] = "negative figures: a thread freed blocks that others";
	struct hl_profile *profile = make_profile();
	struct hl_view_options options = {.value = HL_VALUE_INUSE};

	(void)state;
	char *text = text_of(hl_top_view, profile, options);
	assert_null(strstr(text, reason));
	free(text);
	profile->counters[1].free_bytes = 4096;
	text = text_of(hl_top_view, profile, options);
	assert_non_null(strstr(text, reason));
	free(text);
	hl_profile_free(profile);
}

static void a_child_is_missing_in_one_sentence(void **state)
{
	struct hl_profile *profile = make_profile();

	(void)state;
	assert_int_equal(hl_profile_warn(profile, "process 7 was not recorded: too late"), 0);
	profile->unrecorded_children = profile->refused_children = 1;
	char *text = text_of(hl_top_view, profile, (struct hl_view_options){0});
	assert_non_null(strstr(text, "\nWARNING: process 7 was not recorded: too late\n"));
	assert_null(strstr(text, "UNSEEN"));
	free(text);
	profile->unrecorded_children = 3;
	text = text_of(hl_top_view, profile, (struct hl_view_options){0});
	assert_non_null(strstr(text, "\nUNSEEN: 2 more children ran unrecorded\n"));
	free(text);
	hl_profile_free(profile);
}

static void a_recording_that_ended_before_its_first_save_says_so(void **state)
{
	struct hl_profile *profile = make_profile();

	(void)state;
	memset(&profile->total, 0, sizeof(profile->total));
	profile->complete = false;
	profile->recorded_process_count = 0;
	char *text = text_of(hl_top_view, profile, (struct hl_view_options){0});
	assert_non_null(strstr(text, "\nEMPTY: the recording ended before its first save; the "
				     "program may have gone on unrecorded\n"));
	free(text);
	hl_profile_free(profile);
}

/* A shell that ran a helper, and then replaced itself. */
static struct hl_profile *make_family(void)
{
	struct hl_profile *profile = make_profile();

	profile->processes = calloc(3, sizeof(*profile->processes));
	profile->process_count = 3;
	for (uint32_t i = 0; i < 3; i++) {
		profile->processes[i].pid = i == 1 ? 20 : 10;
		profile->processes[i].total = (struct hl_profile_counters){
			.alloc_bytes = 1024, .alloc_objects = 1, .peak_bytes = 512 + 100 * i % 150};
	}
	assert_int_equal(hl_strings_intern(&profile->strings,
					   "replaced itself by another program (exec)",
					   &profile->processes[0].end),
			 0);
	return profile;
}

static void the_peak_of_several_processes_is_called_a_sum(void **state)
{
	struct hl_profile *profile = make_family();
	struct hl_view_options options = {.value = HL_VALUE_PEAK};

	(void)state;
	char *text = text_of(hl_top_view, profile, options);
	assert_non_null(strstr(text, "\nsum of the peaks of 3 processes 1.5 KiB in 9 blocks, the "
				     "highest 612 B (pid 20); in use at the end 2.0 KiB in 10, of "
				     "which 1.0 KiB went when a program was replaced by exec; "));
	free(text);
	json_t *report = json_of(hl_top_view, profile, options);
	const json_t *recording = json_object_get(report, "recording");
	assert_int_equal(integer_of(recording, "highest_peak_bytes"), 612);
	assert_int_equal(integer_of(recording, "highest_peak_pid"), 20);
	assert_int_equal(integer_of(recording, "replaced_inuse_bytes"), 1024);
	assert_int_equal(integer_of(recording, "replaced_inuse_objects"), 1);
	json_decref(report);
	hl_profile_free(profile);
}

static void one_of_anything_is_not_called_many(void **state)
{
	struct hl_profile *profile = make_profile();
	struct hl_view_options options = {.value = HL_VALUE_PEAK};

	(void)state;
	profile->total = (struct hl_profile_counters){
		.alloc_bytes = 9, .alloc_objects = 1, .peak_bytes = 9, .peak_objects = 1};
	char *text = text_of(hl_top_view, profile, options);
	assert_non_null(strstr(text, "peak 9 B in 1 block; in use"));
	free(text);
	hl_profile_free(profile);
}

/* ---- what a profile knows, and what it is compared with ---- */

static struct hl_profile *make_imported(void)
{
	struct hl_profile *profile = make_profile();

	memset(profile->known, 0, sizeof(profile->known));
	profile->known[HL_VALUE_ALLOC][HL_UNIT_BYTES] = true;
	profile->imported = true;
	assert_int_equal(hl_strings_intern(&profile->strings, "pprof", &profile->source), 0);
	return profile;
}

static void the_head_of_a_foreign_file_tells_its_kind_and_known_totals_alone(void **state)
{
	struct hl_profile *profile = make_imported();
	struct hl_view_options options = {.value = HL_VALUE_ALLOC};
	char *text = text_of(hl_top_view, profile, options);

	(void)state;
	assert_true(!strncmp(text, "t.hl: pprof, 2 stacks\nallocated 2.0 KiB\nshowing alloc", 52));
	free(text);
	hl_profile_free(profile);
}

static void figures_that_are_not_known_are_not_in_json(void **state)
{
	struct hl_profile *profile = make_imported();
	struct hl_view_options options = {.value = HL_VALUE_ALLOC, .info.stacks = true};
	json_t *report = json_of(hl_top_view, profile, options);
	json_t *row = json_array_get(json_object_get(report, "rows"), 0);

	(void)state;
	assert_int_equal(json_object_size(json_object_get(report, "total")), 1);
	assert_int_equal(integer_of(row, "flat_bytes"), 1536);
	assert_null(json_object_get(row, "flat_objects"));
	json_decref(report);
	report = json_of(hl_info_view, profile, options);
	row = json_array_get(json_object_get(report, "stacks"), 0);
	assert_int_equal(integer_of(row, "alloc_bytes"), 1536);
	assert_int_equal(json_object_size(row), 3); /* and stack, frames */
	json_decref(report);
	hl_profile_free(profile);
}

static void a_comparison_names_both_profiles(void **state)
{
	struct hl_profile *profile = make_profile();
	struct hl_view_options options = {.value = HL_VALUE_ALLOC};

	(void)state;
	profile->base = calloc(profile->node_count, sizeof(*profile->base));
	profile->base_total.alloc_bytes = 1024;
	assert_int_equal(hl_strings_intern(&profile->strings, "old.hl", &profile->base_name), 0);
	json_t *report = json_of(hl_top_view, profile, options);
	json_t *base = json_object_get(report, "base");
	assert_string_equal(json_string_value(json_object_get(base, "name")), "old.hl");
	assert_int_equal(integer_of(json_object_get(base, "total"), "alloc_bytes"), 1024);
	json_decref(report);
	char *text = text_of(hl_top_view, profile, options);
	assert_non_null(strstr(text, "compared with old.hl\nbefore: peak 0 B"));
	free(text);
	hl_profile_free(profile);
}

static void a_filter_stands_in_the_head_with_what_it_left(void **state)
{
	struct hl_profile *profile = make_profile();
	struct hl_view_options options = {.value = HL_VALUE_ALLOC};

	(void)state;
	profile->unfiltered_total =
		(struct hl_profile_counters){.peak_bytes = 3072, .peak_objects = 9};
	assert_int_equal(hl_strings_intern(&profile->strings, "focus 'z'", &profile->filter), 0);
	char *text = text_of(hl_top_view, profile, options);
	assert_non_null(
		strstr(text, "\nfocus 'z': peak 1.5 KiB in 9 blocks, of 3.0 KiB in 9 blocks\n"));
	free(text);
	json_t *report = json_of(hl_top_view, profile, options);
	assert_string_equal(json_string_value(json_object_get(report, "filter")), "focus 'z'");
	assert_int_equal(integer_of(json_object_get(report, "unfiltered_total"), "peak_bytes"),
			 3072);
	json_decref(report);
	hl_profile_free(profile);
}

/* ---- texts from anywhere ---- */

static bool is_safe(const char *text)
{
	for (; *text; text++)
		if (hl_format_control(text) && *text != '\n')
			return false;
	return true;
}

static void control_characters_reach_no_terminal(void **state)
{
	static hl_view *const views[] = {hl_top_view, hl_lines_view, hl_folded_view, hl_info_view};
	static const char hostile[] = "/\033[2J\r\t\x7f\xc2\x9b";
	struct hl_profile *profile = make_profile();
	struct hl_view_options options = {.value = HL_VALUE_ALLOC, .info.stacks = true};
	uint32_t id;

	(void)state;
	rename_function(profile, 2, hostile);
	assert_int_equal(hl_strings_intern(&profile->strings, hostile, &id), 0);
	profile->name = profile->host = profile->mode = profile->command = id;
	profile->modules[0].path = id;
	profile->warnings = calloc(1, sizeof(id));
	profile->warnings[profile->warning_count++] = id;
	for (size_t i = 0; i < HL_COUNT_OF(views); i++) {
		char *text = text_of(views[i], profile, options);
		assert_true(is_safe(text));
		free(text);
		json_decref(json_of(views[i], profile, options));
	}
	hl_profile_free(profile);
}

static void wide_letters_take_two_columns(void **state)
{
	static const struct {
		const char *text;
		size_t columns;
		const char *expected;
	} cases[] = {
		{"plain", 0, "plain"},
		{"plain", 5, "plain"},
		{"plain", 4, "p..."},
		{"\xe5\x86\x85\xe5\xad\x98\xe9\x87\x8f", 6, "\xe5\x86\x85\xe5\xad\x98\xe9\x87\x8f"},
		{"\xe5\x86\x85\xe5\xad\x98\xe9\x87\x8f", 5, "\xe5\x86\x85..."},
		{"\xe5\x86\x85\xe5\xad\x98\xe9\x87\x8f", 4, "..."}, /* no half letters */
		{"\xff\xff\xff", 2, "\xff\xff"},		    /* too narrow for dots */
	};
	char buffer[32];

	(void)state;
	setlocale(LC_CTYPE, "C.UTF-8");
	for (size_t i = 0; i < HL_COUNT_OF(cases); i++)
		assert_string_equal(hl_format_shortened(cases[i].text, cases[i].columns, buffer,
							sizeof(buffer)),
				    cases[i].expected);
	assert_string_equal(hl_format_shortened("a long text", 0, buffer, 8), "a lo...");
}

static void places_are_cut_off_in_front_so_that_lines_keep_their_numbers(void **state)
{
	char buffer[64];

	(void)state;
	setlocale(LC_CTYPE, "C.UTF-8");
	assert_string_equal(hl_format_tail("alloc.rs:135", 12, buffer, sizeof(buffer)),
			    "alloc.rs:135");
	assert_string_equal(hl_format_tail("alloc.rs:135", 11, buffer, sizeof(buffer)),
			    "...c.rs:135");
	assert_string_equal(
		hl_format_tail("\xe5\x86\x85\xe5\xad\x98.c:12", 8, buffer, sizeof(buffer)),
		"....c:12");
	assert_int_equal(hl_format_width("\xe5\x86\x85\xe5\xad\x98.c:12"), 9);
}

static void template_arguments_are_shortened_and_nothing_else(void **state)
{
	static const struct {
		const char *text, *expected;
	} cases[] = {
		{"main", "main"},
		{"std::map<int, std::vector<char> >::operator[](int&&)",
		 "std::map<...>::operator[](int&&)"},
		{"void serve<void (*)(int)>(std::set<long>&)", "void serve<...>(std::set<...>&)"},
		{"f<T>(int)", "f<T>(int)"},
		{"f<int> < g<long> < main", "f<int> < g<...> < main"},
		{"<lambda(int)>", "<lambda(int)>"},
		{"<module> < run", "<module> < run"},
		{"a::operator< <int>(b const&)", "a::operator< <int>(b const&)"},
		{"a::operator<<(b<char>&)", "a::operator<<(b<...>&)"},
		{"a::operator->()", "a::operator->()"},
		{"x<abcd>::operator<(b)", "x<...>::operator<(b)"},
		{"<alloc::vec::Vec<T,A> as core::clone::Clone>::clone",
		 "<alloc::vec::Vec<T,A> as core::clone::Clone>::clone"},
		{"<alloc::vec::Vec<shop::Item> as core::clone::Clone>::clone",
		 "<alloc::vec::Vec<...> as core::clone::Clone>::clone"},
		{"call::<fn() -> usize, bool>", "call::<...>"},
		{"cut_off<std::map<int", "cut_off<std::map<int"},
	};
	static char text[400000];

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(cases); i++) {
		snprintf(text, sizeof(text), "%s", cases[i].text);
		hl_format_templates(text);
		assert_string_equal(text, cases[i].expected);
	}
	for (size_t i = 0; i + 1 < sizeof(text); i++) /* in no more than a moment */
		text[i] = i % 2 ? '<' : 'a';
	hl_format_templates(text);
	assert_int_equal(strlen(text), sizeof(text) - 1);
}

static size_t offset_in_line(const char *text, const char *part)
{
	const char *found = strstr(text, part);
	size_t offset = 0;

	assert_non_null(found);
	while (found - offset > text && found[-(ptrdiff_t)offset - 1] != '\n')
		offset++;
	return offset;
}

static void columns_align_behind_wide_letters(void **state)
{
	struct hl_profile *profile = make_profile();
	struct hl_view_options options = {.value = HL_VALUE_ALLOC, .by = HL_VIEW_BY_LINE};

	(void)state;
	setlocale(LC_CTYPE, "C.UTF-8");
	/* The file's name is in the middle of the table: 8 columns, 12 bytes. */
	assert_int_equal(hl_strings_intern(&profile->strings,
					   "\xe5\x86\x85\xe5\xad\x98\xe9\x87\x8f\xe5\x86\x85",
					   &profile->frames[3].file),
			 0);
	profile->frames[3].line = 5;
	char *text = text_of(hl_top_view, profile, options);
	/* 12 bytes instead of 8 columns */
	assert_int_equal(offset_in_line(text, "z\n"), offset_in_line(text, "function") + 4);
	free(text);
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

struct csv_row {
	const char *name;
	int64_t bytes;
};

static void csv_has_keys_above_and_quotes_around_texts_alone(void **state)
{
	static const struct hl_column columns[] = {
		{"name", "function", HL_COLUMN_TEXT, HL_MEMBER(struct csv_row, name)},
		{"bytes", "size", HL_COLUMN_BYTES, HL_MEMBER(struct csv_row, bytes)},
		{NULL, "a \"b\"", HL_COLUMN_BYTES, HL_MEMBER(struct csv_row, bytes)},
		{"json", NULL, HL_COLUMN_BYTES, HL_MEMBER(struct csv_row, bytes)},
	};
	struct hl_emit *emit;
	char *text;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	(void)state;
	assert_int_equal(hl_emit_new(out, HL_EMIT_CSV, false, NULL, &emit), 0);
	hl_emit_line(emit, "a line for people");
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", columns)});
	hl_table_row(emit, &(struct csv_row){"f(\"x,\n\")", 1536}, 0);
	hl_table_row(emit, &(struct csv_row){"z", -1}, 0);
	hl_table_end(emit);
	assert_int_equal(hl_emit_finish(emit), 0);
	fclose(out);
	assert_string_equal(text, "name,bytes,\"a \"\"b\"\"\"\r\n"
				  "\"f(\"\"x, \"\")\",1536,1536\r\n"
				  "\"z\",-1,-1\r\n");
	free(text);
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
	assert_string_equal(hl_format_percent(-1, 10000, buffer), "0.0%");
	assert_string_equal(hl_format_percent(0, -1, buffer), "-");
	assert_string_equal(hl_format_percent(-6, 10000, buffer), "-0.1%");
	assert_string_equal(hl_format_duration(999999999, buffer), "999 ms");
	assert_string_equal(hl_format_duration(UINT64_C(1500000000), buffer), "1.50 s");
	assert_string_equal(hl_format_duration(UINT64_C(125000000000), buffer), "2 min 5 s");
	assert_string_equal(hl_format_duration(UINT64_MAX, buffer), "5124095 h 34 min");
	assert_string_equal(hl_format_time(UINT64_C(1767225600999999999), buffer),
			    "2026-01-01T00:00:00Z");
}

/* ---- every allocation of ours made to fail in turn ---- */

static void want_of_memory_is_an_error_wherever_it_strikes(void **state)
{
	static const struct {
		hl_view *view;
		enum hl_view_key by;
	} cases[] = {
		{hl_top_view, HL_VIEW_BY_FUNCTION},    {hl_top_view, HL_VIEW_BY_LINE},
		{hl_top_view, HL_VIEW_BY_THREAD},      {hl_lines_view, HL_VIEW_BY_FUNCTION},
		{hl_folded_view, HL_VIEW_BY_FUNCTION}, {hl_info_view, HL_VIEW_BY_FUNCTION},
	};
	struct hl_profile *profile = make_profile();
	struct hl_view_options options = {.out = fopen("/dev/null", "w"), .info.stacks = true};

	(void)state;
	options.notes = options.out;
	for (size_t i = 0; i < HL_COUNT_OF(cases); i++) {
		struct hl_error err = {0};
		options.by = cases[i].by;
		FOR_EACH_FAILING_ALLOCATION(r, cases[i].view(profile, &options, &err))
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
		cmocka_unit_test(every_view_writes_json_with_the_common_members),
		cmocka_unit_test(flat_of_all_rows_is_the_total_and_cum_of_main_too),
		cmocka_unit_test(names_that_are_not_text_stay_json),
		cmocka_unit_test(separators_within_names_do_not_break_folded_lines),
		cmocka_unit_test(lines_write_bytes_that_are_no_utf_8_as_tables_do),
		cmocka_unit_test(rows_follow_the_chosen_unit),
		cmocka_unit_test(a_full_device_is_an_error_of_the_view),
		cmocka_unit_test(what_is_never_a_leaf_comes_after_all_leaves_by_flat),
		cmocka_unit_test(the_five_heaviest_are_red_and_a_tenth_of_the_total_is_bold),
		cmocka_unit_test(rows_can_stand_for_modules_and_addresses),
		cmocka_unit_test(what_has_no_frame_is_a_row_so_that_flat_adds_up),
		cmocka_unit_test(a_foreign_file_without_threads_cannot_be_shown_by_thread),
		cmocka_unit_test(figures_below_nothing_are_explained),
		cmocka_unit_test(the_peak_of_several_processes_is_called_a_sum),
		cmocka_unit_test(one_of_anything_is_not_called_many),
		cmocka_unit_test(the_head_of_a_foreign_file_tells_its_kind_and_known_totals_alone),
		cmocka_unit_test(figures_that_are_not_known_are_not_in_json),
		cmocka_unit_test(a_comparison_names_both_profiles),
		cmocka_unit_test(a_filter_stands_in_the_head_with_what_it_left),
		cmocka_unit_test(control_characters_reach_no_terminal),
		cmocka_unit_test(wide_letters_take_two_columns),
		cmocka_unit_test(places_are_cut_off_in_front_so_that_lines_keep_their_numbers),
		cmocka_unit_test(template_arguments_are_shortened_and_nothing_else),
		cmocka_unit_test(columns_align_behind_wide_letters),
		cmocka_unit_test(only_utf_8_passes_into_json),
		cmocka_unit_test(a_child_is_missing_in_one_sentence),
		cmocka_unit_test(a_recording_that_ended_before_its_first_save_says_so),
		cmocka_unit_test(csv_has_keys_above_and_quotes_around_texts_alone),
		cmocka_unit_test(bytes_have_the_unit_that_reads_best),
		cmocka_unit_test(counts_percentages_and_durations_read_well),
		cmocka_unit_test(want_of_memory_is_an_error_wherever_it_strikes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
