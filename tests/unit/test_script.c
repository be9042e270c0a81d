/* SPDX-License-Identifier: BSD-2-Clause */
/* Script frames in the recorder: what a made-up provider says, found below the native stack. */
#include "recorder/script.h"

#include "base/frame_key.h"
#include "recorder/event.h"
#include "recorder/libc.h"
#include "recorder/sys.h"
#include "recorder/thread.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_region.h"

/* ---- what stands in for the rest of the process ---- */

/* A native stack is one frame, the number in caller->pc. */
uint32_t __wrap_hl_walk_capture(struct hl_unwind *unwind, struct hl_walk *walk,
				const struct hl_registers *at);
uint32_t __wrap_hl_walk_capture(struct hl_unwind *unwind, struct hl_walk *walk,
				const struct hl_registers *at)
{
	(void)unwind;
	walk->depth = 1;
	walk->frames[0].key = at->pc;
	return 0;
}

struct hl_recall_slot *__wrap_hl_recall_keep(void);
struct hl_recall_slot *__wrap_hl_recall_keep(void)
{
	return NULL;
}

static _Atomic bool refused;

long __real_hl_sys_madvise(void *address, size_t bytes, int advice);
long __wrap_hl_sys_madvise(void *address, size_t bytes, int advice);
long __wrap_hl_sys_madvise(void *address, size_t bytes, int advice)
{
	return atomic_load(&refused) ? -ENOMEM : __real_hl_sys_madvise(address, bytes, advice);
}

static size_t usable_size(void *block)
{
	(void)block;
	return 64;
}

static struct hl_recorder *recorder;

static void start(void)
{
	atomic_store(&refused, false);
	recorder = aligned_alloc(_Alignof(struct hl_recorder), sizeof(*recorder));
	memset(recorder, 0, sizeof(*recorder));
	recorder->region = test_region_new(0);
	atomic_store(&recorder->region.header->mode, hl_mode_first(HL_MODE_MEM_FAST));
	hl_libc.usable_size = usable_size;
	assert_true(hl_node_init(&recorder->region));
	assert_true(hl_block_table_init(&recorder->blocks));
	hl_recorder_announce(recorder);
	atomic_store(&recorder->phase, HL_PHASE_RUNNING);
	hl_recorder = recorder;
}

static void stop_recorder(void)
{
	atomic_store(&refused, false);
	if (hl_thread_self())
		hl_thread_end(hl_thread_self());
	hl_recorder = NULL;
	test_region_free(&recorder->region);
	free(recorder);
}

/* ---- two providers ---- */

#define DEPTH_MAX 300u

/* What runs on each thread, outermost first. A function's name is `fN`, its line the instruction
 * + version * 1000: a function that takes the place of another has another version. */
struct running {
	struct hl_script_frame frames[DEPTH_MAX];
	uint32_t depth;
};

static __thread struct running running[2];
static _Atomic uint32_t versions[1000];
static _Atomic uint32_t described;
static _Atomic bool unknown;

static uint32_t capture(void *state, const struct hl_script_caller *caller,
			struct hl_script_frame *frames, uint32_t max, bool *ret_truncated)
{
	const struct running *it = &running[(uintptr_t)state];
	uint32_t count = it->depth < max ? it->depth : max;

	assert_int_not_equal(caller->native_node, 0);
	for (uint32_t i = 0; i < count; i++)
		frames[i] = it->frames[it->depth - 1 - i];
	*ret_truncated = count < it->depth;
	return count;
}

static bool describe(void *state, const struct hl_script_frame *frame,
		     struct hl_script_place *ret_place)
{
	static __thread char name[32];

	atomic_fetch_add(&described, 1);
	if (atomic_load(&unknown))
		return false;
	snprintf(name, sizeof(name), "f%u", (unsigned)frame->function);
	*ret_place = (struct hl_script_place){
		.function = name,
		.source = state ? "b.script" : "a.script",
		.function_bytes = (uint32_t)strlen(name),
		.source_bytes = 8,
		.line = frame->at + atomic_load(&versions[frame->function]) * 1000,
		.first_line = 1,
	};
	return true;
}

