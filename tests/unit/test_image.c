/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The image, laid out in this process as heapline lays it out in another: its hooks are called
 * directly, and what they count is compared with what the callers know.
 */
#include "../image_host.h"

#include <asm/hwcap2.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/frame_key.h"

extern int _dl_find_object(void *pc, void *ret_object) __attribute__((weak));

static struct hl_attached_start usual_start(enum hl_mode mode, uint64_t sample_bytes)
{
	struct hl_attached_start start = {
		.main_tid = getpid(),
		.real =
			{
				[HL_HOOK_MALLOC] = (uint64_t)malloc,
				[HL_HOOK_CALLOC] = (uint64_t)calloc,
				[HL_HOOK_REALLOC] = (uint64_t)realloc,
				[HL_HOOK_REALLOCARRAY] = (uint64_t)reallocarray,
				[HL_HOOK_FREE] = (uint64_t)free,
				[HL_HOOK_POSIX_MEMALIGN] = (uint64_t)posix_memalign,
				[HL_HOOK_ALIGNED_ALLOC] = (uint64_t)aligned_alloc,
				[HL_HOOK_MEMALIGN] = (uint64_t)memalign,
				[HL_HOOK_VALLOC] = (uint64_t)valloc,
			},
		.usable_size = (uint64_t)malloc_usable_size,
		.find_object = (uint64_t)_dl_find_object,
		.clock_gettime = (uint64_t)clock_gettime,
		.program_headers = getauxval(AT_PHDR),
		.program_header_count = getauxval(AT_PHNUM),
		.page_bytes = getauxval(AT_PAGESZ),
		.may_read_tsc = 1,
	};

	start.region_fd = make_region(&start.region_bytes, mode, sample_bytes);
	return start;
}

static void start_with(const struct hl_attached_start *start)
{
	lay_out();
	memcpy((void *)attached->start_room, start, sizeof(*start));
	assert_int_equal(
		call_on(attached->stack_top, attached->start, (void *)attached->start_room), 0);
	assert_int_equal(fcntl(start->region_fd, F_GETFD), -1);
	assert_int_equal(atomic_load(&region->state), HL_REGION_RUNNING);
	assert_int_equal(region->pid, getpid());
}

static const struct hl_attached_slot *slot(uint32_t i)
{
	return (const struct hl_attached_slot *)attached->slots + i;
}

static int32_t inside(void)
{
	int32_t sum = atomic_load(&attached->inside_without_slot);

	for (uint32_t i = 0; i < attached->slot_count; i++)
		sum += atomic_load(&slot(i)->inside);
	return sum;
}

static void end(void)
{
	assert_int_equal(inside(), 0);
	assert_int_equal(call_on(attached->stack_top, attached->stop, NULL), 0);
	munmap(image, image_bytes);
	munmap(region, region->region_bytes);
}

/* ---- the hooks ---- */

/* By light stubs, which keep no registers: with the argument "light". */
static bool is_light;

static uint64_t hook(enum hl_hook name)
{
	return is_light ? attached->light_hooks[name] : attached->hooks[name];
}

#define HOOK(TYPE, NAME) ((TYPE)hook(NAME))

typedef void *malloc_fn(size_t);
typedef void *two_fn(size_t, size_t);
typedef void *realloc_fn(void *, size_t);
typedef void free_fn(void *);

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

/* ---- the ledger ---- */

static int64_t counted_slack(void)
{
	const struct hl_cell_chunk *chunk = area(HL_AREA_CELLS);
	int64_t slack = 0;

	for (uint32_t left = atomic_load(&region->chunk_count); left; left--, chunk++)
		for (uint32_t i = 0; i < atomic_load(&chunk->used); i++)
			slack += chunk->cells[i].slack_bytes;
	return slack;
}

static void assert_counted(const struct sums *ledger)
{
	const struct hl_region_thread *thread = area(HL_AREA_THREADS);
	struct sums sums = counted();

	assert_int_equal(sums.alloc_objects, ledger->alloc_objects);
	assert_int_equal(sums.alloc_bytes, ledger->alloc_bytes);
	assert_int_equal(sums.free_objects, ledger->free_objects);
	assert_int_equal(sums.free_bytes, ledger->free_bytes);
	assert_int_equal(atomic_load(&region->lost.events), 0);
	for (uint32_t left = atomic_load(&region->thread_count); left; left--, thread++) {
		assert_int_equal(thread->lost.events, 0);
		assert_int_equal(thread->lost.unmatched_frees, 0);
	}
}

static void note_alloc(struct sums *ledger, size_t size)
{
	ledger->alloc_bytes += size;
	ledger->alloc_objects++;
}

static void note_free(struct sums *ledger, size_t size)
{
	ledger->free_bytes += size;
	ledger->free_objects++;
}

/* ---- threads that allocate ---- */

#define THREADS 8
#define PAIRS	100000

static uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525 + 1013904223;
	return *state >> 8;
}

