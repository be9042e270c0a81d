/* SPDX-License-Identifier: BSD-2-Clause */
/* Events of blocks that a ledger knows, written to files, and compared with what is read of them.
 */
#pragma once

#include "../log_directory.h"
#include "log/events.h"
#include "log/log.h"
#include "log/log_writer.h"
#include "profile/event_reports.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "temporary.h"

#define NODES	  400
#define THREADS	  3
#define INTERVALS 120
#define EVENTS	  200 /* of an interval, on average */
#define PROCESS	  3
#define START_NS  UINT64_C(1767225600000000000)
#define ALL	  ((struct hl_event_range){0, INTERVALS * HL_INTERVAL_TICKS})

/* ---- names: node i lies below node i / 2 ---- */

static inline bool name_node(const struct hl_log_names *names, uint32_t node, uint64_t *ret_frame,
			     uint32_t *ret_parent)
{
	(void)names;
	*ret_frame = UINT64_C(1) << 48 | (0x1000 + node);
	*ret_parent = node / 2;
	return true;
}

static inline uint32_t count_modules(const struct hl_log_names *names)
{
	(void)names;
	return 1;
}

static inline bool name_module(const struct hl_log_names *names, uint32_t module,
			       struct hl_log_module *ret_module)
{
	(void)names;
	*ret_module = (struct hl_log_module){.path = "/lib/a.so", .start = module, .end = 0x9000};
	return true;
}

static const struct hl_log_names names = {
	.node = name_node, .module_count = count_modules, .module = name_module};

/* ---- a ledger of blocks, and the events that they make ---- */

struct block {
	uint32_t node;
	int64_t bytes;
	uint64_t born, died; /* ticks; died: UINT64_MAX while it lives */
};

struct entry {
	uint64_t tick;
	uint32_t thread;
	struct hl_event event;
};

struct lab {
	char directory[64];
	int fd;
	struct hl_event_writer *writer;
	struct hl_log_writer *log;
	struct hl_intervals intervals;
	struct block *blocks;
	size_t block_count;
	struct entry *entries;
	size_t entry_count;
	uint64_t seed;
	uint64_t missing; /* events, of the writer */
	int error;
};

static inline uint32_t draw(struct lab *lab, uint32_t below)
{
	lab->seed = lab->seed * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (uint32_t)(lab->seed >> 33) % below;
}

static inline struct hl_log_settings settings_of(const struct lab *lab, uint64_t file_bytes,
						 uint32_t kept)
{
	return (struct hl_log_settings){lab->fd, PROCESS, START_NS, file_bytes, kept, &names};
}

static inline struct lab *lab_new(uint64_t file_bytes, uint32_t kept)
{
	struct lab *lab = calloc(1, sizeof(*lab));

	assert_int_equal(make_temporary(lab->directory), 0);
	lab->fd = open(lab->directory, O_RDONLY | O_DIRECTORY);
	lab->blocks = calloc(INTERVALS * EVENTS * 4, sizeof(*lab->blocks));
	lab->entries = calloc(INTERVALS * EVENTS * 4, sizeof(*lab->entries));
	lab->seed = 47;
	struct hl_log_settings settings = settings_of(lab, file_bytes, kept);
	assert_int_equal(hl_event_writer_new(&settings, 0, &lab->writer), 0);
	settings = settings_of(lab, UINT64_C(1) << 30, 1);
	assert_int_equal(hl_log_writer_new(&settings, &lab->log), 0);
	return lab;
}

static inline void finish(struct lab *lab)
{
	lab->error = hl_event_writer_finish(lab->writer, true, &lab->missing);
	assert_int_equal(hl_log_writer_finish(lab->log), 0);
	lab->writer = NULL;
	lab->log = NULL;
}

static inline void lab_free(struct lab *lab)
{
	uint64_t missing;

	hl_event_writer_finish(lab->writer, true, &missing);
	hl_log_writer_finish(lab->log);
	hl_intervals_release(&lab->intervals);
	close(lab->fd);
	assert_int_equal(remove_temporary(lab->directory), 0);
	free(lab->blocks);
	free(lab->entries);
	free(lab);
}

static inline void give(struct lab *lab, uint64_t tick, uint32_t thread,
			const struct hl_event *event)
{
	lab->entries[lab->entry_count++] = (struct entry){tick, thread, *event};
	hl_event_writer_run(lab->writer, thread, tick, false);
	hl_event_writer_event(lab->writer, event->node, event->bytes, event->objects);
	hl_intervals_tick(&lab->intervals, tick);
	assert_int_equal(
		hl_intervals_event(&lab->intervals, event->node, event->bytes, event->objects), 0);
}

static inline void allocate(struct lab *lab, uint64_t tick, uint32_t thread)
{
	uint32_t node = 1 + draw(lab, NODES - 1);
	int64_t bytes = draw(lab, 8) ? 16 * (node % 9) : draw(lab, 100000);

	lab->blocks[lab->block_count++] = (struct block){node, bytes, tick, UINT64_MAX};
	give(lab, tick, thread, &(struct hl_event){bytes, 1, node, false});
}

static inline void release(struct lab *lab, uint64_t tick, uint32_t thread)
{
	struct block *block = &lab->blocks[draw(lab, (uint32_t)lab->block_count)];

	if (block->died != UINT64_MAX)
		return;
	block->died = tick;
	give(lab, tick, thread, &(struct hl_event){-block->bytes, -1, block->node, true});
}

