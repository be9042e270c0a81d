/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allocates and frees for hours and keeps a ledger of it, for bench/soak.py: how many bytes are in
 * use, and how many of them each function allocated.
 *
 * Two threads work all the time. A line on standard input makes them stop; then the main
 * thread works for a moment alone, with a block of SPIKE_BYTES in the middle of it, and prints
 *
 *	total MAX PULSE BYTES...
 *
 * all in bytes: what is in use, the most there was since the line, the size of a block that it
 * allocates and frees from now on in each interval, and what is in use of each function. The next
 * line lets the threads go on. At the end of input it stops them, prints the ledger, and ends.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/poll.h>
#include <time.h>
#include <unistd.h>

enum {
	WORKERS = 2,
	FUNCTIONS = 16,
	DEPTH_MAX = 32,	   /* frames between the function and its thread's first */
	BLOCKS_MAX = 8192, /* of each thread */
	SIZE_MAX_BYTES = 4096,
	EVENTS_OF_TURN = 200, /* then it pauses */
	PAUSE_NS = 1000000,
	SPIKE_TURNS = 100,
	SPIKE_BYTES = 64 << 20,
	PULSE_BYTES = 24,
	PULSE_MS = 30,
};

struct block {
	void *bytes;
	uint32_t size, function;
};

/* One thread's share of the ledger, and what it is about. */
struct worker {
	struct block blocks[BLOCKS_MAX];
	uint32_t count;
	uint64_t random, events;
	int64_t in_use, most, of_function[FUNCTIONS];
};

static struct worker workers[WORKERS + 1]; /* the last one is the main thread's */
static pthread_barrier_t still, go_on;
static atomic_bool hold, stop;

/* ---- functions that allocate ---- */

#define KEEP(value) __asm__ volatile("" : "+r"(value))

#define SOAK(n)                                                        \
	__attribute__((noinline)) static void *soak_##n(uint32_t size) \
	{                                                              \
		void *bytes = malloc(size);                            \
		KEEP(bytes);                                           \
		return bytes;                                          \
	}

SOAK(0)
SOAK(1)
SOAK(2)
SOAK(3)
SOAK(4)
SOAK(5)
SOAK(6)
SOAK(7)
SOAK(8)
SOAK(9)
SOAK(10)
SOAK(11)
SOAK(12)
SOAK(13)
SOAK(14)
SOAK(15)

static void *(*const functions[FUNCTIONS])(uint32_t) = {
	soak_0, soak_1, soak_2,	 soak_3,  soak_4,  soak_5,  soak_6,  soak_7,
	soak_8, soak_9, soak_10, soak_11, soak_12, soak_13, soak_14, soak_15,
};

__attribute__((noinline)) static void *allocate(uint32_t function, uint32_t size, uint32_t depth)
{
	void *bytes = depth ? allocate(function, size, depth - 1) : functions[function](size);

	KEEP(bytes);
	return bytes;
}

/* ---- the ledger ---- */

static void add(struct worker *worker, uint32_t function, int64_t bytes)
{
	worker->in_use += bytes;
	worker->of_function[function] += bytes;
	if (worker->in_use > worker->most)
		worker->most = worker->in_use;
}

static struct block new_block(struct worker *worker, uint32_t function, uint32_t size,
			      uint32_t depth)
{
	struct block block = {allocate(function, size, depth), size, function};

	if (!block.bytes)
		abort();
	memset(block.bytes, 1, size);
	add(worker, function, size);
	return block;
}

static void free_block(struct worker *worker, struct block *block)
{
	free(block->bytes);
	add(worker, block->function, -(int64_t)block->size);
}

/* ---- work ---- */

static uint32_t draw(struct worker *worker, uint32_t count)
{
	worker->random ^= worker->random << 13;
	worker->random ^= worker->random >> 7;
	worker->random ^= worker->random << 17;
	return (uint32_t)(worker->random >> 20) % count;
}

/* How many blocks there should be: rises and falls, once in about 17 million events. */
static uint32_t wanted(const struct worker *worker)
{
	uint32_t phase = (uint32_t)(worker->events >> 10) % (2 * BLOCKS_MAX);

	return phase < BLOCKS_MAX ? phase : 2 * BLOCKS_MAX - phase;
}

