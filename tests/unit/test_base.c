/* SPDX-License-Identifier: BSD-2-Clause */
/* Arrays, searching, hexadecimal digits, release by scope. */
#include "base/array.h"
#include "base/cleanup.h"
#include "base/compiler.h"
#include "base/encode.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void appended_elements_stay_in_order_and_reserved_ones_are_zero(void **state)
{
	(void)state;
	HL_FREED uint32_t *numbers = NULL;
	HL_FREED uint64_t *sums = NULL;
	size_t capacity = 0, sum_capacity = 0;
	uint32_t count = 0;

	for (uint32_t i = 0; i < 1000; i++)
		assert_int_equal(HL_ARRAY_APPEND(numbers, count, capacity, i * 3), 0);
	for (uint32_t i = 0; i < count; i++)
		assert_int_equal(numbers[i], i * 3);
	for (size_t needed = 1; needed < 1000; needed *= 3) {
		size_t before = sum_capacity;
		assert_int_equal(HL_ARRAY_RESERVE_ZEROED(sums, sum_capacity, needed), 0);
		for (size_t i = before; i < sum_capacity; i++)
			assert_int_equal(sums[i], 0);
		memset(sums, 0xff, sum_capacity * sizeof(*sums));
	}
}

static void an_array_beyond_all_memory_stays_as_it_was(void **state)
{
	(void)state;
	uint64_t *numbers = NULL;
	size_t capacity = 0;
	volatile size_t all =
		SIZE_MAX / 2; /* volatile: else the compiler warns of what is tested */

	assert_int_equal(HL_ARRAY_RESERVE(numbers, capacity, all), -ENOMEM);
	assert_int_equal(HL_ARRAY_RESERVE_ZEROED(numbers, capacity, all), -ENOMEM);
	assert_null(numbers);
	assert_int_equal(capacity, 0);
}

static void the_lower_bound_is_the_first_that_is_not_before(void **state)
{
	(void)state;
	static const int sorted[] = {1, 3, 3, 3, 7, 9};
	for (size_t count = 0; count <= HL_COUNT_OF(sorted); count++)
		for (int wanted = 0; wanted < 11; wanted++) {
			size_t expected = 0;
			while (expected < count && sorted[expected] < wanted)
				expected++;
			assert_int_equal(HL_LOWER_BOUND(i, count, sorted[i] < wanted), expected);
		}
}

static void digits_are_read_as_they_were_written(void **state)
{
	(void)state;
	static const uint8_t bytes[] = {0x00, 0x0f, 0xf0, 0xa5, 0xff};
	static const char *const refused[] = {"0",  "0g", "g0", "  ",	       "0 ",
					      "0x", "@0", "`0", "001122334455"};
	char text[2 * sizeof(bytes) + 1];
	uint8_t read[sizeof(bytes)];

	assert_string_equal(hl_hex_format(text, bytes, sizeof(bytes)), "000ff0a5ff");
	assert_int_equal(hl_hex_parse(text, strlen(text), read, sizeof(read)), sizeof(bytes));
	assert_memory_equal(read, bytes, sizeof(bytes));
	assert_int_equal(hl_hex_parse("A5fF", 4, read, sizeof(read)), 2);
	assert_memory_equal(read, bytes + 3, 2);
	assert_int_equal(hl_hex_parse("", 0, read, sizeof(read)), 0);
	for (size_t i = 0; i < HL_COUNT_OF(refused); i++)
		assert_int_equal(hl_hex_parse(refused[i], strlen(refused[i]), read, sizeof(read)),
				 -EINVAL);
}

static int open_null(int *ret_seen)
{
	HL_CLOSED int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	*ret_seen = fd;
	return fcntl(fd, F_GETFD);
}

static int open_and_keep(void)
{
	HL_CLOSED int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	HL_CLOSED __attribute__((unused)) int none = -1; /* closes nothing */
	HL_FREED char *text = NULL;
	assert_null(HL_TAKE(text));
	return hl_cleanup_take_fd(&fd);
}

static void what_a_scope_holds_is_released_unless_it_was_taken(void **state)
{
	(void)state;
	int seen = -1;

	assert_int_equal(open_null(&seen), FD_CLOEXEC);
	assert_int_equal(fcntl(seen, F_GETFD), -1);
	int kept = open_and_keep();
	assert_int_equal(fcntl(kept, F_GETFD), FD_CLOEXEC);
	close(kept);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(appended_elements_stay_in_order_and_reserved_ones_are_zero),
		cmocka_unit_test(an_array_beyond_all_memory_stays_as_it_was),
		cmocka_unit_test(the_lower_bound_is_the_first_that_is_not_before),
		cmocka_unit_test(digits_are_read_as_they_were_written),
		cmocka_unit_test(what_a_scope_holds_is_released_unless_it_was_taken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
