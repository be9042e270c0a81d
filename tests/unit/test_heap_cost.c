/* SPDX-License-Identifier: BSD-2-Clause */
/* What `stacks` announces: from what was measured, and what is advised holds when it is followed.
 */
#include "bpf/heap_trace.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define TRAP_NS	      500.0
#define LEAST_PAIR_NS 8.0

/* Half a second with ${calls} allocations of ${bytes} and as many frees. */
static struct hl_heap_counting counting_of(uint64_t calls, uint64_t bytes, double before,
					   double during)
{
	return (struct hl_heap_counting){
		.counters = {.calls = {[HL_HEAP_MALLOC] = calls,
				       [HL_HEAP_FREE] = calls,
				       [HL_HEAP_CALIBRATION] = 12345},
			     .requested_bytes = calls * bytes},
		.elapsed_ns = 500000000,
		.before = {before, before},
		.during = {during, during},
		.prices = {TRAP_NS, LEAST_PAIR_NS},
	};
}

static struct hl_heap_rate rate_of(uint64_t calls, uint64_t bytes, double before, double during)
{
	struct hl_heap_counting counting = counting_of(calls, bytes, before, during);

	return hl_heap_cost_rate(&counting);
}

static void expect_about(double number, double expected)
{
	if (fabs(number - expected) > expected / 1000)
		fail_msg("%g is not %g", number, expected);
}

/* What a target does that takes ${own_ns} for each call and is probed for half of ${used_ns}, its
 * processor time. */
static struct hl_heap_rate rate_of_busy(double own_ns, double used_ns, double before, double during,
					double wanted)
{
	double calls = used_ns / (own_ns + TRAP_NS);
	struct hl_heap_counting counting = counting_of((uint64_t)(calls / 2), 100, before, during);

	counting.before.wanted = counting.during.wanted = wanted;
	return hl_heap_cost_rate(&counting);
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
	expect_about(rate.doubt, 1);
}

/* Whatever others leave it, before or meanwhile, a call takes it as long. */
static void a_starved_target_is_judged_by_what_it_gets(void **state)
{
	(void)state;
	for (double own_ns = 200; own_ns < 1e4; own_ns *= 3)
		for (double during = 5; during <= 80; during *= 2)
			for (double before = 5; before <= 80; before *= 2) {
				struct hl_heap_rate rate =
					rate_of_busy(own_ns, during * 5e6, before, during, 100);
				/* No fewer than were counted. */
				double share = fmax(before, during * own_ns / (own_ns + TRAP_NS));
				expect_about(rate.calls_per_second, share * 1e7 / own_ns);
				expect_about(rate.percent_of_core, before);
				if (share > before)
					continue;
				/* A probe at each call, and nothing else. */
				double percent = rate.calls_per_second * TRAP_NS / 1e7;
				expect_about(hl_heap_cost_slowdown(&rate, percent),
					     1 + TRAP_NS / own_ns);
			}
}

/* A server that wakes up often: 26,000 allocations a second at 2 us each, beside more and more load. */
static void other_load_does_not_change_the_estimate(void **state)
{
	const struct hl_heap_settings settings = {0};

	(void)state;
	for (double wanted = 12; wanted <= 400; wanted *= 2) {
		struct hl_heap_counting counting =
			counting_of(13000, 100, 10.4, 10.4 + 52000 * TRAP_NS / 1e7);
		counting.before.wanted = fmax(10.4, wanted);
		counting.during.wanted = fmax(counting.during.percent, wanted);
		struct hl_heap_rate rate = hl_heap_cost_rate(&counting);
		expect_about(rate.calls_per_second, 52000);
		expect_about(rate.doubt, 1);
		expect_about(hl_heap_cost(&rate, &settings, TRAP_NS),
			     26000 * (3.2 + 1.2) * TRAP_NS / 1e7);
	}
}

static void who_waits_for_something_else_than_a_processor_wants_no_more(void **state)
{
	(void)state;
	expect_about(hl_heap_cost_wanted(12, 80000000, 100000000, 2), 92);
	expect_about(hl_heap_cost_wanted(12, 12000000, 100000000, 2), 12);
	expect_about(hl_heap_cost_wanted(99, 0, 100000000, 2), 99);
	/* Four threads on two processors; and one that ended took its waits along. */
	expect_about(hl_heap_cost_wanted(100, 300000000, 100000000, 2), 200);
	expect_about(hl_heap_cost_wanted(150, (uint64_t)-1000, 100000000, 2), 150);
	/* Not even with more than there are. */
	expect_about(hl_heap_cost_wanted(201, 300000000, 100000000, 2), 201);
}

