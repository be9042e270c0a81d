/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program with a ledger that is built with every libc and allocator. For each line of its input
 * four threads allocate by all functions that programs have, keep some blocks, and free or change
 * those that another thread kept the last time; two of the threads are there all the time. Then it
 * prints
 *
 *	FUNCTION alloc_objects alloc_bytes inuse_objects inuse_bytes	of this time
 *	older N								frees of blocks of the last time
 *	done
 *
 * and allocates nothing until the next line.
 */
#include "program.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define THREADS	   4
#define LASTING	   2 /* threads that are there all the time */
#define ROUNDS	   500
#define KEPT_EVERY 10
#define KEPT	   (2 * ROUNDS / KEPT_EVERY * FUNCTIONS) /* each time a half, and 1/8 of the last */

enum function {
	BY_MALLOC,
	BY_CALLOC,
	BY_REALLOC,
	BY_POSIX_MEMALIGN,
	BY_ALIGNED_ALLOC,
	GROW_BY_REALLOC,
	SHRINK_BY_REALLOC,
	FUNCTIONS,
};

static const char *const names[FUNCTIONS] = {
	"by_malloc",	    "by_calloc",       "by_realloc",	    "by_posix_memalign",
	"by_aligned_alloc", "grow_by_realloc", "shrink_by_realloc",
};

struct block {
	void *address;
	size_t bytes;
	enum function function;
	unsigned time;
};

struct account {
	uint64_t allocs, alloc_bytes, frees, free_bytes;
};

/* Written by one thread at a time. */
struct share {
	struct account accounts[FUNCTIONS];
	uint64_t older_frees, random;
	struct block kept[2][KEPT]; /* of this time and the last one, by turns */
	size_t kept_count[2];
};

static struct share *shares;
static unsigned now;
static pthread_barrier_t begin, end; /* of the lasting threads' work */

static SITE void *by_malloc(size_t bytes)
{
	void *block = malloc(bytes);

	KEEP(block);
	return block;
}

static SITE void *by_calloc(size_t bytes)
{
	void *block = calloc(3, bytes / 3);

	KEEP(block);
	return block;
}

static SITE void *by_realloc(size_t bytes)
{
	void *block = realloc(NULL, bytes);

	KEEP(block);
	return block;
}

static SITE void *by_posix_memalign(size_t bytes)
{
	void *block = NULL;

	REQUIRE(posix_memalign(&block, 256, bytes) == 0);
	KEEP(block);
	return block;
}

static SITE void *by_aligned_alloc(size_t bytes)
{
	void *block = aligned_alloc(64, bytes);

	KEEP(block);
	return block;
}

static SITE void *grow_by_realloc(void *old, size_t bytes)
{
	void *block = realloc(old, bytes);

	KEEP(block);
	return block;
}

static SITE void *shrink_by_realloc(void *old, size_t bytes)
{
	void *block = realloc(old, bytes);

	KEEP(block);
	return block;
}

static void *(*const makers[GROW_BY_REALLOC])(size_t) = {
	by_malloc, by_calloc, by_realloc, by_posix_memalign, by_aligned_alloc,
};

/* Small sizes mostly, and some that allocators map by themselves. */
static size_t random_bytes(struct share *share)
{
	share->random = share->random * UINT64_C(6364136223846793005) + 1442695040888963407;
	uint64_t number = share->random >> 33;

	return (number % 100 ? 192 + number % 1800 : 400000 + number % 100000) / 192 * 192;
}

static struct block made(struct share *share, enum function function, void *address, size_t bytes)
{
	REQUIRE(address);
	memset(address, 0x5a, 48);
	share->accounts[function].allocs++;
	share->accounts[function].alloc_bytes += bytes;
	return (struct block){address, bytes, function, now};
}

static void forget(struct share *share, const struct block *block)
{
	REQUIRE(*(char *)block->address == 0x5a);
	if (block->time != now) {
		share->older_frees++;
		return;
	}
	share->accounts[block->function].frees++;
	share->accounts[block->function].free_bytes += block->bytes;
}

