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
 * HL_SAMPLING_UNIFORM. The distance to the next point is drawn evenly from 0 to 2R, and a block
 * has one point at most: p(X) = X/R for those smaller than R, about, and 1 for the others.
 */
#include "import/import_sample.h"

#include <math.h>

static double probability(const struct hl_import_sampling *sampling, double size_bytes)
{
	double ratio = size_bytes / sampling->mean_bytes;

	if (sampling->kind == HL_SAMPLING_UNIFORM)
		return ratio < 1 ? ratio : 1;
	return -expm1(-ratio); /* 1 - e^-ratio, but exact for small ones too */
}

/* To the nearest integer; what is larger than all of them becomes the largest. */
static int64_t rounded(double number)
{
	return number < 0x1p63 ? llround(number) : INT64_MAX;
}

struct hl_import_amount hl_import_unsample(const struct hl_import_sampling *sampling,
					   struct hl_import_amount sampled)
{
	double objects = (double)sampled.objects, bytes = (double)sampled.bytes;

	if (sampling->kind == HL_SAMPLING_NONE || sampled.objects <= 0 || sampled.bytes <= 0)
		return sampled;
	double p = probability(sampling, bytes / objects);
	return (struct hl_import_amount){rounded(objects / p), rounded(bytes / p)};
}
