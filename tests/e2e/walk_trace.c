/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shows what the stack walker of BPF programs finds, for tests: every stack at the entry of some
 * functions of a file, or at page faults, with how often it was there.
 *
 *	walk_trace PID FILE FUNCTION...
 *	walk_trace PID faults
 *
 * Says "code" and the mappings that it knows of, at first and whenever they are others, then
 *"ready" once it looks, and ends at the end of its standard input. Then each line is a count and
 *the lookup pcs of the stack, outermost first, as FILE+ADDRESS; lines that begin with '#' are
 *losses.
 */
#include "bpf/walker.h"

#include "walk_test.skel.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const loss_names[HL_LOSS_COUNT] = {
	[HL_LOSS_BUSY] = "busy",	   [HL_LOSS_STALE] = "stale",
	[HL_LOSS_NO_STACK] = "no-stack",   [HL_LOSS_RING] = "ring",
	[HL_LOSS_TRUNCATED] = "truncated", [HL_LOSS_INCOMPLETE] = "incomplete",
};

struct trace {
	struct hl_target *target;
	struct hl_walker *walker;
	struct walk_test *skeleton;
};

static void fail(const char *what, const char *reason)
{
	fprintf(stderr, "walk_trace: %s: %s\n", what, reason);
	exit(1);
}

/* aarch64 has no tracepoints of faults. */
static void load(struct trace *trace, pid_t pid, bool at_faults)
{
	struct hl_error err = {{0}};
	uint32_t number;

	if (hl_target_new(pid, NULL, &trace->target, &err) < 0)
		fail("target", err.text);
	trace->skeleton = walk_test__open();
	if (!trace->skeleton)
		fail("open", strerror(errno));
	bpf_program__set_autoload(trace->skeleton->progs.at_fault_user, at_faults);
	bpf_program__set_autoload(trace->skeleton->progs.at_fault_kernel, at_faults);
	if (hl_walker_new(trace->skeleton->obj, 1, NULL, NULL, &trace->walker, &err) < 0 ||
	    hl_walker_add(trace->walker, trace->target, &number, &err) < 0)
		fail("walker", err.text);
	if (walk_test__load(trace->skeleton) < 0)
		fail("load", strerror(errno));
	if (hl_walker_start(trace->walker, &err) < 0)
		fail("start", err.text);
}

static void attach_function(struct trace *trace, pid_t pid, const char *file, const char *function)
{
	LIBBPF_OPTS(bpf_uprobe_opts, options, .func_name = function);
	if (!bpf_program__attach_uprobe_opts(trace->skeleton->progs.at_entry, pid, file, 0,
					     &options))
		fail(function, strerror(errno));
}

static void attach_faults(struct trace *trace)
{
	if (!bpf_program__attach(trace->skeleton->progs.at_fault_user) ||
	    !bpf_program__attach(trace->skeleton->progs.at_fault_kernel))
		fail("attach", strerror(errno));
}

static void say_mappings(const struct trace *trace)
{
	const struct hl_target *target = trace->target;

	printf("code");
	for (size_t i = 0; i < target->mapping_count; i++) {
		const struct hl_target_mapping *mapping = &target->mappings[i];
		if (mapping->module == HL_MODULE_SCRIPT) /* the page of the probes themselves */
			continue;
		printf(" %lx-%lx", mapping->start, mapping->end);
		if (mapping->module != HL_MODULE_NONE)
			printf(" %s", target->modules[mapping->module - 1].path);
	}
	putchar('\n');
	fflush(stdout);
}

/* Until standard input ends; -ESRCH says that the target has, which is fine. */
static void run(struct trace *trace)
{
	struct hl_error err = {{0}};
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};

	while (poll(&input, 1, 0) == 0) {
		uint64_t before = trace->target->changes;
		int r = hl_walker_poll(trace->walker, 10, &err);
		if (r < 0 && r != -ESRCH)
			fail("poll", err.text[0] ? err.text : strerror(-r));
		if (trace->target->changes != before)
			say_mappings(trace);
	}
	hl_walker_poll(trace->walker, 0, NULL);
}

static void print_stack(const struct trace *trace, uint32_t node)
{
	uint32_t node_count;
	const struct hl_recording_node *nodes = hl_walker_nodes(trace->walker, 1, &node_count);
	uint64_t frame = nodes[node - 1].frame, pc = frame & HL_FRAME_PC_MASK;

	if (nodes[node - 1].parent)
		print_stack(trace, nodes[node - 1].parent);
	if (frame >> HL_MODULE_SHIFT == HL_MODULE_NONE) {
		printf(" ?+%#lx", pc);
		return;
	}
	const struct hl_recording_module *module =
		&trace->target->modules[(frame >> HL_MODULE_SHIFT) - 1];
	printf(" %s+%#lx", module->path, pc - module->load_bias);
}

static void print_counts(const struct trace *trace)
{
	int map = bpf_map__fd(trace->skeleton->maps.stack_counts);
	uint64_t stack, count, *last = NULL;

	while (bpf_map_get_next_key(map, last, &stack) == 0) {
		last = &stack;
		if (bpf_map_lookup_elem(map, &stack, &count) < 0)
			fail("counts", strerror(errno));
		uint32_t node = hl_walker_node(trace->walker, stack, NULL);
		if (!node) {
			printf("# unknown %lu\n", count);
			continue;
		}
		printf("%lu", count);
		print_stack(trace, node);
		putchar('\n');
	}
}

static void print_losses(const struct trace *trace)
{
	struct hl_walker_losses losses;

	if (hl_walker_losses(trace->walker, &losses) < 0)
		fail("losses", "cannot be read");
	for (int loss = 0; loss < HL_LOSS_COUNT; loss++)
		if (losses.walk.count[loss])
			printf("# %s %lu\n", loss_names[loss], losses.walk.count[loss]);
	if (losses.files_lost)
		printf("# files-lost %lu\n", losses.files_lost);
}

int main(int argc, char **argv)
{
	struct trace trace = {0};

	if (argc < 3)
		fail("usage", "walk_trace PID FILE FUNCTION... | walk_trace PID faults");
	pid_t pid = (pid_t)atoi(argv[1]);
	load(&trace, pid, argc == 3);
	if (argc == 3)
		attach_faults(&trace);
	for (int i = 3; i < argc; i++)
		attach_function(&trace, pid, argv[2], argv[i]);
	say_mappings(&trace);
	puts("ready");
	fflush(stdout);
	run(&trace);
	print_counts(&trace);
	print_losses(&trace);
	hl_walker_free(trace.walker);
	walk_test__destroy(trace.skeleton);
	hl_target_free(trace.target);
	return 0;
}
