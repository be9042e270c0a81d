/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writes the log that a busy server leaves in a day: 864,000 intervals, in each of which about 50 of
 * 4,000 stack nodes changed. What is in use swings by the hour, and grows slowly.
 *
 * usage: day_of_log DIRECTORY [INTERVALS]
 *
 * DIRECTORY is that of a recording, whose process 0 gets the log; one that it has must be gone.
 */
#include "base/frame_key.h"
#include "log/log_writer.h"
#include "recording/recording.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INTERVALS_OF_DAY  UINT64_C(864000)
#define INTERVALS_OF_HOUR 36000.0
#define NODES		  4000u
#define CHANGED_MIN	  40u /* nodes in an interval */
#define CHANGED_SPREAD	  21u
#define EVENTS_OF_NODE	  3u
#define BLOCK_BYTES_MAX	  4096u
#define BLOCKS_MIDDLE	  200.0 /* that a node holds */
#define BLOCKS_SWING	  100.0
#define BLOCKS_GROWTH	  100.0 /* in a day */
#define SEGMENT_BYTES	  (UINT64_C(100) << 20)
#define SEGMENTS_KEPT	  10
#define LIBRARY		  "/lib/x86_64-linux-gnu/libc.so.6"
#define CODE_BEGIN	  0x28000u /* of that library */
#define CODE_STEP	  64u

struct day {
	struct hl_intervals intervals;
	struct hl_log_writer *writer;
	int64_t block_bytes[NODES], blocks[NODES]; /* of each node */
	uint64_t random;
};

static void must(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

/* ---- names: a tree in which each node calls two more ---- */

static bool name_node(const struct hl_log_names *names, uint32_t node, uint64_t *ret_frame,
		      uint32_t *ret_parent)
{
	(void)names;
	*ret_frame = UINT64_C(1) << HL_MODULE_SHIFT | (CODE_BEGIN + node * CODE_STEP);
	*ret_parent = node / 2;
	return node <= NODES;
}

static uint32_t count_modules(const struct hl_log_names *names)
{
	(void)names;
	return 1;
}

static bool name_module(const struct hl_log_names *names, uint32_t module,
			struct hl_log_module *ret_module)
{
	(void)names;
	*ret_module = (struct hl_log_module){.path = LIBRARY, .start = 0, .end = 0x200000};
	return module == 1;
}

/* ---- what happens ---- */

static uint32_t draw(struct day *day, uint32_t count)
{
	day->random ^= day->random << 13;
	day->random ^= day->random >> 7;
	day->random ^= day->random << 17;
	return (uint32_t)(day->random >> 20) % count;
}

/* How many blocks a node should hold at the time. */
static double wanted_blocks(uint64_t number)
{
	double hours = (double)number / INTERVALS_OF_HOUR;

	return BLOCKS_MIDDLE + BLOCKS_SWING * sin(hours * 2 * M_PI) + BLOCKS_GROWTH * hours / 24;
}

/* Allocates or frees a block, rather so that the node comes nearer to ${wanted}. */
static void change_node(struct day *day, uint32_t node, double wanted)
{
	double excess = (double)day->blocks[node] - wanted;
	bool is_free = day->blocks[node] && excess + draw(day, 100) - 50 > 0;
	int64_t sign = is_free ? -1 : 1;

	must(hl_intervals_event(&day->intervals, node + 1, sign * day->block_bytes[node], sign) ==
		     0,
	     "day_of_log");
	day->blocks[node] += sign;
}

static void write_interval(struct day *day, uint64_t number)
{
	struct hl_log_interval interval;
	uint32_t changed = CHANGED_MIN + draw(day, CHANGED_SPREAD);
	double wanted = wanted_blocks(number);

	for (uint32_t i = 0; i < changed; i++) {
		uint32_t node = draw(day, NODES);
		hl_intervals_tick(&day->intervals, number * HL_INTERVAL_TICKS + i);
		for (uint32_t k = 1 + draw(day, EVENTS_OF_NODE); k > 0; k--)
			change_node(day, node, wanted);
	}
	must(hl_intervals_end(&day->intervals, number + 1, &interval) == 0, "day_of_log");
	uint64_t rss_bytes = (uint64_t)interval.max_bytes / 4096 * 4096 + (16 << 20);
	must(hl_log_writer_interval(day->writer, &interval, rss_bytes, 0) == 0,
	     "day_of_log: cannot write");
}

/* A log belongs to the process of a recording that began when it did. */
static uint64_t start_of(const char *directory)
{
	struct hl_recording *recording;

	must(hl_recording_open(directory, &recording, NULL) == 0 && recording->process_count,
	     "day_of_log: there is no recording to write a log for");
	uint64_t start_ns = recording->processes[0].start_realtime_ns;
	hl_recording_free(recording);
	return start_ns;
}

static struct day *begin(const char *directory, const struct hl_log_names *names)
{
	struct day *day = calloc(1, sizeof(*day));

	must(day != NULL, "day_of_log");
	day->random = 88172645463325252;
	for (uint32_t i = 0; i < NODES; i++)
		day->block_bytes[i] = 1 + draw(day, BLOCK_BYTES_MAX);
	struct hl_log_settings settings = {
		.directory_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
		.start_realtime_ns = start_of(directory),
		.segment_bytes = SEGMENT_BYTES,
		.segments_kept = SEGMENTS_KEPT,
		.names = names,
	};
	must(settings.directory_fd >= 0, directory);
	must(hl_log_writer_new(&settings, &day->writer) == 0, "day_of_log");
	return day;
}

int main(int argc, char **argv)
{
	const struct hl_log_names names = {
		.node = name_node, .module_count = count_modules, .module = name_module};
	uint64_t intervals = argc > 2 ? strtoull(argv[2], NULL, 10) : INTERVALS_OF_DAY;

	if (argc < 2 || argc > 3 || intervals == 0) {
		fprintf(stderr, "usage: day_of_log DIRECTORY [INTERVALS]\n");
		return 2;
	}
	struct day *day = begin(argv[1], &names);
	for (uint64_t number = 0; number < intervals; number++)
		write_interval(day, number);
	must(hl_log_writer_finish(day->writer) == 0, "day_of_log: cannot write");
	hl_intervals_release(&day->intervals);
	free(day);
	return 0;
}
