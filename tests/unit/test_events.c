/* SPDX-License-Identifier: BSD-2-Clause */
/* Kept events read back are those that happened, however the files were cut, and whatever is gone;
 * what is said of them is what a ledger says. */
#include "log/event_reader.h"
#include "log/event_writer.h"
#include "log/log_files.h"
#include "profile/event_lifetimes.h"
#include "profile/event_replay.h"
#include "profile/event_summary.h"
#include "recording/recording.h"
#include "view/view.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "fail_allocations.h"

#define NODES	  400
#define THREADS	  3
#define INTERVALS 120
#define EVENTS	  200 /* of an interval, on average */
#define PROCESS	  3
#define START_NS  UINT64_C(1767225600000000000)
#define ALL	  ((struct hl_event_range){0, INTERVALS * HL_INTERVAL_TICKS})

/* ---- names: node i lies below node i / 2 ---- */

static bool name_node(const struct hl_log_names *names, uint32_t node, uint64_t *ret_frame,
		      uint32_t *ret_parent)
{
	(void)names;
	*ret_frame = UINT64_C(1) << 48 | (0x1000 + node);
	*ret_parent = node / 2;
	return true;
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
	*ret_module = (struct hl_log_module){.path = "/lib/a.so", .start = module, .end = 0x9000};
	return true;
}

static const struct hl_log_names names = {name_node, count_modules, name_module};

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

static uint32_t draw(struct lab *lab, uint32_t below)
{
	lab->seed = lab->seed * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (uint32_t)(lab->seed >> 33) % below;
}

static struct hl_log_settings settings_of(const struct lab *lab, uint64_t file_bytes, uint32_t kept)
{
	return (struct hl_log_settings){lab->fd, PROCESS, START_NS, file_bytes, kept, &names};
}

static struct lab *lab_new(uint64_t file_bytes, uint32_t kept)
{
	struct lab *lab = calloc(1, sizeof(*lab));

	strcpy(lab->directory, "/tmp/heapline-events-XXXXXX");
	assert_non_null(mkdtemp(lab->directory));
	lab->fd = open(lab->directory, O_RDONLY | O_DIRECTORY);
	lab->blocks = calloc(INTERVALS * EVENTS * 4, sizeof(*lab->blocks));
	lab->entries = calloc(INTERVALS * EVENTS * 4, sizeof(*lab->entries));
	lab->seed = 47;
	struct hl_log_settings settings = settings_of(lab, file_bytes, kept);
	assert_int_equal(hl_event_writer_new(&settings, &lab->writer), 0);
	settings = settings_of(lab, UINT64_C(1) << 30, 1);
	assert_int_equal(hl_log_writer_new(&settings, &lab->log), 0);
	return lab;
}

static void finish(struct lab *lab)
{
	lab->error = hl_event_writer_finish(lab->writer, &lab->missing);
	assert_int_equal(hl_log_writer_finish(lab->log), 0);
	lab->writer = NULL;
	lab->log = NULL;
}

static void lab_free(struct lab *lab)
{
	char command[128];
	uint64_t missing;

	hl_event_writer_finish(lab->writer, &missing);
	hl_log_writer_finish(lab->log);
	hl_intervals_release(&lab->intervals);
	close(lab->fd);
	snprintf(command, sizeof(command), "rm -rf '%s'", lab->directory);
	assert_int_equal(system(command), 0);
	free(lab->blocks);
	free(lab->entries);
	free(lab);
}

static void give(struct lab *lab, uint64_t tick, uint32_t thread, const struct hl_event *event)
{
	lab->entries[lab->entry_count++] = (struct entry){tick, thread, *event};
	hl_event_writer_run(lab->writer, thread, tick, false);
	hl_event_writer_event(lab->writer, event->node, event->bytes, event->objects);
	hl_intervals_tick(&lab->intervals, tick);
	assert_int_equal(
		hl_intervals_event(&lab->intervals, event->node, event->bytes, event->objects), 0);
}

static void allocate(struct lab *lab, uint64_t tick, uint32_t thread)
{
	uint32_t node = 1 + draw(lab, NODES - 1);
	int64_t bytes = draw(lab, 8) ? 16 * (node % 9) : draw(lab, 100000);

	lab->blocks[lab->block_count++] = (struct block){node, bytes, tick, UINT64_MAX};
	give(lab, tick, thread, &(struct hl_event){bytes, 1, node, false});
}

