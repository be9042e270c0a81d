/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program whose threads have blocks of many sizes on whichever allocator it runs, and that knows them. Arguments: threads,
 * blocks for each, how many of 1000 it keeps, and a seed. It prints
 *
 *	live BLOCKS USABLE_BYTES
 *	figure NAME BYTES	what the allocator says of itself
 *	ready
 *
 * first and after each letter of its input: `p` purges what the allocator has free, `b` lets the threads allocate and free all the
 * time, or ends that, `l` lists the blocks before: block ADDRESS USABLE_BYTES. Its own lists do not lie in the heap.
 */
#include "program.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern int mallctl(const char *name, void *old, size_t *old_bytes, void *new, size_t new_bytes)
	__attribute__((weak));
extern int MallocExtension_GetNumericProperty(const char *property, size_t *value)
	__attribute__((weak));
extern void MallocExtension_ReleaseFreeMemory(void) __attribute__((weak));

static char output[BUFSIZ]; /* stdio's own would be a block */
static unsigned threads;
static size_t blocks;
static uint64_t kept_of_1000, seed;
static void **kept;
static atomic_int is_busy, resting;
static pthread_barrier_t ready;

static uint64_t draw(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Mostly small, some of pages, a few large. */
static size_t size_of(uint64_t *state)
{
	uint64_t number = draw(state);

	if (number % 512 == 1)
		return 20000 + draw(state) % 600000;
	return number % 32 == 0 ? 1000 + draw(state) % 13000 : 1 + draw(state) % 300;
}

static SITE void *allocate(uint64_t *state)
{
	size_t bytes = size_of(state);
	void *block = malloc(bytes);

	REQUIRE(block);
	memset(block, 1, bytes);
	return block;
}

static void churn(void **own, uint64_t *state)
{
	for (unsigned i = 0; i < 100; i++) {
		size_t at = draw(state) % blocks;
		if (!own[at])
			continue;
		free(own[at]);
		own[at] = allocate(state);
	}
}

static void *run(void *number)
{
	uint64_t state = seed + (uintptr_t)number * 7919;
	void **own = kept + (uintptr_t)number * blocks;

	for (size_t i = 0; i < blocks; i++)
		own[i] = allocate(&state);
	for (size_t i = 0; i < blocks; i++)
		if (draw(&state) % 1000 >= kept_of_1000) {
			free(own[i]);
			own[i] = NULL;
		}
	pthread_barrier_wait(&ready);
	for (bool is_resting = false;;) {
		if (atomic_load(&is_busy)) {
			resting -= is_resting;
			is_resting = false;
			churn(own, &state);
			continue;
		}
		resting += !is_resting;
		is_resting = true;
		usleep(1000);
	}
	return NULL;
}

static void list_blocks(void)
{
	for (size_t i = 0; i < threads * blocks; i++)
		if (kept[i])
			printf("block %llu %zu\n", (unsigned long long)(uintptr_t)kept[i],
			       malloc_usable_size(kept[i]));
}

static void say_of_tcmalloc(void)
{
	static const char *const names[] = {
		"generic.current_allocated_bytes",	     "generic.heap_size",
		"tcmalloc.current_total_thread_cache_bytes", "tcmalloc.transfer_cache_free_bytes",
		"tcmalloc.central_cache_free_bytes",	     "tcmalloc.pageheap_free_bytes",
		"tcmalloc.pageheap_unmapped_bytes"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		size_t value = 0;
		REQUIRE(MallocExtension_GetNumericProperty(names[i], &value));
		printf("figure %s %zu\n", names[i], value);
	}
}

static void purge(void)
{
	if (mallctl)
		REQUIRE(mallctl("arena.4096.purge", NULL, NULL, NULL, 0) == 0);
	else if (MallocExtension_ReleaseFreeMemory)
		MallocExtension_ReleaseFreeMemory();
}

static void say(void)
{
	static const char *const names[] = {"stats.allocated", "stats.mapped", "stats.retained",
					    "stats.arenas.4096.internal"};
	uint64_t count = 0, bytes = 0, epoch = 1;

	while (!is_busy && resting < (int)threads)
		usleep(1000);
	for (size_t i = 0; i < threads * blocks && !is_busy; i++)
		if (kept[i]) {
			count++;
			bytes += malloc_usable_size(kept[i]);
		}
	printf("live %llu %llu\n", (unsigned long long)count, (unsigned long long)bytes);
	if (mallctl)
		mallctl("epoch", NULL, NULL, &epoch, sizeof(epoch));
	for (size_t i = 0; mallctl && i < sizeof(names) / sizeof(*names); i++) {
		size_t value = 0, length = sizeof(value);
		REQUIRE(mallctl(names[i], &value, &length, NULL, 0) == 0);
		printf("figure %s %zu\n", names[i], value);
	}
	if (MallocExtension_GetNumericProperty)
		say_of_tcmalloc();
	printf("ready\n");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	char letter;

	REQUIRE(argc == 5);
	threads = (unsigned)atoi(argv[1]);
	blocks = strtoul(argv[2], NULL, 10);
	kept_of_1000 = strtoul(argv[3], NULL, 10);
	seed = UINT64_C(88172645463325252) + strtoul(argv[4], NULL, 10);
	setvbuf(stdout, output, _IOFBF, sizeof(output));
	kept = mmap(NULL, threads * blocks * sizeof(*kept), PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(kept != MAP_FAILED);
	pthread_barrier_init(&ready, NULL, threads + 1);
	for (uintptr_t i = 0; i < threads; i++) {
		pthread_t thread;
		REQUIRE(pthread_create(&thread, NULL, run, (void *)i) == 0);
	}
	pthread_barrier_wait(&ready);
	say();
	while (read(STDIN_FILENO, &letter, 1) == 1) {
		if (letter == 'b')
			atomic_store(&is_busy, !is_busy);
		else if (letter == 'p')
			purge();
		else if (letter == 'l')
			list_blocks();
		say();
	}
	return 0;
}
