/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls each entry point of the allocator from a function of its own, a prime number of times with
 * prime sizes, and prints what a recording must therefore say of each function, as JSON.
 */
#include "program.h"

#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define LIVE_MAX 4096

static void *live[LIVE_MAX];
static size_t live_count;

/* Blocks that stay to the end; the recording must have them in use. */
static void keep(void *block)
{
	REQUIRE(block && live_count < LIVE_MAX);
	live[live_count++] = block;
}

static SITE void *site_malloc(void)
{
	void *block = malloc(13);

	KEEP(block);
	return block;
}

static SITE void site_temporary(void)
{
	void *block = malloc(17);

	KEEP(block);
	free(block);
	BARRIER();
}

static SITE void *site_calloc(void)
{
	void *block = calloc(7, 11);

	KEEP(block);
	return block;
}

static SITE void *site_grow_start(void)
{
	void *block = malloc(19);

	KEEP(block);
	return block;
}

static SITE void *site_grow(void *old)
{
	void *block = realloc(old, 1021);

	KEEP(block);
	return block;
}

static SITE void *site_shrink_start(void)
{
	void *block = malloc(523);

	KEEP(block);
	return block;
}

static SITE void *site_shrink(void *old)
{
	void *block = realloc(old, 23);

	KEEP(block);
	return block;
}

static SITE void *site_realloc_null(void)
{
	void *block = realloc(NULL, 29);

	KEEP(block);
	return block;
}

static SITE void *site_realloc_zero_start(void)
{
	void *block = malloc(31);

	KEEP(block);
	return block;
}

/* glibc frees the block and returns NULL: no allocation. */
static SITE void site_realloc_zero(void *old)
{
	void *block = realloc(old, 0);

	KEEP(block);
	REQUIRE(!block);
}

static SITE void *site_reallocarray(void)
{
	void *block = reallocarray(NULL, 3, 5);

	KEEP(block);
	return block;
}

static SITE void *site_posix_memalign(void)
{
	void *block = NULL;
	int error = posix_memalign(&block, 64, 41);

	KEEP(block);
	REQUIRE(!error);
	return block;
}

static SITE void *site_aligned_alloc(void)
{
	void *block = aligned_alloc(256, 43);

	KEEP(block);
	return block;
}

static SITE void *site_memalign(void)
{
	void *block = memalign(1024, 47);

	KEEP(block);
	return block;
}

static SITE void *site_valloc(void)
{
	void *block = valloc(53);

	KEEP(block);
	return block;
}

/* pvalloc sets whole pages aside; what was asked for is 59 bytes, the rest is slack. */
static SITE void *site_pvalloc(void)
{
	void *block = pvalloc(59);

	KEEP(block);
	return block;
}

static SITE void *site_strdup(void)
{
	char *text = strdup("sixty characters and the end of the string make a prime: 61.");

	KEEP(text);
	REQUIRE(strlen(text) == 60);
	return text;
}

static SITE void *site_asprintf(int number)
{
	char *text = NULL;
	int length = asprintf(&text, "%066d", number);

	KEEP(text);
	REQUIRE(length == 66);
	return text;
}

static SITE void *site_malloc_zero(void)
{
	void *block = malloc(0);

	KEEP(block);
	return block;
}

/* More than any machine has: fails, and must not be counted. */
static SITE void site_refused(void)
{
	volatile size_t too_much = SIZE_MAX / 2;
	void *block = malloc(too_much);

	KEEP(block);
	REQUIRE(!block);
	block = calloc(too_much, 16);
	KEEP(block);
	REQUIRE(!block);
	void *aligned = &block;
	REQUIRE(posix_memalign(&aligned, 3, 10) != 0);
}

static SITE void *site_refused_realloc(void)
{
	volatile size_t too_much = SIZE_MAX / 2;
	void *block = malloc(37);

	KEEP(block);
	void *grown = realloc(block, too_much);
	KEEP(grown);
	REQUIRE(!grown);
	return block;
}

/* Beyond the threshold from which glibc maps each block by itself. */
static SITE void *site_huge(void)
{
	void *block = malloc(4194319);

	KEEP(block);
	return block;
}

/* Moves by mremap. */
static SITE void *site_huge_grow(void *old)
{
	void *block = realloc(old, 8388617);

	KEEP(block);
	return block;
}

/* Frees what was allocated elsewhere, in the order of allocation: none of these is temporary. */
static SITE void site_release(void **blocks, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		free(blocks[i]);
		KEEP(blocks);
	}
	free(NULL);
}

struct answer {
	const char *function;
	long alloc_objects, alloc_bytes; /* -1: depends on the version of libc */
	long inuse_objects, inuse_bytes;
	long temporary_objects;
	long slack_bytes; /* measured: depends on libc */
};

