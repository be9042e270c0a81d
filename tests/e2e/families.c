/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that calls an allocator by the allocator's own names: FAMILY chooses which. Each site
 * allocates a known number of blocks; what is left at the end is known, too.
 */
#include "program.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(MIMALLOC)
void *mi_malloc(size_t size);
void *mi_calloc(size_t count, size_t size);
void *mi_zalloc(size_t size);
void *mi_realloc(void *block, size_t size);
void *mi_malloc_aligned(size_t size, size_t alignment);
char *mi_strdup(const char *text);
void mi_free(void *block);
void *mi_heap_new(void);
void *mi_heap_malloc(void *heap, size_t size);
void *mi_heap_malloc_aligned(void *heap, size_t size, size_t alignment);
void *mi_heap_zalloc(void *heap, size_t size);
void *mi_heap_realloc(void *heap, void *block, size_t size);
void mi_heap_delete(void *heap);
void mi_heap_destroy(void *heap);
#ifdef THEAPS
void *mi_theap_get_default(void);
void *mi_theap_malloc(void *heap, size_t size);
void *mi_theap_zalloc_small(void *heap, size_t size);
void *mi_theap_realloc(void *heap, void *block, size_t size);
void *mi_umalloc(size_t size, size_t *usable);
void mi_ufree(void *block, size_t *usable);
void mi_free_small(void *block);
#endif
#define ALLOCATE(size)	     mi_malloc(size)
#define CLEAR(count, size)   mi_calloc(count, size)
#define ALIGNED(size, bytes) mi_malloc_aligned(size, bytes)
#define RESIZE(block, size)  mi_realloc(block, size)
#define FREE(block)	     mi_free(block)
#define TEXT(text)	     mi_strdup(text)
#elif defined(JEMALLOC) || defined(ABSENT)
#ifdef ABSENT /* no library has them: malloc serves who believes the references */
#pragma weak mallocx
#pragma weak rallocx
#pragma weak xallocx
#pragma weak dallocx
#pragma weak sdallocx
#endif
void *mallocx(size_t size, int flags);
void *rallocx(void *block, size_t size, int flags);
size_t xallocx(void *block, size_t size, size_t extra, int flags);
void dallocx(void *block, int flags);
void sdallocx(void *block, size_t size, int flags);
#define ALLOCATE(size)	     mallocx(size, 0)
#define CLEAR(count, size)   mallocx((count) * (size), 0x40)
#define ALIGNED(size, bytes) mallocx(size, __builtin_ctzl(bytes))
#define RESIZE(block, size)  rallocx(block, size, 0)
#define FREE(block)	     dallocx(block, 0)
#define TEXT(text)	     strcpy(mallocx(strlen(text) + 1, 0), text)
#elif defined(TCMALLOC)
void *tc_malloc(size_t size);
void *tc_calloc(size_t count, size_t size);
void *tc_memalign(size_t alignment, size_t size);
void *tc_realloc(void *block, size_t size);
void *tc_new(size_t size);
void tc_free(void *block);
void tc_delete(void *block);
#define ALLOCATE(size)	     tc_malloc(size)
#define CLEAR(count, size)   tc_calloc(count, size)
#define ALIGNED(size, bytes) tc_memalign(bytes, size)
#define RESIZE(block, size)  tc_realloc(block, size)
#define FREE(block)	     tc_free(block)
#define TEXT(text)	     strcpy(tc_new(strlen(text) + 1), text)
#else /* a library of ours that passes calls on to malloc */
#include <heapline/heapline.h>
#define FORWARDING
void *je_malloc(size_t size);
void *je_calloc(size_t count, size_t size);
void *je_realloc(void *block, size_t size);
void *je_memalign(size_t alignment, size_t size);
void je_free(void *block);
#define ALLOCATE(size)	     je_malloc(size)
#define CLEAR(count, size)   je_calloc(count, size)
#define ALIGNED(size, bytes) je_memalign(bytes, size)
#define RESIZE(block, size)  je_realloc(block, size)
#define FREE(block)	     je_free(block)
#define TEXT(text)	     strcpy(je_malloc(strlen(text) + 1), text)
#endif

static void *kept[101 + 103 + 107 + 109 + 113];
static size_t count;

static SITE void plain_site(void)
{
	for (int i = 0; i < 101; i++)
		kept[count++] = ALLOCATE(17);
}

