/* SPDX-License-Identifier: BSD-2-Clause */
/* Called by ruby_places.rb: blocks of malloc(), and what calls Ruby from C. */
#include <stdlib.h>

__attribute__((visibility("default"))) void *oracle_block(long bytes);
__attribute__((visibility("default"))) void oracle_call(void (*function)(void));

void *oracle_block(long bytes)
{
	void *volatile block = malloc((size_t)bytes);

	return block;
}

void oracle_call(void (*function)(void))
{
	function();
	__asm__ volatile(""); /* no jump */
}
