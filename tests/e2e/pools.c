/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An allocator with names and arguments of its own, over memory that it maps or over malloc(). For
 * each line that it reads ("arena" or "malloc") it allocates, and says for each function the blocks
 * and bytes that it has allocated, and those that it has kept. Before a line "jump" has an answer, a
 * call of the allocator is left by longjmp(). "requests" is "arena" twice, each time with a reset of the pool. After "storm", threads allocate until the input ends. After "regions" pieces are cut
 * from blocks of malloc(), which are freed, moved or used again without a word of the pieces; after "keep" one such block has pieces that are kept.
 */
#include "program.h"

#include <pthread.h>
#include <setjmp.h>
#include <string.h>
#include <sys/mman.h>

#define ARENA_BYTES  ((size_t)64 << 20)
#define HEADER_BYTES 16
#define ROUNDS	     2000
#define SWEPT	     300

struct pool {
	char *arena; /* NULL: over malloc() */
	size_t used;
	jmp_buf *left_to;
	void **dead; /* NULL-terminated blocks that the next allocation frees first */
};

struct figures {
	size_t blocks, bytes, kept_blocks, kept_bytes;
};

/* ---- the allocator ---- */

SITE void *cut(struct pool *pool, size_t size);
SITE void *cut(struct pool *pool, size_t size)
{
	char *piece = pool->arena ? pool->arena + pool->used : malloc(size + HEADER_BYTES);

	pool->used += (size + HEADER_BYTES + 15) & ~(size_t)15;
	REQUIRE(piece && pool->used < ARENA_BYTES);
	*(size_t *)(void *)piece = size;
	return piece + HEADER_BYTES;
}

SITE int my_free(struct pool *pool, void *block);

/* A function of one instruction, and code that follows it at once. */
__asm__(".text\n"
	".globl too_short\n"
	".type too_short, @function\n"
	"too_short: ret\n"
	".size too_short, . - too_short\n"
	"nop\n\tnop\n\tret\n");

SITE void *my_alloc(struct pool *pool, int flags, size_t size);
SITE void *my_alloc(struct pool *pool, int flags, size_t size)
{
	KEEP(flags);
	if (pool->left_to)
		longjmp(*pool->left_to, 1);
	for (void **block = pool->dead; block && *block; block++)
		my_free(pool, *block);
	pool->dead = NULL;
	return cut(pool, size);
}

SITE void *my_calloc(struct pool *pool, size_t count, size_t size);
SITE void *my_calloc(struct pool *pool, size_t count, size_t size)
{
	return memset(cut(pool, count * size), 0, count * size);
}

SITE int my_free(struct pool *pool, void *block)
{
	if (block && !pool->arena)
		free((char *)block - HEADER_BYTES);
	return 42;
}

SITE void my_reset(struct pool *pool);
SITE void my_reset(struct pool *pool)
{
	REQUIRE(munmap(pool->arena, ARENA_BYTES) == 0);
	pool->arena = NULL;
}

SITE void *my_realloc(struct pool *pool, int flags, void *block, size_t size);
SITE void *my_realloc(struct pool *pool, int flags, void *block, size_t size)
{
	size_t old = block ? *(size_t *)(void *)((char *)block - HEADER_BYTES) : 0;
	char *moved = cut(pool, size);

	KEEP(flags);
	if (block)
		memcpy(moved, block, old < size ? old : size);
	my_free(pool, block);
	return moved;
}

/* ---- who uses it ---- */

static void give(struct figures *figures, size_t size)
{
	figures->blocks++;
	figures->bytes += size;
	figures->kept_blocks++;
	figures->kept_bytes += size;
}

static void take(struct figures *figures, size_t size)
{
	figures->kept_blocks--;
	figures->kept_bytes -= size;
}

SITE void by_alloc(struct pool *pool, struct figures *figures);
SITE void by_alloc(struct pool *pool, struct figures *figures)
{
	for (size_t i = 0; i < ROUNDS; i++) {
		void *block = my_alloc(pool, 1, i % 300);
		give(figures, i % 300);
		if (i % 3 == 0)
			continue;
		REQUIRE(my_free(pool, block) == 42);
		take(figures, i % 300);
	}
}

