/* SPDX-License-Identifier: BSD-2-Clause */
/* How steadily something grows: leaks, and what is not a leak. */
#include "base/compiler.h"
#include "view/growth.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define SAMPLES 16 /* of each part */

/* Of ${shape}, from 0 to 1, cut into parts. */
static double judged(double (*shape)(double time),
		     double (*judge)(const double *least, size_t count))
{
	double least[HL_GROWTH_BUCKETS_MAX];

	for (size_t i = 0; i < HL_GROWTH_BUCKETS_MAX * SAMPLES; i++) {
		double now = shape(((double)i + 0.5) / (HL_GROWTH_BUCKETS_MAX * SAMPLES));
		double *part = &least[i / SAMPLES];
		*part = i % SAMPLES ? fmin(*part, now) : now;
	}
	return judge(least, HL_GROWTH_BUCKETS_MAX);
}

static double score_of(double (*shape)(double time))
{
	return judged(shape, hl_growth_rows_score);
}

static double rise_of(double (*shape)(double time))
{
	return judged(shape, hl_growth_rows_rise);
}

static double leak(double time)
{
	return 1000 * time;
}

static double leak_after_warm_up(double time)
{
	return (time < 0.2 ? time * 50000 : 10000) + leak(time);
}

static double leak_that_began_midway(double time)
{
	return time < 0.6 ? 0 : time - 0.6;
}

static double staircase(double time)
{
	return floor(time * 24);
}

static double full_cache(double time)
{
	return time < 0.7 ? time : 0.7;
}

static double full_cache_that_wobbles(double time)
{
	return full_cache(time) + 0.01 * sin(time * 1000);
}

static double jump(double time)
{
	return time < 0.9 ? 0 : 1000;
}

static double waves(double time)
{
	return 1 + sin(time * 60);
}

/* A collector runs 25 times, and takes away all that is not kept. */
static double collected(double time)
{
	return 100 + 400 * (time * 25 - floor(time * 25));
}

static double collected_leak(double time)
{
	return collected(time) + 300 * time;
}

static double collected_seldom(double time)
{
	return 100 + 400 * (time * 9 - floor(time * 9));
}

/* What a server has in use: as much as there is to do. */
static double load(double time)
{
	return 1000 + 100 * sin(time * 40) + 70 * sin(time * 97) + 50 * sin(time * 311);
}

static double shrinking(double time)
{
	return -time;
}

static double nothing(double time)
{
	return 0 * time;
}

static void leaks_score_high_and_what_is_none_does_not(void **state)
{
	(void)state;
	assert_true(score_of(leak) > 0.9);
	assert_true(score_of(leak_after_warm_up) > 0.9);
	assert_true(score_of(leak_that_began_midway) > 0.7);
	assert_true(score_of(staircase) > 0.7);
	assert_true(score_of(full_cache) == 0);
	assert_true(score_of(full_cache_that_wobbles) < 0.2);
	assert_true(score_of(jump) == 0);
	assert_true(score_of(waves) < 0.2);
	assert_true(score_of(collected_leak) > 0.6);
	assert_true(score_of(collected) < 0.2);
	assert_true(score_of(collected_seldom) < 0.2);
	assert_true(score_of(load) < 0.2);
	assert_true(score_of(shrinking) == 0);
	assert_true(score_of(nothing) == 0);
	assert_true(hl_growth_rows_score((double[]){1, 2, 3, 4, 5, 6, 7}, 7) == 0);
}

/* A leak in Python 3.14, in MB: its collector ran nine times where ten parts ended, so that each has another part of the garbage. */
static const double aliased[] = {0,    3.6,  4.4,  4.9,	 3.8,  4.4,  5.0,  5.2,	 5.3,  5.7,  5.4,
				 6.2,  5.6,  6.5,  5.9,	 6.0,  6.4,  6.6,  7.0,	 7.4,  8.0,  8.4,
				 8.6,  8.8,  8.9,  9.1,	 8.0,  9.1,  8.5,  9.1,	 9.5,  10.4, 9.3,
				 10.7, 10.8, 11.0, 11.2, 10.9, 11.0, 11.2, 11.3, 11.5, 11.2, 10.9,
				 12.3, 12.5, 12.4, 12.3, 12.5, 12.9, 12.3, 12.0};

