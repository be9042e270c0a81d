/* SPDX-License-Identifier: BSD-2-Clause */
/* Two profiles as one: stacks meet by name, figures stay whole, doubts about either are kept. */
#include "profile/calltree.h"
#include "profile/profile.h"

#include "fail_allocations.h"
#include "stacks.h"

#include <errno.h>

static const struct stack old_stacks[] = {
	{"main:12;parse:27;grow:31", 1009, 11},
	{"main:12;parse:28;grow:31", 503, 5},
	{"main:13;main:12;read!/lib/libio.so", 101, 3},
	{"app+0x40;app+0x80", 7, 1},
	{NULL, 0, 0},
};

static const struct stack new_stacks[] = {
	{"main:12;parse:27;grow:31", 2003, 19},
	{"main:12;fresh:5", 17, 1},
	{"app+0x40;app+0x80", 8, 2},
	{"read!/opt/lib/libio.so;read!/lib/libother.so", 1, 1},
	{NULL, 0, 0},
};

static struct hl_profile *join(struct hl_profile *before, struct hl_profile *after, bool normalize)
{
	struct hl_profile *joined;
	struct hl_error err = {0};

	assert_int_equal(hl_profile_join(before, after, normalize, &joined, &err), 0);
	assert_true(hl_profile_is_valid(joined));
	hl_profile_free(before);
	hl_profile_free(after);
	return joined;
}

static struct hl_profile *join_samples(void)
{
	return join(profile_of("old.hl", old_stacks, 0x1000),
		    profile_of("new.hl", new_stacks, 0x2000), false);
}

/* The node of a stack, written as in stacks.h; its modules are not looked at. */
static uint32_t find(const struct hl_profile *profile, const char *frames)
{
	char path[256];

	for (uint32_t i = 1; i < profile->node_count; i++) {
		size_t at = sizeof(path) - 1;
		path[at] = '\0';
		for (uint32_t node = i; node; node = profile->nodes[node].parent) {
			const struct hl_profile_frame *frame =
				&profile->frames[profile->nodes[node].frame];
			const char *name =
				hl_profile_text(profile, profile->functions[frame->function].name);
			char word[64];
			int size =
				snprintf(word, sizeof(word), frame->line ? "%s:%u%s" : "%s%.0u%s",
					 name, frame->line, path[at] ? ";" : "");
			at -= (size_t)size;
			memcpy(path + at, word, (size_t)size);
		}
		if (!strcmp(path + at, frames))
			return i;
	}
	fail_msg("no stack '%s'", frames);
	return 0;
}

static void expect(const struct hl_profile *profile, const char *frames, int64_t before,
		   int64_t after)
{
	uint32_t node = find(profile, frames);

	assert_int_equal(profile->base[node].alloc_bytes, before);
	assert_int_equal(profile->counters[node].alloc_bytes, after);
}

/* ---- stacks ---- */

static void a_profile_joined_with_itself_has_not_changed(void **state)
{
	struct hl_profile *joined = join(profile_of("old.hl", old_stacks, 0x1000),
					 profile_of("old.hl", old_stacks, 0x1000), false);
	struct hl_profile *plain = profile_of("old.hl", old_stacks, 0x1000);

	(void)state;
	assert_int_equal(joined->node_count, plain->node_count);
	assert_memory_equal(joined->base, joined->counters,
			    joined->node_count * sizeof(*joined->base));
	assert_memory_equal(&joined->base_total, &joined->total, sizeof(joined->total));
	assert_memory_equal(&joined->total, &plain->total, sizeof(plain->total));
	hl_profile_free(plain);
	hl_profile_free(joined);
}

static void equal_stacks_meet_whatever_their_addresses(void **state)
{
	struct hl_profile *joined = join_samples();

	(void)state;
	expect(joined, "main:12;parse:27;grow:31", 1009, 2003);
	expect(joined, "main:12;parse:28;grow:31", 503, 0);
	expect(joined, "main:12;fresh:5", 0, 17);
	expect(joined, "app+0x40;app+0x80", 7, 8);
	assert_int_equal(joined->base_total.alloc_bytes, 1009 + 503 + 101 + 7);
	assert_int_equal(joined->total.alloc_bytes, 2003 + 17 + 8 + 1);
	hl_profile_free(joined);
}

