/* SPDX-License-Identifier: BSD-2-Clause */
/* Draws sampling distances and weighs samples; see sample.h. No libm: the recorder links libc
 * alone. */
#include "recorder/sample.h"

#include <string.h>

/* xorshift64* (Vigna 2016); good enough for distances, and 1 ns. */
static uint64_t next_random(struct hl_thread *thread)
{
	uint64_t x = thread->random;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	thread->random = x;
	return x * UINT64_C(0x2545f4914f6cdd1d);
}

/* Natural logarithm for 0 < x <= 1: x = m * 2^e with m in [0.7, 1.42), ln m = 2 artanh((m - 1) / (m
 * + 1)). */
static double natural_log(double x)
{
	uint64_t bits;

	memcpy(&bits, &x, sizeof(bits));
	int exponent = (int)(bits >> 52) - 1022;
	bits = (bits & UINT64_C(0x000fffffffffffff)) | UINT64_C(0x3fe0000000000000);
	double m;
	memcpy(&m, &bits, sizeof(m));
	if (m < 0.7071067811865476) {
		m *= 2;
		exponent--;
	}
	double t = (m - 1) / (m + 1);
	double square = t * t;
	double sum = 0;
	for (int k = 15; k >= 1; k -= 2)
		sum = sum * square + 1.0 / k;
	return 2 * t * sum + exponent * 0.6931471805599453;
}

/* 1 - exp(-x) for x >= 0, without cancellation for small x: the series for x / 1024, then f(2y) =
 * f(y) (2 - f(y)). */
static double one_minus_exp(double x)
{
	if (x > 40)
		return 1;
	double y = x / 1024;
	double value = y * (1 - y / 2 * (1 - y / 3 * (1 - y / 4)));
	for (int i = 0; i < 10; i++)
		value *= 2 - value;
	return value;
}

void hl_sample_next(struct hl_thread *thread, uint64_t mean)
{
	if (!mean) {
		thread->sample_countdown = INT64_MAX;
		return;
	}
	double uniform = (double)((next_random(thread) >> 11) + 1) * 0x1p-53;
	double distance = -natural_log(uniform) * (double)mean;

	thread->sample_countdown = distance < 0x1p62 ? (int64_t)distance + 1 : INT64_MAX;
}

void hl_sample_start(struct hl_thread *thread, uint64_t mean)
{
	thread->random =
		((uint64_t)(uintptr_t)thread ^ ((uint64_t)thread->in_region->tid << 32)) | 1;
	for (int i = 0; i < 8; i++)
		next_random(thread);
	hl_sample_next(thread, mean);
}

static uint64_t round_by_chance(double value, double chance)
{
	uint64_t whole = (uint64_t)value;

	return whole + (value - (double)whole > chance);
}

uint32_t hl_sample_draw(struct hl_thread *thread)
{
	return 1 + (uint32_t)((next_random(thread) >> 32) * HL_DRAW_MAX >> 32);
}

/* The address only fills in between the steps of the draw: any address leaves the result uniform to
 * within 1/HL_DRAW_MAX. */
static double chance_of(const void *address, uint32_t draw)
{
	uint64_t hash = (uint64_t)(uintptr_t)address * UINT64_C(0x9e3779b97f4a7c15);

	return ((double)(draw - 1) + (double)(hash >> 11) * 0x1p-53) / HL_DRAW_MAX;
}

struct hl_weight hl_sample_weight(uint64_t mean, const void *address, struct hl_block block)
{
	uint64_t requested = block.requested;

	double chance = chance_of(address, block.draw);
	double objects = 1 / one_minus_exp((double)(requested | 1) / (double)mean);
	return (struct hl_weight){
		.bytes = round_by_chance((double)requested * objects, chance),
		.objects = round_by_chance(objects, chance),
	};
}
