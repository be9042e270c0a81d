/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shows what the stack walker of BPF programs finds, for tests: every stack at a place in a
 * program's code, or at its page faults, with how often it was there.
 *
 *	walk_trace PID FILE OFFSET   at the function whose first byte is at OFFSET of FILE
 *	walk_trace PID faults        at page faults
 *
 * Says "ready" when it looks, and ends at the end of its standard input. Then each line is a count
 * and the stack's lookup pcs, outermost first, as FILE+ADDRESS; lines of losses begin with '#'.
 */
#include "bpf/walk_test_shared.h"
#include "bpf/walker.h"

#include "walk_test.skel.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NODES_MAX (1u << 22)

static const char *const loss_names[HL_LOSS_COUNT] = {
	[HL_LOSS_BUSY] = "busy",	   [HL_LOSS_STALE] = "stale",
	[HL_LOSS_NO_STACK] = "no-stack",   [HL_LOSS_RING] = "ring",
	[HL_LOSS_TRUNCATED] = "truncated", [HL_LOSS_INCOMPLETE] = "incomplete",
};

struct trace {
	struct hl_target *target;
	struct hl_walker *walker;
	struct walk_test *skeleton;
	uint64_t unknown; /* events without a stack */
	uint64_t *counts; /* by node */
};

static void fail(const char *what, const char *reason)
{
	fprintf(stderr, "walk_trace: %s: %s\n", what, reason);
	exit(1);
}

static int count_event(void *context, const struct hl_record_header *header, size_t bytes)
{
	struct trace *trace = context;
	const struct hl_walk_test_record *record = (const struct hl_walk_test_record *)header;
	uint32_t node = bytes < sizeof(*record) ? 0 : hl_walker_node(trace->walker, record->stack);
	if (node && node < NODES_MAX)
		trace->counts[node]++;
	else
		trace->unknown++;
	return 0;
}

static void load(struct trace *trace, pid_t pid)
{
	struct hl_error err = {{0}};
	trace->counts = calloc(NODES_MAX, sizeof(*trace->counts));
	if (hl_target_new(pid, &trace->target, &err) < 0)
		fail("target", err.text);
	trace->skeleton = walk_test__open();
	if (!trace->skeleton)
		fail("open", strerror(errno));
	if (hl_walker_new(trace->target, trace->skeleton->obj, count_event, trace, &trace->walker,
			  &err) < 0)
		fail("walker", err.text);
	if (walk_test__load(trace->skeleton) < 0)
		fail("load", strerror(errno));
	if (hl_walker_start(trace->walker, &err) < 0)
		fail("start", err.text);
}

static void attach(struct trace *trace, pid_t pid, int argc, char **argv)
{
	struct walk_test *skeleton = trace->skeleton;
	if (argc == 4) {
		skeleton->links.at_entry =
			bpf_program__attach_uprobe(skeleton->progs.at_entry, false, pid, argv[2],
						   strtoul(argv[3], NULL, 0));
		if (!skeleton->links.at_entry)
			fail("attach", strerror(errno));
		return;
	}
	skeleton->links.at_fault_user = bpf_program__attach(skeleton->progs.at_fault_user);
	skeleton->links.at_fault_kernel = bpf_program__attach(skeleton->progs.at_fault_kernel);
	if (!skeleton->links.at_fault_user || !skeleton->links.at_fault_kernel)
		fail("attach", strerror(errno));
}

/* Until standard input ends; -ESRCH says that the target has, which is fine. */
static void run(struct trace *trace)
{
	struct hl_error err = {{0}};
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
	while (poll(&input, 1, 0) == 0) {
		int r = hl_walker_poll(trace->walker, 10, &err);
		if (r < 0 && r != -ESRCH)
			fail("poll", err.text[0] ? err.text : strerror(-r));
	}
	walk_test__detach(trace->skeleton);
	hl_walker_poll(trace->walker, 0, NULL);
}

static void print_stack(const struct trace *trace, uint32_t node)
{
	uint32_t node_count;
	const struct hl_recording_node *nodes = hl_walker_nodes(trace->walker, &node_count);
	uint64_t frame = nodes[node - 1].frame, pc = frame & HL_FRAME_PC_MASK;
	if (nodes[node - 1].parent) {
		print_stack(trace, nodes[node - 1].parent);
		putchar(' ');
	}
	if (frame >> HL_MODULE_SHIFT == HL_MODULE_NONE) {
		printf("?+%#lx", pc);
		return;
	}
	const struct hl_recording_module *module =
		&trace->target->modules[(frame >> HL_MODULE_SHIFT) - 1];
	printf("%s+%#lx", module->path, pc - module->load_bias);
}

static void print_all(const struct trace *trace)
{
	struct hl_walker_losses losses;
	uint32_t node_count;
	hl_walker_nodes(trace->walker, &node_count);
	for (uint32_t node = 1; node <= node_count && node < NODES_MAX; node++) {
		if (!trace->counts[node])
			continue;
		printf("%lu ", trace->counts[node]);
		print_stack(trace, node);
		putchar('\n');
	}
	if (hl_walker_losses(trace->walker, &losses) < 0)
		fail("losses", "cannot be read");
	for (int loss = 0; loss < HL_LOSS_COUNT; loss++)
		if (losses.walk.count[loss])
			printf("# %s %lu\n", loss_names[loss], losses.walk.count[loss]);
	if (losses.files_lost)
		printf("# files-lost %lu\n", losses.files_lost);
	if (trace->unknown)
		printf("# unknown %lu\n", trace->unknown);
}

int main(int argc, char **argv)
{
	struct trace trace = {0};
	if (argc != 3 && argc != 4)
		fail("usage", "walk_trace PID FILE OFFSET | walk_trace PID faults");
	pid_t pid = (pid_t)atoi(argv[1]);
	load(&trace, pid);
	attach(&trace, pid, argc, argv);
	puts("ready");
	fflush(stdout);
	run(&trace);
	print_all(&trace);
	hl_walker_free(trace.walker);
	walk_test__destroy(trace.skeleton);
	hl_target_free(trace.target);
	free(trace.counts);
	return 0;
}
