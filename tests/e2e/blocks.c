/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * blocks COUNT SIZE [EVERY]: at the first line of its input makes COUNT blocks of SIZE bytes from two places, every third
 * one by site_b(), and frees every second or EVERYth; it ends with its input. It writes
 *	"ready" before the first block, "kept A B" with the bytes in use of each site after the last free
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SITE __attribute__((noinline, noclone))

SITE void *site_a(size_t size);
SITE void *site_a(size_t size)
{
	void *volatile block = malloc(size);

	return block;
}

SITE void *site_b(size_t size);
SITE void *site_b(size_t size)
{
	void *volatile block = malloc(size);

	return block;
}

int main(int argc, char **argv)
{
	size_t count = argc > 2 ? strtoul(argv[1], NULL, 10) : 0;
	size_t size = count ? strtoul(argv[2], NULL, 10) : 0;
	size_t every = argc > 3 ? strtoul(argv[3], NULL, 10) : 2;
	char **blocks = calloc(count, sizeof(*blocks));
	uint64_t kept[2] = {0, 0};

	if (!blocks)
		return 2;
	puts("ready");
	fflush(stdout);
	getchar();
	for (size_t i = 0; i < count; i++) {
		blocks[i] = i % 3 ? site_a(size) : site_b(size);
		if (!blocks[i])
			return 1;
		memset(blocks[i], 1, size);
		kept[i % 3 == 0] += size;
	}
	for (size_t i = 0; i < count; i += every) {
		free(blocks[i]);
		kept[i % 3 == 0] -= size;
	}
	printf("kept %lu %lu\n", kept[0], kept[1]);
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}
