/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A pool that tells heaptrack of its blocks, as heaptrack_api.h does it: by weak symbols, or with an
 * argument by dlsym(). Prints the blocks and bytes that were allocated, and those in use at the end.
 */
#include "program.h"

#include <dlfcn.h>
#include <sys/mman.h>

#define BLOCKS	     1000
#define STEP	     256
#define BYTES(i)     ((size_t)(i) % 100 + 1)
#define REALLOCATED  200
#define UNMAPPED     800
#define UNMAPPED_END 960 /* whole pages */

__attribute__((weak)) void heaptrack_malloc(void *block, size_t size);
__attribute__((weak)) void heaptrack_realloc(void *block, size_t size, void *moved);
__attribute__((weak)) void heaptrack_free(void *block);

static void (*tell_malloc)(void *, size_t);
static void (*tell_realloc)(void *, size_t, void *);
static void (*tell_free)(void *);

static char *pool;
static size_t used, blocks, bytes, kept_blocks, kept_bytes;

static void count(size_t size)
{
	blocks++;
	bytes += size;
	kept_blocks++;
	kept_bytes += size;
}

static void discount(size_t size)
{
	kept_blocks--;
	kept_bytes -= size;
}

SITE void *cut(size_t size);
SITE void *cut(size_t size)
{
	void *block = pool + used;

	used += STEP;
	count(size);
	if (tell_malloc)
		tell_malloc(block, size);
	return block;
}

/* Every other one moves. */
SITE void enlarge(void *block, size_t size, int moves);
SITE void enlarge(void *block, size_t size, int moves)
{
	void *to = moves ? pool + used : block;

	used += moves ? STEP : 0;
	discount(size);
	count(size + 50);
	if (tell_realloc)
		tell_realloc(block, size + 50, to);
	KEEP(to);
}

SITE void work(void);
SITE void work(void)
{
	void *given[BLOCKS];

	for (int i = 0; i < BLOCKS; i++)
		given[i] = cut(BYTES(i));
	for (int i = 0; i < REALLOCATED; i++)
		enlarge(given[i], BYTES(i), i % 2);
	/* One that failed. */
	if (tell_realloc)
		tell_realloc(given[REALLOCATED + 1], (size_t)-1 / 2, NULL);
	for (int i = REALLOCATED; i < BLOCKS; i += 2) {
		discount(BYTES(i));
		if (tell_free)
			tell_free(given[i]);
	}
	if (tell_free)
		tell_free(NULL);
	/* What is unmapped takes its blocks along. */
	REQUIRE(munmap(pool + UNMAPPED * STEP, (UNMAPPED_END - UNMAPPED) * STEP) == 0);
	for (int i = UNMAPPED + 1; i < UNMAPPED_END; i += 2)
		discount(BYTES(i));
}

int main(int argument_count, char **arguments)
{
	(void)arguments;
	tell_malloc = heaptrack_malloc;
	tell_realloc = heaptrack_realloc;
	tell_free = heaptrack_free;
	if (argument_count > 1) {
		*(void **)&tell_malloc = dlsym(RTLD_NEXT, "heaptrack_malloc");
		*(void **)&tell_realloc = dlsym(RTLD_NEXT, "heaptrack_realloc");
		*(void **)&tell_free = dlsym(RTLD_NEXT, "heaptrack_free");
	}
	pool = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(pool != MAP_FAILED);
	work();
	printf("heaptrack %zu %zu %zu %zu\ndone\n", blocks, bytes, kept_blocks, kept_bytes);
	return 0;
}
