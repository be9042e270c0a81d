/* SPDX-License-Identifier: BSD-2-Clause */
/* Readers of other tools' files: what they take in, what they refuse, and how they say so. */
#include "profile/import_folded.h"
#include "profile/import_sample.h"

#include <dlfcn.h>
#include <endian.h>
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "fail_allocations.h"

/* ---- reading, and asking of what was read ---- */

static struct hl_error error;

/* From a copy of just the bytes, so that sanitizers see every step past their end. */
static int read_bytes(const struct hl_importer *importer, const void *bytes, size_t size,
		      struct hl_profile **ret_profile)
{
	uint8_t *copy = __real_malloc(size ? size : 1);
	struct hl_import_input input = {.name = "x", .bytes = copy, .size = size};

	memcpy(copy, bytes, size);
	error = (struct hl_error){0};
	int r = importer->read(&input, ret_profile, &error);
	free(copy);
	return r;
}

static bool detects(const struct hl_importer *importer, const void *bytes, size_t size)
{
	struct hl_import_input input = {.name = "x", .bytes = bytes, .size = size};

	return importer->detects(&input);
}

static struct hl_profile *must_read(const struct hl_importer *importer, const void *bytes,
				    size_t size)
{
	struct hl_profile *profile = NULL;

	if (read_bytes(importer, bytes, size, &profile) < 0)
		fail_msg("%s", error.text);
	assert_true(hl_profile_is_valid(profile));
	assert_true(profile->imported);
	assert_string_equal(error.text, "");
	return profile;
}

static struct hl_profile *must_read_text(const struct hl_importer *importer, const char *text)
{
	assert_true(detects(importer, text, strlen(text)));
	return must_read(importer, text, strlen(text));
}

static void must_refuse(const struct hl_importer *importer, const void *bytes, size_t size,
			const char *sentence)
{
	struct hl_profile *profile = NULL;

	assert_int_equal(read_bytes(importer, bytes, size, &profile), -EBADMSG);
	assert_string_equal(error.text, sentence);
	assert_null(profile);
}

/* Reads all beginnings of ${bytes}: each is a profile or an error with a sentence. */
static void read_every_beginning(const struct hl_importer *importer, const void *bytes, size_t size)
{
	for (size_t length = 0; length < size; length++) {
		struct hl_profile *profile = NULL;
		int r = read_bytes(importer, bytes, length, &profile);
		assert_true((r < 0) == (error.text[0] != '\0'));
		assert_true(r < 0 || hl_profile_is_valid(profile));
		hl_profile_free(profile);
	}
}

static const char *frame_name(const struct hl_profile *profile, uint32_t frame)
{
	return hl_profile_text(profile, profile->functions[profile->frames[frame].function].name);
}

/* The node of the stack "a;b;c". */
static uint32_t node_of(const struct hl_profile *profile, const char *stack)
{
	char *copy = strdup(stack), *rest = copy, *name;
	uint32_t node = 0;

	while ((name = strsep(&rest, ";"))) {
		uint32_t child = node + 1, end = profile->nodes[node].end;
		while (child < end &&
		       strcmp(frame_name(profile, profile->nodes[child].frame), name))
			child = profile->nodes[child].end;
		if (child >= end)
			fail_msg("no '%s' of '%s'", name, stack);
		node = child;
	}
	free(copy);
	return node;
}

static const struct hl_profile_counters *counters_of(const struct hl_profile *profile,
						     const char *stack)
{
	return &profile->counters[node_of(profile, stack)];
}

static const char *only_warning(const struct hl_profile *profile)
{
	assert_int_equal(profile->warning_count, 1);
	return hl_profile_text(profile, profile->warnings[0]);
}

/* ---- folded text ---- */

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

