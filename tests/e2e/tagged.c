/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allocates by every entry point with libheapline-tags.so preloaded, and looks at what lies after
 * the bytes that it may use. Prints each thing that is not as it should be; status 1 then. With an
 * argument: says that it is ready and waits for the end of input, for tests that look from outside.
 */
#include "heapline/heapline.h"
#include "tags/tag_table.h"
#include "tags/tag_word.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#pragma weak hl_tag_push
#pragma weak hl_tag_pop

extern struct hl_tag_table hl_tag_table __attribute__((weak));

static int wrong;

static void complain(const char *what, const char *of)
{
	printf("%s: %s\n", of, what);
	wrong = 1;
}

static uint64_t word_of(void *block, uint64_t *ret_end)
{
	uint64_t word;
	char *end = (char *)block + malloc_usable_size(block) + HL_TAG_WORD_BYTES;

	memcpy(&word, end - sizeof(word), sizeof(word));
	*ret_end = (uint64_t)(uintptr_t)end;
	return word;
}

/* The block must have room for ${size}, all of it the program's, and a tag that leads to here. */
static void check(const char *of, void *block, size_t size)
{
	uint64_t end;

	if (!block) {
		complain("no block", of);
		return;
	}
	if (malloc_usable_size(block) < size)
		complain("too small", of);
	memset(block, 0xff, malloc_usable_size(block));
	uint64_t word = word_of(block, &end);
	Dl_info module;
	if (!hl_tag_word_is_valid(word, end))
		complain("no tag", of);
	else if (hl_tag_of_word(word))
		complain("a tag that nobody set", of);
	else if (!dladdr((void *)(uintptr_t)hl_tag_address_of_word(word), &module) ||
		 !strstr(module.dli_fname, "tagged"))
		complain("a tag that does not lead to the caller", of);
}

static void check_malloc_family(void)
{
	for (size_t size = 0; size < 300; size++) {
		void *block = malloc(size);
		check("malloc", block, size);
		block = realloc(block, size * 3 + 1);
		check("realloc", block, size * 3 + 1);
		free(block);
		block = calloc(size, 7);
		for (size_t i = 0; block && i < size * 7; i++)
			if (((char *)block)[i])
				complain("not zeroed", "calloc");
		check("calloc", block, size * 7);
		free(block);
		block = reallocarray(NULL, size, 5);
		check("reallocarray", block, size * 5);
		free(block);
	}
	void *large = malloc(100 << 20);
	check("malloc of much", large, 100 << 20);
	large = realloc(large, 200 << 20);
	check("realloc of much", large, 200 << 20);
	free(large);
	void *gone = realloc(malloc(10), 0);
	if (gone)
		complain("kept the block, which glibc does not", "realloc to nothing");
}

static void check_aligned(void)
{
	void *block = NULL;

	for (size_t alignment = sizeof(void *); alignment <= 1 << 20; alignment *= 2) {
		if (posix_memalign(&block, alignment, 100) || (uintptr_t)block % alignment)
			complain("not aligned", "posix_memalign");
		check("posix_memalign", block, 100);
		free(block);
		block = aligned_alloc(alignment, alignment);
		if ((uintptr_t)block % alignment)
			complain("not aligned", "aligned_alloc");
		check("aligned_alloc", block, alignment);
		free(block);
		block = memalign(alignment, 33);
		check("memalign", block, 33);
		free(block);
	}
	block = valloc(10);
	check("valloc", block, 10);
	free(block);
	block = pvalloc(10);
	check("pvalloc", block, 10);
	free(block);
	if (posix_memalign(&block, 3, 10) != EINVAL)
		complain("takes an alignment of 3", "posix_memalign");
}

static void check_failure(const char *of, const void *block)
{
	if (block || errno != ENOMEM)
		complain("does not fail with ENOMEM", of);
	errno = 0;
}

