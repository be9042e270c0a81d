/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Moves the code of its program to a huge page before main(), as servers do that are short of entries
 * in the TLB. To be linked with segments of 2 MiB each. Where the kernel has no such page, the code is
 * in anonymous memory all the same.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_BYTES ((size_t)2 << 20)

extern char __executable_start[], etext[];

__attribute__((constructor)) static void move_text(void)
{
	char *text = (char *)((uintptr_t)&move_text & ~(HUGE_BYTES - 1));
	size_t bytes = (size_t)(etext - text);

	if (bytes > HUGE_BYTES)
		abort();
	char *room = mmap(NULL, 2 * HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);
	if (room == MAP_FAILED)
		abort();
	char *copy = (char *)(((uintptr_t)room + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1));
	madvise(copy, HUGE_BYTES, MADV_HUGEPAGE);
	memcpy(copy, text, bytes);
	if (mprotect(copy, HUGE_BYTES, PROT_READ | PROT_EXEC) ||
	    mremap(copy, HUGE_BYTES, HUGE_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, text) != text)
		abort();
}
