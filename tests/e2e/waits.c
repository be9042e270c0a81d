/* SPDX-License-Identifier: BSD-2-Clause */
/* Keeps some blocks, says "ready", and allocates now and then until its input ends. Built in many
 * ways, to see what heapline says of each. With an argument it only waits: blocks that it frees may be pages that
 * its allocator gives back. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

static void *volatile kept[2000];

int main(int argc, char **argv)
{
	int pause_ms = argc > 1 ? -1 : 10;
	struct pollfd input = {.fd = 0, .events = POLLIN};
	unsigned count = 0;

	(void)argv;
	while (count < 1000)
		kept[count++] = malloc(300);
	puts("ready");
	fflush(stdout);
	for (; poll(&input, 1, pause_ms) == 0; count++) {
		free(kept[count % 2000]);
		kept[count % 2000] = malloc(300);
	}
	return 0;
}