SITE void by_calloc(struct pool *pool, struct figures *figures);
SITE void by_calloc(struct pool *pool, struct figures *figures)
{
	for (size_t i = 0; i < ROUNDS; i++) {
		KEEP(my_calloc(pool, i % 7, 24));
		give(figures, i % 7 * 24);
	}
}

SITE void by_realloc(struct pool *pool, struct figures *figures);
SITE void by_realloc(struct pool *pool, struct figures *figures)
{
	for (size_t i = 0; i < ROUNDS; i++) {
		void *block = my_realloc(pool, 1, NULL, 10);
		give(figures, 10);
		block = my_realloc(pool, 1, block, 10 + i);
		take(figures, 10);
		give(figures, 10 + i);
		if (i % 2)
			continue;
		my_free(pool, block);
		take(figures, 10 + i);
	}
}

/* As a garbage collector, frees many blocks within one allocation. */
SITE void by_sweep(struct pool *pool, struct figures *figures);
SITE void by_sweep(struct pool *pool, struct figures *figures)
{
	void *dead[SWEPT + 1] = {NULL};

	for (size_t i = 0; i < SWEPT; i++) {
		dead[i] = my_alloc(pool, 1, i);
		give(figures, i);
	}
	pool->dead = dead;
	KEEP(my_alloc(pool, 1, SWEPT));
	give(figures, SWEPT);
	for (size_t i = 0; i < SWEPT; i++)
		take(figures, i);
}

SITE void by_malloc(struct figures *figures);
SITE void by_malloc(struct figures *figures)
{
	for (size_t i = 0; i < ROUNDS; i++) {
		void *block = malloc(i);
		KEEP(block);
		give(figures, i);
		if (i % 2)
			continue;
		free(block);
		take(figures, i);
	}
}

/* As whatever a program does next: writes over what was left on the stack. */
SITE void go_on(void);
SITE void go_on(void)
{
	char bytes[4096];

	memset(bytes, 1, sizeof(bytes));
	KEEP(bytes);
}

SITE void leave_by_jump(void);
SITE void leave_by_jump(void)
{
	jmp_buf here;
	struct pool pool = {.left_to = &here};

	if (setjmp(here) == 0)
		my_alloc(&pool, 1, 100);
}

/* ---- pieces that end without a word ---- */

#define REGIONS	     40
#define REGION_BYTES 4096
#define CUTS	     40
#define LARGE_CUTS   3

struct cuts {
	char *pieces[CUTS];
	size_t sizes[CUTS];
};

SITE char *begin_region(char *region, size_t bytes);
SITE char *begin_region(char *region, size_t bytes)
{
	region = realloc(region, bytes);
	REQUIRE(region);
	return region;
}

/* Those that begin in [${start}, ${start} + ${bytes}) are no more. */
static void end_cuts(struct cuts *cuts, struct figures *figures, const char *start, size_t bytes)
{
	for (size_t i = 0; i < CUTS; i++) {
		if (!cuts->pieces[i] || (size_t)(cuts->pieces[i] - start) >= bytes)
			continue;
		take(figures, cuts->sizes[i]);
		cuts->pieces[i] = NULL;
	}
}

SITE void by_region(size_t number, struct figures *figures);
SITE void by_region(size_t number, struct figures *figures)
{
	struct pool pool = {.arena = begin_region(NULL, REGION_BYTES)};
	char *first = pool.arena, *barrier = begin_region(NULL, 100);
	struct cuts cuts = {0};

	for (size_t i = 0; i < CUTS; i++) {
		cuts.sizes[i] = i * 2;
		cuts.pieces[i] = my_alloc(&pool, 1, i * 2);
		give(figures, i * 2);
	}
	if (number % 4 == 1) {
		free(first);
		end_cuts(&cuts, figures, first, REGION_BYTES);
	} else if (number % 4 == 2 && begin_region(first, REGION_BYTES * 16) != first) {
		end_cuts(&cuts, figures, first, REGION_BYTES);
	} else if (number % 4 == 3) {
		pool.used = 0;
		for (size_t i = 0; i < LARGE_CUTS; i++) {
			end_cuts(&cuts, figures, my_alloc(&pool, 1, 300), 300);
			give(figures, 300);
		}
	}
	free(barrier);
}