static void release(struct lab *lab, uint64_t tick, uint32_t thread)
{
	struct block *block = &lab->blocks[draw(lab, (uint32_t)lab->block_count)];

	if (block->died != UINT64_MAX)
		return;
	block->died = tick;
	give(lab, tick, thread, &(struct hl_event){-block->bytes, -1, block->node, true});
}

static void end_interval(struct lab *lab, uint64_t number)
{
	struct hl_log_interval interval;

	assert_int_equal(hl_intervals_end(&lab->intervals, number + 1, &interval), 0);
	hl_event_writer_interval(lab->writer, number + 1);
	assert_int_equal(hl_log_writer_interval(lab->log, &interval, 1, 0), 0);
}

/* An interval of random events; every tenth has none. */
static void fill_interval(struct lab *lab, uint64_t number)
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

static struct lab *filled_lab(uint64_t file_bytes, uint32_t kept)
{
	struct lab *lab = lab_new(file_bytes, kept);

	for (uint64_t i = 0; i < INTERVALS; i++)
		fill_interval(lab, i);
	finish(lab);
	assert_int_equal(lab->error, 0);
	assert_int_equal(lab->missing, 0);
	return lab;
}

static struct hl_event_log *open_log(const struct lab *lab)
{
	struct hl_event_log *log;
	struct hl_error err = {0};

	if (hl_event_log_open(lab->directory, PROCESS, NULL, &log, &err) < 0)
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

static size_t first_entry(const struct lab *lab, uint64_t interval)
{
	size_t at = 0;

	while (at < lab->entry_count && lab->entries[at].tick < interval * HL_INTERVAL_TICKS)
		at++;
	return at;
}

static int begin_part(void *context, size_t part, const struct hl_log_state *state)
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

static int visit_run(void *context, size_t part, const struct hl_event_run *run)
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

static int end_part(void *context, size_t part, const struct hl_log_state *state)
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
static size_t compare(const struct lab *lab, const struct hl_event_log *log, unsigned jobs)
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

static void events_read_back_are_those_written_in_their_order(void **test)
{
	struct lab *lab = filled_lab(4096, 1000);
	struct hl_event_log *log = open_log(lab);

	(void)test;
	assert_true(log->file_count > 10);
	assert_true(log->part_count >= log->file_count);
	assert_false(log->cut_off);
	assert_int_equal(log->missing_events, 0);
	assert_true(lab->entry_count > INTERVALS * EVENTS / 2);
	assert_int_equal(compare(lab, log, 1), lab->entry_count);
	assert_int_equal(compare(lab, log, 4), lab->entry_count);
	hl_event_log_free(log);
	lab_free(lab);
}

static off_t size_of_file(const char *path)
{
	struct stat status;

	assert_int_equal(stat(path, &status), 0);
	return status.st_size;
}

/* Intervals alike, so that what comes next is known. */
static void files_end_before_they_are_too_large(void **test)
{
	const off_t limit = 8192;
	struct lab *lab = lab_new((uint64_t)limit, 1000);
	char pattern[96];
	glob_t found;

	(void)test;
	for (uint64_t i = 0; i < INTERVALS; i++) {
		for (uint64_t event = 0; i % 5 && event < 2 * EVENTS; event++)
			allocate(lab, i * HL_INTERVAL_TICKS, 0);
		end_interval(lab, i);
	}
	finish(lab);
	snprintf(pattern, sizeof(pattern), "%s/events-*", lab->directory);
	assert_int_equal(glob(pattern, 0, NULL, &found), 0);
	assert_true(found.gl_pathc > 5);
	for (size_t i = 0; i < found.gl_pathc; i++) {
		assert_true(size_of_file(found.gl_pathv[i]) <= limit);
		assert_true(i + 1 == found.gl_pathc || size_of_file(found.gl_pathv[i]) > limit / 2);
	}
	globfree(&found);
	lab_free(lab);
}

static void large_files_have_parts_that_are_read_alone(void **test)
{
	struct lab *lab = lab_new(UINT64_C(1) << 30, 10);

	(void)test;
	lab->entries = realloc(lab->entries, 4000000 * sizeof(*lab->entries));
	for (uint64_t number = 0; number < 40; number++) {
		for (uint32_t i = 0; i < 100000; i++)
			give(lab, number * HL_INTERVAL_TICKS, i / 5000 % 2,
			     &(struct hl_event){i, 1, 1 + i % 7, false});
		end_interval(lab, number);
	}
	finish(lab);
	struct hl_event_log *log = open_log(lab);
	assert_int_equal(log->file_count, 1);
	assert_in_range(log->part_count, 2, PARTS_MAX);
	assert_int_equal(compare(lab, log, 2), lab->entry_count);
	hl_event_log_free(log);
	lab_free(lab);
}

static void events_of_any_size_and_weight_come_back(void **test)
{
	static const struct hl_event events[] = {
		{0, 1, 1, false},
		{0, -1, 1, true},
		{(INT64_C(1) << 37) - 1, 1, 2, false},
		{INT64_C(1) << 37, 1, 2, false},
		{INT64_MAX, 1, 3, false},
		{-INT64_MAX, -1, 3, true},
		{524288, 17, 4, false},
		{-524288, -17, 4, true},
		{-4096, 0, 5, true},
		{4096, 0, 5, false},
		{4096, UINT32_MAX, NODES - 1, false},
	};
	struct lab *lab = lab_new(UINT64_C(1) << 20, 10);

	(void)test;
	for (uint32_t i = 0; i < 2000; i++)
		give(lab, i / 11, i % 11, &events[i % HL_COUNT_OF(events)]);
	finish(lab);
	struct hl_event_log *log = open_log(lab);
	assert_int_equal(compare(lab, log, 1), lab->entry_count);
	hl_event_log_free(log);
	lab_free(lab);
}

/* Each thread and tick a run of its own: pieces end when these are too many. */
static void many_short_runs_come_back(void **test)
{
	struct lab *lab = lab_new(UINT64_C(1) << 20, 10);

	(void)test;
	for (uint32_t i = 0; i < HL_EVENT_RUNS_MAX * 5 / 4; i++)
		give(lab, i / 1000, i % 1000, &(struct hl_event){24, 1, 1 + i % 50, false});
	finish(lab);
	struct hl_event_log *log = open_log(lab);
	assert_int_equal(compare(lab, log, 1), lab->entry_count);
	hl_event_log_free(log);
	lab_free(lab);
}

/* ---- files that are gone, cut off, or damaged ---- */

static void old_files_are_deleted_and_the_rest_is_read(void **test)
{
	struct lab *lab = filled_lab(4096, 3);
	struct hl_event_log *log = open_log(lab);

	(void)test;
	assert_int_equal(log->file_count, 3);
	assert_true(log->parts[0].first_interval > 0);
	assert_int_equal(compare(lab, log, 2),
			 lab->entry_count - first_entry(lab, log->parts[0].first_interval));
	hl_event_log_free(log);
	lab_free(lab);
}

static struct hl_log_file_list list_files(const struct lab *lab)
{
	struct hl_log_file_list list = {0};