/* A block by one of the functions. */
static void *allocate(uint32_t choice, size_t size, struct sums *ledger)
{
	void *block = NULL;

	if (choice % 16 == 0)
		block = HOOK(two_fn *, HL_HOOK_CALLOC)(1, size);
	else if (choice % 16 == 1)
		HOOK(int (*)(void **, size_t, size_t), HL_HOOK_POSIX_MEMALIGN)
	(&block, 64, size);
	else if (choice % 16 == 2) block = HOOK(two_fn *, HL_HOOK_MEMALIGN)(32, size);
	else if (choice % 16 == 3) block = hook_realloc(NULL, size);
	else if (choice % 16 == 4) block =
		HOOK(void *(*)(void *, size_t, size_t), HL_HOOK_REALLOCARRAY)(NULL, 1, size);
	else block = hook_malloc(size);
	assert_non_null(block);
	note_alloc(ledger, size);
	return block;
}

#define KEPT 64

static void *work(void *ledger)
{
	uint32_t state = (uint32_t)(uintptr_t)ledger;
	struct {
		void *block;
		size_t size;
	} kept[KEPT] = {0};
	struct sums own = {0};

	for (int i = 0; i < PAIRS; i++) {
		uint32_t choice = next_random(&state);
		size_t size = 1 + choice % 700, at = choice % KEPT;
		if (kept[at].block && choice % 32 == 5) {
			note_free(&own, kept[at].size);
			note_alloc(&own, size);
			kept[at].block = hook_realloc(kept[at].block, size);
			kept[at].size = size;
			continue;
		}
		if (kept[at].block) {
			note_free(&own, kept[at].size);
			hook_free(kept[at].block);
		}
		kept[at].block = allocate(choice >> 8, size, &own);
		kept[at].size = size;
	}
	for (size_t at = 0; at < KEPT; at++) {
		if (!kept[at].block)
			continue;
		note_free(&own, kept[at].size);
		hook_free(kept[at].block);
	}
	*(struct sums *)ledger = own;
	return NULL;
}

static struct sums work_in_threads(void)
{
	pthread_t threads[THREADS];
	struct sums ledgers[THREADS], sum = {0};

	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, work, &ledgers[i]), 0);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		add_sums(&sum, &ledgers[i]);
	}
	return sum;
}

static void check_threads(const struct hl_attached_start *start)
{
	start_with(start);
	struct sums ledger = work_in_threads();
	assert_counted(&ledger);
	assert_int_equal(counted_slack(), 0);
	/* A block that stays */
	void *block = hook_malloc(1001);
	note_alloc(&ledger, 1001);
	assert_counted(&ledger);
	assert_int_equal(counted_slack(),
			 start->usable_size ? malloc_usable_size(block) - 1001 : 0);
	hook_free(block);
	end();
}

static void threads_are_counted_exactly(void **state)
{
	(void)state;
	struct hl_attached_start start = usual_start(HL_MODE_MEM_FAST, 0);
	check_threads(&start);
	start = usual_start(HL_MODE_MEM_RECORD, 0);
	check_threads(&start);
}

static void without_sizes_of_blocks_they_are_counted_exactly(void **state)
{
	(void)state;
	struct hl_attached_start start = usual_start(HL_MODE_MEM_FAST, 0);
	start.usable_size = 0;
	start.clock_gettime = 0;
	check_threads(&start);
}

static void without_the_loader_they_are_counted_exactly(void **state)
{
	(void)state;
	struct hl_attached_start start = usual_start(HL_MODE_MEM_FAST, 0);
	start.find_object = 0;
	check_threads(&start);
}

static void samples_of_blocks_that_are_freed_leave_nothing(void **state)
{
	(void)state;
	struct hl_attached_start start = usual_start(HL_MODE_MEM_FAST, 4096);
	start_with(&start);
	work_in_threads();
	struct sums sums = counted();
	assert_true(sums.alloc_objects > 0);
	assert_int_equal(sums.alloc_bytes, sums.free_bytes);
	assert_int_equal(sums.alloc_objects, sums.free_objects);
	end();
}

/* ---- stacks ---- */

static uint64_t return_addresses[3];

static __attribute__((noinline)) void *innermost(size_t size)
{
	return_addresses[0] = (uint64_t)__builtin_return_address(0);
	void *block = hook_malloc(size);
	__asm__ volatile("" ::: "memory");
	return block;
}

static __attribute__((noinline)) void *middle(size_t size)
{
	return_addresses[1] = (uint64_t)__builtin_return_address(0);
	void *block = innermost(size);
	__asm__ volatile("" ::: "memory");
	return block;
}

static __attribute__((noinline)) void *outermost(size_t size)
{
	return_addresses[2] = (uint64_t)__builtin_return_address(0);
	void *block = middle(size);
	__asm__ volatile("" ::: "memory");
	return block;
}

/* The node that ${bytes} were allocated at. */
static uint32_t node_of(uint64_t bytes)
{
	const struct hl_cell_chunk *chunk = area(HL_AREA_CELLS);

	for (uint32_t left = atomic_load(&region->chunk_count); left; left--, chunk++)
		for (uint32_t i = 0; i < atomic_load(&chunk->used); i++)
			if (chunk->cells[i].alloc_bytes == bytes)
				return chunk->cells[i].node;
	return 0;
}

