/* SPDX-License-Identifier: BSD-2-Clause */
/* The image's hook of functions that rules name: called here as their patched functions would call it,
 * and compared with what the callers know. */
#include "../image_host.h"

#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/auxv.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "guests.h"

/* ---- an allocator over an arena, whose functions have their arguments where no others have ---- */

struct pool {
	char *arena;
	size_t used, bytes;
	double last_ratio;
	long last_line;
	jmp_buf *left_to;
};

static struct pool pool;

enum rule {
	POOL_ALLOC,
	POOL_CALLOC,
	POOL_REALLOC,
	POOL_FREE,
	POOL_MAKE,
	WRAP_ALLOC,
	WRAP_FREE,
	SAME_ALLOC,
	SAME_FREE,
	NEW,
	LUA,
	BESIDE_ALLOC,
	BESIDE_FREE,
	LAUNCH,
	CUT,
	CUT_AGAIN,
	GIVE_BACK,
	RESET,
	RULE_COUNT,
};

/* Its last arguments lie on the stack. */
static void *pool_alloc(struct pool *from, int flags, size_t size, const char *file, double ratio,
			const char *function, unsigned kind, unsigned tag, long line)
{
	void *block = from->arena + from->used;

	assert_int_equal(flags + (int)kind + (int)tag, 6);
	assert_string_equal(file, "file");
	assert_string_equal(function, "function");
	from->last_ratio = ratio;
	from->last_line = line;
	if (size > from->bytes - from->used)
		return NULL;
	from->used += (size + 15) & ~(size_t)15;
	return block;
}

static void *pool_calloc(struct pool *from, size_t size, size_t count)
{
	if (from->left_to)
		longjmp(*from->left_to, 1);
	return pool_alloc(from, 1, count * size, "file", 1.5, "function", 2, 3, 0);
}

static void *pool_realloc(struct pool *from, size_t size, void *block)
{
	void *moved = pool_calloc(from, size, 1);

	if (moved && block)
		memmove(moved, block, size); /* the copy may reach into the new block */
	return moved;
}

static int pool_free(struct pool *from, void *block)
{
	return (char *)block >= from->arena ? 71 : 0;
}

static int pool_make(size_t size, struct pool *from, void **ret_block)
{
	*ret_block = (void *)1;
	void *block = pool_calloc(from, size, 1);
	if (!block)
		return 12;
	*ret_block = block;
	return 0;
}

/* ---- one over malloc(), which is hooked ---- */

#define HOOK(TYPE, NAME) ((TYPE)attached->hooks[NAME])

typedef void *malloc_fn(size_t);
typedef void free_fn(void *);
typedef void *realloc_fn(void *, size_t);

static void *hook_malloc(size_t size)
{
	return HOOK(malloc_fn *, HL_HOOK_MALLOC)(size);
}

static void hook_free(void *block)
{
	HOOK(free_fn *, HL_HOOK_FREE)(block);
}

static void *hook_realloc(void *block, size_t size)
{
	return HOOK(realloc_fn *, HL_HOOK_REALLOC)(block, size);
}

static void *wrap_alloc(size_t size)
{
	hook_free(hook_malloc(5000));
	return hook_malloc(size);
}

static void wrap_free(void *block)
{
	hook_free(block);
}

/* ---- operator new of the allocator ---- */

static bool has_memory;
static jmp_buf out_of_memory;

static void *modest_malloc(size_t size)
{
	return has_memory ? malloc(size) : NULL;
}

static void *throwing_new(size_t size)
{
	(void)size;
	longjmp(out_of_memory, 1);
}

/* Changes no register but rax. */
static uint64_t same(uint64_t first)
{
	return first;
}

/* ---- as Lua's: it frees by size 0, and calls no malloc() ---- */

static char *lua_next; /* what it gives */

static void *lua_alloc(void *context, void *block, size_t old_size, size_t size)
{
	(void)context, (void)old_size;
	if (!size || !lua_next)
		return NULL;
	if (block && block != lua_next)
		memmove(lua_next, block, size < old_size ? size : old_size);
	return lua_next;
}

