/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libheapline-tags.so: every block says who allocated it.
 *
 * Allocations ask for one word more than the program wants, and leave there who asked (tag_word.h).
 * Addresses are the allocator's own, so its free needs no hook, and blocks from before the library
 * was there stay valid. Nothing is counted, kept or said: `heapline allocations -p PID` reads the
 * words from outside. So a service can always run with it.
 */
#include "tags/tags.h"
#include "base/compiler.h"
#include "recorder/libc.h"
#include "tags/tag_names.h"
#include "tags/tag_word.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdlib.h>

#define CALLER ((uint64_t)(uintptr_t)__builtin_return_address(0))

static bool ready;

/* glibc hands out no block before its own constructors; those of other libraries come after us. */
static __attribute__((constructor)) void start(void)
{
	void *block;

	if (!hl_libc_resolve() || !hl_libc_is_known())
		return;
	block = hl_libc.malloc(1);
	if (block)
		hl_libc_examine_chunks(block);
	hl_libc.free(block);
	ready = true;
}

/* ---- the word ---- */

/* 0 for allocators whose own function for this allocates on its first call. */
static __attribute__((noinline)) size_t ask_usable_size(void *block)
{
	static __thread bool asking __attribute__((tls_model("initial-exec")));
	if (asking)
		return 0;
	asking = true;
	size_t usable = hl_libc.usable_size(block);
	asking = false;
	return usable;
}

static inline void *tag_ready(void *block, uint64_t caller)
{
	if (HL_UNLIKELY(!block))
		return NULL;
	size_t usable = HL_LIKELY(hl_libc_has_glibc_chunks) ? hl_libc_usable_size(block)
							    : ask_usable_size(block);
	if (HL_UNLIKELY(usable < HL_TAG_WORD_BYTES))
		return block;
	char *end = (char *)block + usable;
	uint64_t word = hl_tag_word(hl_tag_identity(caller, hl_tag_current()), (uintptr_t)end);
	__builtin_memcpy(end - sizeof(word), &word, sizeof(word));
	return block;
}

/* Before the library has started nobody can ask for sizes: such blocks have no tag. */
static inline void *tag(void *block, uint64_t caller)
{
	return HL_LIKELY(ready) ? tag_ready(block, caller) : block;
}

/* ${size} with room for the word; what is too large stays so. */
static inline size_t with_word(size_t size)
{
	return HL_LIKELY(size <= PTRDIFF_MAX) ? size + HL_TAG_WORD_BYTES : size;
}

static void *fail(void)
{
	errno = ENOMEM;
	return NULL;
}

/* ---- malloc and its family ---- */

/* What the loader needs while the real functions are being looked up is little, and never freed. */
static __attribute__((noinline)) void *malloc_early(size_t size)
{
	return hl_libc_resolve() ? hl_libc.malloc(with_word(size)) : hl_libc_bootstrap_alloc(size);
}

static inline void *allocate(size_t size, uint64_t caller)
{
	if (HL_UNLIKELY(!ready))
		return malloc_early(size);
	return tag_ready(hl_libc.malloc(with_word(size)), caller);
}

HL_EXPORT void *malloc(size_t size)
{
	return allocate(size, CALLER);
}

void *hl_tags_allocate(size_t size, uint64_t caller)
{
	return allocate(size, caller);
}

HL_EXPORT void *calloc(size_t count, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(count, size, &bytes))
		return fail();
	if (HL_UNLIKELY(!hl_libc_resolve()))
		return hl_libc_bootstrap_alloc(bytes);
	return tag(hl_libc.calloc(1, with_word(bytes)), CALLER);
}

static inline void *reallocate(void *block, size_t size, uint64_t caller)
{
	if (HL_UNLIKELY(!hl_libc_resolve()))
		return NULL;
	if (size || !block)
		return tag(hl_libc.realloc(block, with_word(size)), caller);
	/* Whether this frees the block is the allocator's to say. */
	block = hl_libc.realloc(block, 0);
	return block && hl_libc_usable_size(block) >= HL_TAG_WORD_BYTES ? tag(block, caller)
									: block;
}

HL_EXPORT void *realloc(void *block, size_t size)
{
	return reallocate(block, size, CALLER);
}

HL_EXPORT void *reallocarray(void *block, size_t count, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(count, size, &bytes))
		return fail();
	return reallocate(block, bytes, CALLER);
}

HL_EXPORT int posix_memalign(void **ret_block, size_t alignment, size_t size)
{
	if (!hl_libc_resolve())
		return ENOMEM;
	int error = hl_libc.posix_memalign(ret_block, alignment, with_word(size));
	if (!error)
		tag(*ret_block, CALLER);
	return error;
}

HL_EXPORT void *aligned_alloc(size_t alignment, size_t size)
{
	return hl_libc_resolve() ? tag(hl_libc.aligned_alloc(alignment, with_word(size)), CALLER)
				 : fail();
}

void *hl_tags_allocate_aligned(size_t alignment, size_t size, uint64_t caller)
{
	return hl_libc_resolve() ? tag(hl_libc.memalign(alignment, with_word(size)), caller)
				 : fail();
}

HL_EXPORT void *memalign(size_t alignment, size_t size)
{
	return hl_tags_allocate_aligned(alignment, size, CALLER);
}

HL_EXPORT void *valloc(size_t size)
{
	return hl_libc_resolve() ? tag(hl_libc.valloc(with_word(size)), CALLER) : fail();
}

/* Whole pages, the last word of which is the tag's. */
HL_EXPORT void *pvalloc(size_t size)
{
	return hl_libc_resolve() ? tag(hl_libc.pvalloc(with_word(size)), CALLER) : fail();
}

HL_EXPORT size_t malloc_usable_size(void *block)
{
	if (!block || !hl_libc_resolve())
		return 0;
	size_t usable = hl_libc.usable_size(block);
	return usable > HL_TAG_WORD_BYTES ? usable - HL_TAG_WORD_BYTES : 0;
}

/* C23: the sizes are those that the program asked for, not those that the allocator knows. */

HL_EXPORT void free_sized(void *block, size_t size)
{
	(void)size;
	free(block);
}

HL_EXPORT void free_aligned_sized(void *block, size_t alignment, size_t size)
{
	(void)alignment;
	(void)size;
	free(block);
}
