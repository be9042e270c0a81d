/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fills a heap with blocks of 16 to 271 bytes and waits, so that the memory of the process can be
 * read from outside.
 *
 * usage: big_heap MIB
 * Writes "ready" once the requested sizes add up to MIB, then ends with its standard input.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	SIZE_MIN = 16,
	SIZE_SPREAD = 256,
};

__attribute__((noinline)) static void fill(uint64_t bytes)
{
	uint64_t state = 1;

	for (uint64_t filled = 0; filled < bytes;) {
		state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
		size_t size = SIZE_MIN + (state >> 40) % SIZE_SPREAD;
		char *block = malloc(size);
		if (!block)
			abort();
		memset(block, 1, size);
		__asm__ volatile("" : : "r"(block) : "memory"); /* stays reachable by no one */
		filled += size;
	}
}

int main(int argc, char **argv)
{
	uint64_t mib = argc == 2 ? strtoull(argv[1], NULL, 10) : 0;

	if (mib == 0) {
		fprintf(stderr, "usage: big_heap MIB\n");
		return 2;
	}
	fill(mib << 20);
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}
