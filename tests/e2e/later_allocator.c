/* SPDX-License-Identifier: BSD-2-Clause */
/* An allocator as mimalloc is since release 3, which hands out blocks that malloc does not see, and as
 * a later one might be, with functions whose names are new. */
#include <stddef.h>
#include <string.h>

#define API __attribute__((visibility("default")))

API size_t mi_usable_size(const void *block);
API void *mi_theap_malloc(void *heap, size_t size);
API void *mi_theap_realloc(void *heap, void *block, size_t size);
API void mi_free_small(void *block);
API char *strdup(const char *text);
API void *mi_later_malloc(size_t size);
API void mi_later_free(void *block);
API size_t mi_later_good_size(size_t size);

static void *take(size_t size)
{
	static _Alignas(16) char memory[1 << 20];
	static size_t used;
	size_t rounded = (size + 15) & ~(size_t)15;
	char *block = memory + used + 16;

	used += rounded + 16;
	memcpy(block - sizeof(rounded), &rounded, sizeof(rounded));
	return block;
}

API size_t mi_usable_size(const void *block)
{
	return ((const size_t *)block)[-1];
}

API void *mi_theap_malloc(void *heap, size_t size)
{
	(void)heap;
	return take(size);
}

API void *mi_theap_realloc(void *heap, void *block, size_t size)
{
	(void)heap;
	(void)block;
	return take(size);
}

API void mi_free_small(void *block)
{
	(void)block;
}

API char *strdup(const char *text)
{
	return strcpy(take(strlen(text) + 1), text);
}

API void *mi_later_malloc(size_t size)
{
	return take(size);
}

API void mi_later_free(void *block)
{
	(void)block;
}

API size_t mi_later_good_size(size_t size)
{
	return size;
}