static struct answer answers[] = {
	{"site_malloc", 101, 1313, 101, 1313, 0, 0},
	{"site_temporary", 103, 1751, 0, 0, 103, 0},
	{"site_calloc", 107, 8239, 54, 4158, 0, 0},
	{"site_grow_start", 109, 2071, 0, 0, 0, 0},
	{"site_grow", 109, 111289, 109, 111289, 0, 0},
	{"site_shrink_start", 113, 59099, 0, 0, 0, 0},
	{"site_shrink", 113, 2599, 113, 2599, 0, 0},
	{"site_realloc_null", 127, 3683, 127, 3683, 0, 0},
	{"site_realloc_zero_start", 131, 4061, 0, 0, 0, 0},
	{"site_realloc_zero", 0, 0, 0, 0, 0, 0},
	{"site_reallocarray", 137, 2055, 137, 2055, 0, 0},
	{"site_posix_memalign", 139, 5699, 139, 5699, 0, 0},
	{"site_aligned_alloc", 149, 6407, 149, 6407, 0, 0},
	{"site_memalign", 151, 7097, 151, 7097, 0, 0},
	{"site_valloc", 157, 8321, 157, 8321, 0, 0},
	{"site_pvalloc", 163, 9617, 163, 9617, 0, 0},
	{"site_strdup", 167, 10187, 167, 10187, 0, 0},
	{"site_asprintf", -1, -1, 173, 11591, -1, 0},
	{"site_malloc_zero", 179, 0, 179, 0, 0, 0},
	{"site_refused", 0, 0, 0, 0, 0, 0},
	{"site_refused_realloc", 7, 259, 7, 259, 0, 0},
	{"site_huge", 5, 20971595, 2, 8388638, 0, 0},
	{"site_huge_grow", 3, 25165851, 1, 8388617, 0, 0},
	{"site_release", 0, 0, 0, 0, 0, 0},
};

static struct answer *answer_of(const char *function)
{
	for (size_t i = 0; i < sizeof(answers) / sizeof(*answers); i++)
		if (!strcmp(answers[i].function, function))
			return &answers[i];
	abort();
}

/* Keeps a block of ${function} and adds its slack to the answer. */
static void keep_of(const char *function, void *block, size_t requested)
{
	keep(block);
	answer_of(function)->slack_bytes += (long)(malloc_usable_size(block) - requested);
}

static void call_simple_sites(void)
{
	static const struct {
		const char *function;
		void *(*call)(void);
		int times;
		size_t size;
	} simple[] = {
		{"site_malloc", site_malloc, 101, 13},
		{"site_realloc_null", site_realloc_null, 127, 29},
		{"site_reallocarray", site_reallocarray, 137, 15},
		{"site_posix_memalign", site_posix_memalign, 139, 41},
		{"site_aligned_alloc", site_aligned_alloc, 149, 43},
		{"site_memalign", site_memalign, 151, 47},
		{"site_valloc", site_valloc, 157, 53},
		{"site_pvalloc", site_pvalloc, 163, 59},
		{"site_strdup", site_strdup, 167, 61},
		{"site_malloc_zero", site_malloc_zero, 179, 0},
		{"site_refused_realloc", site_refused_realloc, 7, 37},
	};

	for (size_t i = 0; i < sizeof(simple) / sizeof(*simple); i++)
		for (int n = 0; n < simple[i].times; n++)
			keep_of(simple[i].function, simple[i].call(), simple[i].size);
}

static void call_realloc_sites(void)
{
	for (int n = 0; n < 109; n++)
		keep_of("site_grow", site_grow(site_grow_start()), 1021);
	for (int n = 0; n < 113; n++)
		keep_of("site_shrink", site_shrink(site_shrink_start()), 23);
	for (int n = 0; n < 131; n++)
		site_realloc_zero(site_realloc_zero_start());
}

static void call_releasing_sites(void)
{
	void *blocks[53];

	for (int n = 0; n < 103; n++)
		site_temporary();
	for (int n = 0; n < 53; n++)
		blocks[n] = site_calloc();
	for (int n = 53; n < 107; n++)
		keep_of("site_calloc", site_calloc(), 77);
	site_release(blocks, 53);
}

static void call_huge_sites(void)
{
	void *blocks[5];

	for (int n = 0; n < 5; n++)
		blocks[n] = site_huge();
	for (int n = 0; n < 3; n++)
		blocks[n] = site_huge_grow(blocks[n]);
	keep_of("site_huge", blocks[3], 4194319);
	keep_of("site_huge", blocks[4], 4194319);
	keep_of("site_huge_grow", blocks[0], 8388617);
	site_release(blocks + 1, 2);
}

static void print_answers(void)
{
	printf("[\n");
	for (size_t i = 0; i < sizeof(answers) / sizeof(*answers); i++) {
		const struct answer *a = &answers[i];
		printf("{\"function\": \"%s\", \"alloc_objects\": %ld, \"alloc_bytes\": %ld, "
		       "\"inuse_objects\": %ld, \"inuse_bytes\": %ld, "
		       "\"temporary_objects\": %ld, \"slack_bytes\": %ld}%s\n",
		       a->function, a->alloc_objects, a->alloc_bytes, a->inuse_objects,
		       a->inuse_bytes, a->temporary_objects, a->slack_bytes,
		       i + 1 < sizeof(answers) / sizeof(*answers) ? "," : "");
	}
	printf("]\n");
}

int main(void)
{
	call_simple_sites();
	call_realloc_sites();
	call_releasing_sites();
	call_huge_sites();
	for (int n = 0; n < 173; n++)
		keep_of("site_asprintf", site_asprintf(n), 67);
	site_refused();
	print_answers();
	return 0;
}
