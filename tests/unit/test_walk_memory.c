/* SPDX-License-Identifier: BSD-2-Clause */
/* What walks remember of each other is right: at random, in threads, and as modules change. */
#include "walk_capture.h"

#include <alloca.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static struct hl_walk fresh_walk;

/* Of an rbp that no frame outward is found by, a walk may have kept an older value. Whether one is,
 * the walk may take for granted when it cannot easily tell. */
static bool frames_are_equal(const struct hl_walk_frame *a, const struct hl_walk_frame *b)
{
	return a->key == b->key && a->sp == b->sp &&
	       (a->bp == b->bp || !(a->flags & b->flags & HL_FRAME_NEEDS_BP));
}

/* A walk that remembers against one that does not. */
static NOINLINE void capture_twice(void)
{
	struct hl_registers at = REGISTERS_OF_CALLER();

	kept = hl_walk_capture(&unwinder, &walk, &at);
	memset(&fresh_walk, 0, offsetof(struct hl_walk, frames));
	hl_walk_capture(&unwinder, &fresh_walk, &at);
	captures++;
	bool is_equal = walk.depth == fresh_walk.depth && intern_nodes(&walk, kept) &&
			walk.truncated == fresh_walk.truncated &&
			walk.incomplete == fresh_walk.incomplete;
	for (uint32_t i = 0; is_equal && i < walk.depth; i++)
		is_equal = frames_are_equal(&walk.frames[i], &fresh_walk.frames[i]);
	if (!is_equal)
		differences++;
}

static uint64_t random_state = 88172645463325252;

static uint32_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)(random_state >> 20);
}

static void wander(unsigned depth);

static NOINLINE void wander_small(unsigned depth)
{
	wander(depth);
	sink = sink + depth;
}

static NOINLINE void wander_large(unsigned depth)
{
	volatile char buffer[200];

	buffer[depth % 200] = 1;
	wander(depth);
	sink = sink + (unsigned)buffer[depth % 200];
}

static NOINLINE void wander_alloca(unsigned depth)
{
	volatile char *buffer = alloca(next_random() % 256 + 1);

	buffer[0] = 1;
	wander(depth);
	sink = sink + (unsigned)buffer[0];
}

static NOINLINE void wander_realigned(unsigned depth)
{
	_Alignas(64) volatile char buffer[64];

	buffer[0] = 1;
	wander(depth);
	sink = sink + (unsigned)buffer[0];
}

static generated_fn *generated_wander;
static unsigned generated_depth;

static NOINLINE void wander_from_generated(void)
{
	wander(generated_depth);
	sink = sink + 1;
}

static NOINLINE void wander_generated(unsigned depth)
{
	generated_depth = depth;
	generated_wander(wander_from_generated, 0);
	sink = sink + depth;
}

static void raise_and_capture(int signal)
{
	(void)signal;
	capture_twice();
}

/* Goes on in a random way: two calls at most, captures before, between and after. */
static NOINLINE void wander(unsigned depth)
{
	static void (*const ways[])(unsigned) = {wander_small,	   wander_large,     wander_alloca,
						 wander_realigned, wander_generated, wander_small};
	if (next_random() % 4 == 0)
		capture_twice();
	if (next_random() % 64 == 0)
		raise(SIGUSR1);
	for (unsigned i = 0; depth && i < 2; i++)
		if (next_random() % 8 < 5)
			ways[next_random() % HL_COUNT_OF(ways)](depth - 1);
	if (next_random() % 3 == 0)
		capture_twice();
}

static void remembering_changes_nothing(void **state)
{
	(void)state;
	install(SIGUSR1, raise_and_capture, 0);
	generated_wander = generate(code_with_frame_pointer, sizeof(code_with_frame_pointer));
	while (captures < 20000)
		wander(30);
	munmap((void *)(uintptr_t)generated_wander, 4096);
	assert_all_equal(20000);
}

