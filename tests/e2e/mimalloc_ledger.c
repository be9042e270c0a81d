/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that knows its live blocks: mimalloc_ledger KIND FILE. It makes a heap, writes each live block and its usable bytes to
 * FILE, and prints "ready". For each letter c of its input it has mimalloc give back what it can, and prints "collected".
 *
 *	holes	  a third of the blocks was freed, in all sizes
 *	emptied	  all but a few blocks were freed
 *	threads	  other threads have made the blocks and ended; a third was freed
 *	remote	  another thread has freed some more
 *	large	  blocks of 0.1 to 40 MiB, of which every second was freed
 *	storm	  threads free blocks and make others of the same sizes until the input ends
 */
#include "program.h"

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BLOCKS	60000u
#define THREADS 4u
#define LARGE	60u

static char output[BUFSIZ]; /* stdio's own would be a block */
static void **blocks;
static size_t count = BLOCKS;
static size_t (*size_of)(uint64_t number);
static atomic_bool stops;

static size_t any_size(uint64_t number)
{
	if (number % 2000 == 0)
		return (UINT64_C(1) << 20) + number * 7;
	if (number % 8 == 3)
		return number % 16 == 3 ? 8 : 16;
	return number % 50 == 0 ? 3000 + number % 4000 * 5 : 17 + number * number % 900;
}

static size_t large_size(uint64_t number)
{
	return (UINT64_C(100) << 10) + number * number * number * 200;
}

static size_t small_size(uint64_t number)
{
	return 16 + number % 64 * 8;
}

static void make(uint64_t number)
{
	size_t bytes = size_of(number);

	blocks[number] = malloc(bytes);
	memset(blocks[number], 1, bytes);
}

static void release(uint64_t number)
{
	free(blocks[number]);
	blocks[number] = NULL;
}

static void *make_share(void *first)
{
	for (uint64_t i = (uintptr_t)first; i < count; i += THREADS)
		make(i);
	return NULL;
}

static void *free_some(void *unused)
{
	(void)unused;
	for (uint64_t i = 0; i < count; i++)
		if (i % 7 == 2)
			release(i);
	return NULL;
}

static void *change(void *first)
{
	uint64_t number = (uintptr_t)first;

	while (!stops) {
		release(number);
		make(number);
		number = number + THREADS * 37 < count
				 ? number + THREADS * 37
				 : (number * 7 + THREADS) % 1000 / THREADS * THREADS +
					   (uintptr_t)first;
	}
	return NULL;
}

static void make_by_threads(void)
{
	pthread_t threads[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, make_share, (void *)i);
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

static void write_ledger(const char *path)
{
	FILE *file = fopen(path, "we");

	if (!file)
		_exit(2);
	setvbuf(file, output, _IOFBF, sizeof(output));
	for (size_t i = 0; i < count; i++)
		if (blocks[i])
			fprintf(file, "%lu %zu\n", (unsigned long)(uintptr_t)blocks[i],
				malloc_usable_size(blocks[i]));
	fprintf(file, "%lu %zu\n", (unsigned long)(uintptr_t)file, malloc_usable_size(file));
	fflush(file); /* it stays open: its own block is in the ledger */
}

int main(int argc, char **argv)
{
	void (*collect)(bool force) = (void (*)(bool))dlsym(RTLD_DEFAULT, "mi_collect");
	const char *kind = argc == 3 ? argv[1] : "";
	pthread_t threads[THREADS];
	char letter;

	blocks = mmap(NULL, BLOCKS * sizeof(*blocks), PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_of = strcmp(kind, "large") == 0   ? large_size
		  : strcmp(kind, "storm") == 0 ? small_size
					       : any_size;
	count = size_of == large_size ? LARGE : BLOCKS;
	if (strcmp(kind, "threads") == 0 || strcmp(kind, "remote") == 0)
		make_by_threads();
	else
		for (uint64_t i = 0; i < count; i++)
			make(i);
	uint64_t every = size_of == large_size ? 2 : size_of == any_size ? 3 : count + 1;
	for (uint64_t i = 0; i < count; i++)
		if (strcmp(kind, "emptied") == 0 ? i % 1000 != 7 : i % every == 1)
			release(i);
	if (strcmp(kind, "remote") == 0) {
		pthread_create(&threads[0], NULL, free_some, NULL);
		pthread_join(threads[0], NULL);
	}
	write_ledger(argv[2]);
	for (uintptr_t i = 0; strcmp(kind, "storm") == 0 && i < THREADS; i++)
		pthread_create(&threads[i], NULL, change, (void *)i);
	(void)!write(STDOUT_FILENO, "ready\n", 6);
	while (read(STDIN_FILENO, &letter, 1) == 1)
		if (letter == 'c' && collect) {
			collect(true);
			(void)!write(STDOUT_FILENO, "collected\n", 10);
		}
	stops = true;
	for (size_t i = 0; strcmp(kind, "storm") == 0 && i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
