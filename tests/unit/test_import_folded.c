/* SPDX-License-Identifier: BSD-2-Clause */
/* Folded text: what is taken in, what is refused, and how that is said. */
#include "import/importer.h"

#include "import_reading.h"

static struct hl_profile *read_folded(const char *text)
{
	return must_read_text(&hl_importer_folded, text);
}

static void frames_lead_from_the_root_to_the_leaf_and_equal_stacks_add_up(void **state)
{
	struct hl_profile *profile = read_folded("main;parse;grow 17\n"
						 "main;send 5\n"
						 "main;parse 3\n"
						 "main;parse;grow 2\n"
						 "parse;grow 1");

	(void)state;
	assert_int_equal(counters_of(profile, "main;parse;grow")->alloc_bytes, 19);
	assert_int_equal(counters_of(profile, "main;parse")->alloc_bytes, 3);
	assert_int_equal(counters_of(profile, "main;send")->alloc_bytes, 5);
	assert_int_equal(counters_of(profile, "parse;grow")->alloc_bytes, 1);
	assert_int_equal(counters_of(profile, "main")->alloc_bytes, 0);
	assert_int_equal(profile->total.alloc_bytes, 28);
	assert_int_equal(profile->node_count, 7);
	assert_int_equal(profile->function_count, 5); /* with the one that means none */
	assert_null(profile->base);
	hl_profile_free(profile);
}

static void bytes_in_use_are_all_that_folded_text_knows(void **state)
{
	struct hl_profile *profile = read_folded("a 1");

	(void)state;
	for (int value = 0; value < HL_VALUE_COUNT; value++)
		for (int unit = 0; unit < HL_UNIT_COUNT; unit++)
			assert_int_equal(profile->known[value][unit],
					 value == HL_VALUE_INUSE && unit == HL_UNIT_BYTES);
	hl_profile_free(profile);
}

static void numbers_may_be_negative_or_fractions(void **state)
{
	struct hl_profile *profile = read_folded("a -12\n"
						 "b 12.5\n"
						 "c 12.4999\n"
						 "d -12.7\n"
						 "e 3.\n"
						 "f 9223372036854775807\n");

	(void)state;
	assert_int_equal(counters_of(profile, "a")->alloc_bytes, -12);
	assert_int_equal(counters_of(profile, "b")->alloc_bytes, 13);
	assert_int_equal(counters_of(profile, "c")->alloc_bytes, 12);
	assert_int_equal(counters_of(profile, "d")->alloc_bytes, -13);
	assert_int_equal(counters_of(profile, "e")->alloc_bytes, 3);
	assert_int_equal(counters_of(profile, "f")->alloc_bytes, INT64_MAX);
	hl_profile_free(profile);
}

static void sums_that_are_too_large_wrap(void **state)
{
	struct hl_profile *profile = read_folded("a 9223372036854775807\na 2\nb 1\n");

	(void)state;
	assert_int_equal(counters_of(profile, "a")->alloc_bytes, INT64_MIN + 1);
	assert_int_equal(profile->total.alloc_bytes, INT64_MIN + 2);
	hl_profile_free(profile);
}

static void two_numbers_in_every_line_are_two_profiles(void **state)
{
	struct hl_profile *profile = read_folded("# before, after\n"
						 "a;b 10 20\n"
						 "a;c 5 0\n"
						 "a;b\t1   2\n");

	(void)state;
	assert_int_equal(counters_of(profile, "a;b")->alloc_bytes, 22);
	assert_int_equal(profile->base[node_of(profile, "a;b")].alloc_bytes, 11);
	assert_int_equal(profile->base[node_of(profile, "a;c")].alloc_bytes, 5);
	assert_int_equal(profile->total.alloc_bytes, 22);
	assert_int_equal(profile->base_total.alloc_bytes, 16);
	assert_string_equal(hl_profile_text(profile, profile->base_name), "first column");
	hl_profile_free(profile);
}

static void a_line_with_one_number_leaves_other_lines_numbers_to_their_frames(void **state)
{
	struct hl_profile *profile = read_folded("main;sub 3 17\nmain;run 4\n");

	(void)state;
	assert_int_equal(counters_of(profile, "main;sub 3")->alloc_bytes, 17);
	assert_int_equal(counters_of(profile, "main;run")->alloc_bytes, 4);
	assert_null(profile->base);
	hl_profile_free(profile);

	profile = read_folded("10 20\n");
	assert_int_equal(counters_of(profile, "10")->alloc_bytes, 20);
	hl_profile_free(profile);
}

static void frames_hold_any_bytes_but_the_separator(void **state)
{
	struct hl_profile *profile =
		read_folded("std::map<int, char>::at(int const&) const;\xff\xfe;\x1b[31m  12\n");

	(void)state;
	assert_int_equal(counters_of(profile, "std::map<int, char>::at(int const&) const;"
					      "\xff\xfe;\x1b[31m")
				 ->alloc_bytes,
			 12);
	hl_profile_free(profile);
}