	assert_int_equal(hl_log_files_list(lab->fd, &hl_log_event_files, PROCESS, &list), 0);
	return list;
}

static void what_is_before_a_gap_is_left_out(void **test)
{
	struct lab *lab = filled_lab(4096, 1000);
	struct hl_log_file_list list = list_files(lab);

	(void)test;
	unlinkat(lab->fd, list.items[4].name, 0);
	struct hl_event_log *log = open_log(lab);
	assert_int_equal(log->file_count, list.count - 5);
	assert_int_equal(log->ignored_count, 4);
	compare(lab, log, 2);
	hl_event_log_free(log);
	free(list.items);
	lab_free(lab);
}

static void a_file_cut_off_anywhere_is_read_up_to_its_last_whole_piece(void **test)
{
	struct lab *lab = filled_lab(UINT64_C(1) << 30, 10);
	struct hl_log_file_list list = list_files(lab);
	int fd = openat(lab->fd, list.items[0].name, O_RDWR);
	off_t size = lseek(fd, 0, SEEK_END);
	size_t before = lab->entry_count;
	struct hl_event_log *log;

	(void)test;
	assert_int_equal(list.count, 1);
	for (off_t length = size - 1; length >= 0; length -= 1 + length / 300) {
		assert_int_equal(ftruncate(fd, length), 0);
		if (hl_event_log_open(lab->directory, PROCESS, NULL, &log, NULL) < 0)
			continue;
		assert_true(log->cut_off);
		size_t count = compare(lab, log, 1);
		assert_true(count <= before);
		before = count;
		hl_event_log_free(log);
	}
	assert_true(before < lab->entry_count / 10);
	close(fd);
	free(list.items);
	lab_free(lab);
}

static void flip_byte(int fd, off_t at)
{
	uint8_t byte;

	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 0x10;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
}

static int count_run(void *context, size_t part, const struct hl_event_run *run)
{
	(void)part;
	*(uint64_t *)context += run->count;
	return 0;
}

/* Whatever is damaged, it is never read as something else. */
static void damage_is_found_out(void **test)
{
	struct lab *lab = filled_lab(16384, 1000);
	struct hl_log_file_list list = list_files(lab);
	int fd = openat(lab->fd, list.items[1].name, O_RDWR);
	off_t size = lseek(fd, 0, SEEK_END);
	unsigned errors = 0;

	(void)test;
	for (off_t at = 0; at < size; at += 97) {
		struct hl_event_log *log;
		struct hl_error err = {0};
		uint64_t count = 0;
		const struct hl_event_fold fold = {.context = &count, .visit = count_run};
		flip_byte(fd, at);
		log = open_log(lab); /* the files after it are whole */
		int r = hl_event_log_read(log, 0, log->part_count - 1,
					  &(struct hl_log_options){.jobs = 1}, &fold, &err);
		assert_true(r == 0 || (r == -EBADMSG && err.text[0]));
		if (r == 0 && !log->ignored_count)
			assert_int_equal(count, lab->entry_count);
		errors += r < 0 || log->ignored_count;
		hl_event_log_free(log);
		flip_byte(fd, at);
	}
	assert_true(errors > size / 97 / 2);
	close(fd);
	free(list.items);
	lab_free(lab);
}

static void no_events_and_other_files_are_told_apart(void **test)
{
	struct lab *lab = lab_new(4096, 10);
	struct hl_event_log *log;
	struct hl_error err = {0};

	(void)test;
	finish(lab);
	assert_int_equal(hl_event_log_open(lab->directory, PROCESS, NULL, &log, &err), -ENOENT);
	assert_non_null(strstr(err.text, "--events"));
	err.text[0] = '\0';
	int fd = openat(lab->fd, "events-3-20260101T000000-000001.hle", O_WRONLY | O_CREAT, 0600);
	for (int i = 0; i < 100; i++)
		assert_int_equal(write(fd, "#!/bin/sh\n", 10), 10);
	close(fd);
	assert_int_equal(hl_event_log_open(lab->directory, PROCESS, NULL, &log, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "no file of events"));
	lab_free(lab);
}

/* ---- want of room ---- */

static void limit_files(rlim_t bytes)
{
	struct rlimit limit;

	getrlimit(RLIMIT_FSIZE, &limit);
	limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
	setrlimit(RLIMIT_FSIZE, &limit);
}

/* Its thread has at most so many batches before it; so it comes to the later ones meanwhile. */
static void write_batches(struct lab *lab, uint64_t number, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		give(lab, number * HL_INTERVAL_TICKS, 0, &(struct hl_event){24, 1, 7, false});
		hl_event_writer_flush(lab->writer);
	}
}

