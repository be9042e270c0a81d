/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program with an interpreter of its own, which tells its recorder what it runs, if there is one.
 *
 *	script_vm COUNT [fork | modes | wait]
 *
 * Two threads run the script "shop.vm", the first COUNT times, the second twice as often. Then, with
 *
 *	fork	a child runs it twice more
 *	modes	the main thread runs it twice in each mode of recording
 *	wait	the program says "ready" and waits for the end of its input
 *
 * Blocks stay allocated. The script, by its lines:
 *
 *	 1  function main
 *	 2	order()
 *	 3	load(first); first()
 *	 4	load(second); second()
 *	 5	grow			moves the interpreter's own stack, 1 to 2 MiB and back
 *	10  function order
 *	12	allocate 100
 *	13	native(item)		C that calls the interpreter again
 *	20  function item
 *	21	allocate 200
 *	22	c_allocate 300		C that allocates
 *	23	price()
 *	30  function price
 *	31	allocate 400
 *	40  function first		lives where `second` does later
 *	41	allocate 500
 *	50  function second
 *	51	allocate 600
 */
#include "heapline/heapline.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#pragma weak hl_frame_provider_register
#pragma weak hl_frame_function_freed
#pragma weak hl_mode_set

/* ---- the interpreter ---- */

enum operation {
	RETURN,
	ALLOCATE,
	C_ALLOCATE,
	CALL,
	CALL_BY_C,
	LOAD, /* makes a function where the one before was */
	CALL_LOADED,
	GROW,
};

struct function;

struct instruction {
	enum operation operation;
	uint32_t line;
	uint32_t bytes;
	const struct function *callee;
};

struct function {
	const char *name;
	uint32_t first_line;
	struct instruction code[7];
};

struct frame {
	const struct function *function;
	const struct instruction *next;
	int is_entry;
};

#define STACK_BYTES ((size_t)1 << 20) /* more than an allocator moves by copying */

static __thread struct frame *frames; /* on the heap, as interpreters have it */
static __thread int is_large;
static __thread unsigned depth;
static __thread struct function loaded; /* one place for all functions that are loaded */

extern const char __start_vm_eval[], __stop_vm_eval[], __start_vm_library[], __stop_vm_library[];

static void run(const struct function *function);

__attribute__((noinline, section("vm_library"))) static void allocate(size_t bytes)
{
	void *volatile block = malloc(bytes);

	memset(block, 1, bytes);
}

/* What the recorder reads must not be looked for where it was before. */
__attribute__((noinline, section("vm_library"))) static void grow(void)
{
	struct frame *moved = realloc(frames, is_large ? STACK_BYTES : 2 * STACK_BYTES);

	if (!moved)
		abort();
	frames = moved;
	is_large = !is_large;
}

__attribute__((noinline)) static void c_allocate(size_t bytes)
{
	void *volatile block = malloc(bytes);

	memset(block, 1, bytes);
}

__attribute__((noinline)) static void native(const struct function *function)
{
	run(function);
	__asm__ volatile(""); /* not a tail call */
}

static void enter(const struct function *function, int is_entry)
{
	frames[depth] = (struct frame){function, function->code, is_entry};
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	depth++;
}

static void load(const struct function *function)
{
	if (hl_frame_function_freed)
		hl_frame_function_freed((uintptr_t)&loaded);
	loaded = *function;
}

__attribute__((noinline, section("vm_eval"))) static void run(const struct function *function)
{
	unsigned outer = depth;

	enter(function, 1);
	while (depth > outer) {
		const struct instruction *it = frames[depth - 1].next++;
		switch (it->operation) {
		case RETURN:
			depth--;
			break;
		case ALLOCATE:
			allocate(it->bytes);
			break;
		case C_ALLOCATE:
			c_allocate(it->bytes);
			break;
		case CALL:
			enter(it->callee, 0);
			break;
		case CALL_BY_C:
			native(it->callee);
			break;
		case LOAD:
			load(it->callee);
			break;
		case CALL_LOADED:
			enter(&loaded, 0);
			break;
		case GROW:
			grow();
			break;
		}
	}
}

/* ---- what it says of itself ---- */

