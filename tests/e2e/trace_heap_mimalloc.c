/* SPDX-License-Identifier: BSD-2-Clause */
/* Keeps blocks of mimalloc that other functions than those of C made; each line on standard input asks for some more. */
#include "program.h"

#include <stdio.h>

void *mi_malloc(size_t size);
void *mi_expand(void *block, size_t size);
void *mi_rezalloc(void *block, size_t size);
void *mi_recalloc(void *block, size_t count, size_t size);
void *mi_calloc_aligned(size_t count, size_t size, size_t alignment);

static void *volatile kept;

static SITE void expands(void)
{
	kept = mi_malloc(1010);
	REQUIRE(mi_expand(kept, 1015) == kept && !mi_expand(kept, 1000000));
}

static SITE void resizes(void)
{
	kept = mi_rezalloc(mi_malloc(100), 5000);
	kept = mi_recalloc(mi_malloc(100), 30, 100);
}

static SITE void aligns(void)
{
	kept = mi_calloc_aligned(3, 100, 64);
}

int main(void)
{
	char line[16];

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (puts("ready"); fgets(line, sizeof(line), stdin); puts("ok"))
		for (int i = 0; i < 100; i++) {
			expands();
			resizes();
			aligns();
		}
	return 0;
}
