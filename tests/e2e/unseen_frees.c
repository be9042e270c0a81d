/* SPDX-License-Identifier: BSD-2-Clause */
/* Frees blocks by a name of libc that no recorder stands before, and gets their addresses again. */
#include "program.h"

#define BLOCKS 1000
#define BYTES  100

void __libc_free(void *block);

static void *blocks[BLOCKS];

SITE void first(void);
SITE void first(void)
{
	for (int i = 0; i < BLOCKS; i++)
		REQUIRE(blocks[i] = malloc(BYTES));
}

SITE void second(void);
SITE void second(void)
{
	for (int i = 0; i < BLOCKS; i++)
		REQUIRE(blocks[i] = malloc(BYTES));
}

int main(void)
{
	first();
	for (int i = 0; i < BLOCKS; i++)
		__libc_free(blocks[i]);
	second();
	return 0;
}