static void empty_frames_are_unknown_unless_nothing_follows_them(void **state)
{
	struct hl_profile *profile = read_folded("a;;b 1\n"
						 "a;b;;; 2\n"
						 ";c 4\n"
						 " 8\n");

	(void)state;
	assert_int_equal(counters_of(profile, "a;[unknown];b")->alloc_bytes, 1);
	assert_int_equal(counters_of(profile, "a;b")->alloc_bytes, 2);
	assert_int_equal(counters_of(profile, "[unknown];c")->alloc_bytes, 4);
	assert_int_equal(counters_of(profile, "[unknown]")->alloc_bytes, 8);
	hl_profile_free(profile);
}

static void what_is_no_part_of_a_stack_is_skipped(void **state)
{
	struct hl_profile *profile = read_folded("\xef\xbb\xbf# a comment 5\r\n"
						 "\r\n"
						 "   \n"
						 "a;b 12 \t\r\n"
						 "a 3\r\n"
						 "\n");

	(void)state;
	assert_int_equal(profile->node_count, 3);
	assert_int_equal(counters_of(profile, "a;b")->alloc_bytes, 12);
	assert_int_equal(counters_of(profile, "a")->alloc_bytes, 3);
	hl_profile_free(profile);
}

static void shared_beginnings_of_lines_are_not_mistaken_for_shared_frames(void **state)
{
	struct hl_profile *profile = read_folded("main;parse;a 1\n"
						 "main;parse_all;a 2\n"
						 "main;par;a 4\n"
						 "main 8\n"
						 "main;parse;a;b 16\n");

	(void)state;
	assert_int_equal(counters_of(profile, "main;parse;a")->alloc_bytes, 1);
	assert_int_equal(counters_of(profile, "main;parse_all;a")->alloc_bytes, 2);
	assert_int_equal(counters_of(profile, "main;par;a")->alloc_bytes, 4);
	assert_int_equal(counters_of(profile, "main")->alloc_bytes, 8);
	assert_int_equal(counters_of(profile, "main;parse;a;b")->alloc_bytes, 16);
	hl_profile_free(profile);
}

static void lines_that_are_no_stacks_are_skipped_and_counted(void **state)
{
	struct hl_profile *profile =
		must_read_text(&hl_importer_folded, "--- stacks\nmain;a 1\n\n# x\nmain;b 2\n12\n");

	(void)state;
	assert_int_equal(profile->total.alloc_bytes, 3);
	assert_int_equal(profile->warning_count, 1);
	assert_string_equal(hl_profile_text(profile, profile->warnings[0]),
			    "2 lines without a number at the end were skipped, the first of them "
			    "line 1");
	hl_profile_free(profile);
	profile =
		must_read_text(&hl_importer_folded, "# before, after\nold and new\na 1 2\nb 3 4\n");
	assert_int_equal(profile->total.alloc_bytes, 6);
	assert_int_equal(profile->base_total.alloc_bytes, 4);
	assert_string_equal(hl_profile_text(profile, profile->warnings[0]),
			    "1 line without a number at the end was skipped, the first of them "
			    "line 2");
	hl_profile_free(profile);
}

static void texts_in_UTF_16_are_read_in_either_order(void **state)
{
	/* "m;\u00e9\U0001f600 7\r\n", and half a character */
	static const uint8_t little[] = {0xff, 0xfe, 'm',  0,	 ';',  0,    0xe9, 0,
					 0x3d, 0xd8, 0x00, 0xde, 0x3d, 0xd8, ' ',  0,
					 '7',  0,    '\r', 0,	 '\n', 0};
	uint8_t big[sizeof(little)];

	(void)state;
	for (size_t i = 0; i < sizeof(little); i++)
		big[i] = little[i ^ 1];
	const uint8_t *const texts[] = {little, big};
	for (size_t i = 0; i < HL_COUNT_OF(texts); i++) {
		struct hl_profile *profile =
			must_read(&hl_importer_folded, texts[i], sizeof(little));
		assert_int_equal(counters_of(profile, "m;\u00e9\U0001f600\ufffd")->alloc_bytes, 7);
		hl_profile_free(profile);
		read_every_beginning(&hl_importer_folded, texts[i], sizeof(little));
		struct hl_profile *failing;
		FOR_EACH_FAILING_ALLOCATION(
			r, read_bytes(&hl_importer_folded, texts[i], sizeof(little), &failing))
		assert_int_equal(r, -ENOMEM);
		hl_profile_free(failing);
	}
}