/* What the quick way of the first provider does. */
static enum { GIVES_UP, KEEPS_ALL, GIVES_ALL } quick;

static uint32_t recapture(void *state, const struct hl_script_caller *caller,
			  struct hl_script_frame *frames, uint32_t max)
{
	bool truncated;

	assert_int_not_equal(caller->native_node, 0);
	if (quick == GIVES_ALL)
		return capture(state, caller, frames, max, &truncated);
	if (quick == GIVES_UP)
		return HL_SCRIPT_GAVE_UP;
	caller->memory->kept = caller->memory->known;
	return 0;
}

static const struct hl_script_provider one = {
	.name = "one",
	.capture = capture,
	.recapture = recapture,
	.describe = describe,
	.remembers = true,
	.by_stack = true,
	.eval_start = 0x1000,
	.eval_end = 0x3000,
};
static const struct hl_script_provider two = {
	.name = "a name of more bytes than there is room for",
	.capture = capture,
	.describe = describe,
	.state = (void *)1,
};

/* Gives one frame outward of those of the others, or none. */
static _Atomic uint64_t service;

static uint64_t current(void *state)
{
	(void)state;
	return atomic_load(&service);
}

static uint32_t capture_service(void *state, const struct hl_script_caller *caller,
				struct hl_script_frame *frames, uint32_t max, bool *ret_truncated)
{
	(void)caller, (void)ret_truncated;
	frames[0] = (struct hl_script_frame){.function = current(state)};
	return frames[0].function && max;
}

static const struct hl_script_provider outer = {
	.name = "service",
	.capture = capture_service,
	.current = current,
	.describe = describe,
	.state = (void *)2,
	.eval_start = 0x1000,
	.eval_end = 0x3000,
};

static void run(uint32_t provider, uint32_t depth, const uint32_t *functions_and_lines)
{
	running[provider].depth = depth;
	for (uint32_t i = 0; i < depth; i++)
		running[provider].frames[i] = (struct hl_script_frame){
			.function = functions_and_lines[2 * i],
			.at = functions_and_lines[2 * i + 1],
			.is_entry = i == 0,
		};
}

#define RUN(provider, ...)                                                        \
	run(provider, sizeof((uint32_t[]){__VA_ARGS__}) / (2 * sizeof(uint32_t)), \
	    (uint32_t[]){__VA_ARGS__})

/* ---- events, and what the region says ---- */

static void *block_at(uint64_t number)
{
	return (void *)(UINT64_C(0x100000000) + number * 64);
}

static void allocate(uint64_t number, uint64_t native)
{
	struct hl_thread *thread = hl_thread_enter();
	const struct hl_registers caller = {.pc = native};

	assert_non_null(thread);
	hl_event_alloc(thread, block_at(number), 50, &caller, hl_event_locate(thread, &caller));
	hl_thread_leave(thread);
}

static void release(uint64_t number)
{
	struct hl_thread *thread = hl_thread_enter();

	if (!hl_event_free_plain(thread, block_at(number)))
		hl_event_free(thread, block_at(number));
	hl_thread_leave(thread);
}

static const char *name_at(uint32_t at, int *ret_bytes)
{
	const struct hl_region_name *name = (const void *)(recorder->region.names + at);

	*ret_bytes = (int)name->bytes;
	return name->text;
}

/* Appends "name:line" or the like for the path of a node, outermost first. */
static void put_path(char *text, size_t capacity, uint32_t node)
{
	const struct hl_region_node *it = &recorder->region.nodes[node];
	uint32_t number;
	uint64_t key = atomic_load(&it->frame);

	if (it->parent)
		put_path(text, capacity, it->parent);
	char *end = text + strlen(text);
	size_t room = capacity - strlen(text);
	if (hl_frame_key_is_size(key, &number)) {
		snprintf(end, room, "size %u;", number);
	} else if (hl_frame_key_is_path(key, &number)) {
		put_path(text, capacity, number);
	} else if (!hl_frame_key_is_site(key, &number)) {
		snprintf(end, room, "%lx;", (unsigned long)key);
	} else if (!number) {
		snprintf(end, room, "unknown;");
	} else {
		const struct hl_region_site *site = &recorder->region.sites[number - 1];
		int function_bytes, source_bytes;
		const char *function = name_at(site->function, &function_bytes);
		const char *source = name_at(site->source, &source_bytes);
		snprintf(end, room, "%s%.*s %.*s:%u;", key & HL_SITE_ENTRY ? ">" : "",
			 function_bytes, function, source_bytes, source, site->line);
	}
}