static void check_stack(const struct hl_attached_start *start)
{
	const struct hl_region_node *nodes = area(HL_AREA_NODES);
	const struct hl_region_module *modules = area(HL_AREA_MODULES);

	start_with(start);
	void *block = outermost(1234567);
	uint32_t node = node_of(1234567), depth = 0, found = 0;
	for (; node; node = nodes[node].parent, depth++) {
		uint64_t key = atomic_load(&nodes[node].frame), pc = key & HL_FRAME_PC_MASK;
		uint64_t id = key >> HL_MODULE_SHIFT;
		if (found < 3 && pc == return_addresses[found] - 1) {
			found++;
			/* The program itself, which has no name. */
			assert_int_not_equal(id, HL_MODULE_NONE);
			assert_int_equal(modules[id - 1].path_bytes, 0);
			assert_in_range(pc, modules[id - 1].start, modules[id - 1].end);
			assert_int_equal(
				modules[id - 1].load_bias +
					((const Elf64_Ehdr *)modules[id - 1].start)->e_entry,
				getauxval(AT_ENTRY));
		}
		assert_false(pc - (uint64_t)image < image_bytes);
	}
	assert_int_equal(found, 3);
	assert_true(depth > 3);
	hook_free(block);
	end();
}

static void stacks_lead_to_the_program(void **state)
{
	(void)state;
	struct hl_attached_start start = usual_start(HL_MODE_MEM_FAST, 0);
	check_stack(&start);
}

static void stacks_are_the_same_without_the_loader(void **state)
{
	(void)state;
	struct hl_attached_start start = usual_start(HL_MODE_MEM_FAST, 0);
	start.find_object = 0;
	check_stack(&start);
}

/* ---- threads that come and go ---- */

#define LIVES 10000

static void *live_shortly(void *ledger)
{
	note_alloc(ledger, 48);
	note_free(ledger, 48);
	hook_free(hook_malloc(48));
	return NULL;
}

static void each_thread_has_its_slot_at_its_time(void **state)
{
	(void)state;
	struct hl_attached_start start = usual_start(HL_MODE_MEM_FAST, 0);
	struct sums ledger = {0};

	start_with(&start);
	for (int i = 0; i < LIVES; i++) {
		pthread_t thread;
		assert_int_equal(pthread_create(&thread, NULL, live_shortly, &ledger), 0);
		pthread_join(thread, NULL);
	}
	assert_counted(&ledger);
	/* They share the storage of one or two, but all of them were noticed. */
	const struct hl_region_thread *thread = area(HL_AREA_THREADS);
	uint32_t count = atomic_load(&region->thread_count), owners = 0, live = 0;
	assert_in_range(count, HL_THREADS_OWNED, HL_THREADS_OWNED + 8);
	for (uint32_t i = 0; i < count; i++) {
		owners += thread[i].earlier_owners + 1;
		live += atomic_load(&thread[i].live);
	}
	assert_int_equal(owners, LIVES);
	assert_in_range(live, 1, 8);
	end();
}

#define CROWD	      100
#define CROWDS	      20
#define STACK_BYTES   (1 << 20) /* enough for sanitizers */
#define SLOTS_AT_MOST (6 * CROWD)

static pthread_barrier_t crowded;

static void *live_in_a_crowd(void *unused)
{
	void *block = hook_malloc(48);

	(void)unused;
	pthread_barrier_wait(&crowded);
	hook_free(block);
	return NULL;
}

static void live_on(char *stacks)
{
	pthread_t threads[CROWD];
	pthread_attr_t attributes;

	pthread_attr_init(&attributes);
	for (size_t i = 0; i < CROWD; i++) {
		assert_int_equal(
			pthread_attr_setstack(&attributes, stacks + i * STACK_BYTES, STACK_BYTES),
			0);
		assert_int_equal(pthread_create(&threads[i], &attributes, live_in_a_crowd, NULL),
				 0);
	}
	for (size_t i = 0; i < CROWD; i++)
		pthread_join(threads[i], NULL);
	pthread_attr_destroy(&attributes);
}

/* Each crowd has stacks of its own, and so no thread-local storage that one before had. */
static void what_ended_threads_had_is_given_to_others(void **state)
{
	(void)state;
	struct hl_attached_start start = usual_start(HL_MODE_MEM_FAST, 0);
	uint64_t blocks = CROWD * CROWDS;
	size_t bytes = (size_t)CROWDS * CROWD * STACK_BYTES;
	char *stacks = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	start_with(&start);
	assert_ptr_not_equal(stacks, MAP_FAILED);
	pthread_barrier_init(&crowded, NULL, CROWD);
	for (size_t i = 0; i < CROWDS; i++)
		live_on(stacks + i * CROWD * STACK_BYTES);
	pthread_barrier_destroy(&crowded);
	assert_counted(&(struct sums){48 * blocks, blocks, 48 * blocks, blocks});
	uint32_t used = 0;
	for (uint32_t i = 0; i < attached->slot_count; i++)
		used += slot(i)->thread != 0;
	assert_in_range(used, CROWD, SLOTS_AT_MOST);
	assert_in_range(atomic_load(&region->thread_count), CROWD, SLOTS_AT_MOST);
	end();
	munmap(stacks, bytes);
}

/* ---- children that share the memory ---- */

#define LOOKED_AT 64 /* slots, whenever a thread gets one */

static pthread_barrier_t waiting_inside, all_there;

static void *waiting_malloc(size_t size)
{
	if (size == 1) {
		pthread_barrier_wait(&waiting_inside);
		pthread_barrier_wait(&waiting_inside);
	}
	return malloc(size);
}

