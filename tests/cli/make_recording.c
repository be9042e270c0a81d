/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writes small recordings with known figures for the tests of the command line, and large ones to
 * time them by hand: make_recording CASE NAME.hl
 *
 * Their modules do not exist, so every function is called after its address.
 */
#include "make_log.h"

#include "base/frame_key.h"
#include "recording/recording.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FRAME(module, pc) ((uint64_t)(module) << 48 | (pc))

#define APP_BASE 0x555500000000u
#define LIB_BASE 0x7f0000000000u

static struct hl_recording_module shop_modules[] = {
	{"/opt/shop/bin/shop", APP_BASE, APP_BASE + 0x10000, APP_BASE, {0xab, 0xcd}, 2, {0}},
	{"/opt/shop/lib/libcart.so.1",
	 LIB_BASE,
	 LIB_BASE + 0x10000,
	 LIB_BASE,
	 {0x12, 0x34},
	 2,
	 {0}},
};

/* main -> cart -> item;  main -> parse -> parse -> parse;  an address outside of modules */
static struct hl_recording_node shop_nodes[] = {
	{FRAME(1, APP_BASE + 0x1100), 0}, /* 1: main */
	{FRAME(2, LIB_BASE + 0x2200), 1}, /* 2: cart */
	{FRAME(2, LIB_BASE + 0x2300), 2}, /* 3: item */
	{FRAME(1, APP_BASE + 0x1400), 1}, /* 4: parse */
	{FRAME(1, APP_BASE + 0x1400), 4}, /* 5: parse */
	{FRAME(1, APP_BASE + 0x1400), 5}, /* 6: parse */
	{FRAME(0, 0xdead0000), 1},	  /* 7: code without a file */
};

/* Primes, so that a figure says where it comes from. */
static struct hl_recording_value shop_values[] = {
	{.node = 3,
	 .alloc_bytes = 1000003,
	 .alloc_objects = 1009,
	 .free_bytes = 900001,
	 .free_objects = 907,
	 .slack_bytes = 101,
	 .peak_bytes = 700001,
	 .peak_objects = 701},
	{.node = 6,
	 .thread = 1,
	 .alloc_bytes = 500009,
	 .alloc_objects = 503,
	 .free_bytes = 500009,
	 .free_objects = 503,
	 .temporary_objects = 499,
	 .peak_bytes = 30011,
	 .peak_objects = 31},
	{.node = 4,
	 .alloc_bytes = 70001,
	 .alloc_objects = 71,
	 .slack_bytes = 7,
	 .peak_bytes = 70001,
	 .peak_objects = 71},
	{.node = 7, .alloc_bytes = 13, .alloc_objects = 1, .peak_bytes = 13, .peak_objects = 1},
};

static struct hl_recording_thread shop_threads[] = {{.tid = 4711, .name = "shop"},
						    {.tid = 4712, .name = "parser"}};

static char *shop_command[] = {"shop", "--sell", "two words", NULL};
static char *helper_command[] = {"shop-helper", NULL};

static struct hl_recording_process shop_process(void)
{
	return (struct hl_recording_process){
		.pid = 4711,
		.parent_pid = 4700,
		.executable = "/opt/shop/bin/shop",
		.command = shop_command,
		.start_realtime_ns = 1767225600000000000u,
		.duration_ns = 2500000000u,
		.complete = true,
		.end = HL_END_EXITED,
		.end_status = 0,
		.module_count = 2,
		.node_count = 7,
		.value_count = 4,
		.thread_count = 2,
		.modules = shop_modules,
		.nodes = shop_nodes,
		.values = shop_values,
		.threads = shop_threads,
	};
}

static struct hl_recording_process second_process(void)
{
	struct hl_recording_process process = shop_process();

	process.pid = 4720;
	process.parent_pid = 4711;
	process.sequence = 1;
	process.command = helper_command;
	process.end = HL_END_SIGNALED;
	process.end_status = 9;
	return process;
}

static struct hl_recording_process empty_process(void)
{
	struct hl_recording_process process = shop_process();

	process.module_count = process.node_count = process.value_count = 0;
	return process;
}

/* The nodes of shop, and below those that allocate one for each class of sizes. */
static struct hl_recording_process sized_process(void)
{
	static struct hl_recording_node nodes[13];
	static struct hl_recording_value values[] = {
		{8, 0, 900001, 950, 830001, 870, 0, 96, 640001, 660},
		{9, 0, 100002, 59, 70000, 37, 0, 5, 60000, 41},
		{10, 1, 500009, 503, 500009, 503, 499, 0, 30011, 31},
		{11, 0, 0, 10, 0, 0, 0, 0, 0, 10},
		{12, 0, 70001, 61, 0, 0, 0, 7, 70001, 61},
		{13, 0, 13, 1, 0, 0, 0, 0, 13, 1},
	};

