/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allocates blocks under a limit of private memory that may be written (RLIMIT_DATA) until there is
 * no more, and prints how many there were. A forked child does the same before.
 *
 * Usage: data_limit BYTES
 */
#include "program.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK_BYTES 200

struct block {
	struct block *next;
};

static SITE struct block *limited_site(void)
{
	struct block *block = malloc(BLOCK_BYTES);

	KEEP(block);
	return block;
}

/* Prints when all is free again: to print takes a buffer. */
static void exhaust(const char *who)
{
	struct block *all = NULL, *block;
	unsigned long count = 0;

	for (; (block = limited_site()); count++) {
		block->next = all;
		all = block;
	}
	while ((block = all)) {
		all = block->next;
		free(block);
	}
	printf("%s %lu\n", who, count);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	int status;

	REQUIRE(argc == 2);
	struct rlimit limit = {.rlim_cur = strtoul(argv[1], NULL, 10)};
	limit.rlim_max = limit.rlim_cur;
	REQUIRE(!setrlimit(RLIMIT_DATA, &limit));
	pid_t child = fork();
	REQUIRE(child >= 0);
	if (child == 0) {
		exhaust("child");
		_exit(0);
	}
	REQUIRE(waitpid(child, &status, 0) == child && status == 0);
	exhaust("parent");
	return 0;
}
