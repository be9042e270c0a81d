/* SPDX-License-Identifier: BSD-2-Clause */
/* Carriers and the slots of their histograms. */
#include "heap/carriers.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fail_allocations.h"

static void slots_are_true_powers_of_two(void **state)
{
	const struct hl_log2_shape shape = {.start = 512, .width = 14};

	(void)state;
	assert_int_equal(hl_log2_slot(&shape, 0), 0);
	assert_int_equal(hl_log2_slot(&shape, 1023), 0);
	assert_int_equal(hl_log2_slot(&shape, 1024), 1);
	assert_int_equal(hl_log2_slot(&shape, 2047), 1);
	assert_int_equal(hl_log2_slot(&shape, 2048), 2);
	assert_int_equal(hl_log2_slot(&shape, (UINT64_C(512) << 13) - 1), 12);
	assert_int_equal(hl_log2_slot(&shape, UINT64_C(512) << 13), 13);
	assert_int_equal(hl_log2_slot(&shape, UINT64_MAX), 13);
}

/* The bounds that were seen of OTP 25: 0-127, 128-383, 384-895, 896-1919 ... for allocations, and
 * 0-1023, 1024-3071, 3072-7167 for carriers, whose start of 512 counts twice. */
static void slots_of_the_beam_have_the_bounds_that_it_really_uses(void **state)
{
	const struct hl_log2_shape allocations = {
		.start = 128, .width = 18, .bounds = HL_LOG2_LESS_ONE};
	const struct hl_log2_shape carriers = {
		.start = 1024, .width = 14, .bounds = HL_LOG2_LESS_ONE};
	static const uint64_t ends[] = {128, 384, 896, 1920}, carrier_ends[] = {1024, 3072, 7168};

	(void)state;
	for (uint32_t slot = 0; slot < 4; slot++) {
		assert_int_equal(hl_log2_end(&allocations, slot), ends[slot]);
		assert_int_equal(hl_log2_slot(&allocations, ends[slot] - 1), slot);
		assert_int_equal(hl_log2_slot(&allocations, ends[slot]), slot + 1);
	}
	for (uint32_t slot = 0; slot < 3; slot++)
		assert_int_equal(hl_log2_end(&carriers, slot), carrier_ends[slot]);
	assert_int_equal(hl_log2_slot(&carriers, UINT64_C(65536)), 6);
	assert_int_equal(hl_log2_slot(&carriers, UINT64_C(131072)), 7);
}

/* The bounds that were seen of OTP 27 and 29: a binary of 1,000 bytes stands in slot 4 of a start of
 * 128; free blocks of a start of 512 are never in slot 0, and change slots at 1,024, 2,048, 4,096. */
static void slots_of_the_beam_since_otp_27_begin_at_powers_of_two(void **state)
{
	const struct hl_log2_shape blocks = {128, 18, HL_LOG2_HALVES};
	const struct hl_log2_shape free_blocks = {1024, 14, HL_LOG2_QUARTERS};
	static const uint64_t firsts[] = {0, 128, 256, 512, 1024},
			      free_firsts[] = {0, 0, 1024, 2048};

	(void)state;
	for (uint32_t slot = 0; slot < 5; slot++)
		assert_int_equal(hl_log2_first(&blocks, slot), firsts[slot]);
	for (uint32_t slot = 0; slot < 4; slot++)
		assert_int_equal(hl_log2_first(&free_blocks, slot), free_firsts[slot]);
	assert_int_equal(hl_log2_slot(&blocks, 1063), 4);
	assert_int_equal(hl_log2_slot(&free_blocks, 16), 1);
	assert_int_equal(hl_log2_slot(&free_blocks, 1024), 2);
}

static void expect_slots_to_join(const struct hl_log2_shape *shape)
{
	assert_int_equal(hl_log2_first(shape, 0), 0);
	for (uint32_t slot = 0; slot + 1 < shape->width; slot++) {
		uint64_t end = hl_log2_end(shape, slot);
		assert_int_equal(hl_log2_first(shape, slot + 1), end);
		if (shape->bounds == HL_LOG2_QUARTERS && slot == 0)
			continue; /* holds nothing */
		assert_true(end > hl_log2_first(shape, slot));
		assert_int_equal(hl_log2_slot(shape, end - 1), slot);
		assert_int_equal(hl_log2_slot(shape, end), slot + 1);
	}
	assert_true(hl_log2_end(shape, shape->width - 1) == UINT64_MAX);
	assert_int_equal(hl_log2_slot(shape, UINT64_MAX), shape->width - 1);
}

static void every_size_belongs_to_exactly_one_slot(void **state)
{
	static const uint64_t starts[] = {1, 3, 128, 512, HL_LOG2_START_MAX};

	(void)state;
	for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++)
		for (uint32_t width = 1; width <= HL_LOG2_WIDTH_MAX; width++)
			for (int bounds = HL_LOG2_POWERS; bounds <= HL_LOG2_QUARTERS; bounds++)
				expect_slots_to_join(&(struct hl_log2_shape){
					starts[i], width, (enum hl_log2_bounds)bounds});
}

static void carriers_are_added_zeroed_and_released_with_their_strips(void **state)
{
	struct hl_carriers carriers = {0};

	(void)state;
	for (uint32_t i = 0; i < 100; i++) {
		struct hl_carrier *carrier = hl_carriers_add(&carriers);
		assert_non_null(carrier);
		assert_int_equal(carrier->total_bytes, 0);
		assert_null(carrier->strip);
		carrier->total_bytes = i + 1;
		carrier->strip = calloc(4, sizeof(*carrier->strip));
		carrier->strip_count = 4;
	}
	assert_int_equal(carriers.count, 100);
	for (uint32_t i = 0; i < 100; i++)
		assert_int_equal(carriers.carriers[i].total_bytes, i + 1);
	hl_carriers_release(&carriers);
	assert_int_equal(carriers.count, 0);
	hl_carriers_release(&carriers);
}

static int add_forty(struct hl_carriers *carriers)
{
	for (int i = 0; i < 40; i++)
		if (!hl_carriers_add(carriers))
			return -ENOMEM;
	return 0;
}

static void want_of_memory_leaves_the_carriers_that_are_there(void **state)
{
	struct hl_carriers carriers = {0};

	(void)state;
	FOR_EACH_FAILING_ALLOCATION(r, add_forty(&carriers))
	{
		assert_int_equal(r, -ENOMEM);
		assert_true(carriers.count <= carriers.capacity);
		hl_carriers_release(&carriers);
	}
	assert_int_equal(carriers.count, 40);
	hl_carriers_release(&carriers);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(slots_are_true_powers_of_two),
		cmocka_unit_test(slots_of_the_beam_have_the_bounds_that_it_really_uses),
		cmocka_unit_test(slots_of_the_beam_since_otp_27_begin_at_powers_of_two),
		cmocka_unit_test(every_size_belongs_to_exactly_one_slot),
		cmocka_unit_test(carriers_are_added_zeroed_and_released_with_their_strips),
		cmocka_unit_test(want_of_memory_leaves_the_carriers_that_are_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