/* ---- beside malloc() ---- */

static _Alignas(64) char beside[64];

static void *beside_alloc(size_t size)
{
	return size <= sizeof(beside) ? beside : NULL;
}

/* ---- a pool that is reset ---- */

static char *next_piece; /* what it gives */

static void *cut(size_t size)
{
	return size == SIZE_MAX ? NULL : next_piece;
}

static void *cut_again(void *piece, size_t size)
{
	(void)piece;
	return cut(size);
}

/* ---- services ---- */

static __thread uint32_t current;

static uint32_t current_service(void)
{
	return current;
}

static uint32_t service_of(const void *context)
{
	return *(const uint32_t *)context;
}

static int launch(const void *module, void *instance, const uint32_t *context,
		  const char *arguments)
{
	(void)module, (void)instance, (void)context, (void)arguments;
	return 0;
}

/* ---- the image ---- */

static bool knows_usable = true;

static void prepare(enum hl_mode mode, uint64_t sample_bytes, bool counts_layers)
{
	struct hl_attached_start start = {
		.main_tid = getpid(),
		.real = {[HL_HOOK_MALLOC] = (uint64_t)modest_malloc,
			 [HL_HOOK_REALLOC] = (uint64_t)realloc,
			 [HL_HOOK_FREE] = (uint64_t)free},
		.usable_size = knows_usable ? (uint64_t)malloc_usable_size : 0,
		.current_service = (uint64_t)current_service,
		.service_of = (uint64_t)service_of,
		.program_headers = getauxval(AT_PHDR),
		.program_header_count = getauxval(AT_PHNUM),
		.page_bytes = getauxval(AT_PAGESZ),
		.may_read_tsc = 1,
		.counts_layers = counts_layers,
		.rules =
			{
				[POOL_ALLOC] = {.real = (uint64_t)pool_alloc, .size_at = 3},
				[POOL_CALLOC] = {.real = (uint64_t)pool_calloc,
						 .size_at = 2,
						 .count_at = 3},
				[POOL_REALLOC] = {.real = (uint64_t)pool_realloc,
						  .size_at = 2,
						  .pointer_at = 3},
				[POOL_FREE] = {.real = (uint64_t)pool_free,
					       .pointer_at = 2,
					       .does = HL_RULE_FREES},
				[POOL_MAKE] = {.real = (uint64_t)pool_make,
					       .size_at = 1,
					       .result_at = 3},
				[WRAP_ALLOC] = {.real = (uint64_t)wrap_alloc, .size_at = 1},
				[WRAP_FREE] = {.real = (uint64_t)wrap_free,
					       .pointer_at = 1,
					       .does = HL_RULE_FREES},
				[SAME_ALLOC] = {.real = (uint64_t)same, .size_at = 1},
				[SAME_FREE] = {.real = (uint64_t)same,
					       .pointer_at = 1,
					       .does = HL_RULE_FREES},
				[NEW] = {.real = (uint64_t)throwing_new,
					 .size_at = 1,
					 .throws = 1,
					 .is_of_malloc = 1},
				[LUA] = {.real = (uint64_t)lua_alloc,
					 .pointer_at = 2,
					 .type_at = 3,
					 .size_at = 4,
					 .is_beside = 1},
				[BESIDE_ALLOC] = {.real = (uint64_t)beside_alloc,
						  .size_at = 1,
						  .is_beside = 1},
				[BESIDE_FREE] = {.real = (uint64_t)same,
						 .pointer_at = 1,
						 .does = HL_RULE_FREES,
						 .is_beside = 1},
				[LAUNCH] = {.real = (uint64_t)launch,
					    .does = HL_RULE_TELLS_SERVICE},
				[CUT] = {.real = (uint64_t)cut, .size_at = 1, .pool = 1},
				[CUT_AGAIN] = {.real = (uint64_t)cut_again,
					       .pointer_at = 1,
					       .size_at = 2,
					       .pool = 1},
				[GIVE_BACK] = {.real = (uint64_t)same,
					       .pointer_at = 1,
					       .does = HL_RULE_FREES,
					       .pool = 1},
				[RESET] = {.real = (uint64_t)same,
					   .does = HL_RULE_RESETS,
					   .pool = 1},
			},
	};

	has_memory = true;
	start.region_fd = make_region(&start.region_bytes, mode, sample_bytes);
	lay_out();
	memcpy((void *)attached->start_room, &start, sizeof(start));
}