static void check_too_much(void)
{
	volatile size_t most = SIZE_MAX;

	errno = 0;
	check_failure("malloc of all there is", malloc(most));
	check_failure("malloc of nearly all", malloc(most - HL_TAG_WORD_BYTES + 1));
	check_failure("malloc of half", malloc(most / 2));
	check_failure("calloc that overflows", calloc(most / 2, 3));
	check_failure("calloc of all there is", calloc(most, 1));
	check_failure("reallocarray that overflows", reallocarray(NULL, most / 2, 3));
	void *block = malloc(10);
	check_failure("realloc of all there is", realloc(block, most));
	check("the block after it", block, 10);
	free(block);
}

/* ---- tags by name ---- */

static void *block_of_tag; /* one that stays, for tests that look from outside */

static uint32_t tag_of(void *block)
{
	uint64_t end, word = word_of(block, &end);

	return hl_tag_word_is_valid(word, end) ? hl_tag_of_word(word) : 0;
}

static void expect_tag(const char *name)
{
	void *block = malloc(24);

	uint32_t tag = tag_of(block);
	if (!name ? tag != 0 : !tag || strcmp(hl_tag_table.names[tag - 1], name) != 0)
		complain(name ? "not the tag of the block" : "a tag is left", name ? name : "pop");
	free(block);
}

static void *push_elsewhere(void *unused)
{
	(void)unused;
	expect_tag(NULL);
	hl_tag_push("of the other thread");
	expect_tag("of the other thread");
	return NULL;
}

static void check_names(void)
{
	pthread_t thread;
	char name[HL_TAG_NAME_MAX + 2] = {0};

	hl_tag_push("outer");
	expect_tag("outer");
	hl_tag_push("inner");
	expect_tag("inner");
	hl_tag_pop();
	expect_tag("outer");
	if (pthread_create(&thread, NULL, push_elsewhere, NULL) == 0)
		pthread_join(thread, NULL);
	expect_tag("outer");
	block_of_tag = malloc(5000);
	hl_tag_pop();
	expect_tag(NULL);
	if (hl_tag_pop() != -EINVAL)
		complain("pops what nobody pushed", "pop");
	memset(name, 'x', HL_TAG_NAME_MAX + 1);
	if (hl_tag_push(name) != -ENAMETOOLONG || hl_tag_push("") != -EINVAL ||
	    hl_tag_push(NULL) != -EINVAL || hl_tag_push("a\nb") != -EINVAL)
		complain("accepts invalid names", "push");
	expect_tag(NULL);
	for (int i = 0; i < 4; i++)
		hl_tag_pop();
}

static void check_depth(void)
{
	for (int i = 0; i < 40; i++)
		hl_tag_push(i % 2 ? "odd" : "even");
	for (int i = 0; i < 25; i++)
		hl_tag_pop();
	expect_tag("even");
	for (int i = 0; i < 15; i++)
		hl_tag_pop();
	expect_tag(NULL);
}

static void check_many_names(void)
{
	char name[32];
	int refused = 0;

	for (unsigned i = 0; i < HL_TAG_NAMES_MAX + 10; i++) {
		snprintf(name, sizeof(name), "name %u", i);
		refused += hl_tag_push(name) == -ENOSPC;
		hl_tag_pop();
	}
	if (refused < 10 || hl_tag_table.count != HL_TAG_NAMES_MAX)
		complain("names beyond the most that there can be", "push");
	hl_tag_push("outer");
	expect_tag("outer");
	hl_tag_pop();
}

int main(int argc, char **argv)
{
	(void)argv;
	if (!&hl_tag_table) {
		complain("is not preloaded", "libheapline-tags.so");
		return wrong;
	}
	check_malloc_family();
	check_aligned();
	check_too_much();
	check_names();
	check_depth();
	if (argc > 1) {
		puts("ready");
		fflush(stdout);
		char c;
		while (read(STDIN_FILENO, &c, 1) > 0)
			;
	}
	check_many_names();
	return wrong;
}
