/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An independent count of the malloc family, to be preloaded behind the recorder: passes every call
 * on to the next definition and adds it up. When the program ends, writes `alloc_objects
 * alloc_bytes` to the file that HEAPLINE_TEST_COUNT names, with the process' id at its end.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static atomic_ulong alloc_objects, alloc_bytes;

static void *(*next_malloc)(size_t);
static void *(*next_calloc)(size_t, size_t);
static void *(*next_realloc)(void *, size_t);
static void *(*next_memalign)(size_t, size_t);
static void *(*next_aligned_alloc)(size_t, size_t);
static int (*next_posix_memalign)(void **, size_t, size_t);

EXPORT void *malloc(size_t bytes);
EXPORT void *calloc(size_t count, size_t bytes);
EXPORT void *realloc(void *old, size_t bytes);
EXPORT void *memalign(size_t alignment, size_t bytes);
EXPORT void *aligned_alloc(size_t alignment, size_t bytes);
EXPORT int posix_memalign(void **ret_block, size_t alignment, size_t bytes);

/* Fills in a function pointer; ISO C has no conversion to one, so its bytes are copied. */
static void look_up(void *ret_function, const char *name)
{
	void *symbol = dlsym(RTLD_NEXT, name);

	memcpy(ret_function, &symbol, sizeof(symbol));
}

/* glibc's dlsym does not allocate when the symbol exists, so this may run in the first malloc. */
static void find_next(void)
{
	if (next_malloc)
		return;
	look_up(&next_calloc, "calloc");
	look_up(&next_realloc, "realloc");
	look_up(&next_memalign, "memalign");
	look_up(&next_aligned_alloc, "aligned_alloc");
	look_up(&next_posix_memalign, "posix_memalign");
	look_up(&next_malloc, "malloc");
}

static void *counted(void *block, size_t bytes)
{
	if (block) {
		atomic_fetch_add(&alloc_objects, 1);
		atomic_fetch_add(&alloc_bytes, bytes);
	}
	return block;
}

void *malloc(size_t bytes)
{
	find_next();
	return counted(next_malloc(bytes), bytes);
}

void *calloc(size_t count, size_t bytes)
{
	find_next();
	return counted(next_calloc(count, bytes), count * bytes);
}

void *realloc(void *old, size_t bytes)
{
	find_next();
	return counted(next_realloc(old, bytes), bytes);
}

void *memalign(size_t alignment, size_t bytes)
{
	find_next();
	return counted(next_memalign(alignment, bytes), bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
	find_next();
	return counted(next_aligned_alloc(alignment, bytes), bytes);
}

int posix_memalign(void **ret_block, size_t alignment, size_t bytes)
{
	find_next();
	int error = next_posix_memalign(ret_block, alignment, bytes);
	if (!error)
		counted(*ret_block, bytes);
	return error;
}

static __attribute__((destructor)) void write_count(void)
{
	const char *path = getenv("HEAPLINE_TEST_COUNT");
	unsigned long objects = atomic_load(&alloc_objects), bytes = atomic_load(&alloc_bytes);
	char name[4096], text[64];

	if (!path)
		return;
	snprintf(name, sizeof(name), "%s.%d", path, (int)getpid());
	int length = snprintf(text, sizeof(text), "%lu %lu\n", objects, bytes);
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	if (write(fd, text, (size_t)length) != length)
		abort();
	close(fd);
}