static void start(enum hl_mode mode, uint64_t sample_bytes, bool counts_layers)
{
	prepare(mode, sample_bytes, counts_layers);
	assert_int_equal(
		call_on(attached->stack_top, attached->start, (void *)attached->start_room), 0);
}

static int32_t inside(void)
{
	const struct hl_attached_slot *slots = (const struct hl_attached_slot *)attached->slots;
	int32_t sum = atomic_load(&attached->inside_without_slot);

	for (uint32_t i = 0; i < attached->slot_count; i++)
		sum += atomic_load(&slots[i].inside);
	return sum;
}

static void end(void)
{
	assert_int_equal(inside(), 0);
	assert_int_equal(call_on(attached->stack_top, attached->stop, NULL), 0);
	munmap(image, image_bytes);
	munmap(region, region->region_bytes);
}

static uint64_t count_unmatched(void)
{
	const struct hl_region_thread *thread = area(HL_AREA_THREADS);
	uint64_t count = 0;

	for (uint32_t left = atomic_load(&region->thread_count); left; left--, thread++) {
		assert_int_equal(thread->lost.events, 0);
		count += thread->lost.unmatched_frees;
	}
	assert_int_equal(atomic_load(&region->lost.events), 0);
	return count;
}

static void assert_counted(uint64_t blocks, uint64_t bytes, uint64_t freed, uint64_t freed_bytes)
{
	struct sums sums = counted();

	assert_int_equal(sums.alloc_objects, blocks);
	assert_int_equal(sums.alloc_bytes, bytes);
	assert_int_equal(sums.free_objects, freed);
	assert_int_equal(sums.free_bytes, freed_bytes);
	assert_int_equal(count_unmatched(), 0);
}

#define RULE(TYPE, NAME) \
	((TYPE *)(attached->rule_stubs + (uint64_t)(NAME)*HL_ATTACHED_RULE_STUB_BYTES))

static void *alloc(size_t size, long line)
{
	return RULE(__typeof__(pool_alloc), POOL_ALLOC)(&pool, 1, size, "file", 0.25, "function", 2,
							3, line);
}

static int release(void *block)
{
	return RULE(__typeof__(pool_free), POOL_FREE)(&pool, block);
}

static void *wrapped(size_t size)
{
	return RULE(__typeof__(wrap_alloc), WRAP_ALLOC)(size);
}

static void unwrap(void *block)
{
	RULE(__typeof__(wrap_free), WRAP_FREE)(block);
}

static void *new_block(size_t size)
{
	return RULE(__typeof__(throwing_new), NEW)(size);
}

static void make_pool(void *arena, size_t bytes)
{
	pool = (struct pool){.arena = arena, .bytes = bytes};
}

/* ---- tests ---- */

static const enum hl_mode modes[] = {HL_MODE_MEM_FAST, HL_MODE_MEM_RECORD, HL_MODE_LOG_RECORD};

static void functions_are_called_with_all_of_their_arguments(void **state)
{
	(void)state;
	static char arena[1 << 12];

	start(HL_MODE_MEM_FAST, 0, false);
	make_pool(arena, sizeof(arena));
	assert_ptr_equal(alloc(100, 123456789012), arena);
	assert_true(pool.last_ratio == 0.25);
	assert_int_equal(pool.last_line, 123456789012);
	assert_int_equal(release(arena), 71);
	assert_null(alloc(sizeof(arena), 0));
	assert_int_equal(release(NULL), 0);
	assert_counted(1, 100, 1, 100);
	end();
}

