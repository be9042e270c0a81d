/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a pair of malloc and free costs, again and again in one process, so that it can be measured
 * before, while and after something looks at it: bench/traces.py.
 *
 *	alloc_pairs DEPTH	prints "ready"
 *	standard input		one number a line: how many pairs to make; below zero, how many
 *				blocks to make and keep
 *	standard output		for each the processor time of a pair or block, in ns
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static long pairs;
static char *kept;

static uint64_t cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static __attribute__((noinline)) void make_pairs(void)
{
	for (long i = 0; i < pairs; i++) {
		char *volatile block = malloc(64);
		block[0] = 1;
		free(block);
	}
}

/* Each block holds on to the one before. */
static __attribute__((noinline)) void keep_blocks(void)
{
	for (long i = 0; i < -pairs; i++) {
		char *block = malloc(64);
		memcpy(block, &kept, sizeof(kept));
		kept = block;
	}
}

static __attribute__((noinline)) void at_depth(long depth)
{
	if (depth > 1)
		at_depth(depth - 1);
	else if (pairs > 0)
		make_pairs();
	else
		keep_blocks();
	__asm__ volatile(""); /* no tail call */
}

int main(int argc, char **argv)
{
	long depth = argc > 1 ? atol(argv[1]) : 20;

	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("ready");
	while (scanf("%ld", &pairs) == 1 && pairs) {
		uint64_t start = cpu_ns();
		at_depth(depth);
		printf("%.1f\n", (double)(cpu_ns() - start) / (double)labs(pairs));
	}
	return 0;
}
