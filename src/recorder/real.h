/* SPDX-License-Identifier: BSD-2-Clause */
/* What is behind the recorder's hooks: the entry points that the program would reach without it. */
#pragma once

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Entry points that an allocator may lack are NULL then; the first five are always there once
 * resolved. */
struct hl_real {
	void *(*malloc)(size_t);
	void (*free)(void *);
	void *(*calloc)(size_t, size_t);
	void *(*realloc)(void *, size_t);
	size_t (*usable_size)(void *);
	int (*posix_memalign)(void **, size_t, size_t);
	void *(*aligned_alloc)(size_t, size_t);
	void *(*memalign)(size_t, size_t);
	void *(*valloc)(size_t);
	void *(*pvalloc)(size_t);
	int (*dlclose)(void *);
	void *(*mmap)(void *, size_t, int, int, int, off_t);
	int (*munmap)(void *, size_t);
	void *(*mremap)(void *, size_t, size_t, int, ...);
	int (*brk)(void *);
	void *(*sbrk)(intptr_t);
};

extern struct hl_real hl_real;

/* Fills hl_real. Called before the first use of any hook; cheap afterwards. False while the looking
 * up itself allocates. */
bool hl_real_resolve(void);

/*
 * A program of another libc inherits LD_PRELOAD from a recorded parent. It must load the recorder
 * and run: so what only glibc has is weak, and where it is missing the hooks pass through for good.
 */
#pragma weak _dl_find_object
bool hl_real_libc_is_known(void);

/* True when both addresses lie in one loaded module. */
bool hl_real_same_module(void *a, void *b);

/* Memory for what dlsym() allocates while the allocator is being looked up; zero-filled, never
 * given back. */
void *hl_real_bootstrap_alloc(size_t bytes);
bool hl_real_is_bootstrap(const void *address);

/* Bytes from ${address}, a bootstrap block, to the end of all such memory. */
size_t hl_real_bootstrap_behind(const void *address);