static void *lua(void *block, size_t old_size, size_t size)
{
	return RULE(__typeof__(lua_alloc), LUA)(NULL, block, old_size, size);
}

/* Every address of 24 KiB and a bit, of which one is the last of a page of the array: a size may not lie
 * behind it. Blocks lie close together, as they do where sizes have classes. */
static void fill_and_free(char *arena, size_t bytes, size_t step, size_t size)
{
	size_t count = bytes / step, freed = 0;
	uint64_t at_start = counted().free_objects, inuse = counted().alloc_bytes;

	for (size_t i = 0; i < count; i++) {
		lua_next = arena + i * step;
		assert_ptr_equal(lua(NULL, 5, size), lua_next);
	}
	assert_int_equal(counted().alloc_bytes - inuse, count * size);
	for (size_t first = 0; first < 3; first++)
		for (size_t i = first; i < count; i += 3, freed++)
			assert_null(lua(arena + i * step, size, 0));
	assert_int_equal(counted().free_objects - at_start, count);
	assert_int_equal(freed, count);
}

static void blocks_of_an_allocator_beside_malloc_are_those_that_its_callers_have(void **state)
{
	(void)state;
	static _Alignas(4096) char arena[24 << 10];
	static const size_t sizes[][2] = {{8, 7},	{8, 8},	     {16, 1},	 {16, 16},
					  {32, 17},	{48, 48},    {512, 499}, {4096, 4080},
					  {4096, 4081}, {8192, 8000}};

	for (size_t i = 0; i < 2 * HL_COUNT_OF(modes); i++) {
		knows_usable = i % 2;
		start(modes[i / 2], 0, false);
		for (size_t k = 0; k < HL_COUNT_OF(sizes); k++)
			fill_and_free(arena, sizeof(arena), sizes[k][0], sizes[k][1]);
		struct sums sums = counted();
		assert_int_equal(sums.alloc_bytes, sums.free_bytes);
		assert_int_equal(sums.alloc_objects, sums.free_objects);
		assert_int_equal(count_unmatched(), 0);
		end();
	}
	knows_usable = true;
}

static void a_block_beside_malloc_may_grow_and_stays_where_it_cannot(void **state)
{
	(void)state;
	static _Alignas(4096) char arena[4096];

	for (size_t i = 0; i < HL_COUNT_OF(modes); i++) {
		start(modes[i], 0, false);
		lua_next = arena;
		assert_ptr_equal(lua(NULL, 4, 40), arena);
		assert_ptr_equal(lua(arena, 40, 90), arena);
		lua_next = arena + 1024;
		assert_ptr_equal(lua(arena, 90, 200), arena + 1024);
		lua_next = NULL;
		assert_null(lua(arena + 1024, 200, 3000));
		assert_counted(3, 330, 2, 130);
		assert_null(lua(arena + 1024, 200, 0));
		assert_null(
			lua(arena + 1024, 200, 0)); /* was there before us, for all that we know */
		assert_counted(3, 330, 3, 330);
		end();
	}
}

static void blocks_of_no_bytes_beside_malloc_are_counted_as_that(void **state)
{
	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(modes); i++) {
		start(modes[i], 0, false);
		assert_ptr_equal(RULE(__typeof__(beside_alloc), BESIDE_ALLOC)(0), beside);
		RULE(__typeof__(same), BESIDE_FREE)((uint64_t)beside);
		assert_counted(1, 0, 1, 0);
		end();
	}
}

struct launcher {
	pthread_t thread;
	pthread_barrier_t *barrier;
	uint32_t first_handle;
	char arguments[48];
	char block[16];
};

enum { LAUNCHES = 500, SAME_PLACE = 1 << 12 };

/* Begins services, each of which allocates a block. */
static void *run_launcher(void *context)
{
	static const char *const module[] = {"snlua"};
	struct launcher *it = context;

	for (uint32_t i = 0; i < LAUNCHES; i++) {
		uint32_t handle = it->first_handle + i * SAME_PLACE;
		pthread_barrier_wait(it->barrier);
		RULE(__typeof__(launch), LAUNCH)(module, NULL, &handle, it->arguments);
		current = handle;
		RULE(__typeof__(same), SAME_ALLOC)((uint64_t)it->block);
		RULE(__typeof__(same), SAME_FREE)((uint64_t)it->block);
	}
	return NULL;
}