static void what_rises_in_the_later_half_is_never_called_no_leak(void **state)
{
	(void)state;
	assert_true(hl_growth_rows_score(aliased, HL_COUNT_OF(aliased)) < HL_GROWTH_STEADY);
	assert_true(hl_growth_rows_rise(aliased, HL_COUNT_OF(aliased)) >= HL_GROWTH_RISE);
	assert_true(rise_of(leak) >= HL_GROWTH_RISE);
	assert_true(rise_of(staircase) >= HL_GROWTH_RISE);
	assert_true(rise_of(collected_leak) >= HL_GROWTH_RISE);
	assert_true(rise_of(full_cache) == 0);
	assert_true(rise_of(full_cache_that_wobbles) < HL_GROWTH_RISE);
	assert_true(rise_of(jump) == 0);
	assert_true(rise_of(waves) < HL_GROWTH_RISE);
	assert_true(rise_of(collected) < HL_GROWTH_RISE);
	assert_true(rise_of(collected_seldom) < HL_GROWTH_RISE);
	assert_true(rise_of(load) < HL_GROWTH_RISE);
	assert_true(rise_of(shrinking) == 0);
	assert_true(rise_of(nothing) == 0);
	assert_true(hl_growth_rows_rise((double[]){1, 2, 3, 4, 5, 6, 7}, 7) == 0);
}

/* ---- the end of a process ---- */

#define POINTS 80

/* Points of what is in use at the end of each interval: a rise to ${top}, then ${end}. */
static size_t points_kept(double top, const double *end, size_t end_count)
{
	struct hl_log_point points[POINTS] = {0};
	size_t rising = POINTS - end_count;

	for (size_t i = 0; i < POINTS; i++) {
		double bytes =
			i < rising ? top * (double)(i + 1) / (double)rising : end[i - rising];
		points[i].end_bytes = points[i].max_bytes = (int64_t)bytes;
		if (i && points[i].max_bytes < points[i - 1].end_bytes)
			points[i].max_bytes = points[i - 1].end_bytes;
	}
	return hl_growth_rows_before_end(points, POINTS);
}

#define ASSERT_LEFT_OUT(count, top, ...)                                                         \
	assert_int_equal(POINTS - points_kept(top, (const double[]){__VA_ARGS__},                \
					      sizeof((double[]){__VA_ARGS__}) / sizeof(double)), \
			 count)

static void a_teardown_is_left_out_with_its_pauses(void **state)
{
	(void)state;
	/* node, in KiB: V8 frees everything in several steps */
	ASSERT_LEFT_OUT(7, 135700, 124300, 124300, 116700, 1400, 860, 860, 860);
	/* all at once, then some of the way out allocates a little */
	ASSERT_LEFT_OUT(5, 135700, 900, 900, 901, 860, 860);
	/* the last interval alone, and step by step */
	ASSERT_LEFT_OUT(1, 135700, 0);
	ASSERT_LEFT_OUT(4, 135700, 110000, 60000, 20000, 10000);
	/* a program that waits for its threads before it frees anything worth a word */
	ASSERT_LEFT_OUT(8, 135700, 135000, 135000, 135000, 135100, 135000, 135000, 1000, 1000);
	ASSERT_LEFT_OUT(6, 135700, 135000, 135000, 135000, 135000, 135000, 90000);
	/* what is left is more than half */
	ASSERT_LEFT_OUT(2, 135700, 120000, 100000);
	ASSERT_LEFT_OUT(3, 135700, 120000, 100000, 100000);
}

static void what_is_no_teardown_is_judged(void **state)
{
	(void)state;
	/* a few hundred bytes of a leak that goes on */
	ASSERT_LEFT_OUT(0, 135700000, 135699600);
	ASSERT_LEFT_OUT(0, 135700000, 135699600, 135699000);
	/* a rise after it, a fall that ends long before the process, or a full cache */
	ASSERT_LEFT_OUT(0, 135700, 1400, 860, 860, 20000, 40000);
	ASSERT_LEFT_OUT(0, 135700, 124300, 124300, 124300, 124300);
	ASSERT_LEFT_OUT(0, 135700, 135700, 135700, 135700, 135700);
	/* the program goes on allocating before the collapse */
	ASSERT_LEFT_OUT(2, 135700, 124300, 126300, 124300, 126300, 124300, 1000);
	/* hardly anything goes on for a third of the time: another phase of the program */
	ASSERT_LEFT_OUT(0, 135700, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9,
			9, 9, 9, 9, 9);
}

static void too_few_points_are_kept(void **state)
{
	struct hl_log_point points[HL_GROWTH_BUCKETS_MIN] = {{.end_bytes = 9, .max_bytes = 9}};

	(void)state;
	for (size_t count = 1; count <= HL_GROWTH_BUCKETS_MIN; count++)
		assert_int_equal(hl_growth_rows_before_end(points, count), count);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(leaks_score_high_and_what_is_none_does_not),
		cmocka_unit_test(what_rises_in_the_later_half_is_never_called_no_leak),
		cmocka_unit_test(a_teardown_is_left_out_with_its_pauses),
		cmocka_unit_test(what_is_no_teardown_is_judged),
		cmocka_unit_test(too_few_points_are_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
