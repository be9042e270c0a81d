/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Maps, unmaps in part, moves and grows memory without the allocator, each way in a function of its
 * own, and prints what `record --mappings` must say of it, as JSON.
 */
#include "program.h"

#include <sys/mman.h>
#include <unistd.h>

#define PAGE	     4096L
#define PAGES(count) ((size_t)((count)*PAGE))

static SITE char *map_site(size_t bytes)
{
	char *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	KEEP(area);
	REQUIRE(area != MAP_FAILED);
	return area;
}

static SITE char *map_to_cut_site(size_t bytes)
{
	char *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	KEEP(area);
	REQUIRE(area != MAP_FAILED);
	return area;
}

static SITE char *map_to_move_site(size_t bytes)
{
	char *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	KEEP(area);
	REQUIRE(area != MAP_FAILED);
	return area;
}

static SITE char *move_site(char *area, size_t old_bytes, size_t new_bytes)
{
	char *moved = mremap(area, old_bytes, new_bytes, MREMAP_MAYMOVE);

	KEEP(moved);
	REQUIRE(moved != MAP_FAILED);
	return moved;
}

static SITE void unmap_site(char *area, size_t bytes)
{
	REQUIRE(!munmap(area, bytes));
	BARRIER();
}

static SITE void grow_break_site(long bytes)
{
	REQUIRE(sbrk(bytes) != (void *)-1);
	BARRIER();
}

static void print_answer(const char *function, long alloc_pages, long inuse_pages, const char *end)
{
	printf("{\"function\": \"%s\", \"alloc_bytes\": %ld, \"inuse_bytes\": %ld}%s\n", function,
	       alloc_pages * PAGE, inuse_pages * PAGE, end);
}

int main(void)
{
	/* 11 areas of 13 pages; 4 go again. */
	for (int i = 0; i < 11; i++) {
		char *area = map_site(PAGES(13));
		if (i % 3 == 0)
			unmap_site(area, PAGES(13));
	}
	/* 7 areas of 17 pages lose 3 in front, 2 at the end and 5 in the middle; 7 stay. */
	for (int i = 0; i < 7; i++) {
		char *area = map_to_cut_site(PAGES(17));
		unmap_site(area, PAGES(3));
		unmap_site(area + PAGES(15), PAGES(2));
		unmap_site(area + PAGES(6), PAGES(5));
	}
	/* 5 areas grow from 19 to 401 pages, 3 shrink from 19 to 7. */
	for (int i = 0; i < 5; i++)
		move_site(map_to_move_site(PAGES(19)), PAGES(19), PAGES(401));
	for (int i = 0; i < 3; i++)
		move_site(map_to_move_site(PAGES(19)), PAGES(19), PAGES(7));
	/* One area goes in two calls. */
	char *both = map_to_cut_site(PAGES(23));
	unmap_site(both, PAGES(10));
	unmap_site(both + PAGES(10), PAGES(13));
	/* The break grows by 29 pages and falls by 9. */
	grow_break_site(29 * PAGE);
	grow_break_site(-9 * PAGE);

	puts("[");
	print_answer("map_site", 143, 91, ",");
	print_answer("map_to_cut_site", 142, 49, ",");
	print_answer("map_to_move_site", 152, 0, ",");
	print_answer("move_site", 2026, 2026, ",");
	print_answer("grow_break_site", 29, 20, "]");
	return 0;
}
