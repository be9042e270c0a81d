/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allocations with known stacks, to be compiled in many ways; see test_builds.py. What a line allocates comes after "=", in bytes and
 * blocks. With an argument the program waits for a line before it allocates, and for another before it ends.
 */
#include <stdio.h>
#include <stdlib.h>

#define OWN __attribute__((noinline))

static char pool[1 << 20];
static size_t pool_used;
static void *volatile kept;
static volatile size_t pool_bytes = 30; /* so that no compiler makes a function of its own for it */

/* An allocator of the program's own, named by rules. */
OWN void *pool_alloc(size_t bytes)
{
	void *block = pool + pool_used;

	pool_used += (bytes + 15) & ~(size_t)15;
	return pool_used < sizeof(pool) ? block : NULL;
}

OWN void pool_free(void *block)
{
	kept = block;
}

OWN void leaf(size_t bytes)
{
	kept = malloc(bytes); // = 77000 1000
	__asm__ volatile("");
}

OWN void middle(int count)
{
	for (int i = 0; i < count; i++)
		leaf(77);
	__asm__ volatile("");
}

OWN void work(void)
{
	for (int i = 0; i < 10; i++)
		middle(100);
	for (int i = 0; i < 500; i++) {
		void *block = pool_alloc(pool_bytes);
		if (i < 200)
			pool_free(block);
	}
	__asm__ volatile("");
}

int main(int count, char **words)
{
	if (count > 1) {
		puts("ready");
		fflush(stdout);
		getchar();
	}
	work();
	if (count > 1) {
		puts(words[1]);
		fflush(stdout);
		getchar();
	}
	return 0;
}