static void lines_that_are_no_stacks_are_refused_with_their_number(void **state)
{
	static const char *const lines[] = {"a;b",	 "12",	  "a;b +5",   "a;b 1e3", "a;b 0x10",
					    "a;b 1.2.3", "a;b -", "a;b 1.2x", "a;b .5"};
	static const char large[] = "a 1\nb 9223372036854775808\n", binary[] = "a 1\nb\0c 2\n";

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(lines); i++) {
		char text[64];
		snprintf(text, sizeof(text), "# x\na 1\n\n%s\n", lines[i]);
		must_refuse(&hl_importer_folded, text, strlen(text),
			    "cannot read 'x': line 4 does not end in a number; folded text has "
			    "'a;b;c 123' in every line");
		assert_false(detects(&hl_importer_folded, lines[i], strlen(lines[i])));
	}
	must_refuse(&hl_importer_folded, large, sizeof(large) - 1,
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

/* ---- samples ---- */

static void blocks_are_counted_by_how_likely_it_was_to_sample_them(void **state)
{
	const struct hl_import_sampling none = {HL_SAMPLING_NONE, 0};
	const struct hl_import_sampling uniform = {HL_SAMPLING_UNIFORM, 1000};
	const struct hl_import_sampling poisson = {HL_SAMPLING_POISSON, 1000};
	struct hl_import_amount amount;

	(void)state;
	amount = hl_import_unsample(&none, (struct hl_import_amount){3, 5});
	assert_int_equal(amount.objects, 3);
	assert_int_equal(amount.bytes, 5);
	amount = hl_import_unsample(&uniform, (struct hl_import_amount){3, 750}); /* p = 1/4 */
	assert_int_equal(amount.objects, 12);
	assert_int_equal(amount.bytes, 3000);
	amount = hl_import_unsample(&uniform, (struct hl_import_amount){3, 6000}); /* p = 1 */
	assert_int_equal(amount.objects, 3);
	/* p = 1 - 1/e = 0.63212 for blocks of the mean distance, 1 for huge ones. */
	amount = hl_import_unsample(&poisson, (struct hl_import_amount){63212, 63212000});
	assert_int_equal(amount.objects, 100000);
	assert_int_equal(amount.bytes, 99999912); /* 63212000 / 0.632120558... */
	amount = hl_import_unsample(&poisson, (struct hl_import_amount){7, 7000000});
	assert_int_equal(amount.objects, 7);
	assert_int_equal(amount.bytes, 7000000);
}

static void samples_without_size_or_beyond_all_numbers_do_no_harm(void **state)
{
	const struct hl_import_sampling poisson = {HL_SAMPLING_POISSON, 0x1p62};
	struct hl_import_amount amount;

	(void)state;
	amount = hl_import_unsample(&poisson, (struct hl_import_amount){5, 0});
	assert_int_equal(amount.objects, 5);
	amount = hl_import_unsample(&poisson, (struct hl_import_amount){-5, 7});
	assert_int_equal(amount.objects, -5);
	amount = hl_import_unsample(&poisson, (struct hl_import_amount){INT64_MAX, 1});
	assert_int_equal(amount.objects, INT64_MAX);
}

/* Blocks of one size, sampled by points on the line of bytes as an allocator does it. */
static struct hl_import_amount sample_blocks(int64_t count, int64_t size_bytes, double mean_bytes,
					     unsigned short seed)
{
	unsigned short random[3] = {seed, 7, 11};
	struct hl_import_amount sampled = {0};
	double distance = -mean_bytes * log(1 - erand48(random));

	for (int64_t i = 0; i < count; i++) {
		distance -= (double)size_bytes;
		if (distance >= 0)
			continue;
		sampled.objects++;
		sampled.bytes += size_bytes;
		distance = -mean_bytes * log(1 - erand48(random));
	}
	return sampled;
}

static void estimates_of_many_samplings_have_the_true_mean(void **state)
{
	const struct hl_import_sampling poisson = {HL_SAMPLING_POISSON, 4096};
	const int64_t sizes[] = {16, 1000, 4096, 10000};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(sizes); i++) {
		double sum = 0;
		for (unsigned short seed = 1; seed <= 100; seed++)
			sum += (double)hl_import_unsample(
				       &poisson, sample_blocks(20000, sizes[i], 4096, seed))
				       .objects;
		/* 16 bytes: 78 samples a run, so the mean of 100 is good to about 1.1 %. */
		assert_true(fabs(sum / 100 - 20000) < 20000 * 0.04);
	}
}

/* ---- heap files ---- */

#define GPERFTOOLS                                                                 \
	"heap profile:     12:     3456 [    78:     9012] @ heapprofile\n"        \
	"     4:     1024 [     8:     2048] @ 0x7f0000001235 0x555500002101\n"    \
	"     8:     2432 [    70:     6964] @ 0x555500002201\n"                   \
	"\n"                                                                       \
	"MAPPED_LIBRARIES:\n"                                                      \
	"555500000000-555500010000 r-xp 00000000 08:01 1234    /nowhere/the app\n" \
	"7f0000000000-7f0000010000 r-xp 00004000 08:01 1235    /nowhere/lib.so\n"  \
	"7fff00000000-7fff00010000 rw-p 00000000 00:00 0       [stack]\n"

