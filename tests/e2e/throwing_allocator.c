/* SPDX-License-Identifier: BSD-2-Clause */
/* An allocator with mimalloc's names, of which it has those that the test needs, and with a new
 * handler that may throw. What it hands out it never takes back. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define API __attribute__((visibility("default")))

static _Alignas(16) char memory[1 << 20];
static size_t used;

API size_t memory_limit = sizeof(memory) / 2; /* the handler may raise it */
API void (*new_handler)(void);

API size_t mi_usable_size(const void *block);
API void *mi_malloc(size_t size);
API void *mi_realloc(void *block, size_t size);
API void *mi_new(size_t size);
API void *mi_new_realloc(void *block, size_t size);
API void mi_free(void *block);
API void *mi_reallocf(void *block, size_t size);

API size_t mi_usable_size(const void *block)
{
	return ((const size_t *)block)[-1];
}

API void *mi_malloc(size_t size)
{
	size_t rounded = (size + 15) & ~(size_t)15;

	if (rounded + 16 > memory_limit - used)
		return NULL;
	char *block = memory + used + 16;
	used += rounded + 16;
	memcpy(block - sizeof(rounded), &rounded, sizeof(rounded));
	return block;
}

API void *mi_realloc(void *block, size_t size)
{
	void *moved = mi_malloc(size);

	if (moved && block)
		memcpy(moved, block, mi_usable_size(block) < size ? mi_usable_size(block) : size);
	return moved;
}

API void *mi_new(size_t size)
{
	void *block;

	while (!(block = mi_malloc(size)))
		new_handler();
	return block;
}

API void *mi_new_realloc(void *block, size_t size)
{
	void *moved;

	while (!(moved = mi_realloc(block, size)))
		new_handler();
	return moved;
}

API void mi_free(void *block)
{
	(void)block;
}

/* The block is freed where there is no memory. */
API void *mi_reallocf(void *block, size_t size)
{
	return mi_realloc(block, size);
}