/* Sums of the nodes of this path. */
static struct hl_cell sum_of(const char *path)
{
	struct hl_cell sum = {0};

	for (uint32_t i = 0; i < atomic_load(&recorder->region.header->chunk_count); i++) {
		const struct hl_cell_chunk *chunk = &recorder->region.chunks[i];
		for (uint32_t j = 0; j < atomic_load(&chunk->used); j++) {
			char text[4096] = "";
			put_path(text, sizeof(text), chunk->cells[j].node);
			if (strcmp(text, path) != 0)
				continue;
			sum.alloc_objects += chunk->cells[j].alloc_objects;
			sum.free_objects += chunk->cells[j].free_objects;
		}
	}
	return sum;
}

static void assert_allocated(const char *path, uint64_t count)
{
	if (sum_of(path).alloc_objects != count)
		fail_msg("'%s': %lu and not %lu", path, sum_of(path).alloc_objects, count);
}

/* ---- tests; providers stay, so their order counts ---- */

static void without_a_provider_stacks_are_native(void **state)
{
	(void)state;
	start();
	RUN(0, 1, 10);
	allocate(1, 0x1000);
	assert_allocated("1000;", 1);
	assert_false(atomic_load(&recorder->region.header->mode) & HL_MODE_SCRIPT);
	stop_recorder();
}

static void a_provider_can_come_while_the_recorder_runs(void **state)
{
	(void)state;
	start();
	RUN(0, 1, 10, 2, 20);
	allocate(1, 0x1000);
	assert_int_equal(hl_script_register(&outer), 0);
	assert_int_equal(hl_script_register(&one), 0);
	allocate(2, 0x1000);
	assert_allocated("1000;", 1);
	assert_allocated("1000;>f1 a.script:10;f2 a.script:20;", 1);
	const struct hl_region_header *header = recorder->region.header;
	assert_int_equal(atomic_load(&header->provider_count), 2);
	assert_string_equal(header->providers[1].name, "one");
	assert_int_equal(header->providers[1].eval_start, 0x1000);
	assert_int_equal(header->providers[1].eval_end, 0x3000);
	stop_recorder();
}

static void stacks_without_an_eval_frame_are_not_asked_for(void **state)
{
	(void)state;
	start();
	RUN(0, 1, 10);
	allocate(1, 0x3000);
	allocate(2, 0x2fff);
	allocate(3, 0xfff);
	assert_allocated("3000;", 1);
	assert_allocated("fff;", 1);
	assert_allocated("2fff;>f1 a.script:10;", 1);
	stop_recorder();
}

static void set_walk(struct hl_walk *walk, uint32_t depth, const uint64_t *keys)
{
	walk->depth = depth;
	for (uint32_t i = 0; i < depth; i++)
		walk->frames[i] = (struct hl_walk_frame){.key = keys[i]};
}

/* The outermost frame comes first, and a module's number stands above the program counter. */
static void what_calls_an_eval_frame_does_not_ask_and_what_it_calls_does(void **state)
{
	struct hl_walk *walk = calloc(1, sizeof(*walk));

	(void)state;
	set_walk(walk, 4, (uint64_t[]){0x10, UINT64_C(3) << 48 | 0x1500, 0x20, 0x30});
	walk->frames[2].flags = HL_FRAME_NEEDS_BP;
	assert_true(hl_script_is_asked(walk, 0));
	assert_int_equal(walk->frames[2].flags & HL_FRAME_NEEDS_BP, HL_FRAME_NEEDS_BP);
	/* Kept frames are not looked at again, whatever they are. */
	for (uint32_t depth = 4; depth > 0; depth--) {
		walk->depth = depth;
		assert_int_equal(hl_script_is_asked(walk, depth), depth > 1);
	}
	walk->depth = 2;
	walk->frames[1] = (struct hl_walk_frame){.key = 0x40};
	assert_false(hl_script_is_asked(walk, 1));
	walk->frames[0].flags |= HL_FRAME_IN_SCRIPT;
	assert_false(hl_script_is_asked(walk, 0));
	walk->incomplete = true; /* what was not walked to is not guessed */
	assert_false(hl_script_is_asked(walk, 2));
	free(walk);
}

