/* SPDX-License-Identifier: BSD-2-Clause */
/* A program that calls functions of a later allocator, some of which are not known. */
#include "program.h"

#include <stddef.h>
#include <string.h>

void *mi_theap_malloc(void *heap, size_t size);
void *mi_theap_realloc(void *heap, void *block, size_t size);
void mi_free_small(void *block);
void *mi_later_malloc(size_t size);
void mi_later_free(void *block);
size_t mi_later_good_size(size_t size);

static void *kept[101];

static SITE void heap_site(void)
{
	for (int i = 0; i < 101; i++)
		kept[i] = mi_theap_malloc(NULL, 17);
}

static SITE void resize_site(void)
{
	for (int i = 0; i < 11; i++)
		kept[i] = mi_theap_realloc(NULL, kept[i], 1009);
}

static SITE void text_site(void)
{
	for (int i = 0; i < 53; i++)
		KEEP(strdup("eleven long"));
}

int main(void)
{
	mi_later_free(mi_later_malloc(mi_later_good_size(100)));
	heap_site();
	resize_site();
	text_site();
	for (int i = 50; i < 101; i++)
		mi_free_small(kept[i]);
	return 0;
}