static struct block make(struct share *share, enum function function)
{
	size_t bytes = random_bytes(share);

	if (function < GROW_BY_REALLOC)
		return made(share, function, makers[function](bytes), bytes);
	struct block old = make(share, BY_MALLOC);
	bool grows = function == GROW_BY_REALLOC;
	bytes = grows ? old.bytes * 3 : old.bytes / 3;
	forget(share, &old);
	return made(share, function,
		    (grows ? grow_by_realloc : shrink_by_realloc)(old.address, bytes), bytes);
}

static void keep(struct share *share, struct block block)
{
	unsigned turn = now % 2;

	REQUIRE(share->kept_count[turn] < KEPT);
	share->kept[turn][share->kept_count[turn]++] = block;
}

/* What a thread kept the last time: another one frees some and has some changed in size. */
static void take_over(struct share *share, struct share *other)
{
	unsigned turn = (now + 1) % 2;

	for (size_t i = 0; i < other->kept_count[turn]; i++) {
		struct block *old = &other->kept[turn][i];
		forget(share, old);
		if (i % 8)
			free(old->address);
		else
			keep(share, made(share, GROW_BY_REALLOC,
					 grow_by_realloc(old->address, old->bytes + 999),
					 old->bytes + 999));
	}
	other->kept_count[turn] = 0;
}

static void work(size_t index)
{
	struct share *share = &shares[index];

	memset(share->accounts, 0, sizeof(share->accounts));
	share->older_frees = 0;
	for (size_t round = 0; round < ROUNDS; round++)
		for (enum function function = 0; function < FUNCTIONS; function++) {
			struct block block = make(share, function);
			if (round % KEPT_EVERY == 0) {
				keep(share, block);
				continue;
			}
			forget(share, &block);
			free(block.address);
		}
	take_over(share, &shares[(index + 1) % THREADS]);
}

static void *work_once(void *index)
{
	work((size_t)index);
	return NULL;
}

static void *work_always(void *index)
{
	for (;;) {
		pthread_barrier_wait(&begin);
		work((size_t)index);
		pthread_barrier_wait(&end);
	}
	return NULL;
}

static void start(pthread_t *thread, void *(*function)(void *), size_t index)
{
	REQUIRE(pthread_create(thread, NULL, function, (void *)index) == 0);
}

static void print_ledger(void)
{
	uint64_t older_frees = 0;

	for (enum function function = 0; function < FUNCTIONS; function++) {
		struct account sum = {0};
		for (size_t i = 0; i < THREADS; i++) {
			const struct account *account = &shares[i].accounts[function];
			sum.allocs += account->allocs;
			sum.alloc_bytes += account->alloc_bytes;
			sum.frees += account->frees;
			sum.free_bytes += account->free_bytes;
		}
		printf("%s %lu %lu %lu %lu\n", names[function], sum.allocs, sum.alloc_bytes,
		       sum.allocs - sum.frees, sum.alloc_bytes - sum.free_bytes);
	}
	for (size_t i = 0; i < THREADS; i++)
		older_frees += shares[i].older_frees;
	printf("older %lu\ndone\n", older_frees);
	fflush(stdout);
}

int main(void)
{
	static char output[4096];
	pthread_t threads[THREADS];
	char byte;

	setvbuf(stdout, output, _IOFBF, sizeof(output));
	shares = mmap(NULL, THREADS * sizeof(*shares), PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(shares != MAP_FAILED);
	pthread_barrier_init(&begin, NULL, LASTING + 1);
	pthread_barrier_init(&end, NULL, LASTING + 1);
	for (size_t i = 0; i < LASTING; i++)
		start(&threads[i], work_always, i);
	puts("ready");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) == 1) {
		if (byte != '\n')
			continue;
		now++;
		pthread_barrier_wait(&begin);
		for (size_t i = LASTING; i < THREADS; i++)
			start(&threads[i], work_once, i);
		for (size_t i = LASTING; i < THREADS; i++)
			pthread_join(threads[i], NULL);
		pthread_barrier_wait(&end);
		print_ledger();
	}
	return 7;
}
