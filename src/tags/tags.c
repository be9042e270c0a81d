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
#include "base/names.h"
#include "heapline/heapline.h"
#include "recorder/libc.h"
#include "tags/tag_table.h"
#include "tags/tag_word.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* ---- tags that a program sets by itself: hl_tag_push(), hl_tag_pop() ---- */

#define DEPTH_MAX 16u /* tags remembered within each other; deeper ones are not told apart */

struct tag_stack {
	uint32_t depth; /* pushes without a pop, also those there was no room for */
	uint16_t tags[DEPTH_MAX];
};

static __thread struct tag_stack tag_stack __attribute__((tls_model("initial-exec")));

/* The tag of what this thread allocates; 0: none. */
static inline uint32_t current_tag(void)
{
	uint32_t depth = tag_stack.depth;

	if (__builtin_expect(!depth, 1))
		return 0;
	return tag_stack.tags[depth < DEPTH_MAX ? depth - 1 : DEPTH_MAX - 1];
}

static_assert(HL_TAG_NAME_BYTES == HL_TAG_NAME_MAX + 1, "what heapline.h promises");

#define SLOTS (2 * HL_TAG_NAMES_MAX)

HL_EXPORT struct hl_tag_table hl_tag_table = {
	.magic = HL_TAG_TABLE_MAGIC,
	.name_bytes = HL_TAG_NAME_BYTES,
};

/* Tags by the hash of their names, open addressing; 0: free. */
static _Atomic uint16_t slots[SLOTS];

/* A tag that somebody is just writing the name of. */
#define BEING_NAMED UINT16_MAX

static uint32_t hash_of(const char *name, size_t length)
{
	uint64_t hash = length;

	for (size_t i = 0; i < length; i++)
		hash = (hash ^ (uint8_t)name[i]) * UINT64_C(0x100000001b3);
	return (uint32_t)(hash >> 16) % SLOTS;
}

static bool is_named(uint16_t tag, const char *name, size_t length)
{
	const char *named = hl_tag_table.names[tag - 1];

	return memcmp(named, name, length) == 0 && !named[length];
}

/* Names are written by one thread each, before their number is seen. 0 when there is no room. */
static uint16_t add_name(const char *name, size_t length)
{
	uint32_t count = atomic_load(&hl_tag_table.count);

	do {
		if (count == HL_TAG_NAMES_MAX)
			return 0;
	} while (!atomic_compare_exchange_weak(&hl_tag_table.count, &count, count + 1));
	memcpy(hl_tag_table.names[count], name, length);
	return (uint16_t)(count + 1);
}

/*
 * The number of ${name}, 0 when there are too many. A thread that finds a name being written goes
 * on to the next slot rather than wait, as it may be a signal handler: then a name has two numbers,
 * which readers take for one because the texts are equal.
 */
static uint16_t find_or_add(const char *name, size_t length)
{
	uint32_t at = hash_of(name, length);

	for (uint32_t tries = 0; tries < SLOTS; tries++, at = (at + 1) % SLOTS) {
		uint16_t tag = atomic_load_explicit(&slots[at], memory_order_acquire);
		if (!tag && atomic_compare_exchange_strong(&slots[at], &tag, BEING_NAMED)) {
			tag = add_name(name, length);
			atomic_store_explicit(&slots[at], tag, memory_order_release);
			return tag;
		}
		if (tag != BEING_NAMED && is_named(tag, name, length))
			return tag;
	}
	return 0;
}

HL_EXPORT int hl_tag_push(const char *name)
{
	int length = name ? hl_mark_length(name) : -EINVAL;

	if (length > (int)HL_TAG_NAME_MAX)
		length = -ENAMETOOLONG;
	uint16_t tag = length > 0 ? find_or_add(name, (size_t)length) : 0;
	struct tag_stack *stack = &tag_stack;
	/* Pushed in any case, so that pops match. */
	if (stack->depth < DEPTH_MAX)
		stack->tags[stack->depth] = tag;
	stack->depth++;
	if (length < 0)
		return length;
	return tag ? 0 : -ENOSPC;
}

HL_EXPORT int hl_tag_pop(void)
{
	if (!tag_stack.depth)
		return -EINVAL;
	tag_stack.depth--;
	return 0;
}

/* ---- the allocator ---- */

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
	uint64_t word = hl_tag_word(hl_tag_identity(caller, current_tag()), (uintptr_t)end);
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
