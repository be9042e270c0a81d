/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allocates known numbers of blocks of known sizes from several functions, one of which asks for
 * many sizes, and prints for each function and size what a recording must therefore say, as JSON
 * lines.
 */
#include "program.h"

#include <malloc.h>
#include <stdbool.h>

#define ANSWERS_MAX 256
#define LIVE_MAX    16384

struct answer {
	const char *function;
	size_t size;
	long alloc_objects, inuse_objects, temporary_objects;
	long slack_bytes; /* measured: depends on libc */
};

static struct answer answers[ANSWERS_MAX];
static size_t answer_count;
static void *live[LIVE_MAX];
static size_t live_count;

static struct answer *answer_of(const char *function, size_t size)
{
	for (size_t i = 0; i < answer_count; i++)
		if (answers[i].function == function && answers[i].size == size)
			return &answers[i];
	REQUIRE(answer_count < ANSWERS_MAX);
	answers[answer_count] = (struct answer){.function = function, .size = size};
	return &answers[answer_count++];
}

static SITE void *site_one_size(void)
{
	void *block = malloc(24);

	KEEP(block);
	return block;
}

static SITE void *site_two_sizes(size_t size)
{
	void *block = calloc(size, 1);

	KEEP(block);
	return block;
}

static SITE void *site_many_sizes(size_t size)
{
	void *block = malloc(size);

	KEEP(block);
	return block;
}

static SITE void *site_aligned(size_t size)
{
	void *block = aligned_alloc(64, size);

	KEEP(block);
	return block;
}

static SITE void *site_grow(void *old, size_t size)
{
	void *block = realloc(old, size);

	KEEP(block);
	return block;
}

static SITE void site_temporary(size_t size)
{
	void *block = malloc(size);

	KEEP(block);
	free(block);
	BARRIER();
}

static void note(const char *function, size_t size, void *block)
{
	struct answer *answer = answer_of(function, size);

	REQUIRE(block);
	answer->alloc_objects++;
	answer->inuse_objects++;
	answer->slack_bytes += (long)(malloc_usable_size(block) - size);
}

static void note_free(const char *function, size_t size, void *block)
{
	struct answer *answer = answer_of(function, size);

	answer->inuse_objects--;
	answer->slack_bytes -= (long)(malloc_usable_size(block) - size);
}

/* Blocks that stay to the end. */
static void keep(const char *function, size_t size, void *block)
{
	note(function, size, block);
	REQUIRE(live_count < LIVE_MAX);
	live[live_count++] = block;
}

/* All sizes beside powers of two, each another number of times; half of the blocks are freed, not
 * by the event after their allocation. */
static void call_with_many_sizes(void)
{
	static const char name[] = "site_many_sizes";

	for (size_t power = 1; power <= 1 << 19; power *= 2) {
		for (size_t size = power - 1; size <= power + 1; size++) {
			void *first = site_many_sizes(size), *second = site_many_sizes(size);
			note(name, size, first);
			keep(name, size, second);
			note_free(name, size, first);
			free(first);
			for (size_t i = 0; i < size % 13; i++)
				keep(name, size, site_many_sizes(size));
		}
	}
}

static void call_with_few_sizes(void)
{
	for (int i = 0; i < 101; i++)
		keep("site_one_size", 24, site_one_size());
	for (int i = 0; i < 103; i++)
		keep("site_two_sizes", 100, site_two_sizes(100));
	for (int i = 0; i < 7; i++)
		keep("site_two_sizes", 100000, site_two_sizes(100000));
	for (int i = 0; i < 107; i++)
		keep("site_aligned", 192, site_aligned(192));
}

/* Each block of 40 bytes becomes one of 600 and then one of 300,000, which glibc maps by itself. */
static void grow(void)
{
	static const size_t sizes[] = {40, 600, 300000};
	static const char name[] = "site_grow";

	for (int i = 0; i < 11; i++) {
		void *block = NULL;
		for (size_t step = 0; step < 3; step++) {
			if (step)
				note_free(name, sizes[step - 1], block);
			block = site_grow(block, sizes[step]);
			note(name, sizes[step], block);
		}
		REQUIRE(live_count < LIVE_MAX);
		live[live_count++] = block;
	}
}

static void call_temporary(size_t size, int times)
{
	struct answer *answer = answer_of("site_temporary", size);

	for (int i = 0; i < times; i++)
		site_temporary(size);
	answer->alloc_objects += times;
	answer->temporary_objects += times;
}

int main(void)
{
	call_with_few_sizes();
	call_with_many_sizes();
	grow();
	call_temporary(17, 109);
	call_temporary(3000, 113);
	for (size_t i = 0; i < answer_count; i++) {
		const struct answer *a = &answers[i];
		printf("{\"function\": \"%s\", \"size\": %zu, \"alloc_objects\": %ld, "
		       "\"inuse_objects\": %ld, \"temporary_objects\": %ld, \"slack_bytes\": "
		       "%ld}\n",
		       a->function, a->size, a->alloc_objects, a->inuse_objects,
		       a->temporary_objects, a->slack_bytes);
	}
	return 0;
}
