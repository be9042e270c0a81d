/* SPDX-License-Identifier: BSD-2-Clause */
/* Tells private memory apart; see anonymous.h. */
#include "heap/anonymous.h"

#include "base/compiler.h"
#include "base/path.h"

#include <string.h>

/* V8 and pymalloc map memory in such pieces at least, and V8 at multiples of it. */
#define PIECE_BYTES (UINT64_C(256) << 10)

/* Pools of pymalloc are this large since 3.10, and have been 4 KiB before. */
#define POOL_MAX     (UINT64_C(16) << 10)
#define POOL_MIN     (UINT64_C(4) << 10)
#define POOL_SAMPLES 32u

/* The JVM puts its heap below 32 GiB, so that pointers fit into 32 bits; executables that are
 * mapped anywhere, and their libraries, lie far above. Larger heaps are not known. */
#define JAVA_END (UINT64_C(32) << 30)

/* Where Go has its heap begin, and a bound that no heap has reached. */
#define GO_START UINT64_C(0xc000000000)
#define GO_END	 UINT64_C(0xd000000000)

const char *const hl_anonymous_names[HL_ANONYMOUS_COUNT] = {
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

struct hl_runtimes hl_runtimes_of(const struct hl_maps *maps)
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

/* ---- pymalloc ---- */

/* How a pool of pymalloc begins (Objects/obmalloc.c, struct pool_header). */
struct pool {
	uint32_t count, padding;
	uint64_t freeblock, next, previous;
	uint32_t arena, size_class, next_offset, max_next_offset;
};

/* Whether a pool of ${bytes} begins with ${pool}: its last block's offset says its size class. */
static bool is_pool(const struct pool *pool, uint64_t bytes)
{
	uint64_t block = ((uint64_t)pool->size_class + 1) * 16;

	return pool->size_class < 64 && pool->max_next_offset == bytes - block &&
	       pool->next_offset <= bytes && pool->next_offset >= sizeof(*pool) &&
	       pool->count <= bytes / block;
}

/* Whether pools begin at most of the places where they would. */
static bool holds_pools(struct hl_memory *memory, uint64_t start, uint64_t end,
			const struct hl_pages *pages)
{
	uint64_t step = ((end - start) / POOL_SAMPLES + POOL_MAX) & ~(POOL_MAX - 1);
	unsigned asked = 0, found = 0;
	struct pool pool;

	for (uint64_t at = (start + POOL_MAX - 1) & ~(POOL_MAX - 1); at < end; at += step) {
		if (!hl_pages_contain(pages, at) ||
		    hl_memory_read(memory, at, &pool, sizeof(pool)) < 0)
			continue;
		asked++;
		found += is_pool(&pool, POOL_MAX) || is_pool(&pool, POOL_MIN);
	}
	return found && found >= asked / 2;
}

/* ---- all ---- */

/* A file's own pages, or what follows its data without a gap: the .bss, of no file. */
static bool is_of_file(const struct hl_maps *maps, size_t index)
{
	const struct hl_map *map = &maps->maps[index];

	return map->inode || (index && map[-1].inode && map[-1].end == map->start &&
			      !(map[-1].flags & HL_MAP_SHARED));
}

enum hl_anonymous_kind hl_anonymous_kind_of(struct hl_memory *memory,
					    const struct hl_runtimes *runtimes, size_t index,
					    uint64_t start, uint64_t end,
					    const struct hl_pages *pages)
{
	const struct hl_map *map = &memory->maps.maps[index];

	if (is_of_file(&memory->maps, index))
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
	if (end - start >= PIECE_BYTES && holds_pools(memory, start, end, pages))
		return HL_ANONYMOUS_PYTHON;
	return HL_ANONYMOUS_OTHER;
}
