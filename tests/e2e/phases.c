/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allocates and frees in short phases, well apart, by two threads in turn, and keeps a ledger of
 * every event in the order in which they happened: phases LEDGER ROUNDS.
 *
 * leak_site leaks; cache_site fills a cache in the first third; pool_site allocates and frees at
 * random; spike_site has some MiB for 5 ms in two of the rounds. Sums of sizes hardly ever repeat.
 */
#include "program.h"

#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define EVENTS_MAX    100000
#define POOL	      64
#define STEPS	      60 /* of a phase */
#define LONG_SLEEP_US 250000
#define SPIKE_US      5000

enum site {
	LEAK,
	CACHE,
	POOL_SITE,
	SPIKE,
};

struct event {
	int64_t bytes; /* negative: freed */
	uint64_t site;
};

struct ledger {
	uint64_t count;
	struct event events[EVENTS_MAX];
};

static struct ledger *ledger;
static uint32_t seed = 1;
static void *pool[POOL];
static int64_t pool_bytes[POOL];
static sem_t turns[2];
static int rounds;

static uint32_t next_random(void)
{
	seed = seed * 1664525u + 1013904223u;
	return seed >> 8;
}

static void note(enum site site, int64_t bytes)
{
	REQUIRE(ledger->count < EVENTS_MAX);
	ledger->events[ledger->count++] = (struct event){bytes, site};
}

static SITE void *leak_site(size_t size)
{
	void *block = malloc(size);

	KEEP(block);
	return block;
}

static SITE void *cache_site(size_t size)
{
	void *block = malloc(size);

	KEEP(block);
	return block;
}

static SITE void *pool_site(size_t size)
{
	void *block = malloc(size);

	KEEP(block);
	return block;
}

static SITE void *spike_site(size_t size)
{
	void *block = malloc(size);

	KEEP(block);
	return block;
}

static void change_pool(void)
{
	uint32_t at = next_random() % POOL;

	if (pool[at]) {
		free(pool[at]);
		note(POOL_SITE, -pool_bytes[at]);
		pool[at] = NULL;
		return;
	}
	pool_bytes[at] = 1 + next_random() % 50021;
	pool[at] = pool_site((size_t)pool_bytes[at]);
	note(POOL_SITE, pool_bytes[at]);
}

static void make_spike(int64_t bytes)
{
	void *block = spike_site((size_t)bytes);

	note(SPIKE, bytes);
	usleep(SPIKE_US);
	free(block);
	note(SPIKE, -bytes);
}

static void run_phase(int round)
{
	for (int i = 0; i < STEPS; i++) {
		change_pool();
		if (i % 20 == 0) {
			KEEP(leak_site(1009));
			note(LEAK, 1009);
		}
		if (i % 10 == 0 && round < rounds / 3) {
			KEEP(cache_site(4001));
			note(CACHE, 4001);
		}
	}
	if (round == rounds / 2)
		make_spike((int64_t)64 << 20);
	if (round == rounds * 3 / 4)
		make_spike(5000011);
	change_pool(); /* so that it is not all as before the spike */
}

/* Odd rounds or even ones. */
static void take_turns(int self)
{
	for (int round = self; round < rounds; round += 2) {
		sem_wait(&turns[self]);
		run_phase(round);
		usleep(60000 + next_random() % 60000);
		sem_post(&turns[!self]);
	}
}

static void *run_other(void *unused)
{
	take_turns(1);
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t other;

	REQUIRE(argc == 3);
	rounds = atoi(argv[2]);
	int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
	REQUIRE(fd >= 0 && ftruncate(fd, sizeof(*ledger)) == 0);
	ledger = mmap(NULL, sizeof(*ledger), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	REQUIRE(ledger != MAP_FAILED);
	sem_init(&turns[0], 0, 1);
	sem_init(&turns[1], 0, 0);
	REQUIRE(pthread_create(&other, NULL, run_other, NULL) == 0);
	usleep(LONG_SLEEP_US);
	take_turns(0);
	usleep(LONG_SLEEP_US);
	pthread_join(other, NULL);
	return 0;
}
