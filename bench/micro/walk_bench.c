/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Prints what hl_walk_capture costs, in ns, on stacks of 9, 24 and 64 frames of which the innermost
 * 3 to 7 change from one capture to the next; beside it a walk that remembers nothing.
 *
 * The cost of the calls themselves is measured without a capture and subtracted. Best of some runs.
 */
#include "base/compiler.h"
#include "unwind/unwind.h"

#include "paths.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CAPTURES 200000u
#define RUNS	 7

enum work { WORK_CALLS, WORK_MEMOIZED, WORK_FRESH };

static struct hl_unwind unwinder;
static struct hl_walk walk;
static enum work work;
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

static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static NOINLINE double time_captures(void)
{
	double start = now_ns();

	for (unsigned i = 0; i < CAPTURES; i++)
		walk_path(paths[i % PATHS]);
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
	unwinder.find_module = find_module;
	make_paths();
	measure(9);
	measure(24);
	measure(64);
	return 0;
}