static void lines_that_are_no_stacks_are_refused_with_their_number(void **state)
{
	static const char *const lines[] = {"a;b",	 "12",	  "a;b +5",   "a;b 1e3", "a;b 0x10",
					    "a;b 1.2.3", "a;b -", "a;b 1.2x", "a;b .5"};
	static const char large[] = "a 1\nb 9223372036854775808\n", binary[] = "a 1\nb\0c 2\n";
	static const char larger[] = "a 1\nb 9223372036854775807.5\n";

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(lines); i++) {
		char text[64];
		snprintf(text, sizeof(text), "# x\na 1\n\n%s\nb\n", lines[i]);
		must_refuse(&hl_importer_folded, text, strlen(text),
			    "cannot read 'x': line 4 does not end in a number, and most lines do "
			    "not; folded text has 'a;b;c 123' in every line");
		assert_false(detects(&hl_importer_folded, lines[i], strlen(lines[i])));
	}
	must_refuse(&hl_importer_folded, large, sizeof(large) - 1,
		    "cannot read 'x': the number in line 2 is too large");
	must_refuse(&hl_importer_folded, larger, sizeof(larger) - 1,
		    "cannot read 'x': the number in line 2 is too large");
	must_refuse(&hl_importer_folded, binary, sizeof(binary) - 1,
		    "cannot read 'x': line 2 holds a NUL byte, so it is not text");
}

static void numbers_of_folded_text_can_be_told_to_be_others(void **state)
{
	struct hl_profile *profile = read_folded("a 10 20\n");

	(void)state;
	hl_import_folded_as(profile, HL_VALUE_PEAK, HL_UNIT_OBJECTS);
	assert_int_equal(counters_of(profile, "a")->peak_objects, 20);
	assert_int_equal(counters_of(profile, "a")->alloc_bytes, 0);
	assert_int_equal(profile->base[1].peak_objects, 10);
	assert_int_equal(profile->total.peak_objects, 20);
	assert_int_equal(profile->unfiltered_total.peak_objects, 20);
	assert_int_equal(profile->base_total.peak_objects, 10);
	assert_true(profile->known[HL_VALUE_PEAK][HL_UNIT_OBJECTS]);
	assert_false(profile->known[HL_VALUE_INUSE][HL_UNIT_BYTES]);
	hl_profile_free(profile);

	profile = read_folded("a 20\n");
	hl_import_folded_as(profile, HL_VALUE_ALLOC, HL_UNIT_BYTES);
	assert_int_equal(profile->total.alloc_bytes, 20);
	assert_true(profile->known[HL_VALUE_ALLOC][HL_UNIT_BYTES]);
	assert_false(profile->known[HL_VALUE_INUSE][HL_UNIT_BYTES]);
	hl_profile_free(profile);
}

static void files_without_a_stack_are_not_taken_for_folded_text(void **state)
{
	static const char program[] = "\x7f"
				      "ELF\2\1\1\0\0\0\0\0\0\0\0\0\3\0>\0\1\0\0\0";

	(void)state;
	must_be_taken_by(&hl_importer_folded, "a;b 1\n", 6);
	must_be_taken_by(NULL, "", 0);
	must_be_taken_by(NULL, "\n\n# nothing\n", 12);
	must_be_taken_by(NULL, "What is this?\n", 14);
	must_be_taken_by(NULL, "\0\0\0\1x", 5);
	must_be_taken_by(NULL, program, sizeof(program));
}

static void every_failed_allocation_is_reported_and_leaves_nothing_behind(void **state)
{
	(void)state;
	must_survive_want_of_memory(&hl_importer_folded, "a;b 1 2\na;c 2 2\n", 16);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_lead_from_the_root_to_the_leaf_and_equal_stacks_add_up),
		cmocka_unit_test(bytes_in_use_are_all_that_folded_text_knows),
		cmocka_unit_test(numbers_may_be_negative_or_fractions),
		cmocka_unit_test(sums_that_are_too_large_wrap),
		cmocka_unit_test(two_numbers_in_every_line_are_two_profiles),
		cmocka_unit_test(a_line_with_one_number_leaves_other_lines_numbers_to_their_frames),
		cmocka_unit_test(frames_hold_any_bytes_but_the_separator),
		cmocka_unit_test(empty_frames_are_unknown_unless_nothing_follows_them),
		cmocka_unit_test(what_is_no_part_of_a_stack_is_skipped),
		cmocka_unit_test(shared_beginnings_of_lines_are_not_mistaken_for_shared_frames),
		cmocka_unit_test(lines_that_are_no_stacks_are_skipped_and_counted),
		cmocka_unit_test(texts_in_UTF_16_are_read_in_either_order),
		cmocka_unit_test(lines_that_are_no_stacks_are_refused_with_their_number),
		cmocka_unit_test(numbers_of_folded_text_can_be_told_to_be_others),
		cmocka_unit_test(files_without_a_stack_are_not_taken_for_folded_text),
		cmocka_unit_test(every_failed_allocation_is_reported_and_leaves_nothing_behind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