/* Each name has the letters of one launcher alone, and the handle of a service that it began. */
static uint32_t count_names(void)
{
	uint32_t end = atomic_load(&region->name_bytes), count = 0;
	char text[HL_SITE_NAME_MAX + 1];

	for (uint32_t at = 0; at < end;) {
		const struct hl_region_name *name =
			(const void *)((char *)area(HL_AREA_NAMES) + at);
		memcpy(text, name->text, name->bytes);
		text[name->bytes] = '\0';
		const char *handle = strrchr(text, ':');
		bool has_x = strchr(text, 'x'), has_y = strchr(text, 'y');
		assert_false(has_x && has_y);
		if (has_x || has_y) {
			assert_non_null(handle);
			assert_int_equal(strtoul(handle + 1, NULL, 16) >> 28, has_x ? 1 : 2);
			count++;
		}
		at += (uint32_t)hl_region_name_bytes(name->bytes);
	}
	return count;
}

static void names_of_services_that_begin_at_once_are_not_mixed(void **state)
{
	(void)state;
	needs_guest("skynet");
	static struct launcher launchers[] = {{.first_handle = 0x10000005},
					      {.first_handle = 0x20000005}};
	pthread_barrier_t barrier;

	start(HL_MODE_MEM_FAST, 0, false);
	pthread_barrier_init(&barrier, NULL, HL_COUNT_OF(launchers));
	for (size_t i = 0; i < HL_COUNT_OF(launchers); i++) {
		launchers[i].barrier = &barrier;
		memset(launchers[i].arguments, i ? 'y' : 'x', sizeof(launchers[i].arguments) - 1);
		assert_int_equal(
			pthread_create(&launchers[i].thread, NULL, run_launcher, &launchers[i]), 0);
	}
	for (size_t i = 0; i < HL_COUNT_OF(launchers); i++)
		pthread_join(launchers[i].thread, NULL);
	assert_true(count_names() > 0);
	pthread_barrier_destroy(&barrier);
	end();
}

static void a_function_with_the_name_of_skynets_is_not_believed(void **state)
{
	(void)state;
	static const uint32_t none = 0, handle = 0x10000005;

	start(HL_MODE_MEM_FAST, 0, false);
	RULE(__typeof__(launch), LAUNCH)(NULL, NULL, &none, "xx");
	RULE(__typeof__(launch), LAUNCH)((void *)16, NULL, &handle, "xx");
	assert_int_equal(atomic_load(&region->name_bytes), 0);
	end();
}

/* The first piece begins where the block that it is cut from does. */
static void pieces_and_the_block_that_they_are_cut_from_are_told_apart(void **state)
{
	(void)state;

	for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
		start(modes[i], 0, false);
		make_pool(hook_malloc(1 << 12), 1 << 12);
		void *a = alloc(10, 1), *b = alloc(20, 2);
		assert_ptr_equal(a, pool.arena);
		assert_counted(3, 4126, 0, 0);
		release(b);
		release(a);
		assert_counted(3, 4126, 2, 30);
		hook_free(pool.arena);
		assert_counted(3, 4126, 3, 4126);
		end();
	}
}

static void cut_piece(char *at, size_t size)
{
	next_piece = at;
	assert_ptr_equal(RULE(__typeof__(cut), CUT)(size), at);
}

/* ${count} pieces of ${size} bytes, ${step} bytes apart. */
static void cut_pieces(char *arena, size_t count, size_t step, size_t size)
{
	for (size_t i = 0; i < count; i++)
		cut_piece(arena + i * step, size);
}