static void functions_meet_in_modules_of_one_file_name_alone(void **state)
{
	struct hl_profile *joined = join_samples();
	struct hl_profile earlier = *joined;
	struct hl_aggregate before, after;
	size_t found = 0;

	(void)state;
	earlier.counters = joined->base;
	assert_int_equal(hl_aggregate_init(&before, &earlier, HL_VALUE_ALLOC, NULL, 0), 0);
	assert_int_equal(hl_aggregate_init(&after, joined, HL_VALUE_ALLOC, NULL, 0), 0);
	for (uint32_t i = 1; i < joined->function_count; i++) {
		const struct hl_profile_function *function = &joined->functions[i];
		if (strcmp(hl_profile_text(joined, function->name), "read") != 0)
			continue;
		bool other = strstr(hl_profile_text(joined, joined->modules[function->module].path),
				    "libother");
		assert_int_equal(before.cum[i].bytes, other ? 0 : 101);
		assert_int_equal(after.cum[i].bytes, 1);
		found++;
	}
	assert_int_equal(found, 2);
	hl_aggregate_release(&before);
	hl_aggregate_release(&after);
	hl_profile_free(joined);
}

static void modules_and_addresses_are_those_of_the_later_profile(void **state)
{
	struct hl_profile *joined = join_samples();
	uint32_t frame = joined->nodes[find(joined, "main:12;parse:27;grow:31")].frame;
	uint32_t gone = joined->nodes[find(joined, "main:12;parse:28;grow:31") - 1].frame;
	bool found = false;

	(void)state;
	assert_int_equal(joined->frames[frame].address, 0x2000);
	assert_int_equal(joined->frames[gone].address, 0x1000);
	for (size_t i = 1; i < joined->module_count; i++)
		found |= !strcmp(hl_profile_text(joined, joined->modules[i].path),
				 "/opt/lib/libio.so");
	assert_true(found);
	hl_profile_free(joined);
}

static void threads_and_sizes_follow_their_stacks(void **state)
{
	struct hl_profile *after = profile_of("new.hl", new_stacks, 0x2000);
	uint32_t node = find(after, "main:12;fresh:5");

	(void)state;
	after->threads = calloc(1, sizeof(*after->threads));
	after->rows = calloc(1, sizeof(*after->rows));
	after->sizes = calloc(1, sizeof(*after->sizes));
	after->thread_count = after->row_count = after->size_count = 1;
	after->threads[0].tid = 42;
	after->rows[0] = (struct hl_profile_row){.node = node, .counters.alloc_bytes = 17};
	after->sizes[0] = (struct hl_profile_size){.node = node, .size_class = 3};
	struct hl_profile *joined = join(profile_of("old.hl", old_stacks, 0x1000), after, false);
	node = find(joined, "main:12;fresh:5");
	assert_int_equal(joined->threads[0].tid, 42);
	assert_int_equal(joined->rows[0].node, node);
	assert_int_equal(joined->rows[0].counters.alloc_bytes, 17);
	assert_int_equal(joined->sizes[0].node, node);
	assert_int_equal(joined->sizes[0].size_class, 3);
	hl_profile_free(joined);
}

/* ---- what is known ---- */

static void a_figure_is_known_when_both_know_it(void **state)
{
	struct hl_profile *before = profile_of("old.hl", old_stacks, 0x1000);

	(void)state;
	before->known[HL_VALUE_PEAK][HL_UNIT_BYTES] = false;
	struct hl_profile *joined = join(before, profile_of("new.hl", new_stacks, 0x2000), false);
	assert_false(hl_profile_knows(joined, HL_VALUE_PEAK, HL_UNIT_BYTES));
	assert_true(hl_profile_knows(joined, HL_VALUE_PEAK, HL_UNIT_OBJECTS));
	hl_profile_free(joined);
}

static bool has_warning(const struct hl_profile *profile, const char *wanted)
{
	for (size_t i = 0; i < profile->warning_count; i++)
		if (!strcmp(hl_profile_text(profile, profile->warnings[i]), wanted))
			return true;
	return false;
}

