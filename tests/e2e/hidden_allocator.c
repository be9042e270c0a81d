/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program with jemalloc built in under names with a prefix, as Rust's crates have it, and without symbols. It has 1000 blocks of
 * it, writes "ready" and waits for a line.
 */
#include <stddef.h>
#include <unistd.h>

#include "program.h"

#define BLOCKS 1000

void *je_malloc(size_t bytes);

static void *blocks[BLOCKS];

int main(void)
{
	char line;

	for (int i = 0; i < BLOCKS; i++) {
		blocks[i] = je_malloc(3000);
		REQUIRE(blocks[i]);
		*(volatile char *)blocks[i] = 1;
	}
	REQUIRE(write(STDOUT_FILENO, "ready\n", 6) == 6);
	return read(STDIN_FILENO, &line, 1) < 0;
}
