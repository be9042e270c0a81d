/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allocates, then writes over heapline's memory as a stray pointer would, and exits with 3.
 *
 *	objects		the number of blocks that were allocated grows by 2^36
 *	freed		more bytes were freed than allocated
 *	page I N BYTE	fills page I of N, counted over all of the region that can be written, and
 *			all pages that follow it by N
 *	all BYTE	fills all of it
 *	wait		like objects, and waits for a signal
 */
#include "program.h"

#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define BLOCKS	    5003
#define BLOCK_BYTES 127
#define PAGE	    4096
#define RANGES_MAX  64

struct range {
	unsigned char *start, *end;
};

static struct range ranges[RANGES_MAX];
static unsigned range_count;

static SITE void overwritten_site(void)
{
	KEEP(malloc(BLOCK_BYTES));
}

/* The part of the region that the program can write. */
static void find_region(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512], rights[8];

	REQUIRE(maps);
	while (fgets(line, sizeof(line), maps)) {
		unsigned long start, end;
		if (!strstr(line, "/memfd:heapline") ||
		    sscanf(line, "%lx-%lx %7s", &start, &end, rights) != 3 || rights[1] != 'w')
			continue;
		REQUIRE(range_count < RANGES_MAX);
		ranges[range_count++] =
			(struct range){(unsigned char *)start, (unsigned char *)end};
	}
	fclose(maps);
	REQUIRE(range_count > 0);
}

/* The counters of the only stack that allocated as much: bytes and blocks allocated, then freed. */
static uint64_t *find_counters(void)
{
	for (unsigned i = 0; i < range_count; i++)
		for (uint64_t *at = (uint64_t *)ranges[i].start; at + 4 < (uint64_t *)ranges[i].end;
		     at++)
			if (at[0] == BLOCKS * BLOCK_BYTES && at[1] == BLOCKS)
				return at;
	REQUIRE(range_count == 0); /* they are somewhere */
	return NULL;
}

static void fill(unsigned long first, unsigned long step, int byte)
{
	unsigned long number = 0;

	for (unsigned i = 0; i < range_count; i++)
		for (unsigned char *at = ranges[i].start; at < ranges[i].end; at += PAGE, number++)
			if (number % step == first)
				memset(at, byte, PAGE);
}

int main(int argc, char **argv)
{
	REQUIRE(argc > 1);
	for (volatile int i = 0; i < BLOCKS; i++) /* not unrolled: one call is one stack */
		overwritten_site();
	find_region();
	if (!strcmp(argv[1], "objects") || !strcmp(argv[1], "wait"))
		find_counters()[1] |= UINT64_C(1) << 36;
	else if (!strcmp(argv[1], "freed"))
		find_counters()[2] = UINT64_C(1) << 40;
	else if (!strcmp(argv[1], "page"))
		fill(strtoul(argv[2], NULL, 10), strtoul(argv[3], NULL, 10), atoi(argv[4]));
	else
		fill(0, 1, atoi(argv[2]));
	if (!strcmp(argv[1], "wait"))
		pause();
	_exit(3);
}
