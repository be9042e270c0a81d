/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A malloc that a program brings along: before each block lies a cookie of eight bytes, so that
 * blocks of malloc() are at odd multiples of eight. Its memory is that of an allocator under
 * another name (-DPREFIXED), or mapped and never given back.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define EXPORT	    __attribute__((visibility("default")))
#define COOKIE	    sizeof(struct cookie)
#define CHUNK_BYTES (UINT64_C(1) << 36) /* of addresses */

struct cookie {
	uint32_t bytes;
	uint32_t before; /* bytes from the start of its memory to the block */
};

EXPORT void *malloc(size_t bytes);
EXPORT void free(void *block);
EXPORT void *calloc(size_t count, size_t bytes);
EXPORT void *realloc(void *old, size_t bytes);
EXPORT int posix_memalign(void **ret_block, size_t alignment, size_t bytes);
EXPORT void *aligned_alloc(size_t alignment, size_t bytes);
EXPORT void *memalign(size_t alignment, size_t bytes);

#ifdef PREFIXED

void *je_aligned_alloc(size_t alignment, size_t bytes);
void je_free(void *block);

static void *take(size_t alignment, size_t bytes)
{
	return je_aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void give_back(void *memory)
{
	je_free(memory);
}

#else

static void *take(size_t alignment, size_t bytes)
{
	static _Atomic uint64_t next;
	uint64_t at = atomic_load(&next), start;

	if (!at) {
		void *chunk = mmap(NULL, CHUNK_BYTES, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (chunk == MAP_FAILED)
			return NULL;
		/* Whoever comes second leaves the chunk unused. */
		if (atomic_compare_exchange_strong(&next, &at, (uintptr_t)chunk))
			at = (uintptr_t)chunk;
	}
	do
		start = (at + alignment - 1) / alignment * alignment;
	while (!atomic_compare_exchange_weak(&next, &at, start + bytes));
	return (void *)(uintptr_t)start;
}

static void give_back(void *memory)
{
	(void)memory;
}

#endif

static struct cookie *cookie_of(void *block)
{
	return (struct cookie *)block - 1;
}

static void *allocate(size_t alignment, size_t bytes)
{
	size_t before = alignment > COOKIE ? alignment : COOKIE;

	if (bytes > UINT32_MAX - before) {
		errno = ENOMEM;
		return NULL;
	}
	char *memory = take(alignment > 16 ? alignment : 16, before + bytes);
	if (!memory)
		return NULL;
	*cookie_of(memory + before) = (struct cookie){(uint32_t)bytes, (uint32_t)before};
	return memory + before;
}

void *malloc(size_t bytes)
{
	return allocate(COOKIE, bytes);
}

void free(void *block)
{
	if (block)
		give_back((char *)block - cookie_of(block)->before);
}

void *calloc(size_t count, size_t bytes)
{
	if (bytes && count > SIZE_MAX / bytes) {
		errno = ENOMEM;
		return NULL;
	}
	void *block = allocate(COOKIE, count * bytes);
	return block ? memset(block, 0, count * bytes) : NULL;
}

void *realloc(void *old, size_t bytes)
{
	void *block = allocate(COOKIE, bytes);

	if (!old || !block)
		return block;
	size_t old_bytes = cookie_of(old)->bytes;
	memcpy(block, old, old_bytes < bytes ? old_bytes : bytes);
	give_back((char *)old - cookie_of(old)->before);
	return block;
}

int posix_memalign(void **ret_block, size_t alignment, size_t bytes)
{
	void *block = allocate(alignment, bytes);

	if (!block)
		return ENOMEM;
	*ret_block = block;
	return 0;
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
	return allocate(alignment, bytes);
}

void *memalign(size_t alignment, size_t bytes)
{
	return allocate(alignment, bytes);
}