static void a_full_disk_loses_events_and_says_how_many(void **test)
{
	struct lab *lab = lab_new(UINT64_C(1) << 30, 10);

	(void)test;
	signal(SIGXFSZ, SIG_IGN);
	for (uint64_t i = 0; i < 10; i++)
		fill_interval(lab, i);
	write_batches(lab, 10, 20);
	limit_files(1);
	write_batches(lab, 10, 20);
	limit_files(RLIM_INFINITY);
	struct hl_log_interval interval;
	assert_int_equal(hl_intervals_end(&lab->intervals, 11, &interval), 0);
	hl_event_writer_interval(lab->writer, 11);
	assert_int_equal(hl_log_writer_interval(lab->log, &interval, 1, 0), 0);
	for (uint64_t i = 11; i < 30; i++)
		fill_interval(lab, i);
	finish(lab);
	assert_int_equal(lab->error, -EFBIG);
	assert_true(lab->missing >= 10);
	struct hl_event_log *log = open_log(lab);
	assert_int_equal(log->missing_events, lab->missing);
	assert_int_equal(compare(lab, log, 2) + lab->missing, lab->entry_count);
	hl_event_log_free(log);
	lab_free(lab);
}

static void events_for_which_no_file_can_be_made_are_counted(void **test)
{
	struct lab *lab = lab_new(1, 100); /* each interval begins a file */
	int nowhere = open("/dev/null", O_RDONLY);

	(void)test;
	for (uint64_t i = 0; i < 10; i++)
		fill_interval(lab, i);
	write_batches(lab, 10, 20); /* more than there can be on their way: the files are there */
	assert_int_equal(dup2(nowhere, lab->fd), lab->fd);
	for (uint64_t i = 10; i < 20; i++)
		fill_interval(lab, i);
	finish(lab);
	assert_int_equal(lab->error, -ENOTDIR);
	assert_true(lab->missing >= 9 * EVENTS);
	struct hl_event_log *log = open_log(lab);
	assert_int_equal(log->missing_events, lab->missing);
	assert_false(log->cut_off);
	assert_int_equal(compare(lab, log, 1) + lab->missing, lab->entry_count);
	hl_event_log_free(log);
	close(nowhere);
	lab_free(lab);
}