#define JEMALLOC                                                                  \
	"heap_v2/1\n"                                                             \
	"  t*: 7: 7000 [17: 17000]\n"                                             \
	"  t0: 7: 7000 [17: 17000]\n"                                             \
	"@ 0x7f0000001235 0x555500002101\n"                                       \
	"  t*: 5: 5000 [15: 15000]\n"                                             \
	"  t0: 2: 2000 [5: 5000]\n"                                               \
	"  t1: 3: 3000 [10: 10000] worker\n"                                      \
	"@ 0x555500002201\n"                                                      \
	"  t*: 2: 2000 [2: 2000]\n"                                               \
	"\n"                                                                      \
	"MAPPED_LIBRARIES:\n"                                                     \
	"7f0000000000-7f0000010000 r-xp 00004000 08:01 1235    /nowhere/lib.so\n" \
	"555500000000-555500010000 r-xp 00000000 08:01 1234    /nowhere/the app\n"

static struct hl_profile *read_legacy(const char *text)
{
	return must_read_text(&hl_importer_legacy, text);
}

static void stacks_of_gperftools_are_read_with_both_amounts(void **state)
{
	struct hl_profile *profile = read_legacy(GPERFTOOLS);
	const struct hl_profile_counters *counters =
		counters_of(profile, "the app+0x2100;lib.so+0x5234");

	(void)state;
	assert_int_equal(counters->alloc_bytes, 2048);
	assert_int_equal(counters->alloc_objects, 8);
	assert_int_equal(counters->free_bytes, 1024);
	assert_int_equal(counters->free_objects, 4);
	assert_int_equal(profile->total.alloc_bytes, 9012);
	assert_int_equal(profile->total.alloc_bytes - profile->total.free_bytes, 3456);
	assert_true(profile->known[HL_VALUE_ALLOC][HL_UNIT_OBJECTS]);
	assert_true(profile->known[HL_VALUE_INUSE][HL_UNIT_BYTES]);
	assert_false(profile->known[HL_VALUE_PEAK][HL_UNIT_BYTES]);
	assert_int_equal(profile->sample_bytes, 0);
	assert_int_equal(profile->warning_count, 0);
	hl_profile_free(profile);
}

static void addresses_are_those_of_calls_in_the_mapped_file(void **state)
{
	struct hl_profile *profile = read_legacy(GPERFTOOLS);
	uint32_t node = node_of(profile, "the app+0x2100;lib.so+0x5234");
	const struct hl_profile_frame *frame = &profile->frames[profile->nodes[node].frame];
	uint32_t module = profile->functions[frame->function].module;

	(void)state;
	assert_int_equal(frame->address, 0x5234); /* 0x7f0000001235 - 1 - start + offset */
	assert_string_equal(hl_profile_text(profile, profile->modules[module].path),
			    "/nowhere/lib.so");
	hl_profile_free(profile);
}

static void of_jemalloc_the_sum_of_all_threads_is_read(void **state)
{
	struct hl_profile *profile = read_legacy(JEMALLOC);
	const struct hl_profile_counters *counters =
		counters_of(profile, "the app+0x2100;lib.so+0x5234");

	(void)state;
	assert_int_equal(counters->alloc_objects, 15);
	assert_int_equal(counters->free_objects, 10);
	assert_int_equal(counters_of(profile, "the app+0x2200")->alloc_bytes, 2000);
	assert_int_equal(profile->total.alloc_objects - profile->total.free_objects, 7);
	assert_int_equal(profile->sample_bytes, 0); /* each one was sampled */
	assert_true(profile->known[HL_VALUE_ALLOC][HL_UNIT_BYTES]);
	hl_profile_free(profile);
}

static void sampled_stacks_are_scaled_one_by_one(void **state)
{
	struct hl_profile *profile = read_legacy("heap_v2/1000\n"
						 "  t*: 9: 99 [0: 0]\n"
						 "@ 0x1001\n"
						 "  t*: 63212: 63212000 [0: 0]\n"
						 "@ 0x2001\n"
						 "  t*: 7: 7000000 [0: 0]\n"
						 "MAPPED_LIBRARIES:\n");

	(void)state;
	assert_int_equal(counters_of(profile, "0x1000")->alloc_objects, 100000);
	assert_int_equal(counters_of(profile, "0x2000")->alloc_objects, 7);
	assert_int_equal(profile->sample_bytes, 1000);
	hl_profile_free(profile);

	profile = read_legacy("heap profile: 3: 750 [3: 750] @ heap/2000\n"
			      "3: 750 [3: 750] @ 0x1001\n");
	assert_int_equal(counters_of(profile, "0x1000")->alloc_objects, 12);
	hl_profile_free(profile);

	profile = read_legacy("heap profile: 3: 750 [3: 750] @ heapz_v2/1000\n"
			      "63212: 63212000 [0: 0] @ 0x1001\n");
	assert_int_equal(counters_of(profile, "0x1000")->alloc_objects, 100000);
	hl_profile_free(profile);

	profile = read_legacy("heap profile: 3: 750 [3: 750] @ growthz\n"
			      "3: 750 [3: 750] @ 0x1001\n");
	assert_int_equal(counters_of(profile, "0x1000")->alloc_objects, 3);
	assert_int_equal(profile->sample_bytes, 0);
	hl_profile_free(profile);
}