static void doubts_about_the_earlier_profile_are_warnings(void **state)
{
	struct hl_profile *before = profile_of("old.hl", old_stacks, 0x1000);
	struct hl_profile *after = profile_of("new.hl", new_stacks, 0x2000);

	(void)state;
	before->complete = false;
	before->lost.events = 3;
	before->lost.incomplete_stacks = 5;
	before->lost.damaged = 1234;
	before->lost.modules = 2;
	before->sample_bytes = 512;
	before->warnings = calloc(1, sizeof(uint32_t));
	after->warnings = calloc(1, sizeof(uint32_t));
	before->warning_count = after->warning_count = 1;
	hl_strings_intern(&before->strings, "the disk was full", &before->warnings[0]);
	hl_strings_intern(&after->strings, "the moon was full", &after->warnings[0]);
	struct hl_profile *joined = join(before, after, false);
	assert_int_equal(joined->warning_count, 8);
	assert_true(has_warning(joined, "the moon was full"));
	assert_true(has_warning(joined, "'old.hl': the disk was full"));
	assert_true(has_warning(joined, "'old.hl' lost the outer frames of 5 stacks"));
	assert_true(has_warning(joined, "'old.hl' lost the names of 2 modules"));
	assert_true(has_warning(joined, "'old.hl' lost 1,234 records that the program had "
					"overwritten: its other figures may be wrong"));
	assert_true(joined->complete);
	assert_int_equal(joined->lost.events, 0);
	hl_profile_free(joined);
}

/* ---- normalization ---- */

static void a_normalized_base_is_scaled_as_a_whole_and_node_by_node(void **state)
{
	struct hl_profile *before = profile_of("old.hl", old_stacks, 0x1000);
	struct hl_profile *after = profile_of("new.hl", new_stacks, 0x2000);
	int64_t sum = 0;

	(void)state;
	before->duration_ns = 3;
	after->duration_ns = 2;
	struct hl_profile *joined = join(before, after, true);
	for (size_t i = 0; i < joined->node_count; i++)
		sum += joined->base[i].alloc_bytes;
	assert_int_equal(sum, 1620 * 2 / 3);
	assert_int_equal(joined->base_total.alloc_bytes, sum);
	int64_t scaled = joined->base[find(joined, "main:12;parse:28;grow:31")].alloc_bytes;
	assert_in_range(scaled, 335, 336);
	assert_int_equal(joined->base_duration_ns, 3);
	hl_profile_free(joined);
}

static void nothing_is_normalized_by_an_unknown_time(void **state)
{
	struct hl_profile *before = profile_of("old.hl", old_stacks, 0x1000);
	struct hl_profile *after = profile_of("new.hl", new_stacks, 0x2000), *joined;
	struct hl_error err = {0};

	(void)state;
	before->duration_ns = 3;
	assert_int_equal(hl_profile_join(before, after, true, &joined, &err), -ENODATA);
	assert_non_null(strstr(err.text, "'new.hl'"));
	hl_profile_free(before);
	hl_profile_free(after);
}

static int join_and_free(const struct hl_profile *before, const struct hl_profile *after)
{
	struct hl_error err = {0};
	struct hl_profile *joined;

	int r = hl_profile_join(before, after, false, &joined, &err);
	if (r == 0)
		hl_profile_free(joined);
	else
		assert_non_null(strstr(err.text, "cannot compare 'old.hl' with 'new.hl'"));
	return r;
}

static void want_of_memory_is_an_error_wherever_it_strikes(void **state)
{
	struct hl_profile *before = profile_of("old.hl", old_stacks, 0x1000);
	struct hl_profile *after = profile_of("new.hl", new_stacks, 0x2000);

	(void)state;
	before->complete = false;
	FOR_EACH_FAILING_ALLOCATION(r, join_and_free(before, after))
	assert_int_equal(r, -ENOMEM);
	hl_profile_free(before);
	hl_profile_free(after);
}

/* ---- stacks alone ---- */