static inline void end_interval(struct lab *lab, uint64_t number)
{
	struct hl_log_interval interval;

	assert_int_equal(hl_intervals_end(&lab->intervals, number + 1, &interval), 0);
	hl_event_writer_interval(lab->writer, number + 1);
	assert_int_equal(hl_log_writer_interval(lab->log, &interval, 1, 0), 0);
}

/* An interval of random events; every tenth has none. */
static inline void fill_interval(struct lab *lab, uint64_t number)
{
	for (uint64_t i = 0; number % 10 != 9 && i < HL_INTERVAL_TICKS; i++) {
		uint64_t tick = number * HL_INTERVAL_TICKS + i;
		uint32_t thread = draw(lab, THREADS);
		for (uint32_t left = draw(lab, 2 * EVENTS / HL_INTERVAL_TICKS + 1); left; left--) {
			allocate(lab, tick, thread);
			release(lab, tick, thread);
		}
	}
	end_interval(lab, number);
}

static inline struct lab *filled_lab(uint64_t file_bytes, uint32_t kept)
{
	struct lab *lab = lab_new(file_bytes, kept);

	for (uint64_t i = 0; i < INTERVALS; i++)
		fill_interval(lab, i);
	finish(lab);
	assert_int_equal(lab->error, 0);
	assert_int_equal(lab->missing, 0);
	return lab;
}

static inline struct hl_event_log *open_log(const struct lab *lab)
{
	struct hl_event_log *log;
	struct hl_error err = {0};

	if (open_events_in(lab->directory, PROCESS, NULL, &log, &err) < 0)
		fail_msg("%s", err.text);
	return log;
}

/* ---- what is read, beside the ledger ---- */

#define PARTS_MAX 200

/* The entries of each part, and where in the ledger they are. */
struct reading {
	const struct lab *lab;
	const struct hl_event_log *log;
	size_t first[PARTS_MAX], count[PARTS_MAX]; /* entries */
};

static inline size_t first_entry(const struct lab *lab, uint64_t interval)
{
	size_t at = 0;

	while (at < lab->entry_count && lab->entries[at].tick < interval * HL_INTERVAL_TICKS)
		at++;
	return at;
}

static inline int begin_part(void *context, size_t part, const struct hl_log_state *state)
{
	struct reading *reading = context;
	int64_t bytes[NODES] = {0}, objects[NODES] = {0};

	assert_true(part < PARTS_MAX);
	reading->first[part] = first_entry(reading->lab, reading->log->parts[part].first_interval);
	for (size_t i = 0; i < reading->first[part]; i++) {
		const struct hl_event *event = &reading->lab->entries[i].event;
		bytes[event->node] += event->bytes;
		objects[event->node] += event->objects;
	}
	for (size_t i = 1; i < NODES; i++) {
		assert_int_equal(i < state->node_count ? state->bytes[i] : 0, bytes[i]);
		assert_int_equal(i < state->node_count ? state->objects[i] : 0, objects[i]);
	}
	return 0;
}

static inline int visit_run(void *context, size_t part, const struct hl_event_run *run)
{
	struct reading *reading = context;

	assert_in_range(run->count, 1, HL_EVENTS_MAX);
	for (size_t i = 0; i < run->count; i++) {
		size_t at = reading->first[part] + reading->count[part]++;
		const struct entry *entry = &reading->lab->entries[at];
		assert_true(at < reading->lab->entry_count);
		assert_int_equal(run->tick, entry->tick);
		assert_int_equal(run->thread, entry->thread);
		assert_int_equal(run->events[i].node, entry->event.node);
		assert_int_equal(run->events[i].bytes, entry->event.bytes);
		assert_int_equal(run->events[i].objects, entry->event.objects);
		assert_int_equal(run->events[i].is_free, entry->event.is_free);
	}
	return 0;
}

static inline int end_part(void *context, size_t part, const struct hl_log_state *state)
{
	const struct reading *reading = context;

	for (size_t i = 0; i < reading->count[part]; i++) {
		uint32_t node = reading->lab->entries[reading->first[part] + i].event.node;
		for (; node; node = state->nodes[node].parent) {
			assert_true(node < state->node_count && state->nodes[node].defined);
			assert_int_equal(state->nodes[node].frame & 0xffff, 0x1000 + node);
		}
	}
	return 0;
}

/* Compares all that is read with the ledger; returns how many events there were. */
static inline size_t compare(const struct lab *lab, const struct hl_event_log *log, unsigned jobs)
{
	static struct reading reading;
	struct hl_error err = {0};
	size_t count = 0;

	reading = (struct reading){.lab = lab, .log = log};
	const struct hl_event_fold fold = {&reading, begin_part, visit_run, end_part};
	if (hl_event_log_read(log, 0, log->part_count - 1, &(struct hl_log_options){.jobs = jobs},
			      &fold, &err) < 0)
		fail_msg("%s", err.text);
	for (size_t i = 0; i < log->part_count; i++)
		count += reading.count[i];
	return count;
}

/* The files of events, oldest first; to be freed. */
static inline struct hl_log_file *list_files(const struct lab *lab, size_t *ret_count)
{
	HL_CLEANUP(hl_log_place_release) struct hl_log_place place = HL_LOG_PLACE_NONE;

	assert_int_equal(hl_log_place_open_directory(&place, lab->directory, NULL), 0);
	const struct hl_log_file *files =
		hl_log_place_find(&place, &hl_log_event_files, PROCESS, ret_count);
	struct hl_log_file *copy = calloc(*ret_count + 1, sizeof(*copy));
	assert_non_null(copy);
	memcpy(copy, files, *ret_count * sizeof(*copy));
	return copy;
}
