/* SPDX-License-Identifier: BSD-2-Clause */
/* Logs of random intervals, and what must be read of them. */
#pragma once

#include "../log_directory.h"
#include "log/log_writer.h"
#include "log/segment.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "temporary.h"

#define NODES	  300
#define INTERVALS 400
#define PROCESS	  3
#define START_NS  UINT64_C(1767225600000000000)

/* ---- names: node i lies below node i / 2, and there are more modules from time to time ---- */

struct names {
	struct hl_log_names base;
	uint32_t modules;
	char path[32];
};

static inline bool name_node(const struct hl_log_names *base, uint32_t node, uint64_t *ret_frame,
			     uint32_t *ret_parent)
{
	(void)base;
	*ret_frame = UINT64_C(1) << 48 | (0x1000 + node);
	*ret_parent = node / 2;
	return node < NODES;
}

static inline uint32_t count_modules(const struct hl_log_names *base)
{
	return ((const struct names *)base)->modules;
}

static inline bool name_module(const struct hl_log_names *base, uint32_t module,
			       struct hl_log_module *ret_module)
{
	struct names *names = (struct names *)base;

	snprintf(names->path, sizeof(names->path), "/lib/%u.so", module);
	*ret_module = (struct hl_log_module){.path = names->path,
					     .start = module * 0x100000,
					     .end = module * 0x100000 + 0x1000,
					     .load_bias = module,
					     .build_id = {0xab, (uint8_t)module},
					     .build_id_bytes = 2};
	return true;
}

/* ---- a log of random intervals, and what it must say ---- */

struct moment {
	bool written;
	int64_t max[NODES], end[NODES];
	int64_t max_total, end_total;
};

struct lab {
	char directory[64];
	int fd;
	struct names names;
	struct hl_intervals intervals;
	struct hl_log_writer *writer;
	struct moment *moments;
	int64_t held[NODES];
};

static inline struct lab *lab_new(uint64_t segment_bytes, uint32_t kept)
{
	struct lab *lab = calloc(1, sizeof(*lab));

	assert_int_equal(make_temporary(lab->directory), 0);
	lab->fd = open(lab->directory, O_RDONLY | O_DIRECTORY);
	lab->moments = calloc(INTERVALS, sizeof(*lab->moments));
	lab->names = (struct names){
		{.node = name_node, .module_count = count_modules, .module = name_module}, 1, ""};
	struct hl_log_settings settings = {lab->fd,	  PROCESS, START_NS,
					   segment_bytes, kept,	   &lab->names.base};
	assert_int_equal(hl_log_writer_new(&settings, &lab->writer), 0);
	return lab;
}

static inline void lab_free(struct lab *lab)
{
	hl_log_writer_finish(lab->writer);
	hl_intervals_release(&lab->intervals);
	close(lab->fd);
	assert_int_equal(remove_temporary(lab->directory), 0);
	free(lab->moments);
	free(lab);
}

static inline int64_t total_of(const int64_t *held)
{
	int64_t total = 0;

	for (int i = 0; i < NODES; i++)
		total += held[i];
	return total;
}

/* One interval of random events; what it is at its maximum and at its end goes to its moment. */
static inline void fill_interval(struct lab *lab, uint64_t number, int events)
{
	struct moment *moment = &lab->moments[number];

	memcpy(moment->max, lab->held, sizeof(lab->held));
	moment->max_total = total_of(lab->held);
	for (int i = 0; i < events; i++) {
		uint32_t node = 1 + (uint32_t)rand() % (NODES - 1);
		int64_t bytes = rand() % 3 || !lab->held[node] ? rand() % 5000 : -lab->held[node];
		hl_intervals_tick(&lab->intervals, number * HL_INTERVAL_TICKS + (uint64_t)i);
		assert_int_equal(
			hl_intervals_event(&lab->intervals, node, bytes, bytes < 0 ? -1 : 1), 0);
		lab->held[node] += bytes;
		if (total_of(lab->held) > moment->max_total) {
			moment->max_total = total_of(lab->held);
			memcpy(moment->max, lab->held, sizeof(lab->held));
		}
	}
	memcpy(moment->end, lab->held, sizeof(lab->held));
	moment->end_total = total_of(lab->held);
}

static inline int write_interval(struct lab *lab, uint64_t number)
{
	struct hl_log_interval interval;

	assert_int_equal(hl_intervals_end(&lab->intervals, number + 1, &interval), 0);
	int r = hl_log_writer_interval(lab->writer, &interval, 4096 * (number + 1), 0);
	lab->moments[number].written = r == 0;
	return r;
}