static void what_was_ever_allocated_is_known_only_where_the_file_has_it(void **state)
{
	struct hl_profile *without = read_legacy("heap_v2/1\n@ 0x1001\n  t*: 1: 99 [0: 0]\n");
	struct hl_profile *repeated = read_legacy("heap profile: 1: 99 [1: 99] @ heap_v2/1\n"
						  "1: 99 [1: 99] @ 0x1001\n");
	struct hl_profile *all_left = read_legacy("heap_v2/1\n@ 0x1001\n  t*: 1: 99 [1: 99]\n");

	(void)state;
	assert_false(without->known[HL_VALUE_ALLOC][HL_UNIT_BYTES]);
	assert_int_equal(without->total.alloc_bytes, 99);
	assert_int_equal(without->total.free_bytes, 0);
	assert_int_equal(without->total.free_objects, 0);
	assert_false(repeated->known[HL_VALUE_ALLOC][HL_UNIT_BYTES]);
	assert_int_equal(repeated->total.alloc_bytes, 99);
	assert_true(all_left->known[HL_VALUE_ALLOC][HL_UNIT_BYTES]);
	hl_profile_free(without);
	hl_profile_free(repeated);
	hl_profile_free(all_left);
}

static void a_heap_file_without_mappings_is_shown_by_addresses_with_a_warning(void **state)
{
	struct hl_profile *profile = read_legacy("heap profile: 1: 99 [1: 99] @ heapprofile\n"
						 "1: 99 [1: 99] @ 0x1001 0x2001\n"
						 "2: 1 [2: 1] @\n"
						 "2: 1 [2: 1] @ 0x0\n");

	(void)state;
	assert_int_equal(counters_of(profile, "0x2000;0x1000")->alloc_bytes, 99);
	assert_int_equal(counters_of(profile, "[unknown]")->alloc_bytes, 1);
	assert_int_equal(counters_of(profile, "0x0")->alloc_bytes, 1);
	assert_non_null(strstr(only_warning(profile), "no list of mapped files"));
	hl_profile_free(profile);
}

static void frames_of_the_allocator_are_left_out(void **state)
{
	struct hl_profile *profile =
		read_legacy("heap profile: 3: 3 [3: 3] @ heapprofile\n"
			    "1: 1 [1: 1] @ 0x7f0000001001 0x7f0000001101 0x555500002001\n"
			    "1: 1 [1: 1] @ 0x7e0000001001 0x555500002001\n"
			    "1: 1 [1: 1] @ 0x7e0000001001\n"
			    "MAPPED_LIBRARIES:\n"
			    "555500000000-555500010000 r-xp 0 08:01 1 /nowhere/app\n"
			    "7e0000000000-7e0000010000 r-xp 0 08:01 2 /nowhere/libtcmalloc.so.4\n"
			    "7f0000000000-7f0000010000 r-xp 0 08:01 3 /nowhere/libjemalloc.so.2\n");

	(void)state;
	assert_int_equal(counters_of(profile, "app+0x2000")->alloc_bytes, 2);
	/* The allocator's own, with no caller: where else should it go? */
	assert_int_equal(counters_of(profile, "libtcmalloc.so.4+0x1000")->alloc_bytes, 1);
	hl_profile_free(profile);
}

/* Somewhere in the middle of this one lies the address of a call. */
__attribute__((noinline)) static int caller_of_the_allocator(int times)
{
	int sum = 0;

	for (int i = 0; i < times; i++)
		sum = sum * 31 + rand();
	return sum;
}

/* A heap file whose only stack is this program's, from a function of ours to libc's realloc. */
static char *heap_file_of_this_program(void)
{
	void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
	const char *allocator = libc ? dlsym(libc, "reallocarray") : NULL;
	const char *caller = (const char *)caller_of_the_allocator;
	FILE *maps = fopen("/proc/self/maps", "re");
	char *text = NULL, line[4096];
	size_t size;
	FILE *out = open_memstream(&text, &size);

	assert_non_null(allocator);
	fprintf(out,
		"heap profile: 1: 99 [1: 99] @ heapprofile\n1: 99 [1: 99] @ %p %p\n"
		"MAPPED_LIBRARIES:\n",
		(const void *)(allocator + 1), (const void *)(caller + 4));
	while (fgets(line, sizeof(line), maps))
		fputs(line, out);
	fclose(maps);
	fclose(out);
	dlclose(libc);
	return text;
}

