/* SPDX-License-Identifier: BSD-2-Clause */
/* A program with an allocator linked into it that has names of its own. With an argument it goes on
 * until it is told to end. */
#include "program.h"

#include <unistd.h>

static char memory[1 << 20];
static size_t used;

SITE void *mi_malloc(size_t size);
SITE void *mi_malloc(size_t size)
{
	void *block = memory + used;

	used = (used + size + 15) % (sizeof(memory) / 2) & ~(size_t)15;
	return block;
}

int main(int argc, char **argv)
{
	(void)argv;
	do {
		for (int i = 0; i < 127; i++)
			KEEP(mi_malloc(19));
		usleep(argc > 1 ? 1000 : 0);
	} while (argc > 1);
	return 0;
}
