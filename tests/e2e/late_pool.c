/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A library with an allocator of its own, over memory that it maps; its constructor allocates, too.
 * Its destructor frees half of what was kept, and leaves the memory where it is. With TELLS it tells of
 * its blocks by heapline.h.
 */
#ifdef TELLS
#include <heapline/heapline.h>
#else
#define hl_pool_alloc(pool, block, size) ((void)0)
#define hl_pool_free(pool, block)	 ((void)0)
#endif

#include "late_pool.h"
#include "program.h"

#include <sys/mman.h>

#define ARENA_BYTES ((size_t)1 << 20)
#define BLOCKS	    40

static char *arena;
static size_t used;
static void *kept[BLOCKS];

__attribute__((visibility("default"))) SITE void *late_take(int flags, size_t size);
__attribute__((visibility("default"))) SITE void *late_take(int flags, size_t size)
{
	void *block = arena + used;

	KEEP(flags);
	used += (size + 15) / 16 * 16;
	REQUIRE(used <= ARENA_BYTES);
	hl_pool_alloc("late", block, size);
	return block;
}

__attribute__((visibility("default"))) SITE int late_give(void *block, int flags);
__attribute__((visibility("default"))) SITE int late_give(void *block, int flags)
{
	KEEP(flags);
	hl_pool_free("late", block);
	return *(char *)block = 1;
}

static struct late_figures figures;

static SITE void *by_late(size_t size)
{
	void *block = late_take(1, size);

	KEEP(block);
	figures.blocks++;
	figures.bytes += size;
	figures.kept_blocks++;
	figures.kept_bytes += size;
	return block;
}

static void give_back(size_t i)
{
	figures.kept_blocks--;
	figures.kept_bytes -= 10 + i;
	late_give(kept[i], 0);
}

__attribute__((constructor)) static void begin(void)
{
	arena = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(arena != MAP_FAILED);
	for (size_t i = 0; i < BLOCKS / 2; i++)
		kept[i] = by_late(10 + i);
}

__attribute__((visibility("default"))) struct late_figures *late_run(void)
{
	for (size_t i = BLOCKS / 2; i < BLOCKS; i++)
		kept[i] = by_late(10 + i);
	for (size_t i = 0; i < BLOCKS / 4; i++)
		give_back(i);
	return &figures;
}

/* The program has its figures by then: they are its own last ones. */
__attribute__((destructor)) static void end(void)
{
	for (size_t i = BLOCKS / 2; i < BLOCKS; i++)
		late_give(kept[i], 0);
}

__attribute__((visibility("default"))) void late_figures_at_end(struct late_figures *ret_figures)
{
	*ret_figures = figures;
	for (size_t i = BLOCKS / 2; i < BLOCKS; i++) {
		ret_figures->kept_blocks--;
		ret_figures->kept_bytes -= 10 + i;
	}
}
