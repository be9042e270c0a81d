/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Says hello and ends with status 6: built static, with another libc, for another word size, to see
 * what record makes of programs that it cannot enter.
 */
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
	void *block = malloc(127);

	puts("hello");
	free(block);
	return 6;
}
