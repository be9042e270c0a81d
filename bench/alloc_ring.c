/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Measures what a malloc+free pair costs under 256 distinct stacks of a given depth.
 *
 * Each thread keeps a ring of live blocks of 16 to 271 bytes; each pair frees the oldest and
 * allocates a new one at the end of a chain of 6, 12 or 20 calls, of which the outermost 0 to 3 are
 * those of the pair before. Depth counts all frames, from the caller of malloc out to the start of
 * the thread.
 *
 * usage: alloc_ring DEPTH THREADS PAIRS [CHAIN]
 * output: ns_per_pair=N cpu_ns_per_pair=N events_per_second=N; the second is processor time of the
 * thread that used most, an event is one malloc or one free
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
	CHAIN_FRAMES = 6,    /* the innermost, which change, if nothing else is said */
	OUTER_FRAMES = 3,    /* clone3, start_thread, and the loop in the last descend() */
	STACKS = 256,	     /* 8 bits: 3 choose the leaf, 3 the outermost frames of the chain */
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

/* One frame of the chain; bit ${level} + 2 of the choices chooses between left and right. */
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
LEVEL(6, level_5[path >> 7 & 1](path, size))
LEVEL(7, level_6[path >> 8 & 1](path, size))
LEVEL(8, level_7[path >> 9 & 1](path, size))
LEVEL(9, level_8[path >> 10 & 1](path, size))
LEVEL(10, level_9[path >> 11 & 1](path, size))
LEVEL(11, level_10[path >> 12 & 1](path, size))
LEVEL(12, level_11[path >> 13 & 1](path, size))
LEVEL(13, level_12[path >> 14 & 1](path, size))
LEVEL(14, level_13[path >> 15 & 1](path, size))
LEVEL(15, level_14[path >> 16 & 1](path, size))
LEVEL(16, level_15[path >> 17 & 1](path, size))
LEVEL(17, level_16[path >> 18 & 1](path, size))
LEVEL(18, level_17[path >> 19 & 1](path, size))
LEVEL(19, level_18[path >> 20 & 1](path, size))

/* The outermost frames of a chain, by its length. */
static step_fn *const *const chains[] = {
	[CHAIN_FRAMES] = level_5,
	[12] = level_11,
	[20] = level_19,
};

/* Chooses all frames of a chain by the 8 bits of a stack. */
static uint32_t choices_of(uint32_t stack, uint32_t chain)
{
	uint32_t fresh = (stack >> 3 & 3) | stack * UINT32_C(0x9e3779b1) >> 8 << 2;

	fresh &= (UINT32_C(1) << (chain - 4)) - 1;
	return (stack & 7) | fresh << 3 | stack >> 5 << (chain - 1);
}

struct ring {
	int frames_left; /* to add before the loop begins */
	uint32_t chain;
	uint64_t pairs;
	pthread_barrier_t *start;
	void *blocks[LIVE_BLOCKS];
	double elapsed_ns, cpu_ns;
};

/* The bits of a stack that choose the outermost ${kept} frames of the chain. */
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

static double now_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static inline __attribute__((always_inline)) void run_pairs(struct ring *ring, uint64_t pairs,
							    uint64_t *random)
{
	step_fn *const *outermost = chains[ring->chain];
	uint32_t stack = 0;

	for (uint64_t i = 0; i < pairs; i++) {
		uint64_t draw = next_random(random);
		uint32_t keep = kept_bits((uint32_t)(draw >> 20) % (KEPT_FRAMES_MAX + 1));
		stack = (stack & keep) | ((uint32_t)draw & (STACKS - 1) & ~keep);
		size_t size = SIZE_MIN + (draw >> 40) % SIZE_SPREAD;
		void **slot = &ring->blocks[i % LIVE_BLOCKS];
		free(*slot);
		*slot = outermost[stack >> 7](choices_of(stack, ring->chain), size);
		if (!*slot)
			abort();
		*(char *)*slot = (char)size;
	}
}

static inline __attribute__((always_inline)) void run_ring(struct ring *ring)
{
	uint64_t random = (uintptr_t)ring ^ UINT64_C(0x9e3779b97f4a7c15);

	run_pairs(ring, WARM_UP_PAIRS, &random);
	pthread_barrier_wait(ring->start);
	double begin = now_ns(CLOCK_MONOTONIC), cpu_begin = now_ns(CLOCK_THREAD_CPUTIME_ID);
	run_pairs(ring, ring->pairs, &random);
	ring->elapsed_ns = now_ns(CLOCK_MONOTONIC) - begin;
	ring->cpu_ns = now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_begin;
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

static double larger(double a, double b)
{
	return a > b ? a : b;
}

int main(int argc, char **argv)
{
	static struct ring rings[THREADS_MAX];
	pthread_t ids[THREADS_MAX];
	pthread_barrier_t start;
	int depth = argc >= 4 ? atoi(argv[1]) : 0;
	int threads = argc >= 4 ? atoi(argv[2]) : 0;
	uint64_t pairs = argc >= 4 ? strtoull(argv[3], NULL, 10) : 0;
	int chain = argc > 4 ? atoi(argv[4]) : CHAIN_FRAMES;
	double elapsed_ns = 0, cpu_ns = 0;

	if (chain < 0 || chain >= (int)(sizeof(chains) / sizeof(chains[0])) || !chains[chain] ||
	    depth < OUTER_FRAMES + chain || threads < 1 || threads > THREADS_MAX || pairs == 0) {
		fprintf(stderr, "usage: alloc_ring DEPTH THREADS PAIRS [CHAIN]\n"
				"DEPTH is at least CHAIN + 3; CHAIN is 6, 12 or 20\n");
		return 2;
	}
	pthread_barrier_init(&start, NULL, (unsigned)threads);
	for (int i = 0; i < threads; i++) {
		rings[i].frames_left = depth - OUTER_FRAMES - chain + 1;
		rings[i].chain = (uint32_t)chain;
		rings[i].pairs = pairs;
		rings[i].start = &start;
		if (pthread_create(&ids[i], NULL, descend, &rings[i]))
			abort();
	}
	for (int i = 0; i < threads; i++) {
		pthread_join(ids[i], NULL);
		elapsed_ns = larger(elapsed_ns, rings[i].elapsed_ns);
		cpu_ns = larger(cpu_ns, rings[i].cpu_ns);
	}
	printf("ns_per_pair=%.2f cpu_ns_per_pair=%.2f events_per_second=%.0f\n",
	       elapsed_ns / (double)pairs, cpu_ns / (double)pairs,
	       2.0 * (double)pairs * threads / (elapsed_ns / 1e9));
	return 0;
}
