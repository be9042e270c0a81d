/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Scales samples to estimates; see import_sample.h.
 *
 * HL_SAMPLING_POISSON. The allocated bytes, one after another, are a line on which sample points
 * lie at random, independently, at a mean distance R. A block is sampled when a point falls on it.
 * One of X bytes stays free of points with probability e^(-X/R), so it is sampled with
 *
 *	p(X) = 1 - e^(-X/R)
 *
 * and if each sampled block is counted 1/p(X) times, a block counts once on average: the estimate
 * has no bias. Blocks far larger than R have p = 1, far smaller ones X/R.
 *
 * A file holds no sizes, only the sums of a stack: n blocks, s bytes. X = s/n stands for them all,
 * which is exact where they are of one size. Where they are not, gperftools' estimate has a small
 * bias; jemalloc from 5.3 on weighs each block by itself and then writes such n and s that this
 * calculation ends at its unbiased result (prof_unbias; its PROFILING_INTERNALS has the proof).
 *
 * Early gperftools drew the distance to the next point evenly from 0 to 2R, and Go writes 2R where
 * gperftools writes R. Both say "heap/2R", and Go's pprof takes all such files for Go's: so
 * does this.
 */
#include "import/import_sample.h"

#include <math.h>

/* What is larger than all integers becomes the largest. */
static int64_t to_integer(double number)
{
	if (number >= 0x1p63)
		return INT64_MAX;
	return number > -0x1p63 ? (int64_t)number : INT64_MIN;
}

struct hl_import_amount hl_import_unsample(const struct hl_import_sampling *sampling,
					   struct hl_import_amount sampled)
{
	double objects = (double)sampled.objects, bytes = (double)sampled.bytes;

	/* With a mean of 1 every allocation is a sample; differing signs mean nothing. */
	if (sampling->kind == HL_SAMPLING_NONE || sampling->mean_bytes <= 1 ||
	    (objects < 0) != (bytes < 0))
		return sampled;
	if (!sampled.objects || !sampled.bytes)
		return (struct hl_import_amount){0};
	if (sampling->kind == HL_SAMPLING_POISSON) {
		double p = -expm1(-bytes / objects / sampling->mean_bytes);
		return (struct hl_import_amount){to_integer(round(objects / p)),
						 to_integer(round(bytes / p))};
	}
	double scale = 1 / (1 - exp(-(bytes / objects) / sampling->mean_bytes));
	return (struct hl_import_amount){to_integer(objects * scale), to_integer(bytes * scale)};
}
