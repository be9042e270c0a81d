/* SPDX-License-Identifier: BSD-2-Clause */
/* The options of all verbs: each sets a member of its verb's request that has room for it. */
#include "cli/cli.h"

#include "guests/outside.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const struct {
	size_t bytes, alignment;
} members[] = {
	[HL_OPTION_FLAG] = {sizeof(bool), _Alignof(bool)},
	[HL_OPTION_TEXT] = {sizeof(const char *), _Alignof(const char *)},
	[HL_OPTION_OUTPUT] = {sizeof(const char *), _Alignof(const char *)},
	[HL_OPTION_COUNT] = {sizeof(uint64_t), _Alignof(uint64_t)},
	[HL_OPTION_BYTES] = {sizeof(uint64_t), _Alignof(uint64_t)},
	[HL_OPTION_SECONDS] = {sizeof(double), _Alignof(double)},
	[HL_OPTION_PERCENT] = {sizeof(double), _Alignof(double)},
	[HL_OPTION_CHOICE] = {sizeof(int), _Alignof(int)},
	[HL_OPTION_TEXTS] = {sizeof(struct hl_option_texts), _Alignof(struct hl_option_texts)},
	[HL_OPTION_RANGE] = {sizeof(struct hl_option_range), _Alignof(struct hl_option_range)},
	[HL_OPTION_PID] = {sizeof(uint64_t), _Alignof(uint64_t)},
	[HL_OPTION_COMM] = {sizeof(uint64_t), _Alignof(uint64_t)},
};

static void check(const struct hl_verb *verb, const struct hl_option *table, size_t room)
{
	for (const struct hl_option *option = table; option && option->name; option++) {
		if (option->kind == HL_OPTION_RENAMED)
			continue;
		size_t bytes = members[option->kind].bytes;
		if (option->offset + bytes > room)
			fail_msg("%s --%s: %zu bytes at %zu, of %zu", verb->name, option->name,
				 bytes, option->offset, room);
		if (option->offset % members[option->kind].alignment)
			fail_msg("%s --%s: at %zu", verb->name, option->name, option->offset);
	}
}

static void each_option_fits_the_request_of_its_verb(void **state)
{
	const struct hl_verb *verb;
	size_t verbs = 0;

	(void)state;
	for (; (verb = hl_verb_at(verbs)); verbs++) {
		check(verb, verb->options, verb->request_bytes);
		for (size_t i = 0; i < HL_SHARED_TABLES; i++)
			check(verb, verb->shared_options[i], verb->request_bytes);
	}
	assert_true(verbs > 30);
}

static void each_option_of_a_guest_fits_its_part_of_the_request(void **state)
{
	const struct hl_verb *verb;

	(void)state;
	for (size_t i = 0; hl_guests_outside[i]; i++) {
		for (size_t number = 0; (verb = hl_verb_at(number)); number++) {
			const struct hl_option *own =
				hl_guests_outside[i]->options[verb->guest_options];
			check(verb, own, sizeof(struct hl_guest_request));
			if (own)
				assert_in_range(verb->guests_at +
							(i + 1) * sizeof(struct hl_guest_request),
						1, verb->request_bytes);
		}
	}
}

static bool overlap(const struct hl_option *option, const struct hl_option *other)
{
	if (option->kind == HL_OPTION_RENAMED || other->kind == HL_OPTION_RENAMED)
		return false;
	return option->offset < other->offset &&
	       option->offset + members[option->kind].bytes > other->offset;
}

/* Two options may set the same member, as --pid and --comm do. */
static void no_option_sets_a_part_of_the_member_of_another_one(void **state)
{
	const struct hl_option *options[HL_OPTIONS_MAX];
	const struct hl_verb *verb;

	(void)state;
	for (size_t number = 0; (verb = hl_verb_at(number)); number++) {
		/* Offsets of guests' options are in parts of the request; the last option is --help, which sets nothing. */
		size_t count = verb->guest_options ? 1 : hl_options_of(verb, options);
		for (size_t i = 0; i < count - 1; i++)
			for (size_t k = 0; k < count - 1; k++)
				if (overlap(options[i], options[k]))
					fail_msg("%s --%s and --%s", verb->name, options[i]->name,
						 options[k]->name);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_option_fits_the_request_of_its_verb),
		cmocka_unit_test(each_option_of_a_guest_fits_its_part_of_the_request),
		cmocka_unit_test(no_option_sets_a_part_of_the_member_of_another_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