	static const struct {
		uint32_t parent, size;
	} children[] = {{3, 1000}, {3, 2000}, {6, 1000}, {4, 0}, {4, 1024}, {7, 13}};
	struct hl_recording_process process = shop_process();

	memcpy(nodes, shop_nodes, sizeof(shop_nodes));
	for (size_t i = 0; i < HL_COUNT_OF(children); i++)
		nodes[process.node_count++] = (struct hl_recording_node){
			hl_size_frame_key(hl_size_class(children[i].size)), children[i].parent};
	process.nodes = nodes;
	process.values = values;
	process.value_count = HL_COUNT_OF(values);
	return process;
}

/* What ${process} is later: parse has leaked since, but the peak was before. */
static struct hl_recording_process leaking_process(struct hl_recording_process process)
{
	static struct hl_recording_value values[4];

	memcpy(values, shop_values, sizeof(values));
	values[2].alloc_bytes += 20011;
	values[2].alloc_objects += 23;
	process.values = values;
	process.duration_ns += 1000000000u;
	return process;
}

/* What 'heapline pgfault' keeps: pages by the stacks of shop, and such as have none. More of those
 * that were there before went than came. */
static struct hl_recording_process paged_process(void)
{
	static struct hl_recording_node nodes[9];
	static struct hl_recording_value values[] = {
		{.node = 3, .alloc_bytes = 4096 * 1009, .alloc_objects = 1009},
		{.node = 6,
		 .alloc_bytes = 4096 * 503,
		 .alloc_objects = 503,
		 .free_bytes = 4096 * 499,
		 .free_objects = 499},
		{.node = 8, .free_bytes = 4096 * 1201, .free_objects = 1201},
		{.node = 9, .alloc_bytes = 4096 * 17, .alloc_objects = 17},
	};
	struct hl_recording_process process = shop_process();

	memcpy(nodes, shop_nodes, sizeof(shop_nodes));
	nodes[7].frame = hl_pseudo_frame_key(HL_PSEUDO_RELEASED);
	nodes[8].frame = hl_pseudo_frame_key(HL_PSEUDO_NO_FAULT);
	process.nodes = nodes;
	process.node_count = HL_COUNT_OF(nodes);
	process.values = values;
	process.value_count = HL_COUNT_OF(values);
	process.thread_count = 1;
	process.end = HL_END_RUNNING;
	return process;
}

static struct hl_recording_figure paged_figures[] = {
	{"pages", -171},	   {"rss_growth_pages", -171},	    {"released_pages", 1201},
	{"probe_cost_percent", 3}, {"table_memory_bytes", 1 << 20},
};

/* Twenty thousand places, nodes at depths of up to 64, every third with figures of its own. */
static struct hl_recording_process large_process(uint32_t node_count)
{
	struct hl_recording_process process = shop_process();
	uint32_t seed = 1;

	process.node_count = node_count;
	process.nodes = calloc(node_count, sizeof(*process.nodes));
	process.values = calloc(node_count, sizeof(*process.values));
	process.value_count = 0;
	uint8_t *depths = calloc(node_count, sizeof(*depths));
	if (!process.nodes || !process.values || !depths)
		abort();
	for (uint32_t i = 0; i < node_count; i++) {
		seed = seed * 1664525u + 1013904223u;
		uint32_t back = 1 + (seed >> 8) % 64;
		uint64_t pc = APP_BASE + 16 * ((seed >> 4) % 20000);
		uint32_t parent = i < back || depths[i - back] == 64 ? 0 : i + 1 - back;
		depths[i] = (uint8_t)(parent ? depths[parent - 1] + 1 : 1);
		process.nodes[i] = (struct hl_recording_node){FRAME(1, pc), parent};
		if (i % 3 == 0)
			process.values[process.value_count++] =
				(struct hl_recording_value){.node = i + 1,
							    .alloc_bytes = seed % 4096,
							    .alloc_objects = 1,
							    .peak_bytes = seed % 4096,
							    .peak_objects = 1};
	}
	return process;
}

/* A day, and two thousand nodes. */
static struct hl_recording_process day_process(void)
{
	struct hl_recording_process process = large_process(2000);

	process.duration_ns = 86400000000000u;
	return process;
}

static struct hl_recording base_recording(const char *directory)
{
	return (struct hl_recording){
		.name = (char *)directory,
		.format_version = 1,
		.tool_version = "0.1.0",
		.command = shop_command,
		.host = "till",
		.kernel = "Linux 6.1.0",
		.mode = "mem-fast",
		.start_realtime_ns = 1767225600000000000u,
		.duration_ns = 2600000000u,
		.complete = true,
	};
}

typedef int write_log(int directory_fd, const struct hl_recording_process *process);