static void frames_that_stay_are_not_looked_up_again(void **state)
{
	(void)state;
	start();
	RUN(0, 1, 10, 2, 20, 3, 30);
	allocate(1, 0x1000);
	uint32_t before = atomic_load(&described);
	RUN(0, 1, 10, 2, 20, 3, 31);
	allocate(2, 0x1000);
	assert_int_equal(atomic_load(&described), before + 1);
	RUN(0, 1, 10, 2, 20);
	allocate(3, 0x1000);
	RUN(0, 1, 10, 2, 20, 3, 30);
	allocate(4, 0x2000);
	assert_int_equal(atomic_load(&described), before + 1);
	assert_allocated("1000;>f1 a.script:10;f2 a.script:20;f3 a.script:30;", 1);
	assert_allocated("1000;>f1 a.script:10;f2 a.script:20;f3 a.script:31;", 1);
	assert_allocated("1000;>f1 a.script:10;f2 a.script:20;", 1);
	assert_allocated("2000;>f1 a.script:10;f2 a.script:20;f3 a.script:30;", 1);
	release(4);
	assert_int_equal(sum_of("2000;>f1 a.script:10;f2 a.script:20;f3 a.script:30;").free_objects,
			 1);
	assert_int_equal(atomic_load(&recorder->region.header->site_count), 4);
	stop_recorder();
}

static void what_a_provider_kept_once_is_not_kept_the_next_time(void **state)
{
	(void)state;
	start();
	RUN(0, 1, 10, 2, 20);
	allocate(1, 0x1000);
	quick = KEEPS_ALL;
	allocate(2, 0x1000);
	assert_allocated("1000;>f1 a.script:10;f2 a.script:20;", 2);
	quick = GIVES_ALL;
	RUN(0, 3, 30, 4, 40, 5, 50);
	allocate(3, 0x1000);
	assert_allocated("1000;>f3 a.script:30;f4 a.script:40;f5 a.script:50;", 1);
	quick = GIVES_UP;
	stop_recorder();
}

static void the_quick_way_is_gone_only_where_the_outermost_frame_is_the_same(void **state)
{
	(void)state;
	start();
	service = 900;
	RUN(0, 1, 10, 2, 20);
	allocate(1, 0x1000);
	quick = KEEPS_ALL;
	allocate(2, 0x1000);
	service = 901;
	allocate(3, 0x1000);
	allocate(4, 0x1000);
	service = 0;
	allocate(5, 0x1000);
	assert_allocated("1000;f900 b.script:0;>f1 a.script:10;f2 a.script:20;", 2);
	assert_allocated("1000;f901 b.script:0;>f1 a.script:10;f2 a.script:20;", 2);
	assert_allocated("1000;>f1 a.script:10;f2 a.script:20;", 1);
	service = 901;
	allocate(6, 0x1000);
	quick = GIVES_ALL;
	RUN(0, 3, 30);
	allocate(7, 0x1000);
	assert_allocated("1000;f901 b.script:0;>f3 a.script:30;", 1);
	quick = GIVES_UP;
	service = 0;
	stop_recorder();
}

static void an_address_that_is_used_anew_is_another_function(void **state)
{
	(void)state;
	start();
	RUN(0, 1, 10, 5, 50);
	allocate(1, 0x1000);
	atomic_store(&versions[5], 1);
	hl_script_forget(5);
	allocate(2, 0x1000);
	assert_allocated("1000;>f1 a.script:10;f5 a.script:50;", 1);
	assert_allocated("1000;>f1 a.script:10;f5 a.script:1050;", 1);
	/* Without a word, but by another print. */
	atomic_store(&versions[5], 2);
	running[0].frames[1].print = 7;
	allocate(3, 0x1000);
	assert_allocated("1000;>f1 a.script:10;f5 a.script:2050;", 1);
	/* The same text once more takes no other site. */
	uint32_t sites = atomic_load(&recorder->region.header->site_count);
	atomic_store(&versions[5], 0);
	hl_script_forget(5);
	allocate(4, 0x1000);
	assert_allocated("1000;>f1 a.script:10;f5 a.script:50;", 2);
	assert_int_equal(atomic_load(&recorder->region.header->site_count), sites);
	stop_recorder();
}