static int join_stacks_and_free(struct hl_profile *profile, struct hl_profile *more)
{
	struct hl_profile *joined;
	uint32_t *nodes;
	struct hl_error err = {0};

	int r = hl_profile_join_stacks(profile, more, &joined, &nodes, &err);
	if (r == 0) {
		hl_profile_free(joined);
		free(nodes);
	}
	return r;
}

static void stacks_are_added_without_their_figures(void **state)
{
	struct hl_profile *profile = profile_of("new.hl", new_stacks, 0x2000);
	struct hl_profile *more = profile_of("old.hl", old_stacks, 0x1000);
	struct hl_profile *joined;
	uint32_t *nodes;
	struct hl_error err = {0};

	(void)state;
	assert_int_equal(hl_profile_join_stacks(profile, more, &joined, &nodes, &err), 0);
	assert_true(hl_profile_is_valid(joined));
	assert_null(joined->base);
	assert_memory_equal(&joined->total, &profile->total, sizeof(joined->total));
	assert_memory_equal(joined->known, profile->known, sizeof(joined->known));
	assert_int_equal(joined->warning_count, profile->warning_count);
	assert_int_equal(nodes[find(more, "main:12;parse:28;grow:31")],
			 find(joined, "main:12;parse:28;grow:31"));
	uint32_t shared = find(joined, "main:12;parse:27;grow:31");
	assert_int_equal(nodes[find(more, "main:12;parse:27;grow:31")], shared);
	assert_int_equal(joined->counters[shared].alloc_bytes, 2003);
	free(nodes);
	hl_profile_free(joined);
	hl_profile_free(profile);
	hl_profile_free(more);
}

/* Unlike those of two builds, which are compared. */
static void modules_of_one_file_name_stay_apart_in_one_recording(void **state)
{
	static const struct stack here[] = {{"read!/lib/libio.so", 5, 1}, {NULL, 0, 0}};
	static const struct stack there[] = {{"read!/opt/lib/libio.so", 7, 1}, {NULL, 0, 0}};
	struct hl_profile *profile = profile_of("t.hl", here, 0x1000);
	struct hl_profile *more = profile_of("t.hl", there, 0x1000);
	struct hl_profile *joined;
	uint32_t *nodes;
	struct hl_error err = {0};

	(void)state;
	assert_int_equal(hl_profile_join_stacks(profile, more, &joined, &nodes, &err), 0);
	assert_int_equal(joined->node_count, 3);
	assert_int_equal(joined->counters[nodes[1]].alloc_bytes, 0);
	free(nodes);
	hl_profile_free(joined);
	hl_profile_free(profile);
	hl_profile_free(more);
}

static void want_of_memory_for_stacks_alone_is_an_error_too(void **state)
{
	struct hl_profile *profile = profile_of("new.hl", new_stacks, 0x2000);
	struct hl_profile *more = profile_of("old.hl", old_stacks, 0x1000);

	(void)state;
	FOR_EACH_FAILING_ALLOCATION(r, join_stacks_and_free(profile, more))
	assert_int_equal(r, -ENOMEM);
	hl_profile_free(profile);
	hl_profile_free(more);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_profile_joined_with_itself_has_not_changed),
		cmocka_unit_test(equal_stacks_meet_whatever_their_addresses),
		cmocka_unit_test(functions_meet_in_modules_of_one_file_name_alone),
		cmocka_unit_test(modules_and_addresses_are_those_of_the_later_profile),
		cmocka_unit_test(threads_and_sizes_follow_their_stacks),
		cmocka_unit_test(a_figure_is_known_when_both_know_it),
		cmocka_unit_test(doubts_about_the_earlier_profile_are_warnings),
		cmocka_unit_test(a_normalized_base_is_scaled_as_a_whole_and_node_by_node),
		cmocka_unit_test(nothing_is_normalized_by_an_unknown_time),
		cmocka_unit_test(want_of_memory_is_an_error_wherever_it_strikes),
		cmocka_unit_test(stacks_are_added_without_their_figures),
		cmocka_unit_test(modules_of_one_file_name_stay_apart_in_one_recording),
		cmocka_unit_test(want_of_memory_for_stacks_alone_is_an_error_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