static void pieces_of_a_pool_end_by_themselves_by_others_and_when_it_is_reset(void **state)
{
	(void)state;
	static _Alignas(4096) char arena[64 << 10];

	for (size_t i = 0; i < HL_COUNT_OF(modes); i++) {
		start(modes[i], 0, false);
		cut_pieces(arena, 1000, 56, 50);
		for (size_t k = 0; k < 500; k++)
			RULE(__typeof__(same), GIVE_BACK)((uint64_t)arena + 112 * k);
		assert_counted(1000, 50000, 500, 25000);
		/* One at an odd address, and one so large that its size has a word of its own. */
		cut_piece(arena + 60003, 7);
		cut_piece(arena + 60016, 3000);
		next_piece = arena + 63032;
		assert_ptr_equal(RULE(__typeof__(cut_again), CUT_AGAIN)(arena + 60016, 300),
				 next_piece);
		assert_null(RULE(__typeof__(cut_again), CUT_AGAIN)(next_piece, SIZE_MAX));
		assert_counted(1003, 53307, 501, 28000);
		/* The pool cuts what it has given back without a word. */
		cut_pieces(arena, 10, 3500, 3456);
		assert_counted(1013, 87867, 501 + 310, 28000 + 310 * 50);
		RULE(__typeof__(same), RESET)(0);
		assert_counted(1013, 87867, 1013, 87867);
		cut_pieces(arena, 2, 8, 0);
		RULE(__typeof__(same), RESET)(0);
		assert_counted(1015, 87867, 1015, 87867);
		end();
	}
}

static void arguments_of_all_kinds_are_found(void **state)
{
	(void)state;
	static char arena[1 << 12];

	start(HL_MODE_MEM_FAST, 0, false);
	make_pool(arena, sizeof(arena));
	void *a = RULE(__typeof__(pool_calloc), POOL_CALLOC)(&pool, 7, 3);
	a = RULE(__typeof__(pool_realloc), POOL_REALLOC)(&pool, 50, a);
	assert_counted(2, 71, 1, 21);
	assert_null(RULE(__typeof__(pool_realloc), POOL_REALLOC)(&pool, sizeof(arena), a));
	assert_counted(2, 71, 1, 21);
	void *b = RULE(__typeof__(pool_realloc), POOL_REALLOC)(&pool, 5, NULL), *c;
	assert_int_equal(RULE(__typeof__(pool_make), POOL_MAKE)(9, &pool, &c), 0);
	assert_int_equal(RULE(__typeof__(pool_make), POOL_MAKE)(sizeof(arena), &pool, &a), 12);
	assert_counted(4, 85, 1, 21);
	release(b);
	release(c);
	assert_counted(4, 85, 3, 35);
	end();
}

static void nested_calls_count_once(void **state)
{
	(void)state;

	for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
		start(modes[i], 0, false);
		unwrap(wrapped(100));
		assert_counted(1, 100, 1, 100);
		/* Programs mix them. */
		hook_free(wrapped(200));
		assert_counted(2, 300, 2, 300);
		unwrap(hook_malloc(30));
		assert_counted(3, 330, 3, 330);
		hook_free(hook_realloc(wrapped(40), 50));
		assert_counted(5, 420, 5, 420);
		end();
	}
}

static void layers_count_both(void **state)
{
	(void)state;

	for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
		start(modes[i], 0, true);
		unwrap(wrapped(100));
		assert_counted(3, 5200, 3, 5200);
		hook_free(wrapped(200));
		assert_counted(6, 10600, 6, 10600);
		hook_free(hook_realloc(wrapped(40), 50));
		assert_counted(10, 15730, 10, 15730);
		end();
	}
}

/* Every block in use is sampled or not by itself; what is freed leaves nothing. */
static void samples_leave_nothing(void **state)
{
	(void)state;

	start(HL_MODE_MEM_FAST, 1000, false);
	for (int i = 0; i < 20000; i++)
		unwrap(wrapped(100));
	struct sums sums = counted();
	/* 2 MB; a hundredth of the 100 MB within would show. */
	assert_in_range(sums.alloc_bytes, 1500000, 2500000);
	assert_int_equal(sums.free_bytes, sums.alloc_bytes);
	assert_int_equal(sums.free_objects, sums.alloc_objects);
	end();
}