static void names_are_found_through_the_segments_of_mapped_files(void **state)
{
	char *text = heap_file_of_this_program();
	struct hl_profile *profile = read_legacy(text);

	(void)state;
	assert_int_equal(caller_of_the_allocator(0), 0);
	assert_int_equal(counters_of(profile, "caller_of_the_allocator")->alloc_bytes, 99);
	assert_int_equal(profile->nodes[1].end, 3); /* and of reallocarray nothing is known */
	assert_int_equal(profile->counters[2].alloc_bytes, 0);
	hl_profile_free(profile);
	free(text);
}

static void a_mapped_file_that_is_a_pipe_is_not_waited_for(void **state)
{
	char folder[] = "/tmp/heapline-test-XXXXXX", path[64], text[512];

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/pipe", folder);
	assert_int_equal(mkfifo(path, 0600), 0);
	snprintf(text, sizeof(text),
		 "heap profile: 1: 9 [1: 9] @ heapprofile\n1: 9 [1: 9] @ 0x1001\n"
		 "MAPPED_LIBRARIES:\n1000-2000 r-xp 0 0:0 1 %s\n",
		 path);
	alarm(20); /* which ends the program */
	struct hl_profile *profile = read_legacy(text);
	alarm(0);
	assert_int_equal(counters_of(profile, "0x1000")->alloc_bytes, 9);
	hl_profile_free(profile);
	unlink(path);
	rmdir(folder);
}

static void lines_that_heap_files_do_not_have_are_refused_with_their_number(void **state)
{
	static const struct {
		const char *text, *sentence;
	} files[] = {
		{"heap profile: 1: 99\n", "cannot read 'x': line 1 is no header of a heap file"},
		{"a;b 1\n", "cannot read 'x': line 1 is no header of a heap file"},
		{"", "cannot read 'x': line 1 is no header of a heap file"},
		{"heap profile: 1: 9 [1: 9] @ heapprofile\n\n1: 9 [1: 9] @ 0x12 what\n",
		 "cannot read 'x': line 3 is not 'N: BYTES [N: BYTES] @ ADDRESSES'"},
		{"heap profile: 1: 9 [1: 9] @ heapprofile\n1: 9 [1: 9] @ 0x12345678901234567\n",
		 "cannot read 'x': line 2 is not 'N: BYTES [N: BYTES] @ ADDRESSES'"},
		{"heap profile: 1: 9 [1: 9] @ heapprofile\n1: 9223372036854775808 [1: 9] @ 0x1\n",
		 "cannot read 'x': line 2 is not 'N: BYTES [N: BYTES] @ ADDRESSES'"},
		{"heap_v2/\n", "cannot read 'x': line 1 has no sampling interval"},
		{"heap_v2/0\n", "cannot read 'x': line 1 has no sampling interval"},
		{"heap_v2/1\n@ 0x12\n  t*: 1: 9 [1\n",
		 "cannot read 'x': line 3 is not 't*: N: BYTES [N: BYTES]'"},
		{"heap_v2/1\nwhat\n", "cannot read 'x': line 2 is not '@ ADDRESSES'"},
	};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(files); i++)
		must_refuse(&hl_importer_legacy, files[i].text, strlen(files[i].text),
			    files[i].sentence);
}

static void heap_files_may_end_anywhere(void **state)
{
	(void)state;
	read_every_beginning(&hl_importer_legacy, GPERFTOOLS, strlen(GPERFTOOLS));
	read_every_beginning(&hl_importer_legacy, JEMALLOC, strlen(JEMALLOC));
}

/* ---- skynet-mprof ---- */

/* A dump while it is written. */
struct dump {
	uint8_t bytes[2048];
	size_t size;
};

static void put_u32(struct dump *dump, uint32_t number)
{
	number = htobe32(number);
	memcpy(dump->bytes + dump->size, &number, sizeof(number));
	dump->size += sizeof(number);
}

static void put_u64(struct dump *dump, uint64_t number)
{
	number = htobe64(number);
	memcpy(dump->bytes + dump->size, &number, sizeof(number));
	dump->size += sizeof(number);
}

static void put_function(struct dump *dump, const char *name, uint64_t id)
{
	dump->bytes[dump->size++] = (uint8_t)strlen(name);
	memcpy(dump->bytes + dump->size, name, strlen(name));
	dump->size += strlen(name);
	put_u64(dump, id);
}

static void put_counters(struct dump *dump, uint32_t alloc_objects, uint32_t alloc_bytes,
			 uint32_t free_objects, uint32_t free_bytes)
{
	put_u32(dump, alloc_objects);
	put_u32(dump, alloc_bytes);
	put_u32(dump, free_objects);
	put_u32(dump, free_bytes);
}

