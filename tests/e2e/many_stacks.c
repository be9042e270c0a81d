/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allocates from more stacks than a recorder has memory for, from each many times, and ends with
 * status 3.
 */
#include "program.h"

#include <sys/resource.h>

#define DEPTH_MAX 900 /* more stacks than the first table of a thread has room for */
#define REPEATS	  100 /* each is remembered by then */

static SITE int descend(int depth)
{
	for (int i = 0; depth == 0 && i < REPEATS; i++) {
		void *block = malloc(24);
		KEEP(block);
		free(block);
	}
	int result = depth ? descend(depth - 1) : 0;
	KEEP(result);
	return result;
}

int main(void)
{
	descend(10);
	REQUIRE(!setrlimit(RLIMIT_AS, &(struct rlimit){0}));
	for (int depth = 0; depth < DEPTH_MAX; depth++)
		descend(depth);
	puts("no more memory");
	return 3;
}