static void events_go_on_in_another_file_when_theirs_is_deleted(void **test)
{
	struct lab *lab = lab_new(UINT64_C(1) << 30, 10);
	char command[128];

	(void)test;
	for (uint64_t i = 0; i < 10; i++)
		fill_interval(lab, i);
	write_batches(lab, 10, 20); /* more than there can be on their way: the file is there */
	snprintf(command, sizeof(command), "rm %s/events-*", lab->directory);
	assert_int_equal(system(command), 0);
	fill_interval(lab, 10);
	size_t before = lab->entry_count;
	for (uint64_t i = 11; i < 20; i++)
		fill_interval(lab, i);
	finish(lab);
	assert_int_equal(lab->missing, 0);
	struct hl_event_log *log = open_log(lab);
	assert_int_equal(log->file_count, 1);
	assert_int_equal(compare(lab, log, 1), lab->entry_count - before);
	hl_event_log_free(log);
	lab_free(lab);
}

/* A thread that is busy with the first node until somebody has waited for it. */
struct busy {
	struct hl_log_names base;
	sem_t go_on;
	unsigned waits;
};

static bool name_node_slowly(const struct hl_log_names *base, uint32_t node, uint64_t *ret_frame,
			     uint32_t *ret_parent)
{
	struct busy *busy = (struct busy *)(uintptr_t)base;

	sem_wait(&busy->go_on);
	sem_post(&busy->go_on);
	return name_node(base, node, ret_frame, ret_parent);
}

static void let_go_on(void *context)
{
	struct busy *busy = context;

	if (++busy->waits == 3)
		sem_post(&busy->go_on);
}

static void who_adds_events_waits_for_a_thread_that_does_not_keep_up(void **test)
{
	struct busy busy = {.base = {name_node_slowly, count_modules, name_module}};
	struct lab *lab = lab_new(UINT64_C(1) << 30, 10);
	uint64_t missing;

	(void)test;
	sem_init(&busy.go_on, 0, 0);
	hl_event_writer_finish(lab->writer, &missing);
	struct hl_log_settings settings = settings_of(lab, UINT64_C(1) << 30, 10);
	settings.names = &busy.base;
	assert_int_equal(hl_event_writer_new(&settings, &lab->writer), 0);
	lab->writer->while_waiting = let_go_on;
	lab->writer->context = &busy;
	write_batches(lab, 0, 40);
	assert_true(busy.waits >= 3);
	finish(lab);
	assert_int_equal(lab->missing, 0);
	struct hl_event_log *log = open_log(lab);
	assert_int_equal(compare(lab, log, 1), 40);
	hl_event_log_free(log);
	sem_destroy(&busy.go_on);
	lab_free(lab);
}

