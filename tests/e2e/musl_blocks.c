/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program for musl that knows its blocks. "none": none. "all": of each size and kind, some of them
 * freed; says `live BLOCKS BYTES`. "busy": two threads that allocate, grow and free blocks all the time,
 * each of which a table leads to. Then it says `ready` and waits for the end of its input.
 */
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCKS 20000
#define BUSY   4096

struct live {
	unsigned long blocks, bytes;
};

static void *blocks[BLOCKS];
static size_t sizes[BLOCKS];
static void *volatile busy[2][BUSY];

static uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525 + 1013904223;
	return *state >> 8;
}

/* Small ones mostly; up to some with mappings of their own. */
static size_t choose_size(uint32_t *state)
{
	uint32_t bits = next_random(state) % 100;

	if (bits < 70)
		return next_random(state) % 200;
	if (bits < 95)
		return next_random(state) % 5000;
	return next_random(state) % (bits < 99 ? 40000 : 300000);
}

static void plant(struct live *live)
{
	uint32_t state = 1;

	for (int i = 0; i < BLOCKS; i++) {
		sizes[i] = choose_size(&state);
		if (i % 100 == 7)
			blocks[i] = aligned_alloc((size_t)64 << i % 9, sizes[i]);
		else
			blocks[i] = malloc(sizes[i]);
		if (!blocks[i])
			abort();
	}
	/* Slots of groups become free, groups as well, and are given again. */
	for (int round = 0; round < 5; round++)
		for (int i = 0; i < BLOCKS; i++) {
			uint32_t what = next_random(&state) % 4;
			size_t size = choose_size(&state);
			if (what == 0 && i % 100 != 7) {
				blocks[i] = realloc(blocks[i], sizes[i] = size);
			} else if (what == 1 || (i / 1000) % 3 == round) {
				free(blocks[i]);
				blocks[i] = malloc(sizes[i] = size);
			}
			if (!blocks[i])
				abort();
		}
	for (int i = 0; i < BLOCKS; i++)
		if (i % 5 == 0 || i / 4000 == 3) {
			free(blocks[i]);
			blocks[i] = NULL;
		} else {
			live->blocks++;
			live->bytes += malloc_usable_size(blocks[i]);
		}
}

static void *churn(void *number)
{
	void *volatile *table = busy[(uintptr_t)number];
	uint32_t state = (uint32_t)(uintptr_t)number + 1;

	for (;;) {
		uint32_t i = next_random(&state) % BUSY;
		size_t size = choose_size(&state) % 2000;
		void *before = table[i];
		if (next_random(&state) % 3) {
			void **block = malloc(size);
			if (size >= sizeof(*block))
				*block = NULL;
			table[i] = block;
			free(before);
		} else {
			table[i] = realloc(before, size + 1);
		}
	}
	return NULL;
}

int main(int argc, char **argv)
{
	static char output[4096];
	struct live live = {0};
	const char *kind = argc > 1 ? argv[1] : "none";
	pthread_t threads[2];
	char letter;

	setvbuf(stdout, output, _IOFBF, sizeof(output));
	if (!strcmp(kind, "all"))
		plant(&live);
	printf("live %lu %lu\n", live.blocks, live.bytes);
	for (uintptr_t i = 0; i < 2 && !strcmp(kind, "busy"); i++)
		if (pthread_create(&threads[i], NULL, churn, (void *)i) != 0)
			return 1;
	puts("ready");
	fflush(stdout);
	while (read(STDIN_FILENO, &letter, 1) > 0)
		;
	_exit(0);
}
