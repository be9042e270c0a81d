/* SPDX-License-Identifier: BSD-2-Clause */
/* What a node is asked, read back as the node would read it. */
#include "guests/beam/connection.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* The only argument in a list of arguments, which has no version in front of it. */
static struct hl_term argument_of(const ei_x_buff *arguments)
{
	struct hl_term term = {(const uint8_t *)arguments->buff,
			       (const uint8_t *)arguments->buff + arguments->index};
	struct hl_term behind;
	uint32_t count;

	assert_int_equal(hl_term_list(&term, &count), 0);
	assert_int_equal(count, 1);
	behind = term;
	assert_int_equal(hl_term_skip(&behind), 0);
	assert_int_equal(hl_term_list_end(&behind, count), 0);
	assert_ptr_equal(behind.at, behind.end);
	return term;
}

static void assert_key(struct hl_term *term, const char *key)
{
	assert_int_equal(hl_term_this_atom(term, key), 0);
}

static void assert_number(struct hl_term *term, uint64_t expected)
{
	uint64_t number;

	assert_int_equal(hl_term_unsigned(term, &number), 0);
	assert_int_equal(number, expected);
}

static void assert_list(struct hl_term *term, uint32_t expected)
{
	uint32_t count;

	assert_int_equal(hl_term_list(term, &count), 0);
	assert_int_equal(count, expected);
}

static void what_was_not_chosen_is_left_to_the_node(void **state)
{
	const struct hl_beam_settings settings = {.node = "n@h"};
	ei_x_buff arguments;
	uint32_t pairs;

	(void)state;

	assert_int_equal(hl_request_options(&settings, &arguments), 0);
	struct hl_term term = argument_of(&arguments);
	assert_int_equal(hl_term_map(&term, &pairs), 0);
	assert_int_equal(pairs, 0);
	ei_x_free(&arguments);
}

static void all_that_was_chosen_is_passed_on(void **state)
{
	static const struct hl_beam_settings settings = {
		.histogram_start = 1 << 28,
		.histogram_width = 32,
		.allocators = {"ets_alloc", "st\xc3\xa9"},
		.allocator_count = 2,
		.schedulers = {0, 300},
		.scheduler_count = 2,
		.per = HL_BEAM_PER_PROCESS | HL_BEAM_PER_PORT,
	};
	ei_x_buff arguments;
	uint32_t pairs;

	(void)state;

	assert_int_equal(hl_request_options(&settings, &arguments), 0);
	struct hl_term term = argument_of(&arguments);
	assert_int_equal(hl_term_map(&term, &pairs), 0);
	assert_int_equal(pairs, 5);
	assert_key(&term, "histogram_start");
	assert_number(&term, 1 << 28);
	assert_key(&term, "histogram_width");
	assert_number(&term, 32);
	assert_key(&term, "allocator_types");
	assert_list(&term, 2);
	assert_key(&term, "ets_alloc");
	assert_key(&term, "st\xc3\xa9");
	assert_int_equal(hl_term_list_end(&term, 2), 0);
	assert_key(&term, "scheduler_ids");
	assert_list(&term, 2);
	assert_number(&term, 0);
	assert_number(&term, 300);
	assert_int_equal(hl_term_list_end(&term, 2), 0);
	assert_key(&term, "flags"); /* as OTP 27 names it */
	assert_list(&term, 2);
	assert_key(&term, "per_process");
	assert_key(&term, "per_port");
	ei_x_free(&arguments);
}

static void an_allocators_sums_are_asked_for_by_a_pair(void **state)
{
	ei_x_buff arguments;

	(void)state;

	assert_int_equal(hl_request_allocator("ets_alloc", &arguments), 0);
	struct hl_term term = argument_of(&arguments);
	assert_int_equal(hl_term_tuple_of(&term, 2), 0);
	assert_key(&term, "allocator");
	assert_key(&term, "ets_alloc");
	ei_x_free(&arguments);
	assert_int_equal(hl_request_item("otp_release", &arguments), 0);
	term = argument_of(&arguments);
	assert_key(&term, "otp_release");
	ei_x_free(&arguments);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_not_chosen_is_left_to_the_node),
		cmocka_unit_test(all_that_was_chosen_is_passed_on),
		cmocka_unit_test(an_allocators_sums_are_asked_for_by_a_pair),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