static void count_wait(void *context)
{
	++*(unsigned *)context;
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Else the drain, which counts ticks while it waits, would get ahead of time. */
static void no_more_waits_are_told_than_milliseconds_have_passed(void **test)
{
	struct lab *lab = lab_new(UINT64_C(1) << 30, 10);
	unsigned waits = 0;

	(void)test;
	lab->writer->while_waiting = count_wait;
	lab->writer->context = &waits;
	uint64_t begin_ms = now_ms();
	write_batches(lab, 0, 2000);
	assert_true(waits <= now_ms() - begin_ms + 1);
	finish(lab);
	assert_int_equal(lab->missing, 0);
	lab_free(lab);
}

static int start_and_stop(const struct lab *lab)
{
	struct hl_log_settings settings = settings_of(lab, 4096, 10);
	struct hl_event_writer *writer;
	uint64_t missing;

	int r = hl_event_writer_new(&settings, &writer);
	return r < 0 ? r : hl_event_writer_finish(writer, &missing);
}

static int read_all(const struct lab *lab)
{
	const struct hl_log_options options = {.jobs = 1};
	struct hl_event_lifetimes lifetimes = {0};
	struct hl_event_summary *summary = calloc(1, sizeof(*summary));
	struct hl_event_range all = ALL;
	struct hl_event_log *log = NULL;

	int r = summary ? hl_event_log_open(lab->directory, PROCESS, &options, &log, NULL)
			: -ENOMEM;
	if (r == 0)
		r = hl_event_summary_read(summary, log, &all, &options, NULL);
	if (r == 0)
		r = hl_event_lifetimes_read(&lifetimes, log, &all, &options, NULL);
	if (summary)
		hl_event_summary_release(summary);
	free(summary);
	hl_event_lifetimes_release(&lifetimes);
	hl_event_log_free(log);
	return r;
}

static void write_recording(struct lab *lab)
{
	static char *command[] = {"app", NULL};
	struct hl_recording_process process = {
		.pid = 77,
		.sequence = PROCESS,
		.executable = "/none/app",
		.command = command,
		.start_realtime_ns = START_NS,
		.complete = true,
		.end = HL_END_EXITED,
	};
	struct hl_recording recording = {
		.name = lab->directory,
		.format_version = 1,
		.tool_version = "0",
		.command = command,
		.host = "here",
		.kernel = "Linux",
		.mode = "log-fast",
		.start_realtime_ns = START_NS,
		.complete = true,
		.processes = &process,
		.process_count = 1,
	};
	struct hl_error err;

	assert_int_equal(hl_recording_write_meta(lab->fd, &recording, &err), 0);
	assert_int_equal(hl_recording_write_process(lab->fd, &process, &err), 0);
}

static int show(const struct lab *lab, enum hl_view_events report, bool json)
{
	struct hl_profile_selection selection = {.jobs = 1};
	struct hl_history_range range = HL_HISTORY_ALL;
	FILE *null = fopen("/dev/null", "w");
	struct hl_view_options options = {.out = null,
					  .notes = null,
					  .events = report,
					  .stacks = true,
					  .row_limit = 20,
					  .json = json};
	struct hl_history *history = NULL;
	struct hl_error err = {0};

	int r = hl_history_open(lab->directory, &selection, &range, &history, &err);
	if (r == 0)
		r = hl_view_events(history, &options, &err);
	hl_history_free(history);
	if (null)
		fclose(null);
	assert_true(r == 0 || err.text[0]);
	return r;
}

static void every_report_fails_for_want_of_memory_with_a_sentence(void **test)
{
	struct lab *lab = lab_new(UINT64_C(1) << 20, 10);

	(void)test;
	write_recording(lab);
	for (uint64_t i = 0; i < 5; i++)
		fill_interval(lab, i);
	finish(lab);
	for (int report = HL_VIEW_EVENTS_SUMMARY; report <= HL_VIEW_EVENTS_REPLAY; report++)
		for (int json = 0; json < 2; json++)
			FOR_EACH_FAILING_ALLOCATION(r, show(lab, (enum hl_view_events)report, json))
	assert_int_equal(r, -ENOMEM);
	lab_free(lab);
}

static void want_of_memory_is_an_error_wherever_it_strikes(void **test)
{
	struct lab *lab = lab_new(UINT64_C(1) << 20, 10);

	(void)test;
	for (uint64_t i = 0; i < 5; i++)
		fill_interval(lab, i);
	finish(lab);
	FOR_EACH_FAILING_ALLOCATION(r, start_and_stop(lab))
	assert_int_equal(r, -ENOMEM);
	FOR_EACH_FAILING_ALLOCATION(r, read_all(lab))
	assert_int_equal(r, -ENOMEM);
	lab_free(lab);
}

/* ---- what is said of events ---- */

static void the_summary_adds_up_what_the_ledger_has(void **test)
{
	struct lab *lab = filled_lab(4096, 1000);
	struct hl_event_log *log = open_log(lab);
	struct hl_event_range range = {1250, 7777};
	struct hl_event_figures total = {0}, threads[THREADS] = {0};

	(void)test;
	for (size_t i = 0; i < lab->entry_count; i++) {
		const struct entry *entry = &lab->entries[i];
		if (entry->tick < range.first || entry->tick >= range.end)
			continue;
		total.events++;
		total.alloc_bytes += entry->event.is_free ? 0 : entry->event.bytes;
		total.frees += entry->event.is_free;
		threads[entry->thread].events++;
	}
	for (unsigned jobs = 1; jobs < 5; jobs += 3) {
		struct hl_event_summary summary = {0};
		assert_int_equal(hl_event_summary_read(&summary, log, &range,
						       &(struct hl_log_options){.jobs = jobs},
						       NULL),
				 0);
		assert_int_equal(summary.total.events, total.events);
		assert_int_equal(summary.total.alloc_bytes, total.alloc_bytes);
		assert_int_equal(summary.total.frees, total.frees);
		assert_int_equal(summary.thread_count, THREADS);
		for (size_t i = 0; i < THREADS; i++)
			assert_int_equal(summary.threads[i].events, threads[i].events);
		assert_int_equal(summary.tick_count, HL_EVENT_TICKS_MAX);
		for (size_t i = 1; i < summary.tick_count; i++)
			assert_true(summary.ticks[i].figures.events <=
				    summary.ticks[i - 1].figures.events);
		hl_event_summary_release(&summary);
	}
	hl_event_log_free(log);
	lab_free(lab);
}

/* The sum of the lifetimes of each node's blocks within the range, block by block. */
static void sum_lifetimes(const struct lab *lab, const struct hl_event_range *range, int64_t *sums,
			  int64_t *seen)
{
	for (size_t i = 0; i < lab->block_count; i++) {
		const struct block *block = &lab->blocks[i];
		uint64_t from = block->born > range->first ? block->born : range->first;
		uint64_t to = block->died < range->end ? block->died : range->end;
		if (block->born >= range->end || block->died < range->first)
			continue;
		/* What dies at the range's first tick is counted there, with no lifetime. */
		sums[block->node] += (int64_t)(to - from);
		seen[block->node]++;
	}
}

static void lifetimes_are_the_sums_over_blocks_that_nobody_told_apart(void **test)
{
	struct lab *lab = filled_lab(4096, 1000);
	struct hl_event_log *log = open_log(lab);
	static const struct hl_event_range ranges[] = {
		{0, INTERVALS * HL_INTERVAL_TICKS}, {1234, 9876}, {5000, 5001}, {3000, 3100}};

	(void)test;
	for (size_t at = 0; at < HL_COUNT_OF(ranges); at++) {
		struct hl_event_lifetimes lifetimes = {0};
		int64_t sums[NODES] = {0}, seen[NODES] = {0};
		sum_lifetimes(lab, &ranges[at], sums, seen);
		assert_int_equal(hl_event_lifetimes_read(&lifetimes, log, &ranges[at],
							 &(struct hl_log_options){.jobs = 3}, NULL),
				 0);
		for (size_t i = 1; i < NODES; i++) {
			const struct hl_event_lifetime none = {0};
			const struct hl_event_lifetime *node =
				i < lifetimes.node_count ? &lifetimes.nodes[i] : &none;
			assert_int_equal(node->area, sums[i]);
			assert_int_equal(hl_event_lifetime_seen(node), seen[i]);
		}
		hl_event_lifetimes_release(&lifetimes);
	}
	hl_event_log_free(log);
	lab_free(lab);
}

static void replay_range(const struct lab *lab, unsigned jobs, struct hl_event_range range,
			 struct hl_event_replay *ret_replay)
{
	const struct hl_log_options options = {.jobs = jobs};
	struct hl_event_log *events = open_log(lab);
	struct hl_log *log;
	struct hl_error err = {0};

	assert_int_equal(hl_log_open(lab->directory, PROCESS, &options, &log, NULL), 0);
	if (hl_event_replay(events, log, &range, &options, ret_replay, &err) < 0)
		fail_msg("%s", err.text);
	hl_log_free(log);
	hl_event_log_free(events);
}

static void replay(const struct lab *lab, unsigned jobs, struct hl_event_replay *ret_replay)
{
	replay_range(lab, jobs, ALL, ret_replay);
}

static void replayed_events_tell_the_same_as_the_log(void **test)
{
	struct lab *lab = filled_lab(4096, 1000);
	struct hl_event_replay result;

	(void)test;
	for (unsigned jobs = 1; jobs < 5; jobs += 3) {
		replay(lab, jobs, &result);
		assert_int_equal(result.events, lab->entry_count);
		assert_int_equal(result.compared, INTERVALS);
		assert_int_equal(result.uncertain, 0);
		assert_int_equal(result.different, 0);
		assert_int_equal(result.different_stacks, 0);
		assert_true(result.states > 10);
	}
	lab_free(lab);
}

/* As a dump of the range lists them, though replaying begins before it. */
static void replay_counts_the_events_of_its_range(void **test)
{
	struct lab *lab = filled_lab(1 << 20, 1000);
	const struct hl_event_range range = {1234, 5678};
	struct hl_event_replay result;
	uint64_t count = 0;

	(void)test;
	for (size_t i = 0; i < lab->entry_count; i++)
		count += lab->entries[i].tick >= range.first && lab->entries[i].tick < range.end;
	replay_range(lab, 2, range, &result);
	assert_int_equal(result.events, count);
	lab_free(lab);
}

static void replay_says_where_events_and_log_differ(void **test)
{
	struct lab *lab = lab_new(4096, 1000);
	struct hl_event_replay result;

	(void)test;
	for (uint64_t i = 0; i < INTERVALS; i++) {
		if (i == 52) /* the log alone knows of it */
			hl_intervals_event(&lab->intervals, 17, 1000003, 1);
		if (i == 54)
			hl_intervals_event(&lab->intervals, 17, -1000003, -1);
		fill_interval(lab, i);
	}
	finish(lab);
	replay(lab, 2, &result);
	assert_in_range(result.different, 1, 3);
	assert_int_equal(result.first[0].number, 52);
	assert_int_equal(result.first[0].log.end_bytes - result.first[0].replayed.end_bytes,
			 1000003);
	lab_free(lab);
}

/* Events that are missing are no difference; what lies between is not compared. */
static void replay_leaves_out_what_is_not_known(void **test)
{
	struct lab *lab = filled_lab(UINT64_C(1) << 30, 10);
	struct hl_log_file_list list = list_files(lab);
	struct hl_event_replay result;
	struct stat status;

	(void)test;
	assert_int_equal(fstatat(lab->fd, list.items[0].name, &status, 0), 0);
	int fd = openat(lab->fd, list.items[0].name, O_RDWR);
	assert_int_equal(ftruncate(fd, status.st_size / 2), 0);
	close(fd);
	replay(lab, 1, &result);
	assert_in_range(result.uncertain, 1, INTERVALS - 1);
	assert_int_equal(result.compared + result.uncertain, INTERVALS);
	assert_int_equal(result.different, 0);
	free(list.items);
	lab_free(lab);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(events_read_back_are_those_written_in_their_order),
		cmocka_unit_test(files_end_before_they_are_too_large),
		cmocka_unit_test(large_files_have_parts_that_are_read_alone),
		cmocka_unit_test(events_of_any_size_and_weight_come_back),
		cmocka_unit_test(many_short_runs_come_back),
		cmocka_unit_test(old_files_are_deleted_and_the_rest_is_read),
		cmocka_unit_test(what_is_before_a_gap_is_left_out),
		cmocka_unit_test(a_file_cut_off_anywhere_is_read_up_to_its_last_whole_piece),
		cmocka_unit_test(damage_is_found_out),
		cmocka_unit_test(no_events_and_other_files_are_told_apart),
		cmocka_unit_test(a_full_disk_loses_events_and_says_how_many),
		cmocka_unit_test(events_for_which_no_file_can_be_made_are_counted),
		cmocka_unit_test(events_go_on_in_another_file_when_theirs_is_deleted),
		cmocka_unit_test(who_adds_events_waits_for_a_thread_that_does_not_keep_up),
		cmocka_unit_test(no_more_waits_are_told_than_milliseconds_have_passed),
		cmocka_unit_test(want_of_memory_is_an_error_wherever_it_strikes),
		cmocka_unit_test(every_report_fails_for_want_of_memory_with_a_sentence),
		cmocka_unit_test(the_summary_adds_up_what_the_ledger_has),
		cmocka_unit_test(lifetimes_are_the_sums_over_blocks_that_nobody_told_apart),
		cmocka_unit_test(replayed_events_tell_the_same_as_the_log),
		cmocka_unit_test(replay_counts_the_events_of_its_range),
		cmocka_unit_test(replay_says_where_events_and_log_differ),
		cmocka_unit_test(replay_leaves_out_what_is_not_known),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