/* By these figures probes took all of its time: it may do nothing but call its allocator. */
static void calls_that_cannot_be_told_from_their_probes_are_doubtful(void **state)
{
	struct hl_heap_rate rate = rate_of(499999, 100, 100, 100);

	(void)state;
	/* The least that it can be is what is still told from a probe; the most, what malloc does at all. */
	expect_about(rate.calls_per_second, 1e9 / (TRAP_NS * 0.12));
	expect_about(rate.calls_per_second * rate.doubt, 2e9 / LEAST_PAIR_NS);
	expect_about(rate_of(500001, 100, 100, 100).calls_per_second, 1e9 / (TRAP_NS * 0.12));
	/* A probe that is a tenth dearer or cheaper than was measured makes the least no better than that. */
	for (double probe_ns = 450; probe_ns <= 550; probe_ns += 10) {
		rate = rate_of((uint64_t)(2.5e8 / (probe_ns + 20)), 100, 100, 100);
		assert_true(rate.doubt > 1 && rate.calls_per_second < 1e9 / 20);
		assert_true(rate.calls_per_second > 1e9 / 20 / 10);
	}
	/* Where frees are not counted, their time is that of allocations. */
	struct hl_heap_counting counting = counting_of(999999, 100, 100, 100);
	counting.counters.calls[HL_HEAP_FREE] = 0;
	rate = hl_heap_cost_rate(&counting);
	expect_about(rate.allocations_per_second * rate.doubt, 1e9 / LEAST_PAIR_NS);
	/* Of a target that has time left all calls were counted. */
	rate = rate_of(50000, 100, 1, 10);
	expect_about(rate.calls_per_second, 200000);
	expect_about(rate.doubt, 1);
}

/* Whoever waits for a processor to the end of the measurement has not waited yet, as the kernel counts. */
static void a_target_that_was_busy_before_is_not_taken_to_rest(void **state)
{
	struct hl_heap_rate rate = rate_of(100000, 100, 100, 50);

	(void)state;
	expect_about(rate.calls_per_second, 1e9 / (1250 - TRAP_NS));
	expect_about(rate.doubt, 1);
}

/* It was stopped before, and is judged by what it did while it was traced. */
static void a_target_that_slept_before_is_judged_by_its_calls_in_the_trace(void **state)
{
	const struct hl_heap_settings settings = {0};
	struct hl_heap_counting counting = counting_of(100000, 100, 0, 100);
	struct hl_heap_rate traced = {.allocations_per_second = 1, .frees_per_second = 1};

	(void)state;
	double pair_ns = hl_heap_cost(&traced, &settings, TRAP_NS) * 1e7, own_ns = 1000;
	counting.traced_with = &settings;
	counting.counters.calls[HL_HEAP_MALLOC] = counting.counters.calls[HL_HEAP_FREE] =
		(uint64_t)(5e8 / (pair_ns + own_ns));
	struct hl_heap_rate rate = hl_heap_cost_rate(&counting);
	expect_about(rate.allocations_per_second, 1e9 / own_ns);
	expect_about(rate.percent_of_core, 100);
	expect_about(hl_heap_cost_slowdown(&rate, hl_heap_cost(&rate, &settings, TRAP_NS)),
		     1 + pair_ns / own_ns);
	/* And the same if it works a tenth of the time. */
	counting.elapsed_ns *= 10;
	counting.during = (struct hl_heap_use){10, 10};
	rate = hl_heap_cost_rate(&counting);
	expect_about(rate.percent_of_core, 10 * own_ns / (pair_ns + own_ns));
	expect_about(hl_heap_cost_slowdown(&rate, hl_heap_cost(&rate, &settings, TRAP_NS)),
		     1 + pair_ns / own_ns);
}

static void the_price_of_a_probe_is_the_mean_of_rounds(void **state)
{
	struct hl_heap_calibration calibration = {
		.plain_ns = 8,
		.probed_ns = {1008, 1008, 2016, 2016}, /* 1344 */
		.count = 4,
	};
	struct hl_heap_prices prices = hl_heap_cost_end_calibration(&calibration);

	(void)state;
	expect_about(prices.trap_ns, 668);
	expect_about(prices.least_pair_ns, 8);
	calibration.probes.entry_alone = true;
	expect_about(hl_heap_cost_end_calibration(&calibration).trap_ns, 1336);
	calibration.count = 0;
	hl_heap_cost_calibrate(&calibration); /* there are no probes to time */
	assert_int_equal(calibration.count, 0);
	assert_true(hl_heap_cost_end_calibration(&calibration).trap_ns > 100);
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
		cmocka_unit_test(a_starved_target_is_judged_by_what_it_gets),
		cmocka_unit_test(other_load_does_not_change_the_estimate),
		cmocka_unit_test(who_waits_for_something_else_than_a_processor_wants_no_more),
		cmocka_unit_test(calls_that_cannot_be_told_from_their_probes_are_doubtful),
		cmocka_unit_test(a_target_that_was_busy_before_is_not_taken_to_rest),
		cmocka_unit_test(a_target_that_slept_before_is_judged_by_its_calls_in_the_trace),
		cmocka_unit_test(the_price_of_a_probe_is_the_mean_of_rounds),
		cmocka_unit_test(an_idle_target_costs_nothing),
		cmocka_unit_test(samples_cost_the_less_the_rarer_they_are),
		cmocka_unit_test(the_sample_that_is_advised_fits_and_no_smaller_one_does),
		cmocka_unit_test(where_no_sample_fits_none_is_advised),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
