/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allocates from more stacks than a recorder has memory for, from each several times, and ends with
 * status 3.
 */
#include "program.h"

#include <sys/resource.h>

#define DEPTH	16 /* of two ways at each: a table of them takes more than was mapped in advance */
#define REPEATS 3  /* each is remembered by then */

static int descend(unsigned depth, unsigned ways);

static SITE int left(unsigned depth, unsigned ways)
{
	int result = descend(depth, ways);

	KEEP(result);
	return result;
}

static SITE int right(unsigned depth, unsigned ways)
{
	int result = descend(depth, ways);

	KEEP(result);
	return result;
}

static SITE int descend(unsigned depth, unsigned ways)
{
	for (int i = 0; depth == 0 && i < REPEATS; i++) {
		void *block = malloc(24);
		KEEP(block);
		free(block);
	}
	int result = 0;
	if (depth)
		result = ways & 1 ? right(depth - 1, ways >> 1) : left(depth - 1, ways >> 1);
	KEEP(result);
	return result;
}

int main(void)
{
	descend(4, 0);
	REQUIRE(!setrlimit(RLIMIT_AS, &(struct rlimit){0}));
	for (unsigned ways = 0; ways < 1u << DEPTH; ways++)
		descend(DEPTH, ways);
	puts("no more memory");
	return 3;
}
