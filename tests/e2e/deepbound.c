/* SPDX-License-Identifier: BSD-2-Clause */
/* A library that is opened with RTLD_DEEPBIND, and with NEEDED the one that it needs. */
#include "deepbind.h"

#ifdef NEEDED
EXPORTED SITE void *needed_make(size_t bytes);
EXPORTED SITE void *needed_make(size_t bytes)
{
	void *block = calloc(1, bytes);

	KEEP(block);
	return block;
}
#else
void *needed_make(size_t bytes);

void *kept[10];
void *(*const needs)(size_t) = needed_make;

/* Before anybody could do something about it: in dlopen(). */
__attribute__((constructor)) void deepbound_begin(void);
__attribute__((constructor)) void deepbound_begin(void)
{
	for (int i = 0; i < 10; i++) {
		kept[i] = malloc(100);
		KEEP(kept[i]);
	}
}

EXPORTED SITE void *deepbound_make(size_t bytes);
EXPORTED SITE void *deepbound_make(size_t bytes)
{
	void *block = malloc(bytes);

	KEEP(block);
	return block;
}

EXPORTED SITE void deepbound_free(void *block);
EXPORTED SITE void deepbound_free(void *block)
{
	free(block);
	BARRIER();
}
#endif
