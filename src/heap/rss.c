/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory in RAM outside of the heap: stacks, files, other mappings and who has mapped them. */
#include "heap/heap.h"

#include "base/compiler.h"
#include "base/names.h"
#include "heap/extents.h"
#include "heap/memory.h"
#include "heap/python_arenas.h"

#include <errno.h>
#include <string.h>

/* V8 maps memory in pieces of at least this size, at multiples of it. */
#define PIECE_BYTES (UINT64_C(256) << 10)

/* The JVM puts its heap below 32 GiB, so that pointers fit into 32 bits; executables that are
 * mapped anywhere, and their libraries, lie far above. Larger heaps are not known. */
#define JAVA_END (UINT64_C(32) << 30)

/* Go's heap begins at GO_START; no heap reaches GO_END. */
#define GO_START UINT64_C(0xc000000000)
#define GO_END	 UINT64_C(0xd000000000)

const char *const hl_rss_anonymous_names[HL_ANONYMOUS_COUNT] = {
	[HL_ANONYMOUS_VARIABLES] = "variables of program and libraries",
	[HL_ANONYMOUS_CODE] = "code made at run time (JIT)",
	[HL_ANONYMOUS_PYTHON] = "Python objects (pymalloc's arenas)",
	[HL_ANONYMOUS_V8] = "JavaScript objects (V8's heap)",
	[HL_ANONYMOUS_JAVA] = "Java objects (the JVM's heap)",
	[HL_ANONYMOUS_JVM] = "likely the JVM's metaspace and GC",
	[HL_ANONYMOUS_GO] = "Go's heap",
	[HL_ANONYMOUS_BREAK] = "[heap], but not malloc's",
	[HL_ANONYMOUS_OTHER] = "other anonymous mappings",
};

struct hl_runtimes hl_rss_find_runtimes(const struct hl_maps *maps)
{
	static const char *const v8[] = {"node", "nodejs", "deno", "chrome", "electron"};
	struct hl_runtimes runtimes = {0};

	for (size_t i = 0; i < maps->count; i++) {
		const char *name = hl_path_basename(maps->maps[i].path);
		if (!maps->maps[i].inode)
			continue;
		runtimes.has_jvm = runtimes.has_jvm || strcmp(name, "libjvm.so") == 0;
		runtimes.has_v8 = runtimes.has_v8 || strncmp(name, "libnode.so", 10) == 0 ||
				  strncmp(name, "libv8", 5) == 0;
		for (size_t k = 0; k < HL_COUNT_OF(v8); k++)
			runtimes.has_v8 = runtimes.has_v8 || strcmp(name, v8[k]) == 0;
	}
	return runtimes;
}

enum hl_anonymous_kind hl_rss_kind(struct hl_memory *memory, const struct hl_runtimes *runtimes,
				   const struct hl_map *map, uint64_t start, uint64_t end,
				   const struct hl_pages *pages)
{
	if (map->inode)
		return HL_ANONYMOUS_VARIABLES;
	/* Arenas may follow a library's data without a gap, too. */
	if (hl_python_arenas_pool_bytes(memory, start, end, pages))
		return HL_ANONYMOUS_PYTHON;
	/* What follows a file's data without a gap: the .bss, of no file. */
	if (map > memory->maps.maps && map[-1].inode && map[-1].end == map->start &&
	    !(map[-1].flags & HL_MAP_SHARED))
		return HL_ANONYMOUS_VARIABLES;
	if (map->flags & HL_MAP_EXEC)
		return HL_ANONYMOUS_CODE;
	if (strcmp(map->path, "[heap]") == 0)
		return HL_ANONYMOUS_BREAK;
	if (runtimes->has_jvm)
		return start < JAVA_END ? HL_ANONYMOUS_JAVA : HL_ANONYMOUS_JVM;
	if (runtimes->has_v8 && start % PIECE_BYTES == 0)
		return HL_ANONYMOUS_V8;
	if (start >= GO_START && start < GO_END)
		return HL_ANONYMOUS_GO;
	return HL_ANONYMOUS_OTHER;
}

/* ---- sums ---- */

struct others {
	struct hl_memory *memory;
	struct hl_heap_rss *rss;
	struct hl_runtimes runtimes;
	const struct hl_map *map;
	bool is_stack; /* ${map} */
	struct hl_pages pages;
};

/* A mapping without a file directly after one without any access is a thread's stack, or was
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

static int add_gap(void *context, uint64_t start, uint64_t end)
{
	struct others *others = context;
	struct hl_heap_rss *rss = others->rss;
	uint64_t anonymous = 0;

	others->pages.count = 0;
	others->pages.page_count = 0;
	int r = hl_memory_scan(others->memory, start, end, &others->pages);
	for (size_t i = 0; i < others->pages.count && r == 0; i++) {
		const struct hl_page_run *run = &others->pages.runs[i];
		uint64_t *sum = others->map->flags & HL_MAP_RECORDER ? &rss->recorder_bytes
				: others->map->flags & HL_MAP_SHARED ? &rss->shared_bytes
				: run->kind & HL_PAGE_FILE	     ? &rss->file_bytes
				: others->is_stack		     ? &rss->stack_bytes
								     : &anonymous;
		*sum += run->end - run->start;
		if (sum == &rss->file_bytes && others->map->flags & HL_MAP_EXEC)
			rss->code_bytes += run->end - run->start;
	}
	if (!anonymous)
		return r;
	enum hl_anonymous_kind kind = hl_rss_kind(others->memory, &others->runtimes, others->map,
						  start, end, &others->pages);
	rss->anonymous[kind] += anonymous;
	rss->anonymous_bytes += anonymous;
	if (kind == HL_ANONYMOUS_OTHER && anonymous > rss->largest_bytes) {
		rss->largest_start = start;
		rss->largest_bytes = anonymous;
	}
	return r;
}

int hl_rss_add_others(struct hl_memory *memory, struct hl_heap *heap)
{
	struct hl_heap_rss *rss = &heap->rss;
	struct others others = {
		.memory = memory, .rss = rss, .runtimes = hl_rss_find_runtimes(&memory->maps)};
	struct hl_extents extents = {0};
	int r = hl_extents_of_carriers(&heap->carriers, memory->page_bytes, &extents);

	for (size_t i = 0; i < memory->maps.count && r == 0; i++) {
		others.map = &memory->maps.maps[i];
		others.is_stack = is_stack(&memory->maps, i);
		r = hl_extents_gaps(&extents, others.map->start, others.map->end, add_gap, &others);
	}
	rss->rss_bytes = rss->live_bytes + rss->cached_bytes + rss->free_bytes +
			 rss->overhead_bytes + rss->unscanned_bytes + rss->other_allocator_bytes +
			 rss->recorder_bytes + rss->stack_bytes + rss->file_bytes +
			 rss->shared_bytes + rss->anonymous_bytes;
	hl_pages_release(&others.pages);
	hl_extents_release(&extents);
	return r;
}