static SITE void clear_site(void)
{
	for (int i = 0; i < 103; i++) {
		kept[count] = CLEAR(3, 7);
		REQUIRE(*(char *)kept[count++] == 0);
	}
}

static SITE void aligned_site(void)
{
	for (int i = 0; i < 107; i++) {
		kept[count] = ALIGNED(23, 256);
		REQUIRE((uintptr_t)kept[count++] % 256 == 0);
	}
}

static SITE void resize_site(void)
{
	for (int i = 0; i < 109; i++)
		kept[count++] = RESIZE(ALLOCATE(29), 3001);
}

static SITE void text_site(void)
{
	for (int i = 0; i < 113; i++)
		kept[count++] = TEXT("eleven long");
}

#ifdef MIMALLOC
/* The allocator may take a heap itself from the program's first one. */
static SITE void heaps_site(void)
{
	for (int i = 0; i < 3; i++)
		mi_heap_destroy(mi_heap_new());
}

/* They begin anywhere in what the heap visits. */
static SITE void aligned_away_site(void *heap)
{
	for (size_t alignment = 32; alignment <= 4096; alignment *= 2)
		for (int i = 0; i < 19; i++)
			REQUIRE((uintptr_t)mi_heap_malloc_aligned(heap, 53, alignment) %
					alignment ==
				0);
}

/* All blocks of a heap go with it. */
static SITE void destroyed_site(void *heap)
{
	for (int i = 0; i < 131; i++)
		REQUIRE(mi_heap_realloc(heap, mi_heap_malloc(heap, 37), 3001));
	mi_heap_destroy(heap);
}

#ifdef THEAPS
static SITE void thread_heap_site(void *heap)
{
	size_t usable;

	for (int i = 0; i < 139; i++) {
		KEEP(mi_theap_malloc(heap, 59));
		KEEP(mi_theap_realloc(heap, mi_theap_zalloc_small(heap, 61), 3001));
		mi_free_small(mi_malloc(11));
		mi_ufree(mi_umalloc(67, &usable), &usable);
	}
}

static SITE void copied_text_site(void)
{
	for (int i = 0; i < 149; i++) {
		KEEP(strdup("eleven long"));
		mi_free(strndup("eleven long", 6));
	}
}
#endif

/* They outlive it. */
static SITE void deleted_site(void *heap)
{
	for (int i = 0; i < 137; i++)
		KEEP(mi_heap_zalloc(heap, 47));
	mi_heap_delete(heap);
}
#endif

#ifdef TCMALLOC
static SITE void zero_site(void)
{
	for (int i = 0; i < 127; i++)
		REQUIRE(!tc_realloc(tc_malloc(37), 0));
}
#endif

#ifdef FORWARDING
static SITE void closed_site(void)
{
	FREE(RESIZE(ALLOCATE(41), 43));
	REQUIRE(hl_mode_set(HL_MEM_FAST) == 0);
}
#endif

#ifndef FORWARDING
/* Of malloc(), before any of the family's. */
SITE static void foreign_site(void)
{
	for (int i = 0; i < 151; i++) {
		void *volatile block = malloc(41);
		FREE(block);
	}
}
#endif

int main(int argc, char **argv)
{
	(void)argc;
	(void)argv;
#ifndef FORWARDING
	foreign_site();
#endif
	FREE(ALLOCATE(1)); /* the first call looks the allocator up, which allocates */
	if (getenv("FAMILIES_WAIT")) {
		puts("ready");
		fflush(stdout);
		getchar();
	}
#ifdef FORWARDING
	if (argc > 1)
		closed_site();
#endif
	plain_site();
	clear_site();
	aligned_site();
	resize_site();
	text_site();
	for (size_t i = 0; i < count; i++)
		if (i % 2 == 0)
			FREE(kept[i]);
#if defined(JEMALLOC) || defined(ABSENT)
	REQUIRE(xallocx(kept[1], 18, 0, 0) >= 18);
	sdallocx(kept[1], 18, 0);
#endif
#ifdef MIMALLOC
	mi_free(mi_zalloc(31));
	heaps_site();
	void *heap = mi_heap_new();
	aligned_away_site(heap);
	destroyed_site(heap);
	deleted_site(mi_heap_new());
#endif
#ifdef THEAPS
	thread_heap_site(mi_theap_get_default());
	copied_text_site();
#endif
#ifdef TCMALLOC
	tc_delete(tc_new(31));
	zero_site();
#endif
	return 0;
}
