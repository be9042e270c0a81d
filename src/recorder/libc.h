/* SPDX-License-Identifier: BSD-2-Clause */
/* The functions that the hooks pass calls on to: those that the program would reach without the
 * recorder. */
#pragma once

#include "base/compiler.h"

#include <dlfcn.h>
#include <errno.h>
#include <gnu/libc-version.h>
#include <spawn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* Entry points that an allocator may lack are NULL then; the first five are always there once
 * resolved. */
struct hl_libc {
	void *(*malloc)(size_t);
	void (*free)(void *);
	void *(*calloc)(size_t, size_t);
	void *(*realloc)(void *, size_t);
	size_t (*usable_size)(void *); /* call hl_libc_usable_size() */
	int (*posix_memalign)(void **, size_t, size_t);
	void *(*aligned_alloc)(size_t, size_t);
	void *(*memalign)(size_t, size_t);
	void *(*valloc)(size_t);
	void *(*pvalloc)(size_t);
	char *(*strdup)(const char *);
	char *(*strndup)(const char *, size_t);
	int (*dlclose)(void *);
	void *(*mmap)(void *, size_t, int, int, int, off_t);
	int (*munmap)(void *, size_t);
	void *(*mremap)(void *, size_t, size_t, int, ...);
	int (*brk)(void *);
	void *(*sbrk)(intptr_t);
	int (*execve)(const char *, char *const[], char *const[]);
	int (*execvpe)(const char *, char *const[], char *const[]);
	int (*fexecve)(int, char *const[], char *const[]);
	int (*execveat)(int, const char *, char *const[], char *const[], int);
	int (*posix_spawn)(pid_t *, const char *, const posix_spawn_file_actions_t *,
			   const posix_spawnattr_t *, char *const[], char *const[]);
	int (*posix_spawnp)(pid_t *, const char *, const posix_spawn_file_actions_t *,
			    const posix_spawnattr_t *, char *const[], char *const[]);
	int (*system)(const char *);
	FILE *(*popen)(const char *, const char *);
	int (*prctl)(int, ...);
	void (*_exit)(int);
	void (*_Exit)(int);
};

extern HL_HIDDEN struct hl_libc hl_libc;

/* The real ones. */
extern void *(*hl_libc_dlopen)(const char *, int);
extern void *(*hl_libc_dlmopen)(Lmid_t, const char *, int);

/* The real syscall(); never NULL. */
extern HL_HIDDEN long (*hl_libc_syscall)(long, long, long, long, long, long, long);

/* The real malloc is glibc's, and its chunk headers are as hl_libc_usable_size() expects
 * them. */
extern HL_HIDDEN bool hl_libc_has_glibc_chunks;

/* Sets hl_libc_has_glibc_chunks, by a small block of the real malloc. Once, before anything is
 * recorded. */
void hl_libc_examine_chunks(const void *block);

/*
 * Bytes that may be used of a chunk of glibc's, read from it; false, where only the
 * allocator can tell. glibc's own function looks at the header of the next chunk too, which costs a
 * cache miss; a block in use needs only the size in its own.
 * Source: malloc/malloc.c of glibc, "struct malloc_chunk"; the same since 2.3.
 */
static inline bool hl_libc_read_chunk(const void *block, size_t *ret_size)
{
	enum { MMAPPED = 2, FLAGS = 7 };
	size_t size = ((const size_t *)block)[-1];

	*ret_size = (size & ~(size_t)FLAGS) - sizeof(size_t);
	return __builtin_expect(!(size & MMAPPED), 1);
}

/* The same where that may not be what it is. */
static inline bool hl_libc_read_usable_size(const void *block, size_t *ret_size)
{
	return __builtin_expect(hl_libc_has_glibc_chunks, 1) && hl_libc_read_chunk(block, ret_size);
}