static void what_nothing_is_known_of_is_kept_as_that(void **state)
{
	(void)state;
	start();
	atomic_store(&unknown, true);
	RUN(0, 6, 10);
	allocate(1, 0x1000);
	atomic_store(&unknown, false);
	assert_allocated("1000;unknown;", 1);
	running[0].depth = 0;
	allocate(2, 0x1000);
	assert_allocated("1000;", 1);
	stop_recorder();
}

static void sizes_are_told_apart_below_scripts(void **state)
{
	(void)state;
	start();
	recorder->sizes = true;
	RUN(0, 1, 10);
	allocate(1, 0x1000);
	assert_allocated("1000;>f1 a.script:10;size 6;", 1);
	stop_recorder();
}

static void a_stack_that_is_too_deep_keeps_its_inner_frames(void **state)
{
	(void)state;
	start();
	running[0].depth = DEPTH_MAX;
	for (uint32_t i = 0; i < DEPTH_MAX; i++)
		running[0].frames[i] = (struct hl_script_frame){.function = i + 1, .at = i};
	allocate(1, 0x1000);
	assert_int_equal(recorder->region.threads[0].lost.truncated_stacks, 1);
	assert_int_equal(recorder->region.header->site_count, HL_SCRIPT_DEPTH_MAX);
	const struct hl_region_site *innermost = &recorder->region.sites[HL_SCRIPT_DEPTH_MAX - 1];
	assert_int_equal(innermost->line, DEPTH_MAX - 1);
	stop_recorder();
}

static void without_memory_allocations_count_as_lost(void **state)
{
	(void)state;
	start();
	RUN(0, 1, 10);
	allocate(1, 0x1000);
	atomic_store(&refused, true);
	uint64_t number = 2;
	for (uint32_t i = 0; i < 4096; i++) {
		RUN(0, 1, 10, 2, i + 1);
		allocate(number++, 0x1000);
	}
	assert_true(recorder->region.threads[0].lost.events > 0);
	assert_null(test_region_check(&recorder->region));
	stop_recorder();
}

static void *allocate_as_thread(void *context)
{
	uint32_t id = (uint32_t)(uintptr_t)context;

	for (uint32_t i = 0; i < 20000; i++) {
		RUN(0, 1, 10, 10 + i % 7, i % 50, 20 + i % 3, i % 20);
		uint64_t number = UINT64_C(1000000) * id + i;
		allocate(number, 0x1000 + i % 5);
		if (i % 2)
			release(number);
		if (i % 1000 == id)
			hl_script_forget(10 + i % 7);
	}
	return NULL;
}

