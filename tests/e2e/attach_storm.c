/* SPDX-License-Identifier: BSD-2-Clause */
/* A program that does nothing but allocate, and knows how much of it was hooked. */
#include "attach_storm.h"

#include "program.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS_OF_SHORT_THREAD 2000
#define ROUNDS_OF_TURN	       256
#define PAUSE_NS	       1000000

static struct storm_ledger *ledger;
static const volatile uint64_t *entry; /* of malloc */
static uint64_t words_before[2];       /* there */
static _Atomic uint64_t signals;

/* Among its first instructions is a jump that was not there. */
static bool is_hooked(void)
{
	return entry[0] != words_before[0] || entry[1] != words_before[1];
}

SITE static void *allocate(struct storm_count *count, size_t size)
{
	bool before = is_hooked();
	void *block = malloc(size);
	bool after = is_hooked();

	KEEP(block);
	count->all++;
	count->sure += before && after;
	count->maybe += before != after;
	return block;
}

struct worker {
	unsigned index;
	unsigned rounds; /* 0: until the end */
};

static void *work(void *argument)
{
	struct worker *worker = argument;
	struct storm_count *count = &ledger->counts[worker->index];
	void *kept[STORM_KEPT] = {NULL};
	uint64_t random = worker->index + 1;

	ledger->ready++;
	for (unsigned i = 0; !ledger->stop && (!worker->rounds || i < worker->rounds); i++) {
		random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
		void **place = &kept[random >> 58];
		free(*place);
		*place = allocate(count, 16 + (random >> 40 & 1023));
		/* Hundreds of threads on few processors come round in milliseconds, not seconds, and
		 * whoever waits for each of them to go on has an answer soon. */
		if (i % ROUNDS_OF_TURN == 0)
			sched_yield();
	}
	for (size_t i = 0; i < STORM_KEPT; i++)
		free(kept[i]);
	return NULL;
}

/* Runs one thread after the other in the place of one. */
static void *replace(void *argument)
{
	struct worker *place = argument;
	struct worker one = {place->index, ROUNDS_OF_SHORT_THREAD};

	while (!ledger->stop) {
		pthread_t thread;
		REQUIRE(pthread_create(&thread, NULL, work, &one) == 0);
		pthread_join(thread, NULL);
	}
	return NULL;
}

static void on_signal(int number)
{
	(void)number;
	signals++;
}

static void fork_once(void)
{
	pid_t child = fork();

	if (child == 0) {
		for (int i = 0; i < STORM_CHILD_BLOCKS; i++) {
			void *block = malloc(100);
			KEEP(block);
			free(block);
		}
		_exit(0);
	}
	int status = 0;
	REQUIRE(waitpid(child, &status, 0) == child && status == 0);
	ledger->forks++;
}

static void load_once(void)
{
	void *library = dlopen("libutil.so.1", RTLD_NOW);

	if (!library)
		library = dlopen("libm.so.6", RTLD_NOW);
	REQUIRE(library);
	dlclose(library);
}

void storm(struct storm_ledger *shared, unsigned threads, unsigned kinds)
{
	static struct worker workers[STORM_THREADS_MAX];
	pthread_t handles[STORM_THREADS_MAX];
	const struct timespec pause = {.tv_nsec = PAUSE_NS};

	ledger = shared;
	entry = dlsym(RTLD_DEFAULT, "malloc");
	words_before[0] = entry[0];
	words_before[1] = entry[1];
	signal(SIGUSR1, on_signal);
	for (unsigned i = 0; i < threads; i++) {
		workers[i].index = i;
		REQUIRE(pthread_create(&handles[i], NULL, kinds & STORM_THREADS ? replace : work,
				       &workers[i]) == 0);
	}
	while (!ledger->stop) {
		if (kinds & STORM_FORKS)
			fork_once();
		if (kinds & STORM_LIBRARIES)
			load_once();
		if (kinds & STORM_SIGNALS)
			pthread_kill(handles[signals % threads], SIGUSR1);
		nanosleep(&pause, NULL);
	}
	for (unsigned i = 0; i < threads; i++)
		pthread_join(handles[i], NULL);
}