static void *wait_inside(void *unused)
{
	(void)unused;
	hook_free(hook_malloc(1));
	return NULL;
}

/* All are there at once, so that none has the thread-local storage of another. */
static void *begin_by_vfork(void *unused)
{
	int status = -1;

	(void)unused;
	pthread_barrier_wait(&all_there);
	pid_t child = vfork();
	if (!child) {
		hook_free(hook_malloc(50));
		_exit(0);
	}
	waitpid(child, &status, 0);
	pthread_barrier_wait(&all_there);
	return status ? &all_there : NULL;
}

static void children_of_vfork_take_no_thread_for_ended(void **state)
{
	(void)state;
	struct hl_attached_start start = usual_start(HL_MODE_MEM_FAST, 0);
	pthread_t inner, threads[4096 / LOOKED_AT];
	size_t count = sizeof(threads) / sizeof(*threads);
	void *failed;

	start.real[HL_HOOK_MALLOC] = (uint64_t)waiting_malloc;
	start_with(&start);
	assert_int_equal(attached->slot_count, count * LOOKED_AT);
	pthread_barrier_init(&waiting_inside, NULL, 2);
	pthread_barrier_init(&all_there, NULL, (unsigned)count);
	assert_int_equal(pthread_create(&inner, NULL, wait_inside, NULL), 0);
	pthread_barrier_wait(&waiting_inside);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, begin_by_vfork, NULL), 0);
	for (size_t i = 0; i < count; i++) {
		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
	int32_t inside_by_then = inside();
	/* It may not find its slot again. */
	if (inside_by_then == 1) {
		pthread_barrier_wait(&waiting_inside);
		pthread_join(inner, NULL);
	}
	assert_int_equal(inside_by_then, 1);
	pthread_barrier_destroy(&waiting_inside);
	pthread_barrier_destroy(&all_there);
	assert_counted(&(struct sums){1 + 50 * count, 1 + count, 1 + 50 * count, 1 + count});
	end();
}

/* ---- closed ---- */

static void no_thread_enters_until_the_mode_is_another_one(void **state)
{
	(void)state;
	struct hl_attached_start start = usual_start(HL_MODE_CLOSED, 0);

	start_with(&start);
	assert_int_equal(mprotect(region, 4096, PROT_READ | PROT_WRITE), 0);
	hook_free(hook_malloc(70));
	assert_int_equal(atomic_load(&region->thread_count), 0);
	assert_int_equal(hl_mode_switch(&region->mode, HL_MODE_MEM_FAST), HL_MODE_CLOSED);
	void *block = hook_malloc(50);
	assert_int_equal(atomic_load(&region->thread_count), 1);
	hl_mode_switch(&region->mode, HL_MODE_CLOSED);
	hook_free(hook_malloc(70));
	hook_free(block);
	assert_counted(&(struct sums){50, 1, 50, 1});
	end();
}

/* ---- the allocator calls itself ---- */

static void *calloc_by_malloc(size_t count, size_t size)
{
	return memset(hook_malloc(count * size), 0, count * size);
}

static void *realloc_by_malloc(void *block, size_t size)
{
	return block ? realloc(block, size) : hook_malloc(size);
}

static struct hl_attached_start start_of_allocator_that_calls_itself(uint64_t sample_bytes)
{
	struct hl_attached_start start = usual_start(HL_MODE_MEM_FAST, sample_bytes);

	start.real[HL_HOOK_CALLOC] = (uint64_t)calloc_by_malloc;
	start.real[HL_HOOK_REALLOC] = (uint64_t)realloc_by_malloc;
	return start;
}

static void calls_of_the_allocator_by_itself_are_not_counted(void **state)
{
	(void)state;
	struct hl_attached_start start = start_of_allocator_that_calls_itself(0);
	start_with(&start);
	struct sums ledger = {0};
	work(&ledger);
	assert_counted(&ledger);
	end();
}

static void they_are_not_sampled_twice(void **state)
{
	(void)state;
	struct hl_attached_start start = start_of_allocator_that_calls_itself(4096);
	start_with(&start);
	for (int i = 0; i < 20000; i++)
		hook_free(hook_realloc(NULL, 1000));
	/* 4,900 samples, give or take 70 */
	assert_in_range(counted().alloc_bytes, 18000000, 22000000);
	end();
}

/* ---- dlclose() ---- */

static int close_library(void *handle)
{
	assert_int_equal(inside(), 1);
	hook_free(hook_malloc(5)); /* a destructor */
	return *(int *)handle;
}

static void what_destructors_do_is_counted(void **state)
{
	(void)state;
	struct hl_attached_start start = usual_start(HL_MODE_MEM_FAST, 0);
	start.real[HL_HOOK_DLCLOSE] = (uint64_t)close_library;
	int handle = 42;

	for (int i = 0; i < 2; i++) {
		start_with(&start);
		assert_int_equal(HOOK(int (*)(void *), HL_HOOK_DLCLOSE)(&handle), 42);
		assert_counted(&(struct sums){5, 1, 5, 1});
		end();
		start = usual_start(HL_MODE_MEM_FAST, 0);
		start.real[HL_HOOK_DLCLOSE] = (uint64_t)close_library;
		start.find_object = 0;
	}
	close(start.region_fd);
	munmap(region, start.region_bytes);
}

