/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program, of C and of C++, that tells of its pools by heapline.h and links nothing of heapline. Before
 * "ready" and for each line that it reads it allocates from two pools, and says of each the blocks and bytes
 * that it has allocated, and those that it has kept; "mark NAME" and "mode N" set one.
 */
#include <heapline/heapline.h>

#include "program.h"

#include <string.h>

#define ROUNDS 1000
#define CHUNK  65536

struct pool {
	const char *name;
	char *chunk;
	size_t used;
	size_t blocks, bytes, kept_blocks, kept_bytes;
};

#ifdef __cplusplus
#define LINKAGE extern "C"
#else
#define LINKAGE
#endif

LINKAGE SITE void *cut(struct pool *pool, size_t size);
LINKAGE SITE void *cut(struct pool *pool, size_t size)
{
	char *block = pool->chunk + pool->used;

	pool->used += size / 16 * 16 + 16; /* no two at one place */
	pool->blocks++;
	pool->bytes += size;
	pool->kept_blocks++;
	pool->kept_bytes += size;
	hl_pool_alloc(pool->name, block, size);
	return block;
}

LINKAGE SITE void give(struct pool *pool, void *block, size_t size);
LINKAGE SITE void give(struct pool *pool, void *block, size_t size)
{
	pool->kept_blocks--;
	pool->kept_bytes -= size;
	hl_pool_free(pool->name, block);
}

/* As after a reset of the pool: each block ends the one before. */
LINKAGE SITE void cut_again(struct pool *pool);
LINKAGE SITE void cut_again(struct pool *pool)
{
	for (size_t i = 0; i < 3; i++) {
		pool->blocks++;
		pool->bytes += 16;
		hl_pool_alloc(pool->name, pool->chunk + CHUNK / 2, 16);
	}
	pool->kept_blocks++;
	pool->kept_bytes += 16;
}

/* Its blocks end with the memory that they lie in. */
LINKAGE SITE void destroy(struct pool *pool);
LINKAGE SITE void destroy(struct pool *pool)
{
	char *chunk = (char *)malloc(CHUNK);

	REQUIRE(chunk);
	for (size_t i = 0; i < 100; i++) {
		pool->blocks++;
		pool->bytes += i % 17;
		hl_pool_alloc(pool->name, chunk + i * 17, i % 17); /* wherever it begins */
	}
	free(chunk);
}

LINKAGE SITE void work(struct pool *pool);
LINKAGE SITE void work(struct pool *pool)
{
	for (size_t i = 0; i < ROUNDS; i++) {
		if (i % 100 == 0) {
			pool->chunk = (char *)malloc(CHUNK);
			pool->used = 0;
			REQUIRE(pool->chunk);
		}
		void *block = cut(pool, i % 200);
		if (i % 3)
			give(pool, block, i % 200);
	}
	cut_again(pool);
	destroy(pool);
	hl_pool_free(pool->name, NULL);
	printf("%s %zu %zu %zu %zu\n", pool->name, pool->blocks, pool->bytes, pool->kept_blocks,
	       pool->kept_bytes);
}

static void work_all(void)
{
	struct pool requests = {"requests", NULL, 0, 0, 0, 0, 0};
	struct pool sessions = {"of sessions", NULL, 0, 0, 0, 0, 0};

	work(&requests);
	work(&sessions);
	puts("done");
}

int main(int count, char **arguments)
{
	char line[256];

	(void)arguments;
	setvbuf(stdout, NULL, _IOLBF, 1 << 12);
	if (count > 1)
		work_all();
	puts("ready");
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		if (strncmp(line, "mark ", 5) == 0)
			hl_note_mark(line + 5);
		else if (strncmp(line, "mode ", 5) == 0)
			hl_note_mode((enum hl_recording_mode)atoi(line + 5));
		work_all();
	}
	return 0;
}
