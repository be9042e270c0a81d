/* SPDX-License-Identifier: BSD-2-Clause */
/* What `stacks` announces: from what was measured, and what is advised holds when it is followed.
 */
#include "bpf/heap_trace.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define TRAP_NS 500.0

/* Half a second with ${calls} allocations of ${bytes} and as many frees. */
static struct hl_heap_rate rate_of_starved(uint64_t calls, uint64_t bytes, double before,
					   double during, double wanted)
{
	struct hl_heap_counting counting = {
		.counters = {.calls = {[HL_HEAP_MALLOC] = calls, [HL_HEAP_FREE] = calls},
			     .requested_bytes = calls * bytes},
		.elapsed_ns = 500000000,
		.percent_before = before,
		.percent_during = during,
		.wanted = wanted,
		.trap_ns = TRAP_NS,
	};

	return hl_heap_cost_rate(&counting);
}

static struct hl_heap_rate rate_of(uint64_t calls, uint64_t bytes, double before, double during)
{
	return rate_of_starved(calls, bytes, before, during, 1);
}

static void expect_about(double number, double expected)
{
	if (fabs(number - expected) > expected / 1000)
		fail_msg("%g is not %g", number, expected);
}

static void the_baseline_is_what_the_target_used_without_probes(void **state)
{
	struct hl_heap_rate rate = rate_of(10000, 100, 1.7, 11.0);

	(void)state;
	expect_about(rate.percent_of_core, 1.7);
	expect_about(rate.allocations_per_second, 20000);
	expect_about(rate.frees_per_second, 20000);
	expect_about(rate.calls_per_second, 40000);
	expect_about(rate.mean_bytes, 100);
	expect_about(hl_heap_cost_slowdown(&rate, 3.4), 3);
}

/* 0.8 million probes took 40 of its 100 percent, so without them it makes 100/60 as many calls. */
static void a_busy_target_calls_more_often_than_was_counted(void **state)
{
	struct hl_heap_rate rate = rate_of(200000, 100, 100, 100);

	(void)state;
	expect_about(rate.calls_per_second, 800000 / 0.6);
}

/* Others leave it an eighth of a core; alone it would call eight times as often. */
static void a_starved_target_is_judged_as_if_it_ran_alone(void **state)
{
	struct hl_heap_rate alone = rate_of(400000, 100, 96, 96);
	struct hl_heap_rate starved = rate_of_starved(50000, 100, 12, 12, 8);

	(void)state;
	expect_about(starved.calls_per_second, alone.calls_per_second);
	expect_about(starved.percent_of_core, alone.percent_of_core);
	/* One that waits for something else than a processor wants no more. */
	expect_about(rate_of_starved(50000, 100, 12, 16, 2).calls_per_second, 400000);
}

/* By these figures probes took all of its time; 2 million calls a second need 2 percent. */
static void calls_take_some_time_of_their_own(void **state)
{
	(void)state;
	expect_about(rate_of(499999, 100, 100, 100).calls_per_second, 1e8);
	expect_about(rate_of(500001, 100, 100, 100).calls_per_second, 1e8);
}

static void an_idle_target_costs_nothing(void **state)
{
	struct hl_heap_rate rate = rate_of(0, 0, 0, 0);
	struct hl_heap_settings settings = {.sample_bytes = 4096};

	(void)state;
	assert_true(hl_heap_cost(&rate, &settings, TRAP_NS) == 0);
	assert_true(hl_heap_cost_slowdown(&rate, 0) == 1);
}

static void samples_cost_the_less_the_rarer_they_are(void **state)
{
	struct hl_heap_rate rate = rate_of(50000, 200, 40, 50);
	struct hl_heap_settings settings = {0};
	double before = hl_heap_cost(&rate, &settings, TRAP_NS);

	(void)state;
	for (settings.sample_bytes = 16; settings.sample_bytes <= 1 << 20;
	     settings.sample_bytes *= 2) {
		double cost = hl_heap_cost(&rate, &settings, TRAP_NS);
		assert_true(cost < before);
		before = cost;
	}
	/* A probe at each call remains. */
	assert_true(before > 200000 * TRAP_NS / 1e7);
}

static void the_sample_that_is_advised_fits_and_no_smaller_one_does(void **state)
{
	struct hl_heap_rate rate = rate_of(40000, 3000, 40, 50);
	struct hl_heap_settings settings = {0};
	double limit = 1.2 * 160000 * TRAP_NS / 1e7;

	(void)state;
	uint64_t sample = hl_heap_cost_fitting_sample(&rate, &settings, TRAP_NS, limit);
	assert_true(sample > HL_HEAP_SAMPLE_MIN && sample < HL_HEAP_SAMPLE_MAX);
	settings.sample_bytes = sample;
	assert_true(hl_heap_cost(&rate, &settings, TRAP_NS) <= limit);
	/* Who samples so already is told a larger one. */
	assert_true(hl_heap_cost_fitting_sample(&rate, &settings, TRAP_NS, limit) > sample);
	settings.sample_bytes = sample / 2;
	assert_true(hl_heap_cost(&rate, &settings, TRAP_NS) > limit);
}

static void where_no_sample_fits_none_is_advised(void **state)
{
	struct hl_heap_rate rate = rate_of(500000, 100, 40, 50);
	struct hl_heap_settings settings = {0};

	(void)state;
	assert_int_equal(hl_heap_cost_fitting_sample(&rate, &settings, TRAP_NS, 30), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_baseline_is_what_the_target_used_without_probes),
		cmocka_unit_test(a_busy_target_calls_more_often_than_was_counted),
		cmocka_unit_test(a_starved_target_is_judged_as_if_it_ran_alone),
		cmocka_unit_test(calls_take_some_time_of_their_own),
		cmocka_unit_test(an_idle_target_costs_nothing),
		cmocka_unit_test(samples_cost_the_less_the_rarer_they_are),
		cmocka_unit_test(the_sample_that_is_advised_fits_and_no_smaller_one_does),
		cmocka_unit_test(where_no_sample_fits_none_is_advised),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
