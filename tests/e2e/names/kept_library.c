/* SPDX-License-Identifier: BSD-2-Clause */
/* A library that keeps blocks, in as many versions as there are values of VERSION. */
#include <stdlib.h>

const char kept_library_version[] = VERSION;

void *library_keep(size_t bytes)
{
	void *block = malloc(bytes);

	__asm__ volatile("" ::"r"(block) : "memory");
	return block;
}
