/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allocates blocks that are in RAM in whole, in part and not at all, each from a function of its own,
 * says on lines "NAME BYTES" how many usable bytes of them are, and waits for the end of standard
 * input.
 */
#include "program.h"

#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE  4096u
#define HUGE  ((size_t)2 << 20)
#define LARGE ((size_t)8 << 20)
#define SMALL 2003u

static void *kept[SMALL + 8];
static size_t kept_count;

/* Whether the page at ${address} is in RAM: mincore() says so of memory without a file, for the zero
 * page too, which nothing here has. */
static bool is_present(const void *address)
{
	unsigned char state;

	return mincore((void *)((uintptr_t)address & ~(uintptr_t)(PAGE - 1)), 1, &state) == 0 &&
	       state & 1;
}

static size_t present_bytes(const char *block)
{
	size_t bytes = malloc_usable_size((void *)block), present = 0, step;

	for (size_t at = 0; at < bytes; at += step) {
		step = PAGE - (uintptr_t)(block + at) % PAGE;
		step = step < bytes - at ? step : bytes - at;
		present += is_present(block + at) ? step : 0;
	}
	return present;
}

SITE void *keep(void *block)
{
	REQUIRE(block);
	return kept[kept_count++] = block;
}

SITE void untouched(void)
{
	keep(malloc((size_t)5 << 30));
}

SITE void touched(void)
{
	memset(keep(malloc(LARGE)), 1, LARGE);
}

SITE void half_touched(void)
{
	memset(keep(malloc(LARGE)), 1, LARGE / 2);
}

SITE void given_back(void)
{
	char *block = keep(malloc(LARGE));

	memset(block, 1, LARGE);
	madvise((void *)(((uintptr_t)block + PAGE) & ~(uintptr_t)(PAGE - 1)), LARGE / 4,
		MADV_DONTNEED);
}

/* Where the system has huge pages, one byte brings in a whole one. */
SITE void huge(void)
{
	char *block;

	if (posix_memalign((void **)&block, HUGE, 2 * HUGE) != 0)
		return;
	madvise(block, 2 * HUGE, MADV_HUGEPAGE);
	*block = 1;
	keep(block);
}

/* Where there is no swap, nothing happens. */
SITE void paged_out(void)
{
	char *block = keep(malloc(LARGE));

	memset(block, 1, LARGE);
	madvise((void *)(((uintptr_t)block + PAGE) & ~(uintptr_t)(PAGE - 1)), LARGE / 2,
		MADV_PAGEOUT);
}

SITE void small(void)
{
	for (unsigned i = 0; i < SMALL; i++)
		memset(keep(malloc(40 + i % 200)), 1, 40 + i % 200);
}

static const struct {
	const char *name;
	void (*allocate)(void);
} kinds[] = {{"untouched", untouched},
	     {"touched", touched},
	     {"half_touched", half_touched},
	     {"given_back", given_back},
	     {"huge", huge},
	     {"paged_out", paged_out},
	     {"small", small}};

#define KINDS (sizeof(kinds) / sizeof(*kinds))

int main(void)
{
	size_t first[KINDS + 1] = {0};

	for (size_t i = 0; i < KINDS; i++) {
		kinds[i].allocate();
		first[i + 1] = kept_count;
	}
	for (size_t i = 0; i < KINDS; i++) {
		size_t bytes = 0;
		for (size_t k = first[i]; k < first[i + 1]; k++)
			bytes += present_bytes(kept[k]);
		printf("%s %zu\n", kinds[i].name, bytes);
	}
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}