static void an_operator_that_throws_does_so_without_us(void **state)
{
	(void)state;

	start(HL_MODE_MEM_FAST, 0, false);
	hook_free(new_block(64));
	assert_counted(1, 64, 1, 64);
	has_memory = false;
	if (setjmp(out_of_memory) == 0) {
		new_block(64);
		fail_msg("nothing was thrown");
	}
	has_memory = true;
	assert_int_equal(inside(), 0);
	hook_free(new_block(10));
	assert_counted(2, 74, 2, 74);
	end();
}

/* Deeper calls write over the frame that was left. */
static __attribute__((noinline)) void use_stack(void)
{
	volatile char bytes[4096];

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = 1;
}

static void a_function_that_is_left_by_longjmp_does_no_harm(void **state)
{
	(void)state;
	static char arena[1 << 12];
	jmp_buf before;

	for (volatile int layers = 0; layers < 2; layers++) {
		start(HL_MODE_MEM_FAST, 0, layers);
		make_pool(arena, sizeof(arena));
		for (volatile int i = 0; i < 3; i++) {
			pool.left_to = &before;
			if (setjmp(before) == 0) {
				RULE(__typeof__(pool_calloc), POOL_CALLOC)(&pool, 7, 3);
				fail_msg("it has returned");
			}
			pool.left_to = NULL;
			if (i)
				use_stack();
			assert_int_equal(release(alloc(100, 1)), 71);
			hook_free(hook_malloc(10));
			assert_int_equal(inside(), 0);
			assert_counted(2 * i + 2, 110 * i + 110, 2 * i + 2, 110 * i + 110);
		}
		end();
	}
}

static void older_blocks_are_unmatched_frees(void **state)
{
	(void)state;
	static char arena[64];

	start(HL_MODE_MEM_FAST, 0, false);
	make_pool(arena, sizeof(arena));
	release(arena + 16);
	assert_int_equal(count_unmatched(), 1);
	end();
}

static void functions_that_free_by_others_free_once(void **state)
{
	(void)state;
	static char arena[1 << 12];

	start(HL_MODE_MEM_FAST, 0, false);
	make_pool(arena, sizeof(arena));
	for (unsigned i = 1; i < 4; i++) {
		void *block = alloc(10, 1);
		release(block);
		release(block); /* as PHP's _efree_8() goes on in _efree_16() */
		assert_counted(i, 10 * i, i, 10 * i);
	}
	release(arena + sizeof(arena) - 16);
	assert_int_equal(count_unmatched(), 1);
	end();
}

