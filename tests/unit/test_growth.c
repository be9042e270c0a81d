/* SPDX-License-Identifier: BSD-2-Clause */
/* How steadily something grows: leaks, and what is not a leak. */
#include "view/growth_rows.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define SAMPLES 16 /* of each part */

static double score_of(double (*shape)(double time))
{
	double least[HL_GROWTH_BUCKETS_MAX];

	for (size_t i = 0; i < HL_GROWTH_BUCKETS_MAX * SAMPLES; i++) {
		double now = shape(((double)i + 0.5) / (HL_GROWTH_BUCKETS_MAX * SAMPLES));
		double *part = &least[i / SAMPLES];
		*part = i % SAMPLES ? fmin(*part, now) : now;
	}
	return hl_growth_score(least, HL_GROWTH_BUCKETS_MAX);
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
	assert_true(hl_growth_score((double[]){1, 2, 3, 4, 5, 6, 7}, 7) == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(leaks_score_high_and_what_is_none_does_not),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
