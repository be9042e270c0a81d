/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Measures what a malloc+free pair costs under 256 distinct stacks of a given depth.
 *
 * Each thread keeps a ring of live blocks of 16 to 271 bytes; each pair frees the oldest and
 * allocates a new one at the end of a chain of calls whose innermost 3 to 6 frames change from pair
 * to pair. Depth counts all frames, from the caller of malloc out to the start of the thread.
 *
 * usage: alloc_ring DEPTH THREADS PAIRS
 * output: ns_per_pair=N events_per_second=N (an event is one malloc or one free)
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
	LIVE_BLOCKS = 1024,
	SIZE_MIN = 16,
	SIZE_SPREAD = 256,
	CHAIN_FRAMES = 6,    /* the innermost, which change */
	OUTER_FRAMES = 3,    /* clone3, start_thread, and the loop in the last descend() */
	STACKS = 256,	     /* 8 bits: 3 choose the leaf, 1 each of the five frames around it */
	KEPT_FRAMES_MAX = 3, /* of the chain, from one pair to the next */
	WARM_UP_PAIRS = 20000,
	THREADS_MAX = 64,
};

typedef void *step_fn(uint32_t path, size_t size);

/* Forbids the compiler to merge functions that look the same, and to make calls into jumps. */
#define DISTINCT(n) __asm__ volatile("# " #n)
#define KEEP(value) __asm__ volatile("" : "+r"(value))

#define LEAF(n)                                                      \
	__attribute__((noinline)) static void *leaf_##n(size_t size) \
	{                                                            \
		DISTINCT(n);                                         \
		void *block = malloc(size);                          \
		KEEP(block);                                         \
		return block;                                        \
	}

LEAF(0)
LEAF(1)
LEAF(2)
LEAF(3)
LEAF(4)
LEAF(5)
LEAF(6)
LEAF(7)

typedef void *leaf_fn(size_t size);

static leaf_fn *const leaves[] = {leaf_0, leaf_1, leaf_2, leaf_3, leaf_4, leaf_5, leaf_6, leaf_7};

/* One frame of the chain; bit ${level} + 2 of the path chooses between left and right. */
#define STEP(side, level, inner)                                                          \
	__attribute__((noinline)) static void *side##_##level(uint32_t path, size_t size) \
	{                                                                                 \
		DISTINCT(level);                                                          \
		void *block = inner;                                                      \
		KEEP(block);                                                              \
		return block;                                                             \
	}

#define LEVEL(level, inner)       \
	STEP(left, level, inner)  \
	STEP(right, level, inner) \
	static step_fn *const level_##level[] = {left_##level, right_##level};

LEVEL(1, leaves[path & 7](size))
LEVEL(2, level_1[path >> 3 & 1](path, size))
LEVEL(3, level_2[path >> 4 & 1](path, size))
LEVEL(4, level_3[path >> 5 & 1](path, size))
LEVEL(5, level_4[path >> 6 & 1](path, size))

struct ring {
	int frames_left; /* to add before the loop begins */
	uint64_t pairs;
	pthread_barrier_t *start;
	void *blocks[LIVE_BLOCKS];
	double elapsed_ns;
};

/* The path bits of the outermost ${kept} frames of the chain. */
static uint32_t kept_bits(uint32_t kept)
{
	return STACKS - (STACKS >> kept);
}

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static double now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static inline __attribute__((always_inline)) void run_pairs(void **blocks, uint64_t pairs,
							    uint64_t *random)
{
	uint32_t path = 0;

	for (uint64_t i = 0; i < pairs; i++) {
		uint64_t draw = next_random(random);
		uint32_t keep = kept_bits((uint32_t)(draw >> 20) % (KEPT_FRAMES_MAX + 1));
		path = (path & keep) | ((uint32_t)draw & (STACKS - 1) & ~keep);
		size_t size = SIZE_MIN + (draw >> 40) % SIZE_SPREAD;
		void **slot = &blocks[i % LIVE_BLOCKS];
		free(*slot);
		*slot = level_5[path >> 7](path, size);
		if (!*slot)
			abort();
		*(char *)*slot = (char)size;
	}
}

static inline __attribute__((always_inline)) void run_ring(struct ring *ring)
{
	uint64_t random = (uintptr_t)ring ^ UINT64_C(0x9e3779b97f4a7c15);

	run_pairs(ring->blocks, WARM_UP_PAIRS, &random);
	pthread_barrier_wait(ring->start);
	double begin = now_ns();
	run_pairs(ring->blocks, ring->pairs, &random);
	ring->elapsed_ns = now_ns() - begin;
	for (int i = 0; i < LIVE_BLOCKS; i++)
		free(ring->blocks[i]);
}

/* What a thread starts with: makes the stack deep enough, then runs the ring in its last frame. */
__attribute__((noinline)) static void *descend(void *argument)
{
	struct ring *ring = argument;

	if (--ring->frames_left > 0)
		ring = descend(ring);
	else
		run_ring(ring);
	KEEP(ring);
	return ring;
}

/* Runs all rings at once; returns the longest time any took. */
static double run_threads(struct ring *rings, int threads)
{
	pthread_t ids[THREADS_MAX];
	double longest_ns = 0;

	for (int i = 0; i < threads; i++)
		if (pthread_create(&ids[i], NULL, descend, &rings[i]))
			abort();
	for (int i = 0; i < threads; i++) {
		pthread_join(ids[i], NULL);
		if (rings[i].elapsed_ns > longest_ns)
			longest_ns = rings[i].elapsed_ns;
	}
	return longest_ns;
}

int main(int argc, char **argv)
{
	static struct ring rings[THREADS_MAX];
	pthread_barrier_t start;
	int depth = argc == 4 ? atoi(argv[1]) : 0;
	int threads = argc == 4 ? atoi(argv[2]) : 0;
	uint64_t pairs = argc == 4 ? strtoull(argv[3], NULL, 10) : 0;

	if (depth <= OUTER_FRAMES + CHAIN_FRAMES - 1 || threads < 1 || threads > THREADS_MAX ||
	    pairs == 0) {
		fprintf(stderr, "usage: alloc_ring DEPTH THREADS PAIRS (depth from 9)\n");
		return 2;
	}
	pthread_barrier_init(&start, NULL, (unsigned)threads);
	for (int i = 0; i < threads; i++) {
		rings[i].frames_left = depth - OUTER_FRAMES - CHAIN_FRAMES + 1;
		rings[i].pairs = pairs;
		rings[i].start = &start;
	}
	double longest_ns = run_threads(rings, threads);
	printf("ns_per_pair=%.2f events_per_second=%.0f\n", longest_ns / (double)pairs,
	       2.0 * (double)pairs * threads / (longest_ns / 1e9));
	return 0;
}
