/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Prints what the log of a process in a recording says, as JSON:
 *
 *	log_dump RECORDING SEQUENCE			the log: its points, losses, segments
 *	log_dump RECORDING SEQUENCE NUMBER max|end	what was in use in that interval
 *	log_dump RECORDING SEQUENCE last max|end	the same of the last one
 *	log_dump RECORDING SEQUENCE counters		what the counters have in use
 *
 * The last three are stacks of frame keys, outermost first, with bytes and objects; those without
 * either are left out.
 */
#include "../log_directory.h"
#include "recording/recording.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 2048

struct tree {
	struct hl_log_node *nodes; /* by id */
	int64_t *bytes, *objects;
	size_t node_count;
};

static void fail(const char *sentence)
{
	fprintf(stderr, "log_dump: %s\n", sentence);
	exit(1);
}

static void print_stack(const struct tree *tree, size_t id)
{
	uint64_t frames[DEPTH_MAX];
	size_t depth = 0;

	for (; id && depth < DEPTH_MAX; id = tree->nodes[id].parent)
		frames[depth++] = tree->nodes[id].frame;
	while (depth--)
		printf("%" PRIx64 "%s", frames[depth], depth ? ";" : "");
}

static void print_tree(const struct tree *tree)
{
	const char *separator = "";

	printf("{\"stacks\": [");
	for (size_t id = 1; id < tree->node_count; id++) {
		if (!tree->bytes[id] && !tree->objects[id])
			continue;
		printf("%s\n[\"", separator);
		print_stack(tree, id);
		printf("\", %" PRId64 ", %" PRId64 "]", tree->bytes[id], tree->objects[id]);
		separator = ",";
	}
	printf("]}\n");
}

/* ---- the counters ---- */

static const struct hl_recording_process *find_process(const struct hl_recording *recording,
						       uint32_t sequence)
{
	for (uint32_t i = 0; i < recording->process_count; i++)
		if (recording->processes[i].sequence == sequence)
			return &recording->processes[i];
	fail("no such process");
	return NULL;
}

static struct tree count_values(const struct hl_recording_process *process)
{
	size_t count = process->node_count + (size_t)1;
	struct tree tree = {
		.nodes = calloc(count, sizeof(*tree.nodes)),
		.bytes = calloc(count, sizeof(*tree.bytes)),
		.objects = calloc(count, sizeof(*tree.objects)),
		.node_count = count,
	};

	if (!tree.nodes || !tree.bytes || !tree.objects)
		fail("out of memory");
	for (uint32_t i = 0; i < process->node_count; i++)
		tree.nodes[i + 1] = (struct hl_log_node){process->nodes[i].frame,
							 process->nodes[i].parent, true};
	for (uint32_t i = 0; i < process->value_count; i++) {
		const struct hl_recording_value *value = &process->values[i];
		tree.bytes[value->node] += (int64_t)(value->alloc_bytes - value->free_bytes);
		tree.objects[value->node] += (int64_t)(value->alloc_objects - value->free_objects);
	}
	return tree;
}

static void dump_counters(const char *path, uint32_t sequence)
{
	struct hl_recording *recording;
	struct hl_error err = {0};

	if (hl_recording_open(path, &recording, &err) < 0)
		fail(err.text);
	struct tree tree = count_values(find_process(recording, sequence));
	print_tree(&tree);
	free(tree.nodes);
	free(tree.bytes);
	free(tree.objects);
	hl_recording_free(recording);
}

/* ---- the log ---- */

static void print_points(const struct hl_log *log)
{
	printf("{\"lost_events\": %" PRIu64 ", \"missing\": %" PRIu64 ", \"segments\": %" PRIu32
	       ", \"ignored\": %" PRIu32 ", \"cut_off\": %s, \"points\": [",
	       log->lost_events, log->missing_count, log->segment_count, log->ignored_count,
	       log->cut_off ? "true" : "false");
	for (size_t i = 0; i < log->point_count; i++) {
		const struct hl_log_point *point = &log->points[i];
		printf("%s\n{\"number\": %" PRIu64 ", \"max_bytes\": %" PRId64
		       ", \"end_bytes\": %" PRId64 ", \"rss_bytes\": %" PRIu64 ", \"missing\": %s}",
		       i ? "," : "", point->number, point->max_bytes, point->end_bytes,
		       point->rss_bytes, point->missing ? "true" : "false");
	}
	printf("]}\n");
}

static void print_state(const struct hl_log *log, const char *number, enum hl_log_moment moment)
{
	struct hl_error err = {0};
	struct hl_log_state *state;
	uint64_t interval = strtoull(number, NULL, 10);

	if (!strcmp(number, "last") && log->point_count)
		interval = log->points[log->point_count - 1].number;
	if (hl_log_state_at(log, interval, moment, &state, &err) < 0)
		fail(err.text);
	struct tree tree = {state->nodes, state->bytes, state->objects, state->node_count};
	print_tree(&tree);
	hl_log_state_free(state);
}

int main(int argc, char **argv)
{
	struct hl_log *log;
	struct hl_error err = {0};

	if (argc < 3)
		fail("usage: log_dump RECORDING SEQUENCE [NUMBER|last max|end | counters]");
	uint32_t sequence = (uint32_t)strtoul(argv[2], NULL, 10);
	if (argc == 4) {
		dump_counters(argv[1], sequence);
		return 0;
	}
	if (open_log_in(argv[1], sequence, &(struct hl_log_options){0}, &log, &err) < 0)
		fail(err.text[0] ? err.text : "no log");
	if (argc == 5)
		print_state(log, argv[3], !strcmp(argv[4], "max") ? HL_LOG_AT_MAX : HL_LOG_AT_END);
	else
		print_points(log);
	hl_log_free(log);
	return 0;
}
