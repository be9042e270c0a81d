/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lays the recorder's image out in itself, built in each way in which libc does not name modules:
 * statically or with musl. Allocates by the hooks in several threads, and compares what was counted,
 * and the stack, with what it knows. Says what is wrong, and ends with 1.
 */
#include "../image_host.h"

#include "base/frame_key.h"

#include <malloc.h>
#include <pthread.h>
#include <sys/auxv.h>

#define THREADS 4
#define PAIRS	20000
#define BYTES	1234567 /* of the block whose stack is looked at */

static uint64_t return_addresses[3];

static void *hook_malloc(size_t size)
{
	return ((void *(*)(size_t))attached->hooks[HL_HOOK_MALLOC])(size);
}

static void hook_free(void *block)
{
	((void (*)(void *))attached->hooks[HL_HOOK_FREE])(block);
}

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

static void *work(void *unused)
{
	(void)unused;
	for (size_t i = 0; i < PAIRS; i++)
		hook_free(hook_malloc(i % 100 + 1));
	return NULL;
}

/* The frames of the functions above are there, in order, and their module has no name. */
static bool is_known_stack(void)
{
	const struct hl_cell_chunk *chunk = area(HL_AREA_CELLS);
	const struct hl_region_node *nodes = area(HL_AREA_NODES);
	const struct hl_region_module *modules = area(HL_AREA_MODULES);
	uint32_t node = 0, found = 0;

	for (uint32_t left = atomic_load(&region->chunk_count); left; left--, chunk++)
		for (uint32_t i = 0; i < atomic_load(&chunk->used); i++)
			if (chunk->cells[i].alloc_bytes == BYTES)
				node = chunk->cells[i].node;
	for (; node; node = nodes[node].parent) {
		uint64_t key = atomic_load(&nodes[node].frame);
		if (found < 3 && (key & HL_FRAME_PC_MASK) == return_addresses[found] - 1 &&
		    key >> HL_MODULE_SHIFT && !modules[(key >> HL_MODULE_SHIFT) - 1].path_bytes)
			found++;
	}
	return found == 3;
}

static int fail(const char *what)
{
	fprintf(stderr, "%s\n", what);
	return 1;
}

int main(void)
{
	struct hl_attached_start start = {
		.main_tid = getpid(),
		.real =
			{
				[HL_HOOK_MALLOC] = (uint64_t)malloc,
				[HL_HOOK_FREE] = (uint64_t)free,
			},
		.usable_size = (uint64_t)malloc_usable_size,
		.program_headers = getauxval(AT_PHDR),
		.program_header_count = getauxval(AT_PHNUM),
		.page_bytes = getauxval(AT_PAGESZ),
	};
	pthread_t threads[THREADS];

	start.region_fd = make_region(&start.region_bytes, HL_MODE_MEM_FAST, 0);
	lay_out();
	if (call_on(attached->stack_top, attached->start, &start) != 0)
		return fail("the image does not start");
	for (int i = 0; i < THREADS; i++)
		must(pthread_create(&threads[i], NULL, work, NULL) == 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	struct sums sums = counted();
	uint64_t objects = THREADS * PAIRS, bytes = THREADS * (PAIRS / 100) * UINT64_C(5050);
	if (sums.alloc_objects != objects || sums.free_objects != objects ||
	    sums.alloc_bytes != bytes || sums.free_bytes != bytes)
		return fail("the counts are wrong");
	void *block = outermost(BYTES);
	if (!is_known_stack())
		return fail("the stack is not known");
	const struct hl_region_thread *thread = area(HL_AREA_THREADS);
	for (uint32_t i = 0; i < atomic_load(&region->thread_count); i++)
		printf("thread %u: %s, %lu incomplete stacks\n", i, thread[i].name,
		       (unsigned long)thread[i].lost.incomplete_stacks);
	hook_free(block);
	if (call_on(attached->stack_top, attached->stop, NULL) != 0)
		return fail("the image does not stop");
	return 0;
}
