/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A service that is idle most of the time: allocates by STACKS call stacks, says "ready", and then
 * again by the first twentieth of them each second, for SECONDS.
 *
 *	many_stacks STACKS SECONDS
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define DEPTH 20
#define KEPT  65536

static void *kept[KEPT];
static unsigned next;

static void allocate(unsigned path, int depth);

/* Two functions that call each other as the bits of a number say: each number is a stack. */
#define STEP(name)                                                              \
	static __attribute__((noinline)) void name(unsigned path, int depth)    \
	{                                                                       \
		allocate(path, depth);                                          \
		__asm__ volatile("" ::: "memory"); /* the call is not a jump */ \
	}
STEP(zero)
STEP(one)

static __attribute__((noinline)) void allocate(unsigned path, int depth)
{
	if (depth == DEPTH) {
		free(kept[next % KEPT]);
		kept[next++ % KEPT] = malloc(16 + path % 61 * 8);
	} else if (path >> depth & 1) {
		one(path, depth + 1);
	} else {
		zero(path, depth + 1);
	}
	__asm__ volatile("" ::: "memory");
}

int main(int argc, char **argv)
{
	unsigned stacks = argc > 1 ? (unsigned)atoi(argv[1]) : 0;
	int seconds = argc > 2 ? atoi(argv[2]) : 0;

	/* One call for both, so that the stacks are the same. */
	for (unsigned count = stacks;; count = stacks / 20) {
		for (unsigned path = 0; path < count; path++)
			allocate(path, 0);
		if (count == stacks) {
			puts("ready");
			fflush(stdout);
		}
		if (seconds-- == 0)
			return 0;
		nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
	}
}