/* Makes the first word what it should be. */
static void finish_dump(struct dump *dump)
{
	uint32_t length = htobe32((uint32_t)dump->size - 4);
	memcpy(dump->bytes, &length, sizeof(length));
}

#define MAIN_ID	 0x555500001234u
#define PACK_ID	 0x7f0000002345u
#define ALLOC_ID 0x7f0000003456u

/* main -> pack -> alloc, and pack by itself. */
static struct dump sample_dump(void)
{
	struct dump dump = {.size = 4};

	put_u32(&dump, 3);
	put_function(&dump, "./skynet/skynet(main+0x1234) [0x555500001234]", MAIN_ID);
	put_function(&dump, "./lib.so(_ZN4pack3runEi+0x45) [0x7f0000002345]", PACK_ID);
	put_function(&dump, "./lib.so(+0x3456) [0x7f0000003456]", ALLOC_ID);
	put_counters(&dump, 11, 1009, 3, 101);
	put_u32(&dump, 3);
	put_u64(&dump, ALLOC_ID);
	put_u64(&dump, PACK_ID);
	put_u64(&dump, MAIN_ID);
	put_counters(&dump, 1, 13, 1, 13);
	put_u32(&dump, 1);
	put_u64(&dump, PACK_ID);
	finish_dump(&dump);
	return dump;
}

static struct hl_profile *read_mprof(const struct dump *dump)
{
	assert_true(detects(&hl_importer_mprof, dump->bytes, dump->size));
	return must_read(&hl_importer_mprof, dump->bytes, dump->size);
}

static void refuse_dump(const struct dump *dump, const char *sentence)
{
	must_refuse(&hl_importer_mprof, dump->bytes, dump->size, sentence);
}

static void functions_of_mprof_are_symbols_in_modules_or_addresses(void **state)
{
	struct dump dump = sample_dump();
	struct hl_profile *profile = read_mprof(&dump);
	uint32_t node = node_of(profile, "main;pack::run(int);0x7f0000003456");
	const struct hl_profile_frame *frame = &profile->frames[profile->nodes[node].frame];
	uint32_t module = profile->functions[frame->function].module;

	(void)state;
	assert_string_equal(hl_profile_text(profile, profile->modules[module].path), "./lib.so");
	assert_int_equal(frame->address, ALLOC_ID);
	assert_int_equal(profile->counters[node].alloc_bytes, 1009);
	assert_int_equal(profile->counters[node].alloc_objects, 11);
	assert_int_equal(profile->counters[node].free_bytes, 101);
	assert_int_equal(profile->counters[node].free_objects, 3);
	assert_int_equal(counters_of(profile, "pack::run(int)")->free_objects, 1);
	assert_int_equal(profile->total.alloc_bytes, 1022);
	assert_true(profile->known[HL_VALUE_INUSE][HL_UNIT_OBJECTS]);
	assert_true(profile->known[HL_VALUE_ALLOC][HL_UNIT_BYTES]);
	assert_false(profile->known[HL_VALUE_PEAK][HL_UNIT_BYTES]);
	assert_int_equal(profile->warning_count, 0);
	hl_profile_free(profile);
}

static void names_of_mprof_may_be_cut_anywhere(void **state)
{
	static const struct {
		const char *written, *function, *module;
	} names[] = {
		{"/bin/app(run+0x1) [0x1000]", "run", "/bin/app"},
		{"/bin/app(run-0x1) [0x1000]", "run", "/bin/app"},
		{"/bin/app(_ZN4pack3r", "_ZN4pack3r", "/bin/app"},
		{"/bin/app(_ZN4pack3runEi", "pack::run(int)", "/bin/app"},
		{"/bin/app(", "0x1000", "/bin/app"},
		{"/bin/app() [0x1000]", "0x1000", "/bin/app"},
		{"/bin/app", "0x1000", "/bin/app"},
		{"/bin/a (x)/app(run+0x1) [0x1", "run", "/bin/a (x)/app"},
		{"/bin/app [0x1000]", "0x1000", "/bin/app"},
		{"[0x1000]", "0x1000", ""},
		{"", "0x1000", ""},
	};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(names); i++) {
		struct dump dump = {.size = 4};
		put_u32(&dump, 1);
		put_function(&dump, names[i].written, 0x1000);
		finish_dump(&dump);
		struct hl_profile *profile = must_read(&hl_importer_mprof, dump.bytes, dump.size);
		const struct hl_profile_function *function = &profile->functions[1];
		assert_string_equal(hl_profile_text(profile, function->name), names[i].function);
		assert_string_equal(
			hl_profile_text(profile, profile->modules[function->module].path),
			names[i].module);
		hl_profile_free(profile);
	}
}

