/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Known callers in functions of different frames, built so that .debug_frame alone has their rules,
 * as -fno-asynchronous-unwind-tables -g makes it. The C library's startup objects bring a little
 * .eh_frame all the same.
 */
#include "program.h"

#include <string.h>

static SITE void *leaf(size_t bytes)
{
	void *block = malloc(bytes);

	KEEP(block);
	return block;
}

/* Enough values live across the call that rbp holds one of them. */
static SITE size_t many_values(size_t bytes, size_t a, size_t b, size_t c, size_t d)
{
	size_t e = a * b, f = c * d, g = a + d, h = b + c;

	KEEP(leaf(bytes));
	return a + b * c + d * e + f * g + h;
}

static SITE size_t large_frame(size_t bytes)
{
	char buffer[5000];

	memset(buffer, (int)bytes, sizeof(buffer));
	KEEP(buffer);
	size_t sum = many_values(bytes, bytes + 1, bytes + 2, bytes + 3, bytes + 4);
	KEEP(buffer);
	return sum + (size_t)buffer[bytes];
}

static SITE size_t growing_frame(size_t bytes, size_t size)
{
	char *buffer = __builtin_alloca(size);

	memset(buffer, 1, size);
	KEEP(buffer);
	size_t sum = large_frame(bytes);
	KEEP(buffer);
	return sum + (size_t)buffer[size / 2];
}

int main(void)
{
	for (size_t i = 0; i < 101; i++) {
		size_t sum = growing_frame(103, 64 + i);
		KEEP(sum);
	}
	return 0;
}
