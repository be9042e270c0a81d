/* SPDX-License-Identifier: BSD-2-Clause */
/* A library with one function that allocates. */
#include <stdlib.h>

void library_allocate(int size);
void *library_kept;

void library_allocate(int size)
{
	library_kept = malloc((size_t)size);
	__asm__ volatile("");
}
