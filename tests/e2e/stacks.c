/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stacks that are not what they seem: coroutines on stacks of their own, longjmp out of deep calls,
 * recursion deeper than a recording keeps, frames that the compiler realigned or that grow, signals.
 *
 * Usage: stacks SCENARIO
 */
#include "program.h"

#include <alloca.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

static SITE void *stack_site(size_t bytes)
{
	void *block = malloc(bytes);

	KEEP(block);
	return block;
}

/* --- coroutines ------------------------------------------------------------------------------ */

#define COROUTINES	4
#define COROUTINE_TURNS 211

struct coroutine {
	ucontext_t context;
	char stack[131072];
};

static struct coroutine coroutines[COROUTINES];
static ucontext_t scheduler;

static void yield_from(int number)
{
	REQUIRE(!swapcontext(&coroutines[number].context, &scheduler));
}

/* Allocates 67 bytes before and 71 after another coroutine ran. */
static inline __attribute__((always_inline)) void take_turns(int number)
{
	for (int i = 0; i < COROUTINE_TURNS; i++) {
		KEEP(stack_site(67));
		yield_from(number);
		KEEP(stack_site(71));
	}
}

static SITE void even_deeper(int number, int depth)
{
	if (depth)
		even_deeper(number, depth - 1);
	else
		take_turns(number);
	BARRIER();
}

static SITE void odd_deeper(int number, int depth)
{
	if (depth)
		odd_deeper(number, depth - 1);
	else
		take_turns(number);
	BARRIER();
}

static SITE void coroutine_body(int number)
{
	if (number % 2)
		odd_deeper(number, 3 * number);
	else
		even_deeper(number, 3 * number);
	BARRIER();
}

static void prepare_coroutine(int n)
{
	ucontext_t *context = &coroutines[n].context;

	REQUIRE(!getcontext(context));
	context->uc_stack.ss_sp = coroutines[n].stack;
	context->uc_stack.ss_size = sizeof(coroutines[n].stack);
	context->uc_link = &scheduler;
	makecontext(context, (void (*)(void))(uintptr_t)coroutine_body, 1, n);
}

static int run_coroutines(void)
{
	for (int n = 0; n < COROUTINES; n++)
		prepare_coroutine(n);
	for (int turn = 0; turn <= COROUTINE_TURNS; turn++)
		for (int n = 0; n < COROUTINES; n++)
			REQUIRE(!swapcontext(&scheduler, &coroutines[n].context));
	return 0;
}

/* --- longjmp -----------------------------------------------------------------------------------
 */

static jmp_buf ground;

static SITE void leave(void)
{
	KEEP(stack_site(73));
	longjmp(ground, 1);
}

static SITE void dive(int depth)
{
	if (depth)
		dive(depth - 1);
	else
		leave();
	BARRIER();
}

/* Dives to each depth below 100 ten times; each ends by longjmp. */
static int jump(void)
{
	for (volatile int i = 0; i < 1000; i = i + 1) {
		if (!setjmp(ground))
			dive(i % 100);
		KEEP(stack_site(79));
	}
	return 0;
}

/* --- deep recursion ----------------------------------------------------------------------------
 */

static SITE void recurse(int depth)
{
	if (depth)
		recurse(depth - 1);
	else
		KEEP(stack_site(83));
	BARRIER();
}

/* 13 blocks below 1,500 frames, 17 below 500. */
static int recurse_deep(void)
{
	for (int i = 0; i < 13; i++)
		recurse(1499);
	for (int i = 0; i < 17; i++)
		recurse(499);
	return 0;
}

/* --- frames whose size is not known beforehand ------------------------------------------------ */

static SITE void growing_frame(int depth)
{
	char *room = alloca((size_t)depth * 48 + 16);

	KEEP(room);
	KEEP(stack_site(89));
	if (depth)
		growing_frame(depth - 1);
	KEEP(room);
}

static SITE void realigned_frame(int depth)
{
	_Alignas(256) char room[256];

	KEEP(room);
	REQUIRE((uintptr_t)room % 256 == 0);
	KEEP(stack_site(97));
	if (depth)
		growing_frame(1);
	KEEP(room);
}

static SITE void realigned_and_growing_frame(int depth)
{
	_Alignas(128) char room[128];
	char *more = alloca((size_t)depth * 16 + 24);

	KEEP(more);
	KEEP(room);
	KEEP(stack_site(101));
	if (depth)
		realigned_and_growing_frame(depth - 1);
	realigned_frame(0);
	KEEP(room);
	KEEP(more);
}

static int unusual_frames(void)
{
	for (int i = 0; i < 103; i++)
		growing_frame(5);
	for (int i = 0; i < 107; i++)
		realigned_frame(1);
	for (int i = 0; i < 109; i++)
		realigned_and_growing_frame(4);
	return 0;
}

/* --- functions that call nothing, interrupted by a signal ------------------------------------- */

#define ROOM_BYTES 65536 /* a multiple of any page */

static char *room_without_access;

static void allow_access(int signal_number)
{
	(void)signal_number;
	KEEP(stack_site(103));
	REQUIRE(!mprotect(room_without_access, ROOM_BYTES, PROT_READ));
}

static SITE char read_room(const char *room)
{
	return *(const volatile char *)room;
}

static int interrupt(void)
{
	const struct sigaction action = {.sa_handler = allow_access};

	room_without_access = mmap(NULL, ROOM_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(room_without_access != MAP_FAILED && !sigaction(SIGSEGV, &action, NULL));
	for (int i = 0; i < 113; i++) {
		REQUIRE(!read_room(room_without_access));
		REQUIRE(!mprotect(room_without_access, ROOM_BYTES, PROT_NONE));
	}
	return 0;
}

static const struct {
	const char *name;
	int (*run)(void);
} scenarios[] = {
	{"coroutines", run_coroutines},	    {"longjmp", jump},		{"deep", recurse_deep},
	{"unusual-frames", unusual_frames}, {"interrupted", interrupt},
};

int main(int argc, char **argv)
{
	REQUIRE(argc == 2);
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(*scenarios); i++)
		if (!strcmp(scenarios[i].name, argv[1]))
			return scenarios[i].run();
	fprintf(stderr, "stacks: no scenario '%s'\n", argv[1]);
	return 2;
}
