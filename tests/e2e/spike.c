/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Keeps 1009 blocks of 127 bytes for half a second; in the middle of it stands, for 5 ms, a block
 * of 64 MiB.
 */
#include "program.h"

#include <unistd.h>

#define QUARTER_US 250000
#define SPIKE_US   5000

static SITE void *base_site(void)
{
	void *block = malloc(127);

	KEEP(block);
	return block;
}

static SITE void *spike_site(void)
{
	void *block = malloc((size_t)64 << 20);

	KEEP(block);
	return block;
}

int main(void)
{
	for (int i = 0; i < 1009; i++)
		KEEP(base_site());
	usleep(QUARTER_US);
	void *spike = spike_site();
	usleep(SPIKE_US);
	free(spike);
	usleep(QUARTER_US);
	return 0;
}