/* The same, by the allocator if need be. */
static inline size_t hl_libc_usable_size(const void *block)
{
	size_t size;

	if (__builtin_expect(hl_libc_read_usable_size(block, &size), 1))
		return size;
#ifdef HL_ATTACHED
	if (!hl_libc.usable_size)
		return 0;
#endif
	return hl_libc.usable_size((void *)block);
}

#ifdef HL_ATTACHED

/* The image is told at its start what hl_libc is; nothing was allocated before. In a process without
 * malloc_usable_size(), hl_libc.usable_size is NULL and no block has slack. */

static inline bool hl_libc_resolve(void)
{
	return true;
}

static inline bool hl_libc_knows_usable_size(void)
{
	return hl_libc.usable_size != NULL;
}

static inline bool hl_libc_is_bootstrap(const void *address)
{
	(void)address;
	return false;
}

void *hl_libc_bootstrap_alloc(size_t bytes);
size_t hl_libc_bootstrap_readable(const void *address);

/* Calls a function of ours that calls the target's, which use vector registers as they like. */
int64_t hl_libc_call(uint64_t function, uint64_t a, uint64_t b);

/* errno is out of reach: who is hooked says so himself. */
static inline int hl_libc_errno(void)
{
	return 0;
}

static inline void hl_libc_set_errno(int error)
{
	(void)error;
}

static inline void hl_libc_refuse(void)
{
}

/* The real reallocarray() of a product that overflows. */
void *hl_libc_fail_array(void *block, size_t count, size_t size);

/* dlclose() has returned. */
void hl_libc_note_unloaded(void);

/* The real mlockall(), which fails once more: it knows where errno is. */
int hl_libc_fail_lock(int flags, long error);

#else

static inline bool hl_libc_knows_usable_size(void)
{
	return true;
}

static inline int hl_libc_errno(void)
{
	return errno;
}

static inline void hl_libc_set_errno(int error)
{
	errno = error;
}

static inline void hl_libc_refuse(void)
{
	errno = ENOMEM;
}

static inline void *hl_libc_fail_array(void *block, size_t count, size_t size)
{
	(void)block, (void)count, (void)size;
	errno = ENOMEM;
	return NULL;
}

static inline void hl_libc_note_unloaded(void)
{
}

static inline int hl_libc_fail_lock(int flags, long error)
{
	(void)flags;
	errno = (int)-error;
	return -1;
}

/* Fills hl_libc. Called before the first use of any hook; cheap afterwards. False while the looking
 * up itself allocates. */
bool hl_libc_resolve(void);

/*
 * A program of another libc inherits LD_PRELOAD from a recorded parent. It must load the recorder
 * and run: so references to functions of glibc alone are weak, and without them the hooks pass
 * through for good.
 */
#pragma weak _dl_find_object
#pragma weak gnu_get_libc_version
bool hl_libc_is_known(void);

/* True when both addresses lie in one loaded module. */
bool hl_libc_same_module(void *a, void *b);

/* Where the module with ${address} is mapped. False where that is not known. */
bool hl_libc_module_range(void *address, uintptr_t *ret_start, uintptr_t *ret_end);

/* The file that this library was loaded from. */
const char *hl_libc_own_path(void);

/* The definition of ${name} that the module of ${caller} would have reached: after us in the global
 * scope, else in its own. NULL if there is none. */
void *hl_libc_look_up(const char *name, void *caller);

/* Memory for what dlsym() allocates while the allocator is being looked up; zero-filled, never
 * given back. */
#define HL_LIBC_BOOTSTRAP_BYTES 4096u
extern HL_HIDDEN char hl_libc_bootstrap[HL_LIBC_BOOTSTRAP_BYTES];
void *hl_libc_bootstrap_alloc(size_t bytes);

static inline bool hl_libc_is_bootstrap(const void *address)
{
	return (uintptr_t)address - (uintptr_t)hl_libc_bootstrap < HL_LIBC_BOOTSTRAP_BYTES;
}

/* Bytes from ${address}, a bootstrap block, to the end of all such memory. */
size_t hl_libc_bootstrap_readable(const void *address);

#endif