static int allocate_much(void *handle)
{
	for (int i = 0; i < 1000; i++)
		hook_free(hook_malloc(4096));
	return *(int *)handle;
}

static void what_destructors_do_is_sampled(void **state)
{
	(void)state;
	struct hl_attached_start start = usual_start(HL_MODE_MEM_FAST, 4096);
	int handle = 0;

	start.real[HL_HOOK_DLCLOSE] = (uint64_t)allocate_much;
	start_with(&start);
	hook_free(hook_malloc(1)); /* the thread has its slot */
	assert_int_equal(HOOK(int (*)(void *), HL_HOOK_DLCLOSE)(&handle), 0);
	/* 630 samples, give or take 16 */
	assert_in_range(counted().alloc_bytes, 3200000, 5000000);
	end();
}

/* ---- without a slot ---- */

static void threads_without_a_slot_pass_through(void **state)
{
	(void)state;
	struct hl_attached_start start = usual_start(HL_MODE_MEM_FAST, 0);
	start_with(&start);
	struct hl_attached_slot *slots = (struct hl_attached_slot *)attached->slots;
	for (uint32_t i = 0; i < attached->slot_count; i++)
		atomic_store(&slots[i].key, i + 2);
	void *block = hook_malloc(100);
	assert_non_null(block);
	hook_free(block);
	assert_int_equal(counted().alloc_objects, 0);
	assert_int_equal(atomic_load(&region->lost.events), 2);
	end();
}

/* ---- children ---- */

/* Lines of /proc/self/maps with ${text}, outside of the image. */
static int count_maps(const char *text)
{
	char line[4096];
	int count = 0;

	FILE *maps = fopen("/proc/self/maps", "re");
	while (maps && fgets(line, sizeof(line), maps)) {
		uint64_t start = strtoull(line, NULL, 16);
		if (start - (uint64_t)image >= image_bytes && strstr(line, text))
			count++;
	}
	if (maps)
		fclose(maps);
	return count;
}

#define REGION_NAME "memfd:image-region"

