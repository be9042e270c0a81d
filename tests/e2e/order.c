/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads whose blocks are known at every moment, all orders of theirs that can be being counted.
 *
 *	order spike	two threads allocate and free all the time, CHURN_LIVE blocks of 127 bytes
 *			at most each; meanwhile the main thread has a block of 64 MiB, 3 times, only
 *			as long as it takes to allocate and free it
 *	order pass	one thread allocates blocks of 4096 bytes, another frees them; at most
 *			PASS_LIVE of them are in use
 */
#include "program.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#define CHURN_LIVE   16
#define CHURN_BEFORE 20000 /* rounds of each thread before each spike */
#define SPIKES	     3
#define SPIKE_BYTES  ((size_t)64 << 20)
#define PASS_LIVE    4
#define PASSED	     300000
#define SPINS	     100 /* before the other thread gets the processor */

/* ---- spike ---- */

static _Atomic unsigned rounds[2];
static atomic_bool over;

static SITE void *churn_site(void)
{
	void *block = malloc(127);

	KEEP(block);
	return block;
}

static void *churn(void *argument)
{
	_Atomic unsigned *round = argument;
	void *blocks[CHURN_LIVE] = {0};

	while (!atomic_load(&over)) {
		void **block = &blocks[atomic_fetch_add(round, 1) % CHURN_LIVE];
		free(*block);
		*block = churn_site();
	}
	for (int i = 0; i < CHURN_LIVE; i++)
		free(blocks[i]);
	return NULL;
}

static SITE void *spike_site(void)
{
	void *block = malloc(SPIKE_BYTES);

	KEEP(block);
	return block;
}

static void await_rounds(unsigned number)
{
	for (int i = 0; i < 2; i++)
		while (atomic_load(&rounds[i]) < number)
			sched_yield();
}

static void spike(void)
{
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		REQUIRE(pthread_create(&threads[i], NULL, churn, &rounds[i]) == 0);
	for (unsigned i = 1; i <= SPIKES; i++) {
		await_rounds(i * CHURN_BEFORE);
		free(spike_site());
	}
	await_rounds((SPIKES + 1) * CHURN_BEFORE);
	atomic_store(&over, true);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}

/* ---- pass ---- */

static void *_Atomic passed[PASS_LIVE]; /* NULL: a block may be allocated for it */

static SITE void *pass_site(void)
{
	void *block = malloc(4096);

	KEEP(block);
	return block;
}

/* Waits for what the other thread does, and nothing else. */
static void *await_change(void *_Atomic *place, bool empty)
{
	void *block;

	for (int spins = 1; !(block = atomic_load_explicit(place, memory_order_acquire)) != empty;
	     spins++)
		if (spins % SPINS == 0)
			sched_yield();
	return block;
}

static void *take(void *argument)
{
	(void)argument;
	for (int i = 0; i < PASSED; i++) {
		void *_Atomic *place = &passed[i % PASS_LIVE];
		free(await_change(place, false));
		atomic_store_explicit(place, NULL, memory_order_release);
	}
	return NULL;
}

static void pass(void)
{
	pthread_t taker;

	REQUIRE(pthread_create(&taker, NULL, take, NULL) == 0);
	for (int i = 0; i < PASSED; i++) {
		void *_Atomic *place = &passed[i % PASS_LIVE];
		await_change(place, true);
		atomic_store_explicit(place, pass_site(), memory_order_release);
	}
	pthread_join(taker, NULL);
}

int main(int argc, char **argv)
{
	REQUIRE(argc == 2);
	if (strcmp(argv[1], "spike") == 0)
		spike();
	else
		pass();
	return 0;
}