static uint32_t capture(void *state, const struct hl_frame_caller *caller, struct hl_frame *found,
			uint32_t max, int *ret_truncated)
{
	uint32_t count = depth < max ? depth : max;

	(void)state, (void)caller;
	for (uint32_t i = 0; i < count; i++) {
		const struct frame *frame = &frames[depth - 1 - i];
		found[i] = (struct hl_frame){
			.function = (uintptr_t)frame->function,
			.at = (uint32_t)(frame->next - frame->function->code) - 1,
			.is_entry = (uint8_t)frame->is_entry,
		};
	}
	*ret_truncated = count < depth;
	return count;
}

static int describe(void *state, const struct hl_frame *frame, struct hl_frame_place *ret_place)
{
	const struct function *function = (const struct function *)(uintptr_t)frame->function;

	(void)state;
	*ret_place = (struct hl_frame_place){
		.function = function->name,
		.source = "shop.vm",
		.function_bytes = (uint32_t)strlen(function->name),
		.source_bytes = 7,
		.line = function->code[frame->at].line,
		.first_line = function->first_line,
	};
	return 1;
}

/* ---- the script ---- */

static const struct function price = {
	"price", 30, {{ALLOCATE, 31, 400, NULL}, {RETURN, 0, 0, NULL}}};
static const struct function item = {
	"item",
	20,
	{{ALLOCATE, 21, 200, NULL},
	 {C_ALLOCATE, 22, 300, NULL},
	 {CALL, 23, 0, &price},
	 {RETURN, 0, 0, NULL}},
};
static const struct function order = {
	"order",
	10,
	{{ALLOCATE, 12, 100, NULL}, {CALL_BY_C, 13, 0, &item}, {RETURN, 0, 0, NULL}},
};
static const struct function first = {
	"first", 40, {{ALLOCATE, 41, 500, NULL}, {RETURN, 0, 0, NULL}}};
static const struct function second = {
	"second", 50, {{ALLOCATE, 51, 600, NULL}, {RETURN, 0, 0, NULL}}};
static const struct function script = {
	"main",
	1,
	{{CALL, 2, 0, &order},
	 {LOAD, 3, 0, &first},
	 {CALL_LOADED, 3, 0, NULL},
	 {LOAD, 4, 0, &second},
	 {CALL_LOADED, 4, 0, NULL},
	 {GROW, 5, 0, NULL},
	 {RETURN, 0, 0, NULL}},
};

__attribute__((noinline)) static void *work(void *context)
{
	frames = malloc(STACK_BYTES);
	is_large = 0;
	for (uintptr_t i = 0; frames && i < (uintptr_t)context; i++)
		run(&script);
	free(frames);
	return NULL;
}

int main(int argc, char **argv)
{
	const struct hl_frame_provider provider = {
		.size = sizeof(provider),
		.name = "shop",
		.capture = capture,
		.describe = describe,
		.eval_start = __start_vm_eval,
		.eval_end = __stop_vm_eval,
		.text_start = __start_vm_library,
		.text_end = __stop_vm_library,
	};
	uintptr_t count = argc > 1 ? (uintptr_t)atoi(argv[1]) : 1;
	pthread_t threads[2];

	if (hl_frame_provider_register && hl_frame_provider_register(&provider) != 0)
		return 2;
	for (uintptr_t i = 0; i < 2; i++)
		if (pthread_create(&threads[i], NULL, work, (void *)(count * (i + 1))) != 0)
			return 1;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	const char *then = argc > 2 ? argv[2] : "";
	if (strcmp(then, "fork") == 0) {
		pid_t child = fork();
		if (child == 0) {
			work((void *)2);
			_exit(0);
		}
		waitpid(child, NULL, 0);
	}
	for (int mode = HL_CLOSED; hl_mode_set && strcmp(then, "modes") == 0 && mode <= HL_LOG_FAST;
	     mode++) {
		hl_mode_set((enum hl_recording_mode)mode);
		work((void *)2);
	}
	if (strcmp(then, "wait") == 0) {
		puts("ready");
		fflush(stdout);
		while (getchar() != EOF)
			;
	}
	return 0;
}