/* ${log}: of the first process; NULL: there is none. */
static int write_recording(const char *directory, struct hl_recording *recording, write_log *log)
{
	struct hl_error err = {0};

	recording->ended_processes = recording->process_count;
	if (mkdir(directory, 0777) < 0)
		return -1;
	int fd = open(directory, O_RDONLY | O_DIRECTORY);
	int r = hl_recording_write_meta(fd, recording, &err);
	for (uint32_t i = 0; r == 0 && i < recording->process_count; i++) {
		recording->processes[i].recording_start_ns = recording->start_realtime_ns;
		r = hl_recording_write_process(fd, &recording->processes[i], &err);
	}
	if (r < 0)
		fprintf(stderr, "make_recording: %s\n", err.text);
	if (r == 0 && log)
		r = log(fd, &recording->processes[0]);
	close(fd);
	return r;
}

static char *warnings[] = {"the disk was full for 3 s", NULL};

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	const char *wanted = argv[1];
	static struct hl_recording_mark switches[] = {{4711, 500, "mode closed"},
						      {4711, 900, "mode mem-record"},
						      {4711, 1300, "sold out"},
						      {4711, 1700, "mode mem-fast"}};
	struct hl_recording recording = base_recording(argv[2]);
	struct hl_recording_process processes[2] = {shop_process(), second_process()};
	write_log *log = NULL;

	recording.processes = processes;
	recording.process_count = 1;
	if (!strcmp(wanted, "two")) {
		recording.process_count = 2;
	} else if (!strcmp(wanted, "none")) {
		recording.process_count = 0;
	} else if (!strcmp(wanted, "early")) {
		recording.process_count = 0;
		recording.complete = false;
	} else if (!strcmp(wanted, "empty")) {
		processes[0] = empty_process();
	} else if (!strcmp(wanted, "own-malloc")) {
		processes[0] = empty_process();
		processes[0].own_malloc = true;
	} else if (!strcmp(wanted, "lossy")) {
		recording.complete = processes[0].complete = false;
		recording.warnings = warnings;
		recording.sample_bytes = 524288;
		shop_values[1].temporary_objects = 0; /* samples tell of none */
		processes[0].end = HL_END_RUNNING;
		processes[0].lost = (struct hl_lost){3, 4096, 5, 1, 17, 19, 7, 2, 0, 23};
		recording.unrecorded_children = 23;
	} else if (!strcmp(wanted, "replaced")) {
		recording.process_count = 2;
		processes[0].end = processes[1].end = HL_END_EXEC;
		processes[0].successor = "perl";
	} else if (!strcmp(wanted, "switched")) {
		recording.mode = "mem-record";
		recording.marks = switches;
		recording.mark_count = HL_COUNT_OF(switches);
	} else if (!strcmp(wanted, "snapshot") || !strcmp(wanted, "later-snapshot")) {
		recording.complete = processes[0].complete = false;
		recording.snapshot = true;
		processes[0].end = HL_END_RUNNING;
		if (wanted[0] == 'l')
			processes[0] = leaking_process(processes[0]);
	} else if (!strcmp(wanted, "attached")) {
		recording.attached = true;
		processes[0].end = HL_END_RUNNING;
		processes[0].lost.unmatched_frees = 17;
	} else if (!strcmp(wanted, "leaking")) {
		processes[0] = leaking_process(processes[0]);
	} else if (!strcmp(wanted, "sized")) {
		processes[0] = sized_process();
	} else if (!strcmp(wanted, "paged")) {
		recording.mode = "pgfault";
		recording.figures = paged_figures;
		recording.figure_count = HL_COUNT_OF(paged_figures);
		processes[0] = paged_process();
	} else if (!strcmp(wanted, "logged")) {
		recording.mode = "log-fast";
		log = write_shop_log;
	} else if (!strcmp(wanted, "logged-later")) {
		recording.mode = "log-fast";
		recording.start_realtime_ns += UINT64_C(3600000000000);
		processes[0].start_realtime_ns += UINT64_C(3600000000000);
		log = write_shop_log;
	} else if (!strcmp(wanted, "two-logged")) {
		recording.mode = "log-fast";
		recording.process_count = 2;
		log = write_shop_log;
	} else if (!strcmp(wanted, "broken-log")) {
		recording.mode = "log-fast";
		log = write_broken_log;
	} else if (!strcmp(wanted, "begun")) {
		recording.mode = "log-fast";
		recording.complete = processes[0].complete = false;
		processes[0].end = HL_END_RUNNING;
	} else if (!strcmp(wanted, "day")) {
		recording.mode = "log-fast";
		processes[0] = day_process();
		log = write_day_log;
	} else if (!strcmp(wanted, "large")) {
		processes[0] = large_process(1000000);
	} else if (strcmp(wanted, "shop") != 0) {
		fprintf(stderr, "make_recording: no case '%s'\n", wanted);
		return 2;
	}
	return write_recording(argv[2], &recording, log) < 0;
}