static void threads_share_sites(void **state)
{
	pthread_t threads[4];

	(void)state;
	start();
	for (uintptr_t i = 0; i < 4; i++)
		assert_int_equal(
			pthread_create(&threads[i], NULL, allocate_as_thread, (void *)(i + 1)), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	assert_null(test_region_check(&recorder->region));
	assert_int_equal(atomic_load(&recorder->region.header->lost.events), 0);
	/* 20000 turns of periods 7, 50, 3, 20 and 5: a stack comes round each 2100. */
	struct hl_cell sum = sum_of("1000;>f1 a.script:10;f10 a.script:0;f20 a.script:0;");
	assert_int_equal(sum.alloc_objects, 4 * 10);
	/* 1 + 7 * 50 + 3 * 20 places */
	assert_int_equal(atomic_load(&recorder->region.header->site_count), 1 + 350 + 60);
	stop_recorder();
}

static void frames_of_two_providers_stand_one_after_the_other(void **state)
{
	(void)state;
	assert_int_equal(hl_script_register(&two), 0); /* before the start */
	start();
	assert_string_equal(recorder->region.header->providers[2].name, "a name of more bytes th");
	RUN(0, 1, 10, 2, 20);
	RUN(1, 1, 10);
	allocate(1, 0x1000);
	RUN(0, 1, 10);
	allocate(2, 0x1000);
	RUN(1, 1, 11);
	allocate(3, 0x1000);
	running[0].depth = 0;
	allocate(4, 0x1000);
	assert_allocated("1000;>f1 a.script:10;f2 a.script:20;>f1 b.script:10;", 1);
	assert_allocated("1000;>f1 a.script:10;>f1 b.script:10;", 1);
	assert_allocated("1000;>f1 a.script:10;>f1 b.script:11;", 1);
	assert_allocated("1000;>f1 b.script:11;", 1);
	running[1].depth = 0;
	stop_recorder();
}

static void labels_are_frames_below_the_stack(void **state)
{
	char changing[] = "table", longest[HL_LABEL_NAME_MAX + 8];

	(void)state;
	start();
	struct hl_thread *thread = hl_thread_enter();
	assert_non_null(thread);
	uint32_t node = hl_node_intern(&recorder->region, &thread->tables->nodes, 0, 0x1000);
	struct hl_cell *stack = hl_cells_get(&thread->cells, &recorder->region, node);
#define LABEL(kind, name) hl_script_label_cell(recorder, thread, stack, HL_LABEL_##kind, name)
	struct hl_cell *table = LABEL(TYPE, changing);
	assert_ptr_not_equal(table, stack);
	assert_ptr_equal(LABEL(TYPE, changing), table);
	assert_ptr_equal(LABEL(TYPE, "table"), table);
	assert_ptr_not_equal(LABEL(SERVICE, changing), table);
	changing[4] = '\0'; /* what is remembered of the place is no longer true */
	assert_ptr_not_equal(LABEL(TYPE, changing), table);
	assert_ptr_equal(LABEL(TYPE, "tabl"), LABEL(TYPE, changing));
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	struct hl_cell *cut = LABEL(TYPE, longest);
	longest[HL_LABEL_NAME_MAX] = 'y';
	assert_ptr_equal(LABEL(TYPE, longest), cut);
	stack = NULL;
	assert_null(LABEL(TYPE, "table"));
#undef LABEL
	hl_thread_leave(thread);
	stop_recorder();
}

static void the_number_of_providers_is_limited(void **state)
{
	int r = 0;

	(void)state;
	for (uint32_t i = 0; i <= HL_SCRIPT_PROVIDERS_MAX && r == 0; i++)
		r = hl_script_register(&two);
	assert_int_equal(r, -ENOSPC);
}

static int prepare(void **state)
{
	(void)state;
	return hl_thread_init(NULL) ? 0 : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_a_provider_stacks_are_native),
		cmocka_unit_test(a_provider_can_come_while_the_recorder_runs),
		cmocka_unit_test(stacks_without_an_eval_frame_are_not_asked_for),
		cmocka_unit_test(what_calls_an_eval_frame_does_not_ask_and_what_it_calls_does),
		cmocka_unit_test(frames_that_stay_are_not_looked_up_again),
		cmocka_unit_test(what_a_provider_kept_once_is_not_kept_the_next_time),
		cmocka_unit_test(the_quick_way_is_gone_only_where_the_outermost_frame_is_the_same),
		cmocka_unit_test(an_address_that_is_used_anew_is_another_function),
		cmocka_unit_test(what_nothing_is_known_of_is_kept_as_that),
		cmocka_unit_test(sizes_are_told_apart_below_scripts),
		cmocka_unit_test(a_stack_that_is_too_deep_keeps_its_inner_frames),
		cmocka_unit_test(without_memory_allocations_count_as_lost),
		cmocka_unit_test(threads_share_sites),
		cmocka_unit_test(frames_of_two_providers_stand_one_after_the_other),
		cmocka_unit_test(labels_are_frames_below_the_stack),
		cmocka_unit_test(the_number_of_providers_is_limited),
	};

	return cmocka_run_group_tests(tests, prepare, NULL);
}
