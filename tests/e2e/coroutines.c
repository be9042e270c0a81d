/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * coroutines ROUNDS: allocates on stacks that come and go at one address with other contents:
 * coroutines that one thread or another resumes, signal handlers, calls that longjmp leaves, threads
 * on stacks of their own. What remembers stacks by their address must notice, and must not read what
 * is no longer mapped.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum {
	STACK_BYTES = 256 * 1024,
	SHAPES = 8, /* 3 bits: each chooses a frame */
};

#define STACK_ADDRESS ((char *)UINT64_C(0x200000000000))

static char *volatile kept;

__attribute__((noinline)) static void allocate(size_t size)
{
	kept = malloc(size);
	free(kept);
}

/* Frames of one size and of different functions: a stack pointer does not tell which they are. */
#define FRAME(name, inner)                                         \
	__attribute__((noinline)) static void name(unsigned shape) \
	{                                                          \
		volatile char room[64] = {(char)shape};            \
		__asm__ volatile("# " #name);                      \
		inner;                                             \
		room[1] = room[0];                                 \
	}

FRAME(leaf_left, allocate(16 + shape))
FRAME(leaf_right, allocate(16 + shape))
FRAME(middle_left, (shape & 1 ? leaf_left : leaf_right)(shape))
FRAME(middle_right, (shape & 1 ? leaf_left : leaf_right)(shape))
FRAME(outer_left, (shape & 2 ? middle_left : middle_right)(shape))
FRAME(outer_right, (shape & 2 ? middle_left : middle_right)(shape))

static void call(unsigned shape)
{
	(shape & 4 ? outer_left : outer_right)(shape);
}

/* ---- coroutines ---- */

static ucontext_t resumer, coroutine;
static unsigned coroutine_shape;

/* Suspends itself in the middle, so that a thread leaves its stack and comes back to it. */
#define COROUTINE(name)                                        \
	static void name(void)                                 \
	{                                                      \
		for (unsigned turn = 0; turn < 2; turn++) {    \
			call(coroutine_shape + turn);          \
			if (swapcontext(&coroutine, &resumer)) \
				abort();                       \
		}                                              \
	}

COROUTINE(first_coroutine)
COROUTINE(second_coroutine)

static void resume(void)
{
	if (swapcontext(&resumer, &coroutine))
		abort();
}

static void *resume_in_thread(void *none)
{
	call(5);
	resume();
	return none;
}

static void *map_stack(void)
{
	void *stack = mmap(STACK_ADDRESS, STACK_BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	if (stack != STACK_ADDRESS)
		abort();
	return stack;
}

static void use_coroutine(unsigned round)
{
	pthread_t thread;

	coroutine_shape = round % SHAPES;
	if (getcontext(&coroutine))
		abort();
	coroutine.uc_stack = (stack_t){.ss_sp = map_stack(), .ss_size = STACK_BYTES};
	coroutine.uc_link = NULL;
	makecontext(&coroutine, round & 8 ? first_coroutine : second_coroutine, 0);
	resume();
	call(round); /* while the other stack is there, and remembered */
	if (round % 16 == 0) {
		if (pthread_create(&thread, NULL, resume_in_thread, NULL) ||
		    pthread_join(thread, NULL))
			abort();
	} else {
		resume();
	}
	munmap(STACK_ADDRESS, STACK_BYTES);
	call(round >> 1); /* while it is only remembered */
}

/* ---- signals, longjmp, threads ---- */

static volatile unsigned signal_shape;
static sigjmp_buf jump;

static void on_signal(int number)
{
	(void)number;
	call(signal_shape);
	if (signal_shape & 1)
		siglongjmp(jump, 1);
}

/* The handler may allocate: the signal comes when nothing else does. */
static void use_signals(unsigned round)
{
	stack_t alternate = {.ss_sp = map_stack(), .ss_size = STACK_BYTES};
	stack_t none = {.ss_flags = SS_DISABLE};

	signal_shape = round % SHAPES;
	if (sigaltstack(&alternate, NULL))
		abort();
	if (sigsetjmp(jump, 1) == 0)
		raise(round & 8 ? SIGUSR1 : SIGUSR2);
	call(round);
	sigaltstack(&none, NULL);
	munmap(STACK_ADDRESS, STACK_BYTES);
}

static void *call_in_thread(void *shape)
{
	call(*(unsigned *)shape);
	return NULL;
}

static void use_thread(unsigned round)
{
	pthread_attr_t attributes;
	pthread_t thread;

	pthread_attr_init(&attributes);
	if (pthread_attr_setstack(&attributes, map_stack(), STACK_BYTES) ||
	    pthread_create(&thread, &attributes, call_in_thread, &round) ||
	    pthread_join(thread, NULL))
		abort();
	pthread_attr_destroy(&attributes);
	munmap(STACK_ADDRESS, STACK_BYTES);
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 0;
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};

	sigaction(SIGUSR1, &action, NULL);
	action.sa_flags = 0;
	sigaction(SIGUSR2, &action, NULL);
	for (unsigned round = 0; round < rounds; round++) {
		use_coroutine(round);
		use_signals(round);
		if (round % 4 == 0)
			use_thread(round);
	}
	puts("done");
	return 0;
}
