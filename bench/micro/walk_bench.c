/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Prints what hl_walk_capture costs, in ns, on stacks of 9, 24 and 64 frames of which the innermost
 * 3 to 7 change from one capture to the next; beside it a walk that remembers nothing.
 *
 * The cost of the calls themselves is measured without a capture and subtracted. Best of some runs.
 */
#include "base/compiler.h"
#include "unwind/unwind.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CAPTURES  200000u
#define RUNS	  7
#define PATHS	  4096u
#define VARY_MIN  3u
#define VARY_MAX  7u
#define NOINLINE  __attribute__((noinline))
#define BRANCHES  8u
#define PATH_BITS 3u /* log2 of BRANCHES */

enum work { WORK_CALLS, WORK_MEMOIZED, WORK_FRESH };

static struct hl_unwind unwinder;
static struct hl_walk walk;
static enum work work;
static volatile unsigned sink;
static uint64_t kept_frames;

static bool find_module(struct hl_unwind *unwind, uint64_t pc, struct hl_unwind_module *ret_module)
{
	struct dl_find_object found;
	(void)unwind;
	if (_dl_find_object((void *)pc, &found))
		return false;
	*ret_module = (struct hl_unwind_module){
		.id = 1,
		.start = (uint64_t)found.dlfo_map_start,
		.end = (uint64_t)found.dlfo_map_end,
		.eh_frame_hdr = found.dlfo_eh_frame,
	};
	return true;
}

static NOINLINE void leaf(void)
{
	const uint64_t *frame = __builtin_frame_address(0);
	struct hl_registers at = {frame[1], (uint64_t)(frame + 2), frame[0]};
	if (work == WORK_CALLS)
		return;
	if (work == WORK_FRESH)
		walk.depth = 0;
	kept_frames += hl_walk_capture(&unwinder, &walk, &at);
}

/* Eight functions that differ in the size of their frames; which calls which is the path's choice.
 */
static void branch(unsigned depth, uint64_t path);

#define DEFINE_BRANCH(n)                                               \
	static NOINLINE void branch_##n(unsigned depth, uint64_t path) \
	{                                                              \
		volatile char frame[16 + 24 * n];                      \
		frame[n] = (char)depth;                                \
		if (depth)                                             \
			branch(depth - 1, path >> PATH_BITS);          \
		else                                                   \
			leaf();                                        \
		sink = sink + (unsigned)frame[n];                      \
	}

DEFINE_BRANCH(0)
DEFINE_BRANCH(1)
DEFINE_BRANCH(2)
DEFINE_BRANCH(3)
DEFINE_BRANCH(4)
DEFINE_BRANCH(5)
DEFINE_BRANCH(6)
DEFINE_BRANCH(7)

static inline __attribute__((always_inline)) void branch(unsigned depth, uint64_t path)
{
	static void (*const branches[BRANCHES])(unsigned, uint64_t) = {
		branch_0, branch_1, branch_2, branch_3, branch_4, branch_5, branch_6, branch_7,
	};
	branches[path % BRANCHES](depth, path);
}

static uint64_t paths[PATHS];

static double now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static NOINLINE double time_captures(void)
{
	double start = now_ns();
	for (unsigned i = 0; i < CAPTURES; i++) {
		uint64_t path = paths[i % PATHS];
		unsigned varying = VARY_MIN + (unsigned)(path >> 40) % (VARY_MAX - VARY_MIN + 1);
		branch(varying - 1, path);
	}
	return (now_ns() - start) / CAPTURES;
}

static NOINLINE double at_depth(unsigned outer)
{
	volatile unsigned here = outer;
	double ns = outer ? at_depth(outer - 1) : time_captures();
	sink = sink + here;
	return ns;
}

static double best_of_runs(enum work of, unsigned outer)
{
	double best = 1e9;
	work = of;
	for (unsigned run = 0; run < RUNS; run++) {
		double ns = at_depth(outer);
		if (ns < best)
			best = ns;
	}
	return best;
}

static void measure(unsigned frames)
{
	/* The stack has main, the C library's two, _start and the frames that time it as well. */
	const unsigned around = 8, middle = (VARY_MIN + VARY_MAX) / 2;
	unsigned outer = frames > around + middle ? frames - around - middle : 0;
	double calls = best_of_runs(WORK_CALLS, outer);
	kept_frames = 0;
	double memoized = best_of_runs(WORK_MEMOIZED, outer);
	double kept = (double)kept_frames / CAPTURES / RUNS;
	double fresh = best_of_runs(WORK_FRESH, outer);
	printf("%u frames: %.1f ns a capture (%.1f frames kept), %.1f ns without memory\n", frames,
	       memoized - calls, kept, fresh - calls);
}

int main(void)
{
	uint64_t random = 88172645463325252;
	unwinder.find_module = find_module;
	for (unsigned i = 0; i < PATHS; i++) {
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		paths[i] = random;
	}
	measure(9);
	measure(24);
	measure(64);
	return 0;
}
