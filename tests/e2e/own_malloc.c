/* SPDX-License-Identifier: BSD-2-Clause */
/* A program that defines malloc itself, in its executable: a preloaded recorder sees none of its
 * calls. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define ARENA_BYTES (1 << 20)

static _Alignas(16) char arena[ARENA_BYTES];
static size_t arena_used;

#define EXPORT __attribute__((visibility("default")))

EXPORT void *malloc(size_t bytes);
EXPORT void free(void *block);
EXPORT void *calloc(size_t count, size_t bytes);
EXPORT void *realloc(void *old, size_t bytes);

void *malloc(size_t bytes)
{
	size_t rounded = (bytes + 15) / 16 * 16;

	if (rounded < bytes || rounded > ARENA_BYTES - arena_used)
		return NULL;
	arena_used += rounded;
	return arena + arena_used - rounded;
}

void free(void *block)
{
	(void)block;
}

void *calloc(size_t count, size_t bytes)
{
	return malloc(count * bytes); /* the arena is zero, and nothing is handed out twice */
}

void *realloc(void *old, size_t bytes)
{
	void *block = malloc(bytes);

	if (old && block)
		memmove(block, old,
			bytes); /* may copy more than the old block had: harmless here */
	return block;
}

int main(void)
{
	for (int i = 0; i < 1009; i++)
		if (!malloc(127))
			return 1;
	puts("hello");
	return 6;
}
