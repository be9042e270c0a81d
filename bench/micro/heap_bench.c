/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How long it takes to find the roots of a process' heap, and to walk all of it: heap_bench PID
 * [ROUNDS]. The fastest of ROUNDS (10) counts, in processor time, user's and system's: one thread
 * works, and never waits.
 */
#include "base/clock.h"
#include "heap/glibc.h"
#include "heap/heap.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct fastest {
	uint64_t roots_ns, walk_ns;
	struct hl_heap_arena total;
	uint64_t chunks;
};

static void keep_lower(uint64_t *fastest, uint64_t value)
{
	if (!*fastest || value < *fastest)
		*fastest = value;
}

static int find_roots(pid_t pid, struct fastest *fastest, struct hl_error *err)
{
	struct hl_memory *memory;
	struct hl_glibc glibc;
	int r = hl_memory_live_open(pid, &memory, err);

	if (r < 0)
		return r;
	uint64_t begin = hl_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	r = hl_glibc_roots_find(memory, &glibc, err);
	keep_lower(&fastest->roots_ns, hl_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - begin);
	hl_memory_free(memory);
	return r;
}

static int walk(pid_t pid, struct fastest *fastest, struct hl_error *err)
{
	const struct hl_heap_settings settings = {0};
	struct hl_heap *heap;
	uint64_t begin = hl_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	int r = hl_heap_read(pid, &settings, &heap, err);

	if (r < 0)
		return r;
	keep_lower(&fastest->walk_ns, hl_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - begin);
	hl_heap_total(heap, &fastest->total);
	fastest->chunks = heap->chunks;
	hl_heap_free(heap);
	return 0;
}

int main(int argc, char **argv)
{
	pid_t pid = argc > 1 ? atoi(argv[1]) : 0;
	int rounds = argc > 2 ? atoi(argv[2]) : 10, r = 0;
	struct fastest fastest = {0};
	struct hl_error err = {.text = ""};

	for (int i = 0; i < rounds && r == 0; i++) {
		r = find_roots(pid, &fastest, &err);
		if (r == 0)
			r = walk(pid, &fastest, &err);
	}
	if (r < 0) {
		fprintf(stderr, "heap_bench: %s\n", err.text);
		return 1;
	}
	printf("roots_us=%.1f walk_ms=%.1f chunks=%" PRIu64 " system_bytes=%" PRIu64 "\n",
	       (double)fastest.roots_ns / 1e3, (double)fastest.walk_ns / 1e6, fastest.chunks,
	       fastest.total.system_bytes);
	return 0;
}