static void counters_of_mprof_that_wrapped_are_mended(void **state)
{
	static const struct {
		uint32_t alloc, free;
		int64_t in_use;
		bool wrapped;
	} cases[] = {
		{3000000000u, 0, 3000000000, false},  /* more than 2 GiB, as it is */
		{100, 4294967246u, 150, true},	      /* 2^32 + 100 - (2^32 - 50) */
		{100, 300, -200, false},	      /* freed twice, as mprof's own table has it */
		{0, 2147483648u, -2147483648, false}, /* the farthest that is believed */
		{0, 2147483649u, 2147483647, true},
	};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(cases); i++) {
		struct dump dump = {.size = 4};
		put_u32(&dump, 1);
		put_function(&dump, "[0x1000]", 0x1000);
		put_counters(&dump, 2, cases[i].alloc, 1, cases[i].free);
		put_u32(&dump, 1);
		put_u64(&dump, 0x1000);
		finish_dump(&dump);
		struct hl_profile *profile = read_mprof(&dump);
		assert_int_equal(profile->total.alloc_bytes - profile->total.free_bytes,
				 cases[i].in_use);
		assert_int_equal(profile->total.free_bytes, cases[i].free);
		assert_int_equal(profile->total.alloc_objects, 2);
		assert_int_equal(profile->warning_count, cases[i].wrapped);
		if (cases[i].wrapped)
			assert_non_null(strstr(only_warning(profile), "of 1 stack passed 4 GiB"));
		hl_profile_free(profile);
	}
}

static void a_stack_of_mprof_without_frames_is_unknown(void **state)
{
	struct dump dump = {.size = 4};

	(void)state;
	put_u32(&dump, 0);
	put_counters(&dump, 1, 9, 0, 0);
	put_u32(&dump, 0);
	finish_dump(&dump);
	struct hl_profile *profile = read_mprof(&dump);
	assert_int_equal(counters_of(profile, "[unknown]")->alloc_bytes, 9);
	hl_profile_free(profile);
}

static void errors_in_dumps_of_mprof_name_the_offset(void **state)
{
	struct dump dump = sample_dump();
	size_t samples = dump.size - 28 - 44, depth = samples + 16;

	(void)state;
	dump.bytes[3]++;
	assert_true(detects(&hl_importer_mprof, dump.bytes, dump.size));
	refuse_dump(&dump, "cannot read 'x': at offset 0, the length is not that of the file; it "
			   "was cut off, or is another kind of file");

	dump = sample_dump();
	dump.bytes[6] = 1; /* 0x103 functions */
	refuse_dump(&dump, "cannot read 'x': at offset 4, more functions are announced than the "
			   "file has room for");

	dump = sample_dump();
	dump.bytes[8] = 255; /* the first name goes on into the samples, the next anywhere */
	assert_int_equal(
		read_bytes(&hl_importer_mprof, dump.bytes, dump.size, &(struct hl_profile *){NULL}),
		-EBADMSG);

	char sentence[128];
	dump = sample_dump();
	dump.bytes[depth + 3] = 9;
	snprintf(sentence, sizeof(sentence),
		 "cannot read 'x': at offset %zu, a stack goes on past the end of the file", depth);
	refuse_dump(&dump, sentence);

	dump = sample_dump();
	dump.bytes[depth] = 255; /* times 8 has no place in 32 bits */
	refuse_dump(&dump, sentence);

	dump = sample_dump();
	dump.bytes[depth + 4 + 8 + 7]++; /* the id of pack, the second frame */
	snprintf(sentence, sizeof(sentence),
		 "cannot read 'x': at offset %zu, a stack has a function that the list has not",
		 depth + 4 + 8);
	refuse_dump(&dump, sentence);
}

/* With the length of what is left, so that the reader gets to see it. */
static void dumps_of_mprof_may_end_anywhere(void **state)
{
	struct dump dump = sample_dump();
	size_t whole = dump.size;

	(void)state;
	read_every_beginning(&hl_importer_mprof, dump.bytes, dump.size);
	for (dump.size = 8; dump.size < whole; dump.size++) {
		struct hl_profile *profile = NULL;
		finish_dump(&dump);
		int r = read_bytes(&hl_importer_mprof, dump.bytes, dump.size, &profile);
		/* It can end behind the functions and behind the first sample. */
		bool is_boundary = dump.size == whole - 28 || dump.size == whole - 28 - 44;
		assert_int_equal(r, is_boundary ? 0 : -EBADMSG);
		hl_profile_free(profile);
	}
}

