/* SPDX-License-Identifier: BSD-2-Clause */
/* Functions whose names and lines are hard to tell: recursive, inlined, static. */
#include <stdlib.h>

void *kept[32]; /* not static, so that what goes there is not optimized away */
static int count;

static inline __attribute__((always_inline)) void keep(size_t size)
{
	kept[count++] = malloc(size); /* line 10 */
}

static inline __attribute__((always_inline)) void keep_two(size_t size)
{
	keep(size); /* line 15 */
	keep(size + 1);
}

static __attribute__((noinline)) void descend(int depth)
{
	keep(100); /* line 21 */
	if (depth > 1)
		descend(depth - 1);
	__asm__ volatile("");
}

static __attribute__((noinline)) void inlined(void)
{
	keep_two(1000); /* line 29 */
	__asm__ volatile("");
}

int main(void)
{
	descend(3); /* line 35 */
	inlined();
	return 0;
}
