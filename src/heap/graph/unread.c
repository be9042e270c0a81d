/* SPDX-License-Identifier: BSD-2-Clause */
/* What is said of memory that was not read; see unread.h. */
#include "heap/graph/unread.h"

#include "heap/heap.h"

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

void hl_unread_join(struct hl_unread *unread, const struct hl_unread *other)
{
	unread->swapped_bytes = larger(unread->swapped_bytes, other->swapped_bytes);
	unread->secret_bytes = larger(unread->secret_bytes, other->secret_bytes);
	unread->closed_bytes = larger(unread->closed_bytes, other->closed_bytes);
	unread->has_io_uring |= other->has_io_uring;
}

uint64_t hl_unread_words(const struct hl_unread *unread)
{
	return (unread->swapped_bytes + unread->secret_bytes + unread->closed_bytes) / 8;
}

int hl_unread_note(const struct hl_unread *unread, struct hl_heap *heap, const char *verb)
{
	int r = 0;

	if (unread->swapped_bytes)
		r = hl_heap_note(
			heap,
			"%llu KiB of the process are on swap and were not read: blocks there "
			"are not in these figures, and pointers there may lead to others; "
			"'heapline %s --swapped' reads them, which brings them back into RAM",
			(unsigned long long)unread->swapped_bytes / 1024, verb);
	if (r == 0 && unread->secret_bytes)
		r = hl_heap_note(
			heap,
			"%llu KiB of the process are memfd_secret memory, which nobody else "
			"can read: pointers there may lead to blocks",
			(unsigned long long)unread->secret_bytes / 1024);
	if (r == 0 && unread->closed_bytes)
		r = hl_heap_note(
			heap,
			"%llu KiB of the process are without access and could not be read "
			"(kernel option proc_mem.force_override): pointers there may lead to "
			"blocks",
			(unsigned long long)unread->closed_bytes / 1024);
	if (r == 0 && unread->has_io_uring)
		r = hl_heap_note(
			heap, "%s",
			"the process uses io_uring, and Linux does not show the user_data of "
			"requests in flight: blocks that only these lead to count as lost");
	return r;
}