/* ---- all of them ---- */

static void each_kind_of_file_is_taken_for_itself_alone(void **state)
{
	struct dump dump = sample_dump();
	const struct {
		const struct hl_importer *importer;
		const void *bytes;
		size_t size;
	} files[] = {
		{&hl_importer_folded, "a;b 1\n", 6},
		{&hl_importer_legacy, GPERFTOOLS, strlen(GPERFTOOLS)},
		{&hl_importer_legacy, JEMALLOC, strlen(JEMALLOC)},
		{&hl_importer_mprof, dump.bytes, dump.size},
		{NULL, "", 0},
		{NULL, "\n\n# nothing\n", 12},
		{NULL, "What is this?\n", 14},
		{NULL, "\0\0\0\1x", 5},
		{NULL,
		 "\x7f"
		 "ELF\2\1\1\0\0\0\0\0\0\0\0\0\3\0>\0\1\0\0\0",
		 24},
	};
	const struct hl_importer *importers[] = {&hl_importer_mprof, &hl_importer_legacy,
						 &hl_importer_folded};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(files); i++)
		for (size_t j = 0; j < HL_COUNT_OF(importers); j++)
			assert_int_equal(detects(importers[j], files[i].bytes, files[i].size),
					 importers[j] == files[i].importer);
}

static void every_failed_allocation_is_reported_and_leaves_nothing_behind(void **state)
{
	struct dump dump = sample_dump();
	const struct {
		const struct hl_importer *importer;
		const void *bytes;
		size_t size;
	} files[] = {
		{&hl_importer_folded, "a;b 1 2\na;c 2 2\n", 16},
		{&hl_importer_legacy, GPERFTOOLS, strlen(GPERFTOOLS)},
		{&hl_importer_legacy, JEMALLOC, strlen(JEMALLOC)},
		{&hl_importer_legacy, "heap_v2/1\n@ 0x1\nt*: 1: 9 [0: 0]\n", 32},
		{&hl_importer_mprof, dump.bytes, dump.size},
	};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(files); i++) {
		struct hl_profile *profile = NULL;
		FOR_EACH_FAILING_ALLOCATION(
			r, read_bytes(files[i].importer, files[i].bytes, files[i].size, &profile))
		{
			assert_int_equal(r, -ENOMEM);
			assert_null(profile);
			assert_string_equal(error.text, "cannot read 'x': out of memory");
		}
		assert_true(hl_profile_is_valid(profile));
		hl_profile_free(profile);
	}
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
		cmocka_unit_test(lines_that_are_no_stacks_are_refused_with_their_number),
		cmocka_unit_test(numbers_of_folded_text_can_be_told_to_be_others),
		cmocka_unit_test(blocks_are_counted_by_how_likely_it_was_to_sample_them),
		cmocka_unit_test(samples_without_size_or_beyond_all_numbers_do_no_harm),
		cmocka_unit_test(estimates_of_many_samplings_have_the_true_mean),
		cmocka_unit_test(stacks_of_gperftools_are_read_with_both_amounts),
		cmocka_unit_test(addresses_are_those_of_calls_in_the_mapped_file),
		cmocka_unit_test(of_jemalloc_the_sum_of_all_threads_is_read),
		cmocka_unit_test(sampled_stacks_are_scaled_one_by_one),
		cmocka_unit_test(what_was_ever_allocated_is_known_only_where_the_file_has_it),
		cmocka_unit_test(a_heap_file_without_mappings_is_shown_by_addresses_with_a_warning),
		cmocka_unit_test(frames_of_the_allocator_are_left_out),
		cmocka_unit_test(names_are_found_through_the_segments_of_mapped_files),
		cmocka_unit_test(a_mapped_file_that_is_a_pipe_is_not_waited_for),
		cmocka_unit_test(lines_that_heap_files_do_not_have_are_refused_with_their_number),
		cmocka_unit_test(heap_files_may_end_anywhere),
		cmocka_unit_test(functions_of_mprof_are_symbols_in_modules_or_addresses),
		cmocka_unit_test(names_of_mprof_may_be_cut_anywhere),
		cmocka_unit_test(counters_of_mprof_that_wrapped_are_mended),
		cmocka_unit_test(a_stack_of_mprof_without_frames_is_unknown),
		cmocka_unit_test(errors_in_dumps_of_mprof_name_the_offset),
		cmocka_unit_test(dumps_of_mprof_may_end_anywhere),
		cmocka_unit_test(each_kind_of_file_is_taken_for_itself_alone),
		cmocka_unit_test(every_failed_allocation_is_reported_and_leaves_nothing_behind),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
