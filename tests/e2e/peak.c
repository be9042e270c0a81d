/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rises to one clear maximum in use and falls again: half of what `rise_first` allocated is gone
 * when `rise_second` reaches the maximum, and `rise_third` comes after it. Prints, as JSON, what
 * each function has in use at the maximum. With N threads each does a share at the same time.
 */
#include "program.h"

#include <pthread.h>

#define FIRST_BLOCKS  24000
#define SECOND_BLOCKS 30000
#define THIRD_BLOCKS  12000
#define FIRST_BYTES   1009
#define SECOND_BYTES  2003
#define THIRD_BYTES   1511
#define THREADS_MAX   8

static long threads;
static pthread_barrier_t phase;

static SITE void *rise_first(void)
{
	void *block = malloc(FIRST_BYTES);

	KEEP(block);
	return block;
}

static SITE void *rise_second(void)
{
	void *block = malloc(SECOND_BYTES);

	KEEP(block);
	return block;
}

static SITE void *rise_third(void)
{
	void *block = malloc(THIRD_BYTES);

	KEEP(block);
	return block;
}

static void rise(void *(*allocate)(void), void **blocks, long count)
{
	for (long i = 0; i < count; i++)
		blocks[i] = allocate();
}

static void fall(void **blocks, long count)
{
	for (long i = 0; i < count; i++)
		free(blocks[i]);
}

static void *worker(void *argument)
{
	static void *pool[THREADS_MAX][FIRST_BLOCKS + SECOND_BLOCKS];
	void **first = pool[(long)argument], **second = first + FIRST_BLOCKS;
	long first_count = FIRST_BLOCKS / threads, second_count = SECOND_BLOCKS / threads;

	rise(rise_first, first, first_count);
	fall(first, first_count / 2);
	pthread_barrier_wait(&phase);
	rise(rise_second, second, second_count);
	pthread_barrier_wait(&phase);
	fall(second, second_count);
	pthread_barrier_wait(&phase);
	rise(rise_third, second, THIRD_BLOCKS / threads);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t ids[THREADS_MAX];

	threads = argc > 1 ? atol(argv[1]) : 1;
	REQUIRE(threads == 1 || threads == 2 || threads == 4 || threads == 8);
	pthread_barrier_init(&phase, NULL, (unsigned)threads);
	for (long i = 0; i < threads; i++)
		REQUIRE(!pthread_create(&ids[i], NULL, worker, (void *)i));
	for (long i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);

	long first = (long)FIRST_BLOCKS / 2 * FIRST_BYTES,
	     second = (long)SECOND_BLOCKS * SECOND_BYTES;
	printf("{\"peak_bytes\": %ld, \"functions\": {\"rise_first\": %ld, \"rise_second\": %ld, "
	       "\"rise_third\": 0}}\n",
	       first + second, first, second);
	return 0;
}
