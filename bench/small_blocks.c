/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * small_blocks COUNT [BYTES [EVERY]]: keeps COUNT blocks of 16 to 160 bytes, with every tenth freed between
 * them, or of BYTES, all of them; at last frees every EVERYth that is left. BYTES 0: none. Says that it is ready, and waits for
 * the end of its standard input.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	size_t count = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
	size_t bytes = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
	size_t every = argc > 3 ? strtoul(argv[3], NULL, 10) : 0;
	uint32_t random = 1;
	void **last = NULL;
	char byte;

	for (size_t i = 0; i < count; i++) {
		random = random * 1664525 + 1013904223;
		void **block = malloc(bytes ? bytes : 16 + random % 145);
		if (!block)
			return 1;
		*block = last;
		last = block;
		if (!bytes && i % 10 == 9) { /* the one before the last */
			void **before = block[0];
			*block = *before;
			free(before);
		}
	}
	for (size_t i = 1; every && last; i++) {
		void **before = *last;
		if (i % every == 0)
			free(last);
		last = before;
	}
	puts("ready");
	fflush(stdout);
	return read(STDIN_FILENO, &byte, 1) < 0;
}