/* Loads a library and captures from inside it; returns the function's address. */
static uintptr_t capture_in_plugin(const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	assert_non_null(library);
	unsigned (*call)(void (*)(void)) =
		(unsigned (*)(void (*)(void)))dlsym(library, "plugin_call");
	assert_non_null(call);
	uintptr_t address = (uintptr_t)call;
	call(capture);
	call(capture);
	assert_int_equal(walk.frames[walk.depth - 1].key >> HL_MODULE_SHIFT, module_id);
	assert_int_equal(dlclose(library), 0);
	hl_rule_cache_invalidate(&unwinder);
	return address;
}

static void a_library_at_the_address_of_another_is_not_taken_for_it(void **state)
{
	(void)state;
	unsigned same_address = 0;
	uintptr_t last = 0;
	for (module_id = 1; module_id < 20; module_id++) {
		const char *path = getenv(module_id % 2 ? "WALK_PLUGIN_A" : "WALK_PLUGIN_B");
		assert_non_null(path);
		uintptr_t address = capture_in_plugin(path);
		same_address += address == last;
		last = address;
	}
	module_id = 1;
	assert_all_equal(38);
	if (!same_address)
		skip();
}

static void errno_is_left_alone(void **state)
{
	(void)state;
	memset(&walk, 0, offsetof(struct hl_walk, frames)); /* nothing is known to be readable */
	errno = 4711;
	capture_only();
	assert_int_equal(errno, 4711);
}

static void no_registers_make_it_fault(void **state)
{
	(void)state;
	uint64_t here = (uint64_t)__builtin_frame_address(0);
	struct dl_find_object libc;
	assert_int_equal(_dl_find_object((void *)(uintptr_t)printf, &libc), 0);
	uint64_t start = (uint64_t)libc.dlfo_map_start;
	uint64_t size = (uint64_t)libc.dlfo_map_end - start;
	for (unsigned i = 0; i < 20000; i++) {
		struct hl_registers at = {.pc = start + next_random() % size};
		at.sp = here - 4096 + next_random() % 16384 / 8 * 8;
		at.bp = here - 4096 + next_random() % 16384 / 8 * 8;
		if (i % 5 == 0)
			at.sp = (uint64_t)next_random() << (next_random() % 40);
		if (i % 7 == 0)
			at.bp = (uint64_t)next_random() << (next_random() % 40);
		kept = hl_walk_capture(&unwinder, &walk, &at);
		assert_true(walk.depth >= 1 && walk.depth <= HL_MAX_FRAMES);
		intern_nodes(&walk, kept);
	}
}

static _Atomic bool threads_stop;

static NOINLINE unsigned recurse_in_thread(struct hl_walk *own, unsigned depth)
{
	volatile unsigned right = 0;

	if (depth) {
		right = recurse_in_thread(own, depth - 1);
		return right;
	}
	struct hl_registers at = REGISTERS_OF_CALLER();
	hl_walk_capture(&unwinder, own, &at);
	right = !own->incomplete && !own->truncated;
	return right;
}

static void *capture_in_thread(void *argument)
{
	struct hl_walk *own = aligned_alloc(64, sizeof(*own));

	memset(own, 0, sizeof(*own));
	uint32_t *failures = argument;
	uint32_t depths[8] = {0};
	for (unsigned i = 0; i < 1000 || !threads_stop; i++) {
		*failures += !recurse_in_thread(own, 5 + i % 8);
		*failures += depths[i % 8] && depths[i % 8] != own->depth;
		depths[i % 8] = own->depth;
	}
	free(own);
	return NULL;
}

static void threads_share_rules_while_modules_change(void **state)
{
	(void)state;
	pthread_t threads[3];
	uint32_t failures[3] = {0};
	threads_stop = false;
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, capture_in_thread, &failures[i]),
				 0);
	for (unsigned i = 0; i < 1000; i++) {
		hl_rule_cache_invalidate(&unwinder);
		sched_yield();
	}
	threads_stop = true;
	for (unsigned i = 0; i < 3; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(failures[i], 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WALK_TEST(remembering_changes_nothing),
		WALK_TEST(a_library_at_the_address_of_another_is_not_taken_for_it),
		WALK_TEST(errno_is_left_alone),
		WALK_TEST(no_registers_make_it_fault),
		WALK_TEST(threads_share_rules_while_modules_change),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
