/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Preloaded into Python behind the recorder: counts what is asked of the allocator of its objects, above
 * whatever is there by then, and writes it to $ORACLE.PID at the end:
 *
 *	allocated BLOCKS BYTES
 *	inuse BLOCKS BYTES
 *
 * Only blocks of up to 512 bytes count, which the allocator cuts from arenas. They are asked for by functions
 * of their own, small_*, so that stacks tell them from larger ones. In a forked child what it allocates
 * itself counts. The interpreter's lock is held in all of this.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define SMALL_MAX 512
#define SLOTS	  (UINT64_C(1) << 22)

struct allocator {
	void *context;
	void *(*malloc)(void *context, size_t size);
	void *(*calloc)(void *context, size_t count, size_t size);
	void *(*realloc)(void *context, void *block, size_t size);
	void (*free)(void *context, void *block);
};

__attribute__((weak)) void PyMem_GetAllocator(int domain, struct allocator *ret_allocator);
__attribute__((weak)) void PyMem_SetAllocator(int domain, struct allocator *allocator);

/* Of live small blocks the address, and the size in the upper bits. 1: was one. */
static uint64_t *slots;
static uint64_t blocks, bytes, inuse_blocks, inuse_bytes;
static struct allocator below[3];

static int is_small(size_t size)
{
	return size - 1 < SMALL_MAX;
}

static uint64_t *find(uint64_t address)
{
	uint64_t at = address * UINT64_C(0x9e3779b97f4a7c15) >> 42;

	while (slots[at] && slots[at] << 16 != address << 16)
		at = (at + 1) & (SLOTS - 1);
	return &slots[at];
}

static void *count(void *block, size_t size)
{
	if (!block)
		return NULL;
	*find((uint64_t)block) = (uint64_t)block | (uint64_t)size << 48;
	blocks++;
	bytes += size;
	inuse_blocks++;
	inuse_bytes += size;
	return block;
}

/* Whether it was there. Slots stay used: they suffice for all addresses that a test sees. */
static int forget(void *block)
{
	uint64_t *slot = find((uint64_t)block), size = *slot >> 48;

	if (!size)
		return 0;
	*slot = (uint64_t)block;
	inuse_blocks--;
	inuse_bytes -= size;
	return 1;
}

__attribute__((noinline)) static void *small_malloc(struct allocator *it, size_t size)
{
	return count(it->malloc(it->context, size), size);
}

__attribute__((noinline)) static void *small_calloc(struct allocator *it, size_t number,
						    size_t size)
{
	return count(it->calloc(it->context, number, size), number * size);
}

__attribute__((noinline)) static void *small_realloc(struct allocator *it, void *block, size_t size)
{
	return count(it->realloc(it->context, block, size), size);
}

static void *over_malloc(void *context, size_t size)
{
	struct allocator *it = context;

	return is_small(size) ? small_malloc(it, size) : it->malloc(it->context, size);
}

static void *over_calloc(void *context, size_t number, size_t size)
{
	struct allocator *it = context;
	size_t product = number * size;

	return is_small(product) ? small_calloc(it, number, size)
				 : it->calloc(it->context, number, size);
}

static void *over_realloc(void *context, void *block, size_t size)
{
	struct allocator *it = context;
	int was_small = !block || forget(block);

	/* A larger one stays where the larger ones are. */
	return was_small && is_small(size) ? small_realloc(it, block, size)
					   : it->realloc(it->context, block, size);
}

static void over_free(void *context, void *block)
{
	struct allocator *it = context;

	if (block)
		forget(block);
	it->free(it->context, block);
}

static void begin_child(void)
{
	blocks = bytes = 0;
}

static __attribute__((constructor)) void begin(void)
{
	if (!PyMem_GetAllocator || !PyMem_SetAllocator || !getenv("ORACLE"))
		return;
	slots = mmap(NULL, SLOTS * sizeof(*slots), PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (slots == MAP_FAILED)
		abort();
	for (int domain = 1; domain <= 2; domain++) {
		struct allocator over = {&below[domain], over_malloc, over_calloc, over_realloc,
					 over_free};
		PyMem_GetAllocator(domain, &below[domain]);
		PyMem_SetAllocator(domain, &over);
	}
	pthread_atfork(NULL, NULL, begin_child);
}

static __attribute__((destructor)) void end(void)
{
	char path[4096];

	if (!slots)
		return;
	snprintf(path, sizeof(path), "%s.%d", getenv("ORACLE"), getpid());
	FILE *file = fopen(path, "w");
	if (!file)
		abort();
	fprintf(file, "allocated %lu %lu\ninuse %lu %lu\n", blocks, bytes, inuse_blocks,
		inuse_bytes);
	fclose(file);
}