static void forked_children_pass_through(void **state)
{
	(void)state;
	static char arena[1 << 12];
	int status = -1;

	start(HL_MODE_MEM_FAST, 0, false);
	make_pool(arena, sizeof(arena));
	alloc(10, 1);
	pid_t child = fork();
	if (child == 0) {
		bool right = alloc(10, 99) == arena + 16 && pool.last_line == 99 &&
			     pool.last_ratio == 0.25 && release(arena) == 71;
		_exit(right ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_counted(1, 10, 0, 0);
	end();
}

/* ---- registers ---- */

/* Calls ${function}(16) with numbers in all other registers; whether they came back. */
static bool keeps_registers(uint64_t function)
{
	uint64_t argument = 16, result, differs;

	__asm__ volatile("mov $101, %%rsi\n\t"
			 "mov $102, %%rdx\n\t"
			 "mov $103, %%rcx\n\t"
			 "mov $104, %%r8\n\t"
			 "mov $105, %%r9\n\t"
			 "mov $106, %%r10\n\t"
			 "mov $107, %%r11\n\t"
			 "mov %%rsp, %%r13\n\t"
			 "and $-16, %%rsp\n\t"
			 "call *%[function]\n\t"
			 "mov %%r13, %%rsp\n\t"
			 "sub $16, %%rdi\n\t"
			 "sub $101, %%rsi\n\t"
			 "sub $102, %%rdx\n\t"
			 "sub $103, %%rcx\n\t"
			 "sub $104, %%r8\n\t"
			 "sub $105, %%r9\n\t"
			 "sub $106, %%r10\n\t"
			 "sub $107, %%r11\n\t"
			 "or %%rsi, %%rdi\n\t"
			 "or %%rdx, %%rdi\n\t"
			 "or %%rcx, %%rdi\n\t"
			 "or %%r8, %%rdi\n\t"
			 "or %%r9, %%rdi\n\t"
			 "or %%r10, %%rdi\n\t"
			 "or %%r11, %%rdi"
			 : "=a"(result), "=D"(differs)
			 : [function] "b"(function), "D"(argument)
			 : "rsi", "rdx", "rcx", "r8", "r9", "r10", "r11", "r13", "memory", "cc");
	return result == 16 && !differs;
}

static void registers_are_kept(void **state)
{
	(void)state;

	start(HL_MODE_MEM_FAST, 0, false);
	uint64_t stub = attached->rule_stubs;
	for (int i = 0; i < 3; i++) {
		assert_true(keeps_registers(stub + SAME_ALLOC * HL_ATTACHED_RULE_STUB_BYTES));
		assert_true(keeps_registers(stub + SAME_FREE * HL_ATTACHED_RULE_STUB_BYTES));
	}
	assert_counted(3, 48, 3, 48);
	end();
}

static void check_pass(uint64_t fs_base)
{
	uint64_t stub = attached->rule_stubs + SAME_ALLOC * HL_ATTACHED_RULE_STUB_BYTES;
	uint64_t lost = atomic_load(&region->lost.events);

	assert_ptr_equal(call_with_fs_base(fs_base, stub, 16), (void *)16);
	assert_int_equal(atomic_load(&region->lost.events), lost + 1);
	assert_int_equal(inside(), 0);
}

static void threads_without_a_thread_pointer_pass_through(void **state)
{
	(void)state;
	uint64_t no_pointer = 0;

	prepare(HL_MODE_MEM_FAST, 0, false);
	assert_null(call_with_fs_base(0, attached->start, attached->start_room));
	check_pass(0);
	assert_int_equal(counted().alloc_objects, 0);
	assert_true(
		keeps_registers(attached->rule_stubs + SAME_ALLOC * HL_ATTACHED_RULE_STUB_BYTES));
	check_pass((uint64_t)&no_pointer);
	assert_int_equal(counted().alloc_objects, 1);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			blocks_of_an_allocator_beside_malloc_are_those_that_its_callers_have),
		cmocka_unit_test(a_block_beside_malloc_may_grow_and_stays_where_it_cannot),
		cmocka_unit_test(blocks_of_no_bytes_beside_malloc_are_counted_as_that),
		cmocka_unit_test(names_of_services_that_begin_at_once_are_not_mixed),
		cmocka_unit_test(a_function_with_the_name_of_skynets_is_not_believed),
		cmocka_unit_test(functions_are_called_with_all_of_their_arguments),
		cmocka_unit_test(pieces_and_the_block_that_they_are_cut_from_are_told_apart),
		cmocka_unit_test(pieces_of_a_pool_end_by_themselves_by_others_and_when_it_is_reset),
		cmocka_unit_test(arguments_of_all_kinds_are_found),
		cmocka_unit_test(nested_calls_count_once),
		cmocka_unit_test(layers_count_both),
		cmocka_unit_test(samples_leave_nothing),
		cmocka_unit_test(an_operator_that_throws_does_so_without_us),
		cmocka_unit_test(a_function_that_is_left_by_longjmp_does_no_harm),
		cmocka_unit_test(older_blocks_are_unmatched_frees),
		cmocka_unit_test(functions_that_free_by_others_free_once),
		cmocka_unit_test(forked_children_pass_through),
		cmocka_unit_test(registers_are_kept),
		cmocka_unit_test(threads_without_a_thread_pointer_pass_through),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
