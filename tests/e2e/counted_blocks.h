/* SPDX-License-Identifier: BSD-2-Clause */
/* Blocks of programs that say how many they have, and how large malloc made them. */
#pragma once

#include "wipe.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

struct node {
	struct node *next, *other;
	char pad[40];
};

struct sum {
	unsigned long blocks, bytes;
};

static void *block(size_t size, struct sum *sum)
{
	void *new = malloc(size);

	if (!new)
		abort();
	memset(new, 0, malloc_usable_size(new));
	sum->blocks++;
	sum->bytes += malloc_usable_size(new);
	return new;
}
