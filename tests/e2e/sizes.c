/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allocates blocks of one size at each of a few functions, frees half of them, and prints what an
 * estimate from samples must come near to, as JSON lines.
 */
#include "program.h"

#define SITES(apply)                                                                           \
	apply(size_16, 16, 3000000) apply(size_200, 200, 400000) apply(size_3000, 3000, 40000) \
		apply(size_50000, 50000, 4000) apply(size_400000, 400000, 500)

#define DEFINE_SITE(name, bytes, count)      \
	static SITE void *name(void)         \
	{                                    \
		void *block = malloc(bytes); \
		KEEP(block);                 \
		return block;                \
	}
SITES(DEFINE_SITE)

/* Frees every second block, not right after its allocation. */
static void allocate_many(void *(*site)(void), long count)
{
	void *last = NULL;

	for (long i = 0; i < count; i++) {
		void *block = site();
		REQUIRE(block);
		if (i % 2 == 1)
			free(last);
		last = block;
	}
}

#define REUSED_BLOCKS 20000

/* Gets one address again and again. */
static SITE void reused_50000(void)
{
	void *block = malloc(50000);

	KEEP(block);
	free(block);
	BARRIER();
}

#define RUN_SITE(name, bytes, count)                                          \
	allocate_many(name, count);                                           \
	printf("{\"function\": \"%s\", \"size\": %d, \"alloc_objects\": %d, " \
	       "\"inuse_objects\": %d}\n",                                    \
	       #name, bytes, count, count / 2);

int main(void)
{
	SITES(RUN_SITE)
	for (int i = 0; i < REUSED_BLOCKS; i++)
		reused_50000();
	printf("{\"function\": \"reused_50000\", \"size\": 50000, \"alloc_objects\": %d, "
	       "\"inuse_objects\": 0}\n",
	       REUSED_BLOCKS);
	return 0;
}
