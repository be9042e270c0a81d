/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What planted.c and planted_cxx.cc share: each of their kinds is a program that loses blocks. It
 * prints a line `planted ADDRESS BYTES` for each of them, with the address's bits inverted so that no
 * text or word leads there, "ready", and waits for the end of its input.
 */
#pragma once

#include "wipe.h"

#include <malloc.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PLANTED_MAX 65536u
#define ROUNDS	    200 /* how often a kind is planted: a stale word matters little */

struct planted {
	uint64_t hidden; /* the address, inverted */
	size_t bytes;
};

static struct planted planted[PLANTED_MAX];
static size_t planted_count;

static inline void note_planted(void *block)
{
	if (planted_count == PLANTED_MAX)
		abort();
	planted[planted_count].hidden = ~(uint64_t)(uintptr_t)block;
	planted[planted_count++].bytes = malloc_usable_size(block);
}

static inline void forget_planted(void *block)
{
	for (size_t i = planted_count; i-- > 0;)
		if (planted[i].hidden == ~(uint64_t)(uintptr_t)block) {
			planted[i] = planted[--planted_count];
			return;
		}
}

static inline int wait_for_end(void)
{
	static char output[1 << 16];
	char byte;

	setvbuf(stdout, output, _IOFBF, sizeof(output));
	for (size_t i = 0; i < planted_count; i++)
		printf("planted %llu %zu\n", (unsigned long long)planted[i].hidden,
		       planted[i].bytes);
	puts("ready");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	return 0;
}
