/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory in RAM that is no heap; see rss.h. */
#include "heap/rss.h"

#include "heap/extents.h"

#include <errno.h>
#include <string.h>

struct others {
	struct hl_memory *memory;
	struct hl_heap_rss *rss;
	struct hl_runtimes runtimes;
	const struct hl_map *map;
	bool is_stack; /* ${map} */
	struct hl_pages pages;
};

/* A mapping without a file directly after one that nobody may touch is a thread's stack, or was
 * one: glibc keeps those of threads that ended. */
static bool is_stack(const struct hl_maps *maps, size_t index)
{
	const struct hl_map *map = &maps->maps[index], *guard = index ? map - 1 : NULL;

	if (strncmp(map->path, "[stack", 6) == 0)
		return true;
	return guard && !map->inode && !map->path[0] && map->flags & HL_MAP_WRITE &&
	       !guard->inode && guard->end == map->start &&
	       !(guard->flags & (HL_MAP_READ | HL_MAP_WRITE | HL_MAP_EXEC));
}

/* Adds ${bytes} of [${start}, ${end}), a part of the mapping, which have no file. */
static void add_anonymous(struct others *others, uint64_t start, uint64_t end, uint64_t bytes)
{
	struct hl_heap_rss *rss = others->rss;
	size_t index = (size_t)(others->map - others->memory->maps.maps);

	if (!bytes)
		return;
	enum hl_anonymous_kind kind = hl_anonymous_kind_of(others->memory, &others->runtimes, index,
							   start, end, &others->pages);
	rss->anonymous[kind] += bytes;
	rss->anonymous_bytes += bytes;
	if (kind == HL_ANONYMOUS_OTHER && bytes > rss->largest_bytes) {
		rss->largest_start = start;
		rss->largest_bytes = bytes;
	}
}

/* Where pages of the mapping are counted; NULL: they are anonymous. */
static uint64_t *sum_of(struct others *others, const struct hl_page_run *run)
{
	if (others->map->flags & HL_MAP_RECORDER)
		return &others->rss->recorder_bytes;
	if (others->map->flags & HL_MAP_SHARED)
		return &others->rss->shared_bytes;
	if (run->kind & HL_PAGE_FILE)
		return &others->rss->file_bytes;
	return others->is_stack ? &others->rss->stack_bytes : NULL;
}

static int add_gap(void *context, uint64_t start, uint64_t end)
{
	struct others *others = context;

	others->pages.count = 0;
	others->pages.page_count = 0;
	uint64_t anonymous = 0;
	int r = hl_memory_scan(others->memory, start, end, &others->pages);
	for (size_t i = 0; i < others->pages.count && r == 0; i++) {
		const struct hl_page_run *run = &others->pages.runs[i];
		uint64_t *sum = sum_of(others, run);
		*(sum ? sum : &anonymous) += run->end - run->start;
	}
	add_anonymous(others, start, end, anonymous);
	return r;
}

static void sum_up(struct hl_heap_rss *rss)
{
	rss->rss_bytes = rss->live_bytes + rss->cached_bytes + rss->free_bytes +
			 rss->overhead_bytes + rss->unscanned_bytes + rss->other_allocator_bytes +
			 rss->recorder_bytes + rss->stack_bytes + rss->file_bytes +
			 rss->shared_bytes + rss->anonymous_bytes;
}

int hl_rss_add_others(struct hl_memory *memory, struct hl_heap *heap)
{
	struct others others = {
		.memory = memory, .rss = &heap->rss, .runtimes = hl_runtimes_of(&memory->maps)};
	struct hl_extents extents = {0};
	int r = hl_extents_of_carriers(&heap->carriers, memory->page_bytes, &extents);

	for (size_t i = 0; i < memory->maps.count && r == 0; i++) {
		others.map = &memory->maps.maps[i];
		others.is_stack = is_stack(&memory->maps, i);
		r = hl_extents_gaps(&extents, others.map->start, others.map->end, add_gap, &others);
	}
	sum_up(&heap->rss);
	hl_pages_release(&others.pages);
	hl_extents_release(&extents);
	return r;
}