static inline void write_intervals(struct lab *lab, uint64_t first, uint64_t count)
{
	for (uint64_t number = first; number < first + count; number++) {
		lab->names.modules = 1 + (uint32_t)number / 50;
		/* Some are idle. */
		fill_interval(lab, number, number % 7 < 2 ? 0 : rand() % 20);
		assert_int_equal(write_interval(lab, number), 0);
	}
}

static inline struct hl_log *read_log(const struct lab *lab, unsigned jobs)
{
	struct hl_log_options options = {.jobs = jobs};
	struct hl_error err = {0};
	struct hl_log *log;

	if (open_log_in(lab->directory, PROCESS, &options, &log, &err) != 0)
		fail_msg("%s", err.text);
	return log;
}

/* ---- comparing ---- */

static inline void check_state(const struct hl_log *log, uint64_t number, enum hl_log_moment moment,
			       const int64_t *expected)
{
	struct hl_log_state *state;
	struct hl_error err = {0};

	if (hl_log_state_at(log, number, moment, &state, &err) != 0)
		fail_msg("%s", err.text);
	assert_int_equal(state->total_bytes, total_of(expected));
	for (uint32_t i = 1; i < NODES; i++) {
		int64_t found = i < state->node_count ? state->bytes[i] : 0;
		if (found != expected[i])
			fail_msg("interval %llu: node %u holds %lld instead of %lld",
				 (unsigned long long)number, i, (long long)found,
				 (long long)expected[i]);
		if (!found)
			continue;
		assert_true(state->nodes[i].defined);
		assert_int_equal(state->nodes[i].parent, i / 2);
		assert_int_equal(state->nodes[i].frame, UINT64_C(1) << 48 | (0x1000 + i));
		assert_true(i < 2 || state->nodes[i / 2].defined);
	}
	assert_string_equal(state->modules[0].path, "/lib/1.so");
	hl_log_state_free(state);
}

static inline void check_points(const struct lab *lab, const struct hl_log *log)
{
	for (size_t i = 0; i < log->point_count; i++) {
		const struct hl_log_point *point = &log->points[i];
		assert_int_equal(point->number, log->points[0].number + i);
		if (point->missing)
			continue;
		assert_int_equal(point->max_bytes, lab->moments[point->number].max_total);
		assert_int_equal(point->end_bytes, lab->moments[point->number].end_total);
		check_state(log, point->number, HL_LOG_AT_MAX, lab->moments[point->number].max);
		check_state(log, point->number, HL_LOG_AT_END, lab->moments[point->number].end);
	}
}

/* The name of the ${index}th segment, in order. */
static inline void segment_path(const struct lab *lab, int index, char *path, size_t size)
{
	struct dirent **entries;
	int count = scandir(lab->directory, &entries, NULL, alphasort), found = 0;

	path[0] = '\0';
	for (int i = 0; i < count; i++) {
		if (!strncmp(entries[i]->d_name, "memlog-", 7) && found++ == index)
			snprintf(path, size, "%s/%s", lab->directory, entries[i]->d_name);
		free(entries[i]);
	}
	free(entries);
}

/* Points ${first} to ${last} of the log are missing, and no other. */
static inline void check_hole(const struct hl_log *log, uint64_t first, uint64_t last)
{
	for (size_t i = 0; i < log->point_count; i++) {
		const struct hl_log_point *point = &log->points[i];
		assert_int_equal(point->missing, point->number >= first && point->number <= last);
		if (!point->missing)
			continue;
		assert_int_equal(point->max_bytes, log->points[i - 1].end_bytes);
		assert_int_equal(point->end_bytes, log->points[i - 1].end_bytes);
	}
}

/* Of small segments, without idle intervals, and finished. */
static inline struct lab *lab_with_segments(unsigned seed)
{
	struct lab *lab = lab_new(2000, 1000);

	srand(seed);
	for (uint64_t number = 0; number < 100; number++) {
		fill_interval(lab, number, 10);
		assert_int_equal(write_interval(lab, number), 0);
	}
	assert_int_equal(hl_log_writer_finish(lab->writer), 0);
	lab->writer = NULL;
	return lab;
}

static inline void limit_files(rlim_t bytes)
{
	struct rlimit limit;

	getrlimit(RLIMIT_FSIZE, &limit);
	limit.rlim_cur = bytes;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}
