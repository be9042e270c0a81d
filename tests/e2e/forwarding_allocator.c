/* SPDX-License-Identifier: BSD-2-Clause */
/* An allocator with names of its own that has none of its own memory: blocks are malloc's, some way
 * into them. */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#define HEAD 32 /* bytes of its own before each block; the first is the distance to malloc's */

static void *behind(char *block, size_t distance)
{
	block += distance;
	memcpy(block - sizeof(distance), &distance, sizeof(distance));
	return block;
}

static char *start_of(void *block)
{
	size_t distance;

	memcpy(&distance, (char *)block - sizeof(distance), sizeof(distance));
	return (char *)block - distance;
}

__attribute__((visibility("default"))) void *je_malloc(size_t size)
{
	return behind(malloc(size + HEAD), HEAD);
}

__attribute__((visibility("default"))) void *je_calloc(size_t count, size_t size)
{
	return behind(calloc(1, count * size + HEAD), HEAD);
}

__attribute__((visibility("default"))) void *je_memalign(size_t alignment, size_t size)
{
	return behind(memalign(alignment, size + alignment), alignment);
}

__attribute__((visibility("default"))) void *je_realloc(void *block, size_t size)
{
	return behind(realloc(start_of(block), size + HEAD), HEAD);
}

__attribute__((visibility("default"))) void je_free(void *block)
{
	free(start_of(block));
}

__attribute__((visibility("default"))) size_t je_malloc_usable_size(void *block)
{
	char *start = start_of(block);

	return malloc_usable_size(start) - (size_t)((char *)block - start);
}
