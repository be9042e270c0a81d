/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allocates until there is no more, says so, frees all and ends with status 3.
 *
 * Usage: exhaust [ADDRESS_SPACE_BYTES]   (sets its own limit to that first)
 */
#include "program.h"

#include <sys/resource.h>

#define BLOCK_BYTES 100003

struct block {
	struct block *next;
};

static SITE struct block *exhaust_site(void)
{
	struct block *block = malloc(BLOCK_BYTES);

	KEEP(block);
	return block;
}

int main(int argc, char **argv)
{
	struct block *all = NULL, *block;

	if (argc > 1) {
		struct rlimit limit = {.rlim_cur = strtoul(argv[1], NULL, 10)};
		limit.rlim_max = limit.rlim_cur;
		REQUIRE(!setrlimit(RLIMIT_AS, &limit));
	}
	while ((block = exhaust_site())) {
		block->next = all;
		all = block;
	}
	while ((block = all)) {
		all = block->next;
		free(block);
	}
	puts("no more memory");
	return 3;
}
