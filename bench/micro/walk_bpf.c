/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Prints what a walk of the stack by a BPF program costs, in ns of CPU time, on stacks of 10 to 87
 * frames: always the same stack, and stacks whose innermost 3 to 7 frames change from one to the
 * next.
 *
 * The probe sits on a nop, which the kernel emulates. What the probe costs with an empty program is
 * printed and subtracted. Best of some runs. As root.
 */
#include "base/clock.h"
#include "base/compiler.h"
#include "bpf/walker.h"

#include "paths.h"
#include "walk_test.skel.h"

#include <bpf/libbpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EVENTS 20000u
#define RUNS   9

static const unsigned depths[] = {10, 20, 25, 87};

struct costs {
	double same[HL_COUNT_OF(depths)], varying[HL_COUNT_OF(depths)];
};

/* What is probed. */
void walk_bpf_probed(void);
NOINLINE void walk_bpf_probed(void)
{
	__asm__ volatile("nop");
}

static inline __attribute__((always_inline)) void leaf(void)
{
	walk_bpf_probed();
}

static NOINLINE double time_events(unsigned path_count)
{
	uint64_t start = hl_clock_ns(CLOCK_PROCESS_CPUTIME_ID);

	for (unsigned i = 0; i < EVENTS; i++)
		walk_path(paths[i % path_count]);
	return (double)(hl_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - start) / EVENTS;
}

static NOINLINE double at_depth(unsigned outer, unsigned path_count)
{
	volatile unsigned here = outer;
	double ns = outer ? at_depth(outer - 1, path_count) : time_events(path_count);

	sink = sink + here;
	return ns;
}

static double best_of_runs(struct hl_walker *walker, unsigned outer, unsigned path_count)
{
	double best = 1e9;

	for (unsigned run = 0; run < RUNS; run++) {
		double ns = at_depth(outer, path_count);
		if (ns < best)
			best = ns;
		hl_walker_poll(walker, 0, NULL);
	}
	return best;
}

static void fail(const char *what, const char *reason)
{
	fprintf(stderr, "walk_bpf: %s: %s\n", what, reason);
	exit(1);
}

/* The costs of all events while ${program} is attached. */
static struct costs measure(struct hl_walker *walker, struct bpf_program *program)
{
	/* The stack has main, this, the C library's two, _start and the frames that time it too. */
	const unsigned around = 8, middle = (VARY_MIN + VARY_MAX) / 2;
	struct costs costs;

	LIBBPF_OPTS(bpf_uprobe_opts, options, .func_name = "walk_bpf_probed");
	struct bpf_link *link =
		bpf_program__attach_uprobe_opts(program, getpid(), "/proc/self/exe", 0, &options);
	if (!link)
		fail("attach", strerror(errno));
	for (size_t i = 0; i < HL_COUNT_OF(depths); i++) {
		unsigned outer = depths[i] > around + middle ? depths[i] - around - middle : 0;
		costs.same[i] = best_of_runs(walker, outer, 1);
		costs.varying[i] = best_of_runs(walker, outer, PATHS);
	}
	bpf_link__destroy(link);
	return costs;
}

static void print_costs(const struct costs *empty, const struct costs *walks)
{
	printf("an empty probe with its call: %.0f ns\n", empty->same[0]);
	for (size_t i = 0; i < HL_COUNT_OF(depths); i++)
		printf("%u frames: %.0f ns a walk of the same stack, %.0f ns of changing ones\n",
		       depths[i], walks->same[i] - empty->same[i],
		       walks->varying[i] - empty->varying[i]);
}

static void print_losses(const struct hl_walker *walker)
{
	struct hl_walker_losses losses;

	if (hl_walker_losses(walker, &losses) < 0)
		fail("losses", "cannot be read");
	for (int loss = 0; loss < HL_LOSS_COUNT; loss++)
		if (losses.walk.count[loss])
			printf("losses of kind %d: %lu\n", loss, losses.walk.count[loss]);
}

int main(void)
{
	struct hl_error err = {{0}};
	struct hl_target *target;
	struct hl_walker *walker = NULL;
	uint32_t number;

	make_paths();
	if (hl_target_new(getpid(), NULL, &target, &err) < 0)
		fail("target", err.text);
	struct walk_test *skeleton = walk_test__open();
	if (!skeleton || hl_walker_new(skeleton->obj, 1, NULL, NULL, &walker, &err) < 0 ||
	    hl_walker_add(walker, target, &number, &err) < 0)
		fail("open", err.text);
	if (walk_test__load(skeleton) < 0 || hl_walker_start(walker, &err) < 0)
		fail("load", err.text);
	struct costs empty = measure(walker, skeleton->progs.at_entry_empty);
	struct costs walks = measure(walker, skeleton->progs.at_entry_uncounted);
	print_costs(&empty, &walks);
	print_losses(walker);
	hl_walker_free(walker);
	walk_test__destroy(skeleton);
	hl_target_free(target);
	return 0;
}
