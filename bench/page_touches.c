/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the first touch of a page costs, again and again in one process, so that it can be measured
 * before, while and after something looks at it: bench/faults.py.
 *
 *	page_touches DEPTH	prints "ready"
 *	standard input		one number a line: how many pages to touch; below zero, how many to
 *				touch and keep
 *	standard output		for each the processor time of a touch, in ns
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define PAGE_BYTES 4096

static char *area;
static long pages;

static uint64_t cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static __attribute__((noinline)) void touch(void)
{
	for (long i = 0; i < pages; i++)
		area[i * PAGE_BYTES] = 1;
}

static __attribute__((noinline)) void at_depth(long depth)
{
	if (depth > 1)
		at_depth(depth - 1);
	else
		touch();
	__asm__ volatile(""); /* no tail call */
}

static void measure(long depth)
{
	size_t bytes = (size_t)pages * PAGE_BYTES;

	area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (area == MAP_FAILED)
		abort();
	madvise(area, bytes, MADV_NOHUGEPAGE);
	uint64_t start = cpu_ns();
	at_depth(depth);
	printf("%.1f\n", (double)(cpu_ns() - start) / (double)pages);
}

int main(int argc, char **argv)
{
	long depth = argc > 1 ? atol(argv[1]) : 20, wanted;

	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("ready");
	while (scanf("%ld", &wanted) == 1 && wanted) {
		pages = labs(wanted);
		measure(depth);
		if (wanted > 0)
			munmap(area, (size_t)pages * PAGE_BYTES);
	}
	return 0;
}
