/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program with a ledger, linked with each allocator. First, and for each line of its input, it
 * allocates blocks of many sizes at two places, frees some, keeps the others where they can be found,
 * and prints
 *
 *	live BLOCKS REQUESTED_BYTES USABLE_BYTES	of what it has kept this time
 *	ready
 *
 * An argument says how many blocks more it allocates at each place, and frees at once. Its own lists do not lie in the heap.
 */
#include "program.h"

#include <malloc.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BLOCKS	   6000u /* at each place, each time */
#define TIMES	   2u
#define FREE_EVERY 3u

static char output[BUFSIZ]; /* stdio's own would be a block */

static SITE void *by_malloc(size_t bytes)
{
	void *block = malloc(bytes);

	KEEP(block);
	return block;
}

static SITE void *by_calloc(size_t bytes)
{
	void *block = calloc(1, bytes);

	KEEP(block);
	return block;
}

/* Mostly small ones, some as small as allocators pack them, some of a page or more, a few of megabytes. */
static size_t size_of(uint64_t number)
{
	if (number % 2000 == 0)
		return (UINT64_C(1) << 20) + number * 7;
	if (number % 8 == 3)
		return number % 16 == 3 ? 8 : 16;
	return number % 50 == 0 ? 3000 + number * 5 : 17 + number * number % 900;
}

static void fill(void **kept, size_t passing)
{
	uint64_t blocks = 0, requested = 0, usable = 0;

	for (uint64_t i = 0; i < 2 * (BLOCKS + passing); i++) {
		size_t bytes = i < 2 * passing ? 24 : size_of(i - 2 * passing);
		void *block = i & 1 ? by_malloc(bytes) : by_calloc(bytes);
		if (i < 2 * passing) {
			free(block);
			continue;
		}
		memset(block, 1, bytes);
		kept[i - 2 * passing] = block;
	}
	for (uint64_t i = 0; i < 2 * BLOCKS; i++) {
		if (i % FREE_EVERY == 0) {
			free(kept[i]);
			kept[i] = NULL;
			continue;
		}
		blocks++;
		requested += size_of(i);
		usable += malloc_usable_size(kept[i]);
	}
	printf("live %llu %llu %llu\nready\n", (unsigned long long)blocks,
	       (unsigned long long)requested, (unsigned long long)usable);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	void **kept = mmap(NULL, TIMES * 2 * BLOCKS * sizeof(*kept), PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char line[2];

	if (kept == MAP_FAILED)
		return 2;
	setvbuf(stdout, output, _IOFBF, sizeof(output));
	fill(kept, argc > 1 ? strtoul(argv[1], NULL, 10) : 0);
	for (unsigned i = 1; i < TIMES && read(STDIN_FILENO, line, 1) == 1; i++)
		fill(kept + i * 2 * BLOCKS, 0);
	for (void *volatile last; read(STDIN_FILENO, line, 1) == 1; free(last))
		last = malloc(100);
	return 0;
}