/* All that leads to the region of the pool is a pointer to its second piece. */
static char *volatile kept_piece;

SITE void keep_piece(struct figures *figures);
SITE void keep_piece(struct figures *figures)
{
	struct pool pool = {.arena = begin_region(NULL, REGION_BYTES)};

	KEEP(my_alloc(&pool, 1, 1000));
	kept_piece = my_alloc(&pool, 1, 1000);
	give(figures, 1000);
	give(figures, 1000);
}

#define THREADS 4
#define HELD	16

static _Atomic int is_over;

SITE void *rage(void *unused);
SITE void *rage(void *unused)
{
	struct pool pool = {0};
	void *held[HELD] = {NULL};

	while (!is_over) {
		for (size_t i = 0; i < HELD; i++) {
			if (i % 5 == 0) {
				held[i] = my_realloc(&pool, 1, held[i], 100 + i);
				continue;
			}
			my_free(&pool, held[i]);
			held[i] = i % 2 ? my_alloc(&pool, 1, i) : my_calloc(&pool, i, 8);
		}
		pool.used = 0;
	}
	for (size_t i = 0; i < HELD; i++)
		my_free(&pool, held[i]);
	return unused;
}

static void storm(pthread_t threads[THREADS])
{
	for (int i = 0; i < THREADS; i++)
		REQUIRE(pthread_create(&threads[i], NULL, rage, NULL) == 0);
}

static void calm(pthread_t threads[THREADS])
{
	is_over = 1;
	for (int i = 0; i < THREADS && threads[0]; i++)
		pthread_join(threads[i], NULL);
}

static void begin_arena(struct pool *pool)
{
	pool->used = 0;
	pool->arena = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	REQUIRE(pool->arena != MAP_FAILED);
}

static void use(struct pool *pool, struct figures by[4])
{
	by_alloc(pool, &by[0]);
	by_calloc(pool, &by[1]);
	by_realloc(pool, &by[2]);
	by_sweep(pool, &by[3]);
}

static void serve_request(struct pool *pool, struct figures by[4])
{
	begin_arena(pool);
	use(pool, by);
	my_reset(pool);
	for (int i = 0; i < 4; i++)
		by[i].kept_blocks = by[i].kept_bytes = 0;
}

static void print_figures(const char *name, const struct figures *it)
{
	printf("%s %zu %zu %zu %zu\n", name, it->blocks, it->bytes, it->kept_blocks,
	       it->kept_bytes);
}

int main(void)
{
	static struct pool pool;
	static struct figures by[5];
	static pthread_t threads[THREADS];
	char line[64];

	setvbuf(stdout, NULL, _IOLBF, 1 << 12);
	puts("ready");
	while (fgets(line, sizeof(line), stdin)) {
		if (strcmp(line, "jump\n") == 0) {
			leave_by_jump();
			go_on();
			puts("done");
			continue;
		}
		if (strcmp(line, "storm\n") == 0) {
			storm(threads);
			puts("done");
			continue;
		}
		memset(by, 0, sizeof(by));
		if (strcmp(line, "keep\n") == 0) {
			keep_piece(&by[0]);
			go_on();
			print_figures("keep_piece", &by[0]);
			puts("done");
			continue;
		}
		if (strcmp(line, "regions\n") == 0) {
			for (size_t i = 0; i < REGIONS; i++)
				by_region(i, &by[0]);
			print_figures("by_region", &by[0]);
			puts("done");
			continue;
		}
		pool = (struct pool){0};
		if (strcmp(line, "arena\n") == 0)
			begin_arena(&pool);
		if (strcmp(line, "requests\n") == 0)
			for (int i = 0; i < 2; i++)
				serve_request(&pool, by);
		else
			use(&pool, by);
		by_malloc(&by[4]);
		print_figures("by_alloc", &by[0]);
		print_figures("by_calloc", &by[1]);
		print_figures("by_realloc", &by[2]);
		print_figures("by_sweep", &by[3]);
		print_figures("by_malloc", &by[4]);
		puts("done");
	}
	calm(threads);
	return 0;
}