static void work_once(struct worker *worker)
{
	bool grow = draw(worker, BLOCKS_MAX) + wanted(worker) / 2 > worker->count + BLOCKS_MAX / 4;

	worker->events++;
	if (worker->count < BLOCKS_MAX && (!worker->count || grow)) {
		worker->blocks[worker->count++] =
			new_block(worker, draw(worker, FUNCTIONS), 1 + draw(worker, SIZE_MAX_BYTES),
				  draw(worker, DEPTH_MAX));
		return;
	}
	struct block *freed = &worker->blocks[draw(worker, worker->count)];
	free_block(worker, freed);
	*freed = worker->blocks[--worker->count];
}

static void pause_a_little(void)
{
	const struct timespec time = {.tv_nsec = PAUSE_NS};

	nanosleep(&time, NULL);
}

static void work_a_turn(struct worker *worker)
{
	for (int i = 0; i < EVENTS_OF_TURN; i++)
		work_once(worker);
	pause_a_little();
}

static void *run_worker(void *argument)
{
	while (!atomic_load(&stop)) {
		work_a_turn(argument);
		if (!atomic_load(&hold))
			continue;
		pthread_barrier_wait(&still);
		pthread_barrier_wait(&go_on);
	}
	return NULL;
}

/* ---- the main thread ---- */

/* Works, and holds for a moment much more than ever before. */
static void spike(struct worker *worker)
{
	for (int i = 0; i < SPIKE_TURNS; i++)
		work_a_turn(worker);
	struct block block = new_block(worker, 0, SPIKE_BYTES, 0);
	work_a_turn(worker);
	free_block(worker, &block);
	for (int i = 0; i < SPIKE_TURNS; i++)
		work_a_turn(worker);
}

static void print_ledger(void)
{
	char line[32 * (FUNCTIONS + 3)];
	int64_t total = 0;
	size_t length;

	for (int i = 0; i <= WORKERS; i++)
		total += workers[i].in_use;
	const struct worker *own = &workers[WORKERS];
	length = (size_t)sprintf(line, "%lld %lld %d", (long long)total,
				 (long long)(total - own->in_use + own->most), PULSE_BYTES);
	for (int function = 0; function < FUNCTIONS; function++) {
		int64_t bytes = 0;
		for (int i = 0; i <= WORKERS; i++)
			bytes += workers[i].of_function[function];
		length += (size_t)sprintf(line + length, " %lld", (long long)bytes);
	}
	line[length++] = '\n';
	if (write(STDOUT_FILENO, line, length) != (ssize_t)length)
		_exit(1);
}

/* False at the end of input. Each ${timeout_ms} without a line allocates and frees a block; -1:
 * none does. */
static bool wait_for_line(int timeout_ms)
{
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
	char byte = 0;

	while (poll(&input, 1, timeout_ms) == 0) {
		struct block block = new_block(&workers[WORKERS], 0, PULSE_BYTES, 0);
		free_block(&workers[WORKERS], &block);
	}
	while (read(STDIN_FILENO, &byte, 1) == 1)
		if (byte == '\n')
			return true;
	return false;
}

static bool check(void)
{
	atomic_store(&hold, true);
	pthread_barrier_wait(&still);
	workers[WORKERS].most = workers[WORKERS].in_use;
	spike(&workers[WORKERS]);
	print_ledger();
	bool more = wait_for_line(PULSE_MS);
	atomic_store(&hold, false);
	pthread_barrier_wait(&go_on);
	return more;
}

int main(void)
{
	pthread_t ids[WORKERS];

	pthread_barrier_init(&still, NULL, WORKERS + 1);
	pthread_barrier_init(&go_on, NULL, WORKERS + 1);
	for (int i = 0; i <= WORKERS; i++)
		workers[i].random = UINT64_C(88172645463325252) + (uint64_t)i;
	for (int i = 0; i < WORKERS; i++)
		if (pthread_create(&ids[i], NULL, run_worker, &workers[i]))
			abort();
	while (wait_for_line(-1) && check())
		continue;
	atomic_store(&stop, true);
	for (int i = 0; i < WORKERS; i++)
		pthread_join(ids[i], NULL);
	print_ledger();
	return 0;
}