static int status_of(pid_t child)
{
	int status;

	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* In a child: hooks do what is asked of them, and the first gives the region back. The test's own
 * mapping of it stays. */
static void live_as_child(void)
{
	for (int i = 0; i < 1000; i++) {
		char *block = memset(hook_realloc(hook_malloc(100), 200), 'x', 200);
		if (block[199] != 'x')
			_exit(2);
		hook_free(block);
	}
	_exit(count_maps(REGION_NAME) == 1 ? 0 : 1);
}

static void a_forked_child_passes_through(void **state)
{
	(void)state;
	struct hl_attached_start start = usual_start(HL_MODE_MEM_FAST, 0);
	struct sums ledger = {0};

	start_with(&start);
	void *kept = hook_malloc(77);
	note_alloc(&ledger, 77);
	assert_true(count_maps(REGION_NAME) > 1);
	pid_t child = fork();
	if (!child) {
		hook_free(kept);
		pid_t grandchild = fork();
		if (!grandchild)
			live_as_child();
		if (status_of(grandchild) != 0)
			_exit(3);
		live_as_child();
	}
	assert_int_equal(status_of(child), 0);
	assert_counted(&ledger);
	hook_free(kept);
	note_free(&ledger, 77);
	assert_counted(&ledger);
	end();
}

/* A handler forks in the middle of a hook: in the allocator or, asked for a size, in the recorder. */

static volatile pid_t forked;
static volatile sig_atomic_t armed;

static void fork_now(int signal)
{
	(void)signal;
	forked = fork();
}

static void raise_if_armed(sig_atomic_t place)
{
	if (armed != place)
		return;
	armed = 0;
	raise(SIGUSR1);
}

static void *raising_malloc(size_t size)
{
	raise_if_armed(1);
	return malloc(size);
}

static size_t raising_usable_size(void *block)
{
	raise_if_armed(2);
	return malloc_usable_size(block);
}

static void raising_free(void *block)
{
	raise_if_armed(3);
	free(block);
}

static void a_child_forked_in_the_middle_of_a_hook_goes_on(void **state)
{
	(void)state;
	struct hl_attached_start start = usual_start(HL_MODE_MEM_FAST, 0);
	struct sums ledger = {0};

	start.real[HL_HOOK_MALLOC] = (uint64_t)raising_malloc;
	start.real[HL_HOOK_FREE] = (uint64_t)raising_free;
	start.usable_size = (uint64_t)raising_usable_size;
	start_with(&start);
	signal(SIGUSR1, fork_now);
	for (int place = 1; place <= 3; place++) {
		forked = -1;
		armed = (sig_atomic_t)place;
		hook_free(hook_malloc(300));
		note_alloc(&ledger, 300);
		note_free(&ledger, 300);
		if (forked == 0)
			live_as_child();
		assert_true(forked > 0);
		assert_int_equal(status_of(forked), 0);
	}
	signal(SIGUSR1, SIG_DFL);
	/* Each child may have counted the event that it was in, and the free after it. */
	struct sums sums = counted();
	assert_in_range(sums.alloc_objects, 3, 6);
	assert_in_range(sums.free_objects, 3, 6);
	end();
}

/* Looking for its slot, which has another thread's tid, a thread is interrupted after each instruction
 * up to the first system call. */

#define TRAP_FLAG 0x100

static volatile int steps_left;

static void fork_at_step(int signal, siginfo_t *info, void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	const uint8_t *next = (const uint8_t *)registers[REG_RIP];

	(void)signal;
	(void)info;
	if (--steps_left > 0 && !(next[0] == 0x0f && next[1] == 0x05))
		return;
	registers[REG_EFL] &= ~(greg_t)TRAP_FLAG;
	forked = fork();
	if (!forked)
		hook_free(hook_malloc(10));
}

static __attribute__((naked)) void *call_in_steps(uint64_t function __attribute__((unused)),
						  size_t argument __attribute__((unused)))
{
	__asm__("mov %rdi, %rax\n\t"
		"mov %rsi, %rdi\n\t"
		"pushfq\n\t"
		"orq $0x100, (%rsp)\n\t"
		"popfq\n\t"
		"jmp *%rax");
}

static struct hl_attached_slot *used_slot(void)
{
	struct hl_attached_slot *slots = (struct hl_attached_slot *)attached->slots;

	for (uint32_t i = 0; i < attached->slot_count; i++)
		if (slots[i].thread)
			return &slots[i];
	return NULL;
}

static void a_child_forked_on_the_way_to_its_slot_goes_on(void **state)
{
	(void)state;
	struct hl_attached_start start = usual_start(HL_MODE_MEM_FAST, 0);
	struct sigaction action = {.sa_sigaction = fork_at_step, .sa_flags = SA_SIGINFO}, before;
	int steps = 1;

	start_with(&start);
	hook_free(hook_malloc(10));
	sigaction(SIGTRAP, &action, &before);
	do {
		atomic_store(&used_slot()->tid, 1);
		steps_left = steps;
		forked = -1;
		hook_free(call_in_steps(hook(HL_HOOK_MALLOC), 300));
		if (forked == 0)
			live_as_child();
		assert_true(forked > 0);
		assert_int_equal(status_of(forked), 0);
	} while (steps_left == 0 && ++steps);
	assert_in_range(steps, 20, 1000);
	sigaction(SIGTRAP, &before, NULL);
	end();
}

static void *set_tid_later(void *thread)
{
	struct hl_attached_slot *slot = used_slot();
	uint32_t tid = atomic_load(&slot->tid);

	atomic_store(&slot->tid, UINT32_MAX); /* as while a slot is taken from an ended thread */
	pthread_barrier_wait(&all_there);
	while (atomic_load(&attached->inside_without_slot) == 0)
		usleep(1000);
	pthread_kill(*(pthread_t *)thread, SIGUSR1);
	for (int i = 0; i < 100 && forked < 0; i++)
		usleep(1000);
	atomic_store(&slot->tid, tid);
	return NULL;
}

static void fork_and_allocate(int signal)
{
	fork_now(signal);
	if (!forked)
		hook_free(hook_malloc(10));
}

static void a_child_forked_while_its_slot_is_looked_at_goes_on(void **state)
{
	(void)state;
	struct hl_attached_start start = usual_start(HL_MODE_MEM_FAST, 0);
	pthread_t self = pthread_self(), other;

	start_with(&start);
	hook_free(hook_malloc(10));
	signal(SIGUSR1, fork_and_allocate);
	pthread_barrier_init(&all_there, NULL, 2);
	forked = -1;
	assert_int_equal(pthread_create(&other, NULL, set_tid_later, &self), 0);
	pthread_barrier_wait(&all_there);
	hook_free(hook_malloc(300));
	if (forked == 0)
		live_as_child();
	pthread_join(other, NULL);
	assert_true(forked > 0);
	assert_int_equal(status_of(forked), 0);
	pthread_barrier_destroy(&all_there);
	signal(SIGUSR1, SIG_DFL);
	end();
}

/* ---- registers ---- */

/* What a function of the same file may be known to leave alone: rsi, rdx, rcx, r8 to r11, and xmm0 to
 * xmm15; and rax by one without a result. */
struct registers {
	uint64_t general[8];
	uint64_t vectors[32];
};

static char only_block[64] __attribute__((aligned(64)));

/* A malloc and a free that use rax alone, and none. */
static __attribute__((naked)) void *modest_malloc(size_t size __attribute__((unused)))
{
	__asm__("lea only_block(%rip), %rax\n\t"
		"ret");
}

static __attribute__((naked)) void modest_free(void *block __attribute__((unused)))
{
	__asm__("ret");
}

/* Calls ${function} with ${argument}, and with its registers from and to ${registers}. */
static void call_with(uint64_t function, uint64_t argument, struct registers *registers)
{
	register uint64_t r12 __asm__("r12") = function;

	__asm__ volatile("mov %%rsp, %%r13\n\t"
			 "sub $256, %%rsp\n\t"
			 "and $-16, %%rsp\n\t"
			 ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n\t"
			 "movups 64+16*\\n(%%rbx), %%xmm\\n\n\t"
			 ".endr\n\t"
			 "mov 0(%%rbx), %%rsi\n\t"
			 "mov 8(%%rbx), %%rdx\n\t"
			 "mov 16(%%rbx), %%rcx\n\t"
			 "mov 24(%%rbx), %%r8\n\t"
			 "mov 32(%%rbx), %%r9\n\t"
			 "mov 40(%%rbx), %%r10\n\t"
			 "mov 48(%%rbx), %%r11\n\t"
			 "mov 56(%%rbx), %%rax\n\t"
			 "call *%%r12\n\t"
			 "mov %%rsi, 0(%%rbx)\n\t"
			 "mov %%rdx, 8(%%rbx)\n\t"
			 "mov %%rcx, 16(%%rbx)\n\t"
			 "mov %%r8, 24(%%rbx)\n\t"
			 "mov %%r9, 32(%%rbx)\n\t"
			 "mov %%r10, 40(%%rbx)\n\t"
			 "mov %%r11, 48(%%rbx)\n\t"
			 "mov %%rax, 56(%%rbx)\n\t"
			 ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n\t"
			 "movups %%xmm\\n, 64+16*\\n(%%rbx)\n\t"
			 ".endr\n\t"
			 "mov %%r13, %%rsp"
			 : "+D"(argument)
			 : "b"(registers), "r"(r12)
			 : "r13", "rax", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory",
			   "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
			   "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}

static void check_registers(uint64_t function, uint64_t argument, bool has_result)
{
	struct registers before, after;

	for (size_t i = 0; i < sizeof(before) / sizeof(uint64_t); i++)
		((uint64_t *)&before)[i] = 0x1234567800000000 + i * 0x1111;
	after = before;
	call_with(function, argument, &after);
	if (has_result)
		before.general[7] = (uint64_t)only_block;
	assert_memory_equal(&before, &after, sizeof(before));
}

static void hooks_keep_registers(void **state)
{
	(void)state;
	struct hl_attached_start start = usual_start(HL_MODE_MEM_FAST, 0);
	start.real[HL_HOOK_MALLOC] = (uint64_t)modest_malloc;
	start.real[HL_HOOK_FREE] = (uint64_t)modest_free;
	start.usable_size = 0;

	/* The first calls find all that is new to them. */
	for (int found = 0; found < 2; found++) {
		start_with(&start);
		for (int i = 0; i < 3; i++) {
			check_registers(attached->hooks[HL_HOOK_MALLOC], 10, true);
			check_registers(attached->hooks[HL_HOOK_FREE], (uint64_t)only_block, false);
		}
		assert_counted(&(struct sums){30, 3, 30, 3});
		/* Without a slot */
		struct hl_attached_slot *slots = (struct hl_attached_slot *)attached->slots;
		for (uint32_t i = 0; i < attached->slot_count; i++)
			atomic_store(&slots[i].key, i + 2);
		check_registers(attached->hooks[HL_HOOK_MALLOC], 10, true);
		check_registers(attached->hooks[HL_HOOK_FREE], (uint64_t)only_block, false);
		pid_t child = fork();
		if (!child) {
			check_registers(attached->hooks[HL_HOOK_FREE], (uint64_t)only_block, false);
			check_registers(attached->hooks[HL_HOOK_MALLOC], 10, true);
			_exit(0);
		}
		assert_int_equal(status_of(child), 0);
		end();
		if (found == 0) {
			start.region_fd = make_region(&start.region_bytes, HL_MODE_MEM_FAST, 0);
			start.find_object = 0;
		}
	}
}

/* ---- without a thread pointer ---- */

static void check_pass(uint64_t fs_base)
{
	struct sums before = counted();
	uint64_t lost = atomic_load(&region->lost.events);

	assert_ptr_equal(call_with_fs_base(fs_base, hook(HL_HOOK_MALLOC), 10), only_block);
	call_with_fs_base(fs_base, hook(HL_HOOK_FREE), (uint64_t)only_block);
	struct sums after = counted();
	assert_memory_equal(&before, &after, sizeof(before));
	assert_int_equal(atomic_load(&region->lost.events), lost + 2);
	assert_int_equal(inside(), 0);
}

static void check_thread_pointers(bool may_read_fs_base)
{
	/* As threads of other languages have it: what ought to point at itself. Among them what is
	 * the key of free slots, and of such that nobody gets. */
	uint64_t words[] = {0, 1, 2, UINT64_MAX, (uint64_t)words + 8, (uint64_t)only_block};
	struct hl_attached_start start = usual_start(HL_MODE_MEM_FAST, 0);

	start.real[HL_HOOK_MALLOC] = (uint64_t)modest_malloc;
	start.real[HL_HOOK_FREE] = (uint64_t)modest_free;
	start.usable_size = start.find_object = start.clock_gettime = 0;
	start.may_read_fs_base = may_read_fs_base;
	lay_out();
	memcpy((void *)attached->start_room, &start, sizeof(start));
	assert_null(call_with_fs_base(0, attached->start, attached->start_room));
	check_pass(0);
	pid_t child = fork();
	if (!child) {
		call_with_fs_base(0, hook(HL_HOOK_MALLOC), 10);
		hook_malloc(10);
		_exit(count_maps(REGION_NAME) == 1 ? 0 : 1);
	}
	assert_int_equal(status_of(child), 0);
	/* Once there is one, nothing is lost. */
	uint64_t lost = atomic_load(&region->lost.events);
	hook_free(hook_malloc(10));
	assert_int_equal(counted().alloc_objects, 1);
	assert_int_equal(counted().free_objects, 1);
	assert_int_equal(atomic_load(&region->lost.events), lost);
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		check_pass((uint64_t)&words[i]);
	hook_free(hook_malloc(10));
	assert_int_equal(counted().alloc_objects, 2);
	end();
}

static void threads_without_a_thread_pointer_pass_through(void **state)
{
	(void)state;
	check_thread_pointers(false);
	if (getauxval(AT_HWCAP2) & HWCAP2_FSGSBASE)
		check_thread_pointers(true);
}

/* ---- the end ---- */

static char arena[1 << 20] __attribute__((aligned(64)));
static size_t arena_used;

static void *arena_malloc(size_t size)
{
	void *block = arena + arena_used;

	arena_used += (size + 63) & ~(size_t)63;
	return arena_used < sizeof(arena) ? block : NULL;
}

static void arena_free(void *block)
{
	(void)block;
}

/* The mappings outside of the image, of any size; neighbours that look alike are one. */
static size_t list_maps(char *text, size_t bytes)
{
	size_t used = 0;
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);

	for (ssize_t size; (size = read(fd, text + used, bytes - used - 1)) > 0;)
		used += (size_t)size;
	close(fd);
	text[used] = '\0';
	char *to = text;
	for (char *line = text, *next; *line; line = next) {
		next = strchr(line, '\n') + 1;
		uint64_t start = strtoull(line, NULL, 16);
		if (start - (uint64_t)image < image_bytes)
			continue;
		memmove(to, line, (size_t)(next - line));
		to += next - line;
	}
	*to = '\0';
	return (size_t)(to - text);
}

static void the_end_gives_all_memory_back(void **state)
{
	(void)state;
	static char before[1 << 16], after[1 << 16];
	struct hl_attached_start start = usual_start(HL_MODE_LOG_FAST, 0);

	start.real[HL_HOOK_MALLOC] = (uint64_t)arena_malloc;
	start.real[HL_HOOK_FREE] = (uint64_t)arena_free;
	start.usable_size = 0;
	start.find_object = 0;
	lay_out();
	memcpy((void *)attached->start_room, &start, sizeof(start));
	list_maps(before, sizeof(before));
	assert_int_equal(
		call_on(attached->stack_top, attached->start, (void *)attached->start_room), 0);
	for (size_t size = 0; size < 10000; size++)
		hook_free(hook_malloc(size % 64));
	assert_int_equal(counted().alloc_objects, 10000);
	list_maps(after, sizeof(after));
	assert_string_not_equal(before, after);
	assert_int_equal(inside(), 0);
	assert_int_equal(call_on(attached->stack_top, attached->stop, NULL), 0);
	list_maps(after, sizeof(after));
	assert_string_equal(before, after);
	munmap(image, image_bytes);
	munmap(region, start.region_bytes);
}

static void what_is_no_region_is_refused(void **state)
{
	(void)state;
	static char before[1 << 16], after[1 << 16];
	struct hl_attached_start start = usual_start(HL_MODE_MEM_FAST, 0);

	assert_int_equal(pwrite(start.region_fd, "no", 2, 0), 2);
	lay_out();
	list_maps(before, sizeof(before));
	assert_int_equal(call_on(attached->stack_top, attached->start, &start), -ENOMEM);
	list_maps(after, sizeof(after));
	assert_string_equal(before, after);
	assert_int_equal(fcntl(start.region_fd, F_GETFD), -1);
	munmap(image, image_bytes);
	munmap(region, start.region_bytes);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_are_counted_exactly),
		cmocka_unit_test(without_sizes_of_blocks_they_are_counted_exactly),
		cmocka_unit_test(without_the_loader_they_are_counted_exactly),
		cmocka_unit_test(samples_of_blocks_that_are_freed_leave_nothing),
		cmocka_unit_test(stacks_lead_to_the_program),
		cmocka_unit_test(stacks_are_the_same_without_the_loader),
		cmocka_unit_test(each_thread_has_its_slot_at_its_time),
		cmocka_unit_test(what_ended_threads_had_is_given_to_others),
		cmocka_unit_test(children_of_vfork_take_no_thread_for_ended),
		cmocka_unit_test(no_thread_enters_until_the_mode_is_another_one),
		cmocka_unit_test(calls_of_the_allocator_by_itself_are_not_counted),
		cmocka_unit_test(they_are_not_sampled_twice),
		cmocka_unit_test(what_destructors_do_is_counted),
		cmocka_unit_test(what_destructors_do_is_sampled),
		cmocka_unit_test(threads_without_a_slot_pass_through),
		cmocka_unit_test(a_forked_child_passes_through),
		cmocka_unit_test(a_child_forked_in_the_middle_of_a_hook_goes_on),
		cmocka_unit_test(a_child_forked_on_the_way_to_its_slot_goes_on),
		cmocka_unit_test(a_child_forked_while_its_slot_is_looked_at_goes_on),
		cmocka_unit_test(hooks_keep_registers),
		cmocka_unit_test(threads_without_a_thread_pointer_pass_through),
		cmocka_unit_test(the_end_gives_all_memory_back),
		cmocka_unit_test(what_is_no_region_is_refused),
	};

	is_light = argc > 1 && strcmp(argv[1], "light") == 0;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
